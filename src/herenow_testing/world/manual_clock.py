"""Clocks for tests: time passes when the test says so.

Both give the wall time in epoch milliseconds (`now`) and a monotonic time in seconds (`monotonic`, as in the standard
library). `step` moves the wall alone, as an operator or NTP does; durations must not notice. Neither wakes anybody:
`ManualClock` is for code that gets time as an argument, `LoopClock` for code that also waits on an event loop whose
time is moved (`MovedLoop`, looptime).
"""

from __future__ import annotations

import asyncio

START = 1_700_000_000_000
"""Some moment in November 2023: long enough ago that real time taken for test time stands out."""


class ManualClock:
    """Stands still until moved."""

    def __init__(self, start_ms: int = START) -> None:
        self._wall = start_ms
        self._passed = 0

    def now(self) -> int:
        return self._wall + self._passed

    def monotonic(self) -> float:
        return self._passed / 1000

    def advance(self, ms: int) -> None:
        """Let time pass."""
        if ms < 0:
            raise ValueError("time does not go back; step() sets the wall clock")
        self._passed += ms

    def step(self, ms: int) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._wall += ms


class LoopClock:
    """Goes with the running event loop. Give nodes different starts, and their clocks disagree."""

    def __init__(self, start_ms: int = START) -> None:
        self._wall = start_ms

    def now(self) -> int:
        return self._wall + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def step(self, ms: int) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._wall += ms
