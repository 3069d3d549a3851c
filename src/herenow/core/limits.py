"""Limits on the work of a node: request rates, reading from clients, fan-out to very many viewers, load shedding.

Pure: time, lag of the event loop and numbers of viewers are arguments.

Rate limit. A token bucket, stored as one number: the time at which it is full again. A full bucket needs no entry, so the
caller stores only those that were used recently.

Budget. What a client sends is paid from two such buckets, one per connection and one per user. A cost is a number of
milliseconds: the time in which the bucket of a connection regains it. Nothing is refused; a client in debt is not read from
until its debt is paid.

Fan-out. Changes of one user reach the viewers at once, spread over some seconds (a wave), or only when viewers ask. The
delay of a viewer in a wave depends on viewer, target, the viewer's activity and the number of viewers, and on nothing that
the target does. All changes are delivered with that delay, so it does not reveal whether the target left, hid, or blocked
the viewer. All connections of a viewer have the same delay.

Load shedding. An overloaded node first drops typing notices, then delays online ↔ away, then custom texts. It never delays
arrivals, departures, busy, or changes of visibility. When it has caught up, it sends the latest value once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from zlib import crc32

from herenow.core.model import Status, View
from herenow.core.values import replace

# --- Rate limit ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """One token per `every` milliseconds; an unused bucket holds up to `burst`."""

    every: int
    burst: int

    @property
    def fills_within(self) -> int:
        """Milliseconds in which an empty token bucket becomes full."""
        return self.every * self.burst


def take_token(full_at: int | None, now: int, rate: Rate) -> tuple[int, int]:
    """Take a token from the token bucket that will be full at `full_at` (ms; None or past: it is full). Returns (the new
    time at which it will be full, 0). If the bucket is empty, returns (the unchanged time, milliseconds to wait)."""
    full_at = now if full_at is None else max(full_at, now)
    wait = full_at + rate.every - rate.fills_within - now
    return (full_at, wait) if wait > 0 else (full_at + rate.every, 0)


BLOCKING = Rate(every=500, burst=60)
"""Blocks and unblocks of one user: 120 a minute, up to 60 at once. Each is a transaction of the database and a message to
all nodes."""

SIGNING_OUT = Rate(every=500, burst=60)
"""Sign-outs of a user's devices by REST: 120 a minute, up to 60 at once. Each is a commit of the live store, and leaves an
entry for the node of the device. A socket that signs itself out (`presence.bye`) is not limited: it ends by that."""

MAX_BLOCKS = 10_000
"""Blocks of one user in all, lifted ones that the database still keeps included."""


# --- Budget ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """A token bucket that may go into debt: it regains `share` milliseconds of cost per millisecond."""

    burst: int
    """Milliseconds that a full bucket holds."""
    share: int = 1

    def spend(self, full_at: int, now: int, cost: int) -> tuple[int, int]:
        """Take `cost` from the bucket that will be full at `full_at` (ms). Returns (the new time at which it will be
        full, the milliseconds until its debt is paid; 0: it has none)."""
        full_at = max(full_at, now) + cost // self.share
        return full_at, max(0, full_at - now - self.burst)


HEARTBEAT_COST = 5
FRAME_COST = 16
"""Of every frame other than a heartbeat without an id. 100 heartbeats and 30 other frames a second are 980 ms."""

REQUEST_COST = 40
"""Of a REST request, which costs the server more than a frame."""

CREDIT = 40 * FRAME_COST
"""A connection pays when it has used so much, 40 frames or 128 heartbeats: paying for each would cost as much as the
heartbeat."""

CONNECT_COST = 100
"""Of a new connection, for the budget of its user."""

CONNECTION_BUDGET = Budget(burst=4_000)
"""At least 200 frames at once, or 800 heartbeats."""

USER_BUDGET = Budget(burst=4_000, share=4)
"""All connections and REST requests of a user on one node, together: four times the budget of a connection."""

MOST_AT_ONCE = CREDIT
"""A connection that pays while more than this is missing in its bucket is read again in the next iteration of the event
loop."""

LONGEST_PAUSE = 2_000
"""Milliseconds; then some frames are read even if the debt is not paid, so that a user in debt is not taken for dead."""


def size_cost(size: int) -> int:
    """Return the cost of a frame or an answer of `size` bytes, besides the cost of a frame. Up to 8 KiB are free."""
    return 2 * max(0, size - 8_192) // 1_024


# --- Fan-out -----------------------------------------------------------------------------------------------------------

LONGEST_WAVE = 10.0
"""Seconds."""

RELAX = 0.9
"""Hysteresis: a more direct mode resumes below this part of the threshold, so that it does not switch too often."""


class DeliveryMode(StrEnum):
    """Ways of delivery other than at once, by the words that clients get."""

    PACED = "paced"
    POLL = "poll"


@dataclass(frozen=True, slots=True)
class FanoutLimits:
    """Numbers of viewers of one user on one node above which delivery is paced, or left to polling."""

    pace_above: int = 5_000
    push_ceiling: int = 100_000

    def delivery(self, viewers: int, present: DeliveryMode | None) -> DeliveryMode | None:
        """Return how changes of a user with so many viewers are delivered; None: at once. `present`: the mode of delivery
        until now; a slower one ends only at 90 % of its threshold, so that the mode does not switch too often."""
        if viewers > self.push_ceiling * (RELAX if present is DeliveryMode.POLL else 1):
            return DeliveryMode.POLL
        return DeliveryMode.PACED if viewers > self.pace_above * (1 if present is None else RELAX) else None

    def lasts(self, viewers: int) -> float:
        """Return the seconds over which a change is spread for so many viewers: one second for each `pace_above`
        viewers, at most `LONGEST_WAVE`."""
        return min(LONGEST_WAVE, viewers / self.pace_above)


def wave_position(viewer: str, target: str, *, active: bool) -> float:
    """Return the place of a viewer, 0 (first) to 1 (last), when a change of `target` is sent to its viewers over some
    seconds. Active viewers are in the first half, others in the second."""
    among_equals = crc32(viewer.encode(), crc32(target.encode())) / 2**32
    return among_equals / 2 if active else 0.5 + among_equals / 2


# --- Load shedding -----------------------------------------------------------------------------------------------------


class Shed(IntEnum):
    """Levels of load shedding. Each includes those before it."""

    NOTHING = 0
    TYPING = 1
    IDLENESS = 2
    TEXT = 3


SHED_FROM = {Shed.TYPING: 0.2, Shed.IDLENESS: 0.5, Shed.TEXT: 1.0}
"""Lag of the event loop in seconds from which a level applies. A level ends at half of that."""

_IDLENESS = frozenset((Status.ONLINE, Status.AWAY))


def shed_level(present: Shed, late: float) -> Shed:
    """Return the level of load shedding for an event loop that is `late` seconds behind. `present`: the level until
    now, which ends only at half of the lag that begins it."""
    for shed in reversed(SHED_FROM):
        bound = SHED_FROM[shed] if shed > present else SHED_FROM[shed] / 2
        if late >= bound:
            return shed
    return Shed.NOTHING


def may_wait(before: View, after: View, shed: Shed) -> bool:
    """True if load shedding of this level may delay an update of a viewer that has the view `before` to the view `after`."""
    if shed < Shed.IDLENESS:
        return False
    if before.status is not after.status:
        if not {before.status, after.status} <= _IDLENESS:
            return False
        return shed >= Shed.TEXT or _differ_in_idleness_only(before, after)
    return shed >= Shed.TEXT and before != after and before.status is not Status.OFFLINE


def _differ_in_idleness_only(before: View, after: View) -> bool:
    """True if the views differ only in online ↔ away and in `since`."""
    return replace(before, status=after.status, since=after.since) == after
