"""How late everything is because the machine has other things to do: measured, so that no promise needs a generous constant.

The kernel counts for each process how long it was ready to run and waited for a core. Taken together: the lab's own loop
(by how much a short sleep was too long), and of the nodes and of the store's servers the one that waited longest each; what
happens goes through these one after the other. In a span of time never more than that span. Where the kernel does not
count, the loop must do.

A machine that keeps processes waiting for longer than a call to the store may take is no longer late but faulty: nodes
take the store for away, rightly. `stalled` says when that was.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path

from herenow.kit.deadline import DEADLINE

EVERY = 0.1
"""Seconds between two looks."""

STALL = round(DEADLINE * 1000 * 3 / 4)
"""Milliseconds: who waited so long for a core, of the time that a call may take, has missed its deadline."""


class Lateness:
    def __init__(self, nodes: Callable[[], Iterable[int]], stores: Callable[[], Iterable[int]]) -> None:
        """Both answer the ids of processes that run now."""
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
        """Seconds since the last look that it waited for a core."""
        try:
            waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
        except (OSError, IndexError):
            return 0.0
        before, self._waited[pid] = self._waited.get(pid, waited), waited
        return max(0, waited - before) / 1e9

    def between(self, begin: int, end: int) -> int:
        """Milliseconds, of the epoch and of the answer."""
        return round(self._sum(end) - self._sum(begin))

    def stalled(self, since: int) -> int:
        """When processes last had to wait for too long, in epoch milliseconds; `since` where that is longer ago."""
        for at in reversed(self._at):
            if at <= since:
                break
            if self.between(at - round(DEADLINE * 1000), at) >= STALL:
                return at
        return since

    def _sum(self, at: int) -> float:
        index = bisect_right(self._at, at)
        return self._sums[index - 1] if index else 0.0
