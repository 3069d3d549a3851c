"""The page for operators at `/dashboard`: how the server is, live.

The page is for anybody and holds nothing; its figures come from `/api/v1/stats`, which asks for a service token except from
this very machine. It is built from `clients/js/dashboard` and kept in `static/dashboard`, with the uPlot that draws its
charts, so that installing herenow never needs Node; a test rebuilds and compares them. The policy in its headers lets it
reach this server and nothing else.
"""

from __future__ import annotations

from starlette.routing import Route

from herenow.api.http.static_files import static_file

FILES = {
    "/dashboard": ("index.html", "text/html"),
    "/dashboard/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard/dashboard.css": ("dashboard.css", "text/css"),
    "/dashboard/uplot.js": ("uplot.js", "text/javascript"),
}


def routes() -> list[Route]:
    return [
        Route(path, static_file("herenow.api", f"dashboard/{name}", media)) for path, (name, media) in FILES.items()
    ]
