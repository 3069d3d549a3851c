"""What truly happened, as the clients of a `Scene` know it, and how late others may learn of it.

The notes of a `Checker`, which compares them with what is shown. Another promise about how soon something is known is
the reason to change this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from herenow.core.settle import Timings
from herenow.node.cluster.shard_recovery import SETTLE
from herenow_testing.world.world import RESET


@dataclass(frozen=True)
class Bounds:
    """Milliseconds. What the design promises, and what it may cost when things fail meanwhile."""

    timings: Timings
    lease: int
    late: int
    """From a change to everybody who looks, when nothing fails."""

    @property
    def healed(self) -> int:
        """From the end of the last fault to everything being right again, whatever it was."""
        return self.agreed(lost=True)

    def agreed(self, *, lost: bool) -> int:
        """From the end of one fault to every view being equal to the truth; `lost`: the store lost something by it."""
        return 10_000 + (SETTLE if lost else 0)

    @property
    def dead_node(self) -> int:
        """From the death of a node to its sessions being in grace: a lease and a third that an observer saw stand still,
        with one lease more for the case that it was the store, and the third between two looks."""
        return self.lease * 8 // 3

    @property
    def longest(self) -> int:
        """From the end of a session, however it ended, to offline."""
        return self.timings.dead_after + self.timings.grace + self.dead_node + self.late

    @property
    def rest(self) -> int:
        """From a beat by REST, for so long the device is here at the least: beats are written down now and then."""
        return self.timings.dead_after * 2 // 3 + self.timings.grace - 500

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

    def seen(self, stay: Stay) -> int:
        """The earliest that somebody may be said to have been seen last who left like this, if nothing failed then: a close
        is seen as it happens; of a socket that died, the last thing that came through; of a killed node, its last
        renewal. Beats by REST are written down now and then."""
        if stay.by_rest:
            return stay.seen_at - self.timings.dead_after // 3 - self.late
        if stay.how == "closed":
            return (stay.ended_at or 0) - self.late
        if stay.how == f"by node: {RESET}":
            return (stay.ended_at or 0) - self.lease // 3 - self.late
        return stay.seen_at - self.timings.dead_after // 3 - self.late  # what was said last may not have come through

    @property
    def cut_off(self) -> int:
        """A node that was cut off for longer may have had its users shown offline."""
        return self.lease + self.timings.grace


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

    signed_at: int | None = None
    """Somebody asked for its end."""
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
    healed_at: int | None = None
    """Somebody saw that everything is right again."""
    cuts: bool = False
    """The node neither reaches the store nor is reached: if that lasts, others have to take it for dead."""
    stops: bool = False
    """The node stands still: it cannot know when what it finds afterwards has happened."""
    kills: bool = False
    """The node's process ends: what it did for others, others must do."""
    loses: bool = False
    """The store may lose what it had acknowledged."""
    shifts: bool = False
    """The store's clock is wrong: what is said of the time may be wrong by as much."""
    blinds: bool = False
    """The ledger is away: to whoever comes now and is not known yet, nobody is shown."""


@dataclass
class Chosen:
    """What a user may have chosen: the last choice that was answered, and those whose answer never came."""

    possible: list[object]
    ever: list[tuple[int, object]] = field(default_factory=list)
    """(when it was asked for, what)"""
    done: dict[int, int] = field(default_factory=dict)
    """Which of `ever` was answered, and when."""

    def asked(self, at: int, what: object) -> None:
        self.ever.append((at, what))
        self.possible.append(what)

    def answered(self, at: int, what: object) -> None:
        self.possible = self.possible[self.possible.index(what) :]
        self.done[max(number for number, (_, asked) in enumerate(self.ever) if asked == what)] = at

    def may_have_been(self, what: object, begin: int, end: int) -> bool:
        """At some moment between the two: from being asked for until the answer to a later choice of something else."""
        for number, (at, asked) in enumerate(self.ever):
            if asked == what and at <= end:
                others = [done for later, done in self.done.items() if later > number and self.ever[later][1] != what]
                if not others or min(others) >= begin:
                    return True
        return False
