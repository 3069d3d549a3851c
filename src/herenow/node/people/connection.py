"""One connection of a user's device to this node, as the service sees it: no socket, only ways to send and to end it."""

from __future__ import annotations

from collections.abc import Callable

from herenow.node.people.local_session import LocalSession
from herenow.node.people.outbox import Outbox

NO_ROOMS: frozenset[str] = frozenset()


class Connection:
    __slots__ = ("again_at", "end", "issued_at", "outbox", "rooms", "session", "welcomed")

    def __init__(
        self, session: LocalSession, outbox: Outbox, end: Callable[[int, str], None], issued_at: int, again_at: int = 0
    ) -> None:
        self.session = session
        self.outbox = outbox
        self.end = end
        """Close the socket with a code and a reason."""
        self.issued_at = issued_at
        """When the token it last showed was issued."""
        self.again_at = again_at
        """When it came, if its session may have been signed out before that: we could not know. Otherwise 0."""
        self.rooms = NO_ROOMS
        self.welcomed = False
        """It has been told who it is: the first frame of all."""

    @property
    def user(self) -> str:
        return self.outbox.user
