"""One connection of a user's device to this node, as the service sees it: no socket, only ways to send and to end it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from herenow.node.people.local_session import LocalSession
from herenow.node.people.outbox import Outbox

NO_ROOMS: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False, repr=False)
class Connection:
    session: LocalSession
    outbox: Outbox
    end: Callable[[int, str], None]
    """Close the socket with a code and a reason."""
    issued_at: int
    """When the token it last showed was issued."""
    again_at: int = 0
    """When it came, if its session may have been signed out before that: we could not know. Otherwise 0."""
    rooms: frozenset[str] = NO_ROOMS
    welcomed: bool = False
    """It has been told who it is: the first frame of all."""

    @property
    def user(self) -> str:
        return self.outbox.user
