"""Measures how late everything is because the machine is busy, so that limits need no generous constants.

The kernel counts for each process how long it was ready and waited for a core. The lateness is the sum of: the delay of
this loop (by how much a short sleep was too long), the longest wait among the nodes, and the longest wait among the
store's servers, because an event passes through these one after the other. The lateness of a time span never exceeds
the span. If the kernel does not count, only the loop's delay is used.

A machine that keeps processes waiting longer than a store call may take counts as faulty, not late: nodes then rightly
treat the store as away. `stalled` returns when that was.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path

from herenow.kit.deadline import DEADLINE

EVERY = 0.1
"""Seconds between two measurements."""

STALL = round(DEADLINE * 1000 * 3 / 4)
"""Milliseconds: a process that waited this long for a core within one call has missed the call's deadline."""


class Lateness:
    def __init__(self, nodes: Callable[[], Iterable[int]], stores: Callable[[], Iterable[int]]) -> None:
        """Both functions return the ids of the running processes."""
        self._nodes = nodes
        self._stores = stores
        self._waited: dict[int, int] = {}
        self._at: list[int] = []
        self._sums: list[float] = []

    async def watch(self) -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(EVERY)
            now = time.monotonic()
            self._add(now - before)
            before = now

    def _add(self, passed: float) -> None:
        pids = (*self._stores(), *self._nodes())
        waits = {pid: self._wait(pid) for pid in pids}
        stores = max((waits[pid] for pid in self._stores() if pid in waits), default=0.0)
        nodes = max((waits[pid] for pid in self._nodes() if pid in waits), default=0.0)
        late = min(passed, passed - EVERY + stores + nodes)
        self._at.append(time.time_ns() // 1_000_000)
        self._sums.append((self._sums[-1] if self._sums else 0.0) + late * 1000)

    def _wait(self, pid: int) -> float:
        """Seconds that the process waited for a core since the last measurement."""
        try:
            waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
        except (OSError, IndexError):
            return 0.0
        before, self._waited[pid] = self._waited.get(pid, waited), waited
        return max(0, waited - before) / 1e9

    def between(self, begin: int, end: int) -> int:
        """Lateness in milliseconds between two times in epoch milliseconds."""
        return round(self._sum(end) - self._sum(begin))

    def stalled(self, since: int) -> int:
        """Epoch milliseconds of the last stall after `since`; `since` if there was none."""
        for at in reversed(self._at):
            if at <= since:
                break
            if self.between(at - round(DEADLINE * 1000), at) >= STALL:
                return at
        return since

    def _sum(self, at: int) -> float:
        index = bisect_right(self._at, at)
        return self._sums[index - 1] if index else 0.0
