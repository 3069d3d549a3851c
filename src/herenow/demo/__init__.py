"""`herenow serve --demo`: a few people who follow each other, and a page that shows their dots.

Answers: what does a stranger do in the first minute? They open two links. Everything the page does is the public
contract; nothing here has a door of its own.
"""

from __future__ import annotations

from importlib.resources import files
from itertools import permutations

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from herenow.gateway.tokens import Expected, mint
from herenow.ports import RelationRow
from herenow.service.node import Node

PEOPLE = ("ana", "bo", "chen", "dara")
ROOM = "lobby"
DAY = 86_400.0


class Demo:
    def __init__(self, node: Node, secret: str, url: str, expected: Expected) -> None:
        self._node = node
        self._secret = secret
        self._expected = expected
        self._url = url
        self._page = files("herenow.demo").joinpath("page.html").read_text(encoding="utf-8")

    async def arrive(self) -> None:
        """They follow each other and share a room."""
        follows = [RelationRow("follow", a, b) for a, b in permutations(PEOPLE, 2)]
        await self._node.graph.apply([*follows, *(RelationRow("room", ROOM, person) for person in PEOPLE)])

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._page, headers={"cache-control": "no-store"})

    def invitation(self) -> str:
        lines = ["", "Open two of these, side by side (the links hold tokens that are good for a day):"]
        for person in PEOPLE:
            lines.append(f"  {person:<5} {self._url}/#user={person}&token={self._token(person)}")
        lines += ["", "A token for the service endpoints:", f"  {self._token('demo', scope='service')}"]
        return "\n".join(lines)

    def _token(self, user: str, scope: str | None = None) -> str:
        now = self._node.clock.now() / 1000
        return mint(self._secret, user, scope=scope, ttl=DAY - 1, now=now, expected=self._expected)
