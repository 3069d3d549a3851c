"""`herenow serve --demo`: a few users who follow each other, and a page that shows their presence.

The page is built from `clients/js/demo` and uses only the SDK and the public API. The one extra endpoint plays the part of
an application's back end: it hands out user tokens. It serves requests from this machine, and requests with the key of the
printed link; otherwise any host on the network could get a token for any demo user.
"""

from __future__ import annotations

import base64
import hmac
from itertools import permutations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from herenow.api.http.peers import is_local
from herenow.api.http.static_files import static_file
from herenow.errors import ProtocolError
from herenow.node import Node
from herenow.ports import RelationRow
from herenow.transport.auth import Expected, mint

PEOPLE = ("ana", "bo", "chen", "dara")
ROOM = "lobby"
DAY = 86_400.0
HOUR = 3_600.0

FILES = {
    "/": ("index.html", "text/html"),
    "/demo/demo.js": ("demo.js", "text/javascript"),
    "/demo/demo.css": ("demo.css", "text/css"),
}


class Demo:
    def __init__(self, node: Node, secret: str, url: str, expected: Expected) -> None:
        self._node = node
        self._secret = secret
        self._expected = expected
        self._url = url
        # Derived from the secret, so that open pages keep working after a restart.
        digest = hmac.digest(secret.encode(), b"the key of herenow's demo", "sha256")
        self._key = base64.urlsafe_b64encode(digest[:12]).decode()

    async def arrive(self) -> None:
        """Store the relations of the demo users: all follow each other and are members of one room."""
        follows = [RelationRow("follow", a, b) for a, b in permutations(PEOPLE, 2)]
        await self._node.viewing.apply_relations([*follows, *(RelationRow("room", ROOM, person) for person in PEOPLE)])

    def routes(self) -> list[Route]:
        return [
            *(Route(path, static_file("herenow.demo", name, media)) for path, (name, media) in FILES.items()),
            Route("/demo/token/{user}", self.token),
        ]

    async def token(self, request: Request) -> Response:
        """GET /demo/token/{user}: return a token for a demo user, as an application's back end would do after a
        sign-in."""
        given = request.headers.get("x-demo-key", "")
        if not hmac.compare_digest(given.encode(), self._key.encode()) and not _is_at_home(request):
            raise ProtocolError("forbidden", "Open the link that herenow serve --demo has printed.")
        user = request.path_params["user"]
        if user not in PEOPLE:
            raise ProtocolError("not_found", f"The users of the demo are {', '.join(PEOPLE)}.")
        return PlainTextResponse(self._token(user, HOUR), headers={"cache-control": "no-store"})

    def invitation(self) -> str:
        return "\n".join(
            [
                "",
                "Open this in two tabs, and choose another user in each:",
                f"  {self._url}/#key={self._key}",
                "",
                "Tokens for your own experiments, valid for a day: one of a user, and one for the service endpoints",
                f"  {self._token(PEOPLE[0], DAY - 1)}",
                f"  {self._token('demo', DAY - 1, scope='service')}",
            ]
        )

    def _token(self, user: str, ttl: float, scope: str | None = None) -> str:
        now = self._node.context.clock.now() / 1000
        return mint(self._secret, user, scope=scope, ttl=ttl, now=now, expected=self._expected)


def _is_at_home(request: Request) -> bool:
    return is_local(None if request.client is None else request.client.host, request.headers)
