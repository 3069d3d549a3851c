"""Limits on how much a node does: how often a client may ask, how a change reaches very many viewers, what may wait.

Pure: time, lateness and numbers of viewers are arguments. Knows neither clients nor sockets nor timers.

Rate limit. A token bucket, kept as one number: when the bucket will be full again. A full bucket is no number at all, so the
caller keeps only those that were used lately.

Fan-out. Changes of one person reach the viewers at once, in a wave, or not at all until they ask. A viewer's position in a
wave depends on the viewer, on whether they are active and on the number of viewers, and on nothing that the person does: at
that position everything is delivered, whatever the reason. So the moment at which a user seems to leave does not reveal
whether they left, hid, or blocked the viewer. All connections of a viewer have the same position.

Load shedding. While a node is overloaded it delays, in this order: typing, then online ↔ away, then custom text. Coming and
going is never delayed, nor is busy, nor who may see whom. What waited is sent when the node has caught up: the latest value,
once.
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
    """One every so many milliseconds, up to `burst` at once after a rest."""

    every: int
    burst: int

    @property
    def fills_within(self) -> int:
        """Milliseconds after which any bucket that is left alone is full."""
        return self.every * self.burst


def take_token(full_at: int | None, now: int, rate: Rate) -> tuple[int, int]:
    """(when the bucket is full again, how long to wait): taken if there is nothing to wait for, otherwise unchanged.
    `full_at` None, or past: it is full."""
    full_at = now if full_at is None else max(full_at, now)
    wait = full_at + rate.every - rate.fills_within - now
    return (full_at, wait) if wait > 0 else (full_at + rate.every, 0)


# --- Fan-out -----------------------------------------------------------------------------------------------------------

LONGEST_WAVE = 10.0
"""Seconds a wave takes at most."""

RELAX = 0.9
"""A more direct way is taken up again at this part of the number of viewers that ended it, so that one viewer who comes and
goes does not make it change each time."""


class DeliveryMode(StrEnum):
    """The ways that are not at once, as clients are told of them."""

    PACED = "paced"
    POLL = "poll"


@dataclass(frozen=True, slots=True)
class FanoutLimits:
    """How many viewers of one person on one node are too many for which way."""

    pace_above: int = 5_000
    push_ceiling: int = 100_000

    def delivery(self, viewers: int, present: DeliveryMode | None) -> DeliveryMode | None:
        """`present`: the way until now. None: at once."""
        if viewers > self.push_ceiling * (RELAX if present is DeliveryMode.POLL else 1):
            return DeliveryMode.POLL
        return DeliveryMode.PACED if viewers > self.pace_above * (1 if present is None else RELAX) else None

    def lasts(self, viewers: int) -> float:
        """Seconds: `pace_above` viewers are told in one, until that would take too long."""
        return min(LONGEST_WAVE, viewers / self.pace_above)


def wave_position(viewer: str, target: str, *, active: bool) -> float:
    """From 0 to 1. The first half of a wave is for those who are active, the rest for the others."""
    among_equals = crc32(viewer.encode(), crc32(target.encode())) / 2**32
    return among_equals / 2 if active else 0.5 + among_equals / 2


# --- Load shedding -----------------------------------------------------------------------------------------------------


class Shed(IntEnum):
    """Each level gives up what those before it do, and more."""

    NOTHING = 0
    TYPING = 1
    IDLENESS = 2
    TEXT = 3


SHED_FROM = {Shed.TYPING: 0.2, Shed.IDLENESS: 0.5, Shed.TEXT: 1.0}
"""Seconds that the event loop is late from which on a level holds. It is left at half of them."""

_IDLENESS = frozenset((Status.ONLINE, Status.AWAY))


def shed_level(present: Shed, late: float) -> Shed:
    """The level for a loop that is `late` seconds behind, coming from `present`."""
    for shed in reversed(SHED_FROM):
        bound = SHED_FROM[shed] if shed > present else SHED_FROM[shed] / 2
        if late >= bound:
            return shed
    return Shed.NOTHING


def may_wait(before: View, after: View, shed: Shed) -> bool:
    """Is the difference between what a viewer has and what is true now one that this level gives up?"""
    if shed < Shed.IDLENESS:
        return False
    if before.status is not after.status:
        if not {before.status, after.status} <= _IDLENESS:
            return False
        return shed >= Shed.TEXT or _told_alike(before, after)
    return shed >= Shed.TEXT and before != after and before.status is not Status.OFFLINE


def _told_alike(before: View, after: View) -> bool:
    """They differ in nothing but idleness, and what follows from it."""
    return replace(before, status=after.status, since=after.since) == after
