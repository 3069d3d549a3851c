"""Files that come with the package: pages, and what they load. Read once, answered as they are.

What is built from `clients/js` is kept beside the code, so that installing herenow never needs Node; a test rebuilds and
compares it. Which files there are, and under which address, is for those who hand them out.
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
"""Headers of a page of ours: it may reach this server and nothing else."""


def static_file(
    package: str, place: str, media: str, headers: Mapping[str, str] = PAGE
) -> Callable[[Request], Awaitable[Response]]:
    """The file at `place` in the package's `static` folder, as an endpoint."""
    body = files(package).joinpath("static", *place.split("/")).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(body, media_type=media, headers=headers)

    return answer
