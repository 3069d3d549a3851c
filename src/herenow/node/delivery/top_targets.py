"""Whose changes cost this node most? Counted per person for a short while, by the deliveries they led to.

Who it is stays in this process: whoever tells of it tells a keyed hash (`api.reports`). Only what went to viewers counts, as
they saw it: of somebody who hides nothing goes out, so nothing is counted. Bounded: while very many change, those who come
late into a window are not counted, and they are not the ones who cost most.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest

from herenow.kit.clock import Clock

WINDOW = 30.0
"""Seconds. What is told is of the present window and the one before: the last half minute to minute."""

MOST = 50_000
"""People in a window: a few megabytes."""


class TopTargets:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._present: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def count(self, user: str, deliveries: int) -> None:
        had = self._present.get(user)
        if had is not None:
            self._present[user] = had + deliveries
        elif len(self._present) < MOST:
            self._present[user] = deliveries

    def turn(self) -> None:
        """Now and then: a window ends when its time is over."""
        now = self._clock.monotonic()
        if now - self._began >= WINDOW:
            self._before = self._present if now - self._began < 2 * WINDOW else {}
            self._present = {}
            self._began = now

    def top(self, most: int) -> list[tuple[str, int]]:
        """(user, deliveries), the largest first."""
        together = Counter(self._before)
        together.update(self._present)
        return nlargest(most, together.items(), key=lambda each: (each[1], each[0]))
