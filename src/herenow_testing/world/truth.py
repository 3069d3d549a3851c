"""The true events as the clients of a `Scene` know them, and the allowed delays until others see them. A `Checker` records
these and compares them with what viewers were shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from herenow.core.settle import Timings
from herenow.node.cluster.shard_recovery import SETTLE
from herenow_testing.world.world import RESET


@dataclass(frozen=True)
class Bounds:
    """The delays that the design allows, in milliseconds, without and with faults."""

    timings: Timings
    lease: int
    late: int
    """From a change until all viewers have received it, when nothing fails."""

    @property
    def healed(self) -> int:
        """Milliseconds from the end of the last fault, of any kind, until everything is correct again."""
        return self.agreed(lost=True)

    def agreed(self, *, lost: bool) -> int:
        """Milliseconds from the end of one fault until all viewers see the true status; `lost`: the store lost data."""
        return 10_000 + (SETTLE if lost else 0)

    @property
    def dead_node(self) -> int:
        """Milliseconds from the death of a node until its sessions are in grace: one lease and a third without renewal,
        one more lease in case the store was at fault, and a third of a lease between two checks."""
        return self.lease * 8 // 3

    @property
    def longest(self) -> int:
        """The most milliseconds from the end of a session, for any reason, until the user is shown as offline."""
        return self.timings.dead_after + self.timings.grace + self.dead_node + self.late

    @property
    def rest(self) -> int:
        """The fewest milliseconds that a device stays online after a REST heartbeat. Not every heartbeat extends the
        session in the store."""
        return self.timings.dead_after * 2 // 3 + self.timings.grace - 500

    def gone(self, stay: Stay) -> int:
        """The time (epoch ms, store's clock) by which an ended session must be removed from the record."""
        if stay.by_rest:
            return stay.seen_at + self.timings.dead_after + self.timings.grace + self.late
        ended = (stay.ended_at or 0) + self.timings.grace + self.late
        if stay.how == "vanished" or stay.beside_half_open:
            return ended + self.timings.dead_after
        if stay.how == f"by node: {RESET}":
            return ended + self.dead_node
        return ended

    def seen(self, stay: Stay) -> int:
        """The earliest allowed last seen (epoch ms) of an ended session, without faults: the time of the close; for a
        dead socket the last data received; for a killed node its last lease renewal. Not every REST heartbeat is
        stored."""
        if stay.by_rest:
            return stay.seen_at - self.timings.dead_after // 3 - self.late
        if stay.how == "closed":
            return (stay.ended_at or 0) - self.late
        if stay.how == f"by node: {RESET}":
            return (stay.ended_at or 0) - self.lease // 3 - self.late
        return stay.seen_at - self.timings.dead_after // 3 - self.late  # the last frame may not have arrived

    @property
    def cut_off(self) -> int:
        """Milliseconds: if a node cannot reach the store for longer than this, its users may be shown as offline."""
        return self.lease + self.timings.grace


@dataclass
class Stay:
    """One session, as its device knows it. Times are epoch ms."""

    user: str
    device: str
    node: str
    opened_at: int
    seen_at: int
    by_rest: bool = False
    greeted_at: int | None = None
    """The node confirmed that the session is committed."""
    ended_at: int | None = None
    how: str = ""

    @property
    def signed_out(self) -> bool:
        return self.how == "signed out"

    signed_at: int | None = None
    """The time of the sign-out request."""
    asked_out: bool = False
    """The session was committed when the sign-out was requested."""
    out_at: int | None = None
    """The time at which the sign-out was confirmed."""
    beside_half_open: bool = False
    """An earlier socket of the device to the same node is half-open; to the node this one looks like a second tab."""


@dataclass
class Trouble:
    """A fault while it is active and until it is healed. `node` is None if it affects all nodes."""

    kind: str
    node: str | None
    begin: int
    end: int | None = None
    healed_at: int | None = None
    """The time at which the test saw that everything is correct again."""
    cuts: bool = False
    """The node cannot reach the store: if that lasts, other nodes treat it as dead."""
    stops: bool = False
    """The node is frozen: afterwards it cannot know when events happened."""
    kills: bool = False
    """The node's process ends, and other nodes must take over its work."""
    loses: bool = False
    """The store may lose acknowledged writes."""
    shifts: bool = False
    """The store's clock is wrong, and so may be reported times."""
    blinds: bool = False
    """The ledger is unavailable: a viewer whose relations are not cached sees all users offline."""


@dataclass
class Chosen:
    """The values that a user's choice may have now: the last confirmed one, and later ones without a response."""

    possible: list[object]
    ever: list[tuple[int, object]] = field(default_factory=list)
    """(time of the request, value) of all choices"""
    done: dict[int, int] = field(default_factory=dict)
    """Index in `ever` → time of the confirmation."""

    def asked(self, at: int, what: object) -> None:
        self.ever.append((at, what))
        self.possible.append(what)

    def answered(self, at: int, what: object) -> None:
        self.possible = self.possible[self.possible.index(what) :]
        self.done[max(number for number, (_, asked) in enumerate(self.ever) if asked == what)] = at

    def may_have_been(self, what: object, begin: int, end: int) -> bool:
        """True if the value `what` may have been in effect at a time from `begin` to `end` (epoch ms). A value may be
        in effect from its request until another one is confirmed."""
        for number, (at, asked) in enumerate(self.ever):
            if asked == what and at <= end:
                others = [done for later, done in self.done.items() if later > number and self.ever[later][1] != what]
                if not others or min(others) >= begin:
                    return True
        return False
