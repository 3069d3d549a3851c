"""Counts which users cause most deliveries on this node.

User ids stay in this process: reports have a keyed hash (`api/ops`). Only frames to viewers count, so hidden users cause
none. Bounded: while very many users change, those that come late into a window are not counted; they do not cost most.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest

from herenow.kit.clock import Clock

WINDOW = 30.0
"""Seconds. A report covers the present window and the one before: 30 to 60 seconds."""

MOST = 50_000
"""Users in a window: a few megabytes."""


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
        """Begin a new window for counting deliveries when the present one is over. Call regularly."""
        now = self._clock.monotonic()
        if now - self._began >= WINDOW:
            self._before = self._present if now - self._began < 2 * WINDOW else {}
            self._present = {}
            self._began = now

    def top(self, most: int) -> list[tuple[str, int]]:
        together = Counter(self._before)
        together.update(self._present)
        return nlargest(most, together.items(), key=lambda each: (each[1], each[0]))
