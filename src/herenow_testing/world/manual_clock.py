"""Clocks for tests.

`now` is the wall time in epoch milliseconds, `monotonic` is in seconds. `step` changes the wall time only, as an operator
or NTP does; durations must not be affected. Advancing a clock wakes no task: `ManualClock` is for code that gets time as an
argument, `LoopClock` for code that waits on an event loop with simulated time (`MovedLoop`, looptime).
"""

from __future__ import annotations

import asyncio

START = 1_700_000_000_000
"""November 2023: long enough ago that real time used by mistake is easy to see."""


class ManualClock:
    """Time passes only by `advance`."""

    def __init__(self, start_ms: int = START) -> None:
        self._wall = start_ms
        self._passed = 0

    def now(self) -> int:
        return self._wall + self._passed

    def monotonic(self) -> float:
        return self._passed / 1000

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError("time does not go back; step() sets the wall clock")
        self._passed += ms

    def step(self, ms: int) -> None:
        """Move the wall clock forward, or back if `ms` is negative; the monotonic time does not change."""
        self._wall += ms


class LoopClock:
    """Follows the running event loop. Give nodes different `start_ms` to make their clocks disagree."""

    def __init__(self, start_ms: int = START) -> None:
        self._wall = start_ms

    def now(self) -> int:
        return self._wall + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def step(self, ms: int) -> None:
        """Move the wall clock forward, or back if `ms` is negative; the monotonic time does not change."""
        self._wall += ms
