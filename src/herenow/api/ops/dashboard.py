"""The dashboard for operators at `/dashboard`, built from `clients/js/dashboard`.

The page itself needs no token and has no data. It reads `/api/v1/stats`, which requires a service token, except from this
machine.
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
