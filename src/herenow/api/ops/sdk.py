"""Where does a page get the SDK from? From the server it talks to: `/sdk/herenow.js` and the files beside it.

The files are built from `clients/js` and kept in `static/`, so that installing herenow never needs Node; a test rebuilds
and compares them. Which files there are is the only thing known here.
"""

from __future__ import annotations

from starlette.routing import Route

from herenow.api.http.static_files import static_file

NAMES = ("herenow.js", "green-dot.js", "rest.js")
HOUR = 3_600  # seconds: how long a page may use a file without asking; then a new version is fetched
HEADERS = {
    "cache-control": f"public, max-age={HOUR}",
    "x-content-type-options": "nosniff",
    # A browser may give what it kept of our own page's request to a page of another origin, which needs to be let in.
    # Who may connect is decided elsewhere; these files are no secret.
    "access-control-allow-origin": "*",
}


def routes() -> list[Route]:
    return [Route(f"/sdk/{name}", static_file("herenow.api", name, "text/javascript", HEADERS)) for name in NAMES]
