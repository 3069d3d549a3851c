"""The page for operators at `/dashboard`: how the server is, live.

The page is for anybody and holds nothing; its figures come from `/api/v1/stats`, which asks for a service token except from
this very machine. It is built from `clients/js/dashboard` and kept in `static/dashboard`, with the uPlot that draws its
charts, so that installing herenow never needs Node; a test rebuilds and compares them. The policy in its headers lets it
reach this server and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES = {
    "/dashboard": ("index.html", "text/html"),
    "/dashboard/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard/dashboard.css": ("dashboard.css", "text/css"),
    "/dashboard/uplot.js": ("uplot.js", "text/javascript"),
}
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def routes() -> list[Route]:
    return [Route(path, _file(name, media)) for path, (name, media) in FILES.items()]


def _file(name: str, media: str) -> Callable[[Request], Awaitable[Response]]:
    body = files("herenow.api").joinpath("static", "dashboard", name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(body, media_type=media, headers=HEADERS)

    return answer
