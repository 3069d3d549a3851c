"""The one module that reads a clock.

Answers: what time is it, for everything that is stored or compared between nodes?
All nodes follow one clock, the store's (`Engine.store_time`): each measures its distance at every renewal of its lease
and moves towards it gently, so that durations stay right and time never goes back, whatever the machine's clock does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

SLEW = 0.1
"""How much faster or slower than real time the clock may run while it follows: a grace of 30 s lasts 27 to 33 s."""

CLOSE_ENOUGH = 10
"""Milliseconds we need not follow: less than it takes to ask. It also keeps the reading of the clock cheap."""

JUMP = 1_000
"""Milliseconds between our time and the store's from which we take it for a step of its clock: reaping waits until the
next measurement, when every node has seen the step."""


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

    __slots__ = ("_behind", "_measured", "_monotonic", "_offset", "jumping")

    def __init__(self, start: int | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._measured = monotonic()
        self._offset = (wall_clock() if start is None else start) - self._measured * 1000
        self._behind = 0.0
        self.jumping = False

    def now(self) -> int:
        monotonic = self._monotonic()
        if self._behind == 0.0:
            return int(monotonic * 1000 + self._offset)
        return int(monotonic * 1000 + self._offset + self._moved(monotonic))

    def monotonic(self) -> float:
        return self._monotonic()

    def start_at(self, store_time: int) -> None:
        """The first measurement: nothing has been compared yet, so we may jump."""
        self._measured = self._monotonic()
        self._offset = store_time - self._measured * 1000
        self._behind = 0.0

    def follow(self, store_time: int) -> None:
        """A later measurement: run faster or slower until we are there."""
        monotonic = self._monotonic()
        self._offset += self._moved(monotonic)
        self._measured = monotonic
        distance = store_time - (monotonic * 1000 + self._offset)
        self.jumping = abs(distance) > JUMP and abs(distance - self._behind) > JUMP
        self._behind = distance if abs(distance) > CLOSE_ENOUGH else 0.0

    def _moved(self, monotonic: float) -> float:
        limit = SLEW * (monotonic - self._measured) * 1000
        return max(-limit, min(limit, self._behind))
