"""The one module that reads a clock, and a clock that follows the clock of a shared store.

Times that are stored or compared between processes must come from one clock. Every process measures its distance from the
store's clock now and then (`follow`) and moves towards it gently, so that durations stay right and time never goes back,
whatever the machine's clock does. When the store's clock is set, all processes notice it with their next measurement and
run a little faster or slower until they are there. A process jumps only when nothing of it is compared with others yet:
when it starts, or returns after it was given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import trunc
from typing import Protocol

SLEW = 0.005
"""How much faster or slower than real time the clock may run while it follows: two minutes are off by 0.6 s at most. A step
of a minute is made up for in three hours and a half."""

CLOSE_ENOUGH = 10
"""Milliseconds of distance that are not followed: less than a measurement takes. It also keeps reading the clock cheap."""

SURE = 1.0
"""Seconds within which the store must answer for its answer to be a measurement."""


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
        """Called very often: within one millisecond, all callers get the same integer object."""
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
        """Jump. Only when no time of this process was compared with others yet."""
        self._measured = self._monotonic()
        self._offset = cluster_time - self._measured * 1000
        self._behind = 0.0
        self._now = cluster_time
        self._now_until = self._measured

    def catch_up(self, cluster_time: int) -> None:
        """Jump forward, never back. For a process that was away; a machine that slept has lost monotonic time too."""
        if cluster_time > self.now():
            self.start_at(cluster_time)

    def follow(self, store_time: int, asked: float) -> None:
        """Take a measurement: run faster or slower until the distance is gone. `asked`: monotonic time of the question."""
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
