"""How do changes of one person reach very many viewers? At once, in a wave, or not at all until they ask.

Answers: which way of delivery for so many viewers, how long a wave takes, and at which place of it a viewer's turn comes.
Pure; knows neither sockets nor timers (see `service.waves`).

A place depends on the viewer, on whether they are active and on the number of viewers, and on nothing that the person
does: at its place everything is heard, whatever the reason. So the moment at which somebody seems to leave does not tell
whether they left, hid, or blocked the one who looks. All connections of a viewer have the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

LONGEST = 10.0
"""Seconds a wave takes at most."""

RELAX = 0.9
"""A more direct way is taken up again at this part of the number of viewers that ended it, so that one viewer who comes and
goes does not make it change each time."""


class Delivery(StrEnum):
    """The ways that are not at once, as clients are told of them."""

    PACED = "paced"
    POLL = "poll"


@dataclass(frozen=True, slots=True)
class Crowds:
    """How many viewers of one person on one node are too many for which way."""

    pace_above: int = 5_000
    push_ceiling: int = 100_000

    def delivery(self, viewers: int, present: Delivery | None) -> Delivery | None:
        """`present`: the way until now. None: at once."""
        if viewers > self.push_ceiling * (RELAX if present is Delivery.POLL else 1):
            return Delivery.POLL
        return Delivery.PACED if viewers > self.pace_above * (1 if present is None else RELAX) else None

    def lasts(self, viewers: int) -> float:
        """Seconds: `pace_above` viewers are told in one, until that would take too long."""
        return min(LONGEST, viewers / self.pace_above)


def place(viewer: str, target: str, *, active: bool) -> float:
    """From 0 to 1. The first half of a wave is for those who are active, the rest for the others."""
    among_equals = crc32(viewer.encode(), crc32(target.encode())) / 2**32
    return among_equals / 2 if active else 0.5 + among_equals / 2
