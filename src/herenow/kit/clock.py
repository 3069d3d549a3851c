"""The one module that reads a clock.

Answers: what time is it, for everything that is stored or compared between nodes?
All nodes follow one clock, the store's (`Engine.store_time`): each measures its distance at every renewal of its lease
and moves towards it gently, so that durations stay right and time never goes back, whatever the machine's clock does.
When the store's own clock is set, all nodes see it within one renewal and go on together, a little faster or slower than
before, until they are there. Only a node that nobody counts with may jump: one that starts, or was taken for dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import trunc
from typing import Protocol

SLEW = 0.005
"""How much faster or slower than real time the clock may run while it follows: the two minutes from the last evidence of
life to "offline" are off by 0.6 s at most. A step of a minute is made up for in three hours and a half."""

CLOSE_ENOUGH = 10
"""Milliseconds we need not follow: less than it takes to ask. It also keeps the reading of the clock cheap."""

SKEW = 2_000
"""Milliseconds by which the clocks of two nodes may differ: what is later by more, is later."""

SURE = 1.0
"""Seconds within which the store must have answered for its answer to be a measurement."""


class Clock(Protocol):
    def now(self) -> int:
        """Epoch milliseconds of the store's clock; never goes back."""

    def monotonic(self) -> float:
        """Seconds, for durations."""


def wall_clock() -> int:
    """Epoch milliseconds of this machine."""
    return time.time_ns() // 1_000_000


class NodeClock:
    """A monotonic clock with an offset that is moved towards the store's time."""

    __slots__ = ("_behind", "_measured", "_monotonic", "_now", "_now_until", "_offset")

    def __init__(self, start: int | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._now = 0
        self._now_until = 0.0
        self.start_at(wall_clock() if start is None else start)

    def now(self) -> int:
        """Every beat asks: within one millisecond all get the same integer."""
        monotonic = self._monotonic()
        if monotonic < self._now_until:
            return self._now
        offset = self._offset if self._behind == 0.0 else self._offset + self._moved(monotonic)
        self._now = now = trunc(monotonic * 1000 + offset)
        self._now_until = (now + 1 - offset) / 1000
        return now

    def monotonic(self) -> float:
        return self._monotonic()

    def start_at(self, cluster_time: int) -> None:
        """Nothing of ours has been compared with anything yet, so we may jump."""
        self._measured = self._monotonic()
        self._offset = cluster_time - self._measured * 1000
        self._behind = 0.0
        self._now = cluster_time
        self._now_until = self._measured

    def catch_up(self, cluster_time: int) -> None:
        """We were away (a machine that slept has lost its monotonic time too): forward at once, but never back."""
        if cluster_time > self.now():
            self.start_at(cluster_time)

    def follow(self, store_time: int, asked: float) -> None:
        """A measurement: run faster or slower until we are there. `asked` is the monotonic time of the question."""
        monotonic = self._monotonic()
        if monotonic - asked > SURE:
            return
        self._offset += self._moved(monotonic)
        self._measured = monotonic
        distance = store_time - ((asked + monotonic) / 2 * 1000 + self._offset)
        self._behind = distance if abs(distance) > CLOSE_ENOUGH else 0.0

    def _moved(self, monotonic: float) -> float:
        limit = SLEW * (monotonic - self._measured) * 1000
        return max(-limit, min(limit, self._behind))
