"""What truly happened, as the clients of a `Scene` know it, and how late others may learn of it.

The notes of a `Checker`, which compares them with what is shown. Another promise about how soon something is known is
the reason to change this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herenow.core.machine import Timings
from herenow.service.healing import SETTLE
from herenow.testing.world import RESET


@dataclass(frozen=True)
class Bounds:
    """Milliseconds. What the design promises, and what it may cost when things fail meanwhile."""

    timings: Timings
    lease: int
    late: int
    """From a change to everybody who looks, when nothing fails."""

    @property
    def healed(self) -> int:
        """From the end of the last fault to everything being right again."""
        return 10_000 + SETTLE

    @property
    def dead_node(self) -> int:
        """From the death of a node to its sessions being in grace: a lease that an observer saw stand still, with one
        more for the case that it was the store, and the thirds between two looks."""
        return self.lease * 5 // 2

    @property
    def longest(self) -> int:
        """From the end of a session, however it ended, to offline."""
        return self.timings.dead_after + self.timings.grace + self.dead_node + self.late

    def gone(self, stay: Stay) -> int:
        """When a session that ended is no more, in the store's time."""
        if stay.by_rest:
            return stay.seen_at + self.timings.dead_after + self.timings.grace + self.late
        ended = (stay.ended_at or 0) + self.timings.grace + self.late
        if stay.how == "vanished" or stay.beside_half_open:
            return ended + self.timings.dead_after
        if stay.how == f"by node: {RESET}":
            return ended + self.dead_node
        return ended

    @property
    def cut_off(self) -> int:
        """A node that could not renew for so long may have had its users shown offline."""
        return self.lease * 2 // 3 + self.timings.grace


@dataclass
class Stay:
    """One session as its device knows it."""

    user: str
    device: str
    node: str
    opened_at: int
    seen_at: int
    by_rest: bool = False
    greeted_at: int | None = None
    """It was told that it stands in the record."""
    ended_at: int | None = None
    how: str = ""

    @property
    def signed_out(self) -> bool:
        return self.how == "signed out"

    asked_out: bool = False
    """It stood in the record when somebody asked for its end."""
    out_at: int | None = None
    """Somebody was told that it is signed out."""
    beside_half_open: bool = False
    """An earlier socket of the device to the same node was left half-open: a second tab, as far as the node can tell."""


@dataclass
class Trouble:
    """A fault in force. `node` None: for everybody."""

    kind: str
    node: str | None
    begin: int
    end: int | None = None


@dataclass
class Chosen:
    """What a user may have chosen: the last choice that was answered, and those whose answer never came."""

    possible: list[object]
    ever: list[tuple[int, object]] = field(default_factory=list)
    """(when it was asked for, what)"""

    def asked(self, at: int, what: object) -> None:
        self.ever.append((at, what))
        self.possible.append(what)

    def answered(self, what: object) -> None:
        self.possible = self.possible[self.possible.index(what) :]
