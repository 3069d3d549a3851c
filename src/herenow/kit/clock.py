"""The one module that reads a clock, and a clock that follows the clock of a shared store.

Times that are stored or compared between processes must come from one clock. Each process measures its distance from the
store's clock at intervals (`follow`) and then runs slightly faster or slower until the distance is gone. So durations stay
right and time never goes back, whatever the clock of the machine or the store does. A process jumps only while none of its
times is compared with others: when it starts, or returns after its lease was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import trunc
from typing import Protocol

SLEW = 0.005
"""Deviation from real time while the clock follows: at most 0.6 s in two minutes. A step of one minute takes 3.3 hours."""

CLOSE_ENOUGH = 10
"""Milliseconds of distance that are ignored: less than the error of a measurement. It also keeps reading the clock cheap."""

SURE = 1.0
"""Seconds: an answer of the store that took longer is no measurement."""


class Clock(Protocol):
    def now(self) -> int:
        """Return the time of the store's clock in epoch milliseconds. It never goes back."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, to measure durations."""


def wall_clock() -> int:
    """Return the time of this machine's clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class NodeClock:
    """A monotonic clock with an offset that moves towards the store's time."""

    __slots__ = ("_behind", "_measured", "_monotonic", "_now", "_now_until", "_offset")

    def __init__(self, start: int | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._now = 0
        self._now_until = 0.0
        self.start_at(wall_clock() if start is None else start)

    def now(self) -> int:
        """Return the time of the store's clock in epoch milliseconds. Within one millisecond, all callers get the same
        integer object."""
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
        """Set the clock to this time (epoch ms) at once, forward or back. Only allowed while no time of this process is
        compared with times of others."""
        self._measured = self._monotonic()
        self._offset = cluster_time - self._measured * 1000
        self._behind = 0.0
        self._now = cluster_time
        self._now_until = self._measured

    def catch_up(self, cluster_time: int) -> None:
        """Set the clock forward to this time (epoch ms), never back. For a process that was suspended: monotonic time
        may stop while a machine sleeps."""
        if cluster_time > self.now():
            self.start_at(cluster_time)

    def follow(self, store_time: int, asked: float) -> None:
        """Compare the clock with the store's time (epoch ms), and run faster or slower until the difference is gone.
        `asked`: monotonic time at which the store was asked; an answer that took longer than `SURE` is ignored."""
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
