"""The files of the JavaScript SDK at `/sdk/`, built from `clients/js`."""

from __future__ import annotations

from starlette.routing import Route

from herenow.api.http.static_files import static_file

NAMES = ("herenow.js", "green-dot.js", "rest.js")
HOUR = 3_600  # seconds that a browser may cache a file
HEADERS = {
    "cache-control": f"public, max-age={HOUR}",
    "x-content-type-options": "nosniff",
    # A browser may reuse a response that it cached for our own page for a page of another origin, so every response must
    # allow all origins. The files are not secret; `origins` restricts connections.
    "access-control-allow-origin": "*",
}


def routes() -> list[Route]:
    return [Route(f"/sdk/{name}", static_file("herenow.api", name, "text/javascript", HEADERS)) for name in NAMES]
