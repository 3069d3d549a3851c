"""One session as the node that holds it knows it: timestamps in memory that are newer than any stored record.

A heartbeat changes two timestamps here and does nothing else. `docs/objects.md` lists the writer of each field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from herenow.core.model import UNLEASED, Platform, Session
from herenow.core.settle import Held

if TYPE_CHECKING:
    from herenow.node.people.connection import Connection
    from herenow.node.people.people import Person


@dataclass(slots=True, eq=False, repr=False)
class LocalSession:
    person: Person
    device: str
    platform: Platform
    since: int
    seen_at: int
    unleased: bool = False
    """A session by REST heartbeats. It belongs to no node; its deadline is in the record."""
    active_at: int = 0
    beat_at: int = 0
    idle: bool = False
    idle_at: int = 0
    lost_at: int | None = None
    fresh_until: int = 0
    """Activity before this time changes nothing in the record. 0: the record has the session as idle, which any activity
    changes."""
    check_at: int | None = None
    """Time of the session's liveness check in the timer wheel; None: none is scheduled."""
    asserted: int = 0
    """Version of the record that last contained this session as live; 0: unknown, or not committed yet."""
    asserted_by: str = ""
    """Epoch under which the session was committed; empty: never."""
    connections: tuple[Connection, ...] = ()
    issued_at: int = 0
    ended_by_deletion: bool = False

    def facts(self, epoch: str) -> Held:
        """Return this session as an argument of `core.settle`, which computes the user's next record. `epoch`: the
        node's present one. A lost session keeps the epoch under which it was committed, which may be an earlier one."""
        holder = self.asserted_by if self.lost_at is not None and self.asserted_by else epoch
        return Held(
            device=self.device,
            holder=UNLEASED if self.unleased else holder,
            since=self.since,
            seen_at=self.seen_at,
            active_at=self.active_at,
            platform=self.platform,
            idle=self.idle,
            lost_at=self.lost_at,
            asserted=self.asserted,
            asserted_by=self.asserted_by,
            idle_at=self.idle_at if self.idle else None,
        )

    def in_record(self, epoch: str) -> Session | None:
        """Return the entry of this session under `epoch` in the user's record; None: there is none."""
        holder = UNLEASED if self.unleased else epoch
        for session in self.person.record.presence.sessions:
            if session.device == self.device and session.holder == holder:
                return session
        return None

    @property
    def is_committed(self) -> bool:
        """True if the user's record contains this session as live, under the epoch under which it was committed. A
        session of a connection that was never committed also counts: it cannot be missing."""
        if not self.asserted_by and not self.unleased:
            return True
        found = self.in_record(self.asserted_by)
        return found is not None and found.live

    @property
    def must_be_in_record(self) -> bool:
        """True if only this node can have ended this session: if the store does not have it, the store lost data."""
        return not self.unleased and self.lost_at is None and self.asserted > 0 and self.is_committed

    def forget_assertion(self) -> None:
        """Forget that the record contained this session. Call when the store may have lost commits: absence from the
        record then does not mean that the session ended."""
        self.asserted = 0
