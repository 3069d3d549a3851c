"""Serve files of the package, read once at start.

Files that are built from `clients/js` are in the repository, so that installing herenow does not need Node.js; a test
rebuilds and compares them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

PAGE = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of our pages. A page may load from and connect to this server only."""


def static_file(
    package: str, place: str, media: str, headers: Mapping[str, str] = PAGE
) -> Callable[[Request], Awaitable[Response]]:
    """Read the file at `place` in the package's `static` folder, and return an endpoint that serves it."""
    body = files(package).joinpath("static", *place.split("/")).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(body, media_type=media, headers=headers)

    return answer
