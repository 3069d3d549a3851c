"""One connection of a user's device to this node: no socket, only functions that send and that close it."""

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
    issued_at: int
    again_at: int = 0
    """When this connection began, if its session may have been signed out before without this node knowing; otherwise 0."""
    rooms: frozenset[str] = NO_ROOMS
    welcomed: bool = False

    @property
    def user(self) -> str:
        return self.outbox.user
