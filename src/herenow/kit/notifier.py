"""`Notifier`: wakes all waiting tasks, at no cost to the writers.

Each waiter holds one future; `notify` completes them all. Nothing is queued and no task is created: however often `notify`
is called before a waiter runs, it wakes once and reads what is new. Waits use the loop's time only, so simulated loops work.
"""

from __future__ import annotations

import asyncio
import math


class Notifier:
    """Wakes all tasks that are waiting when `notify` is called, in the order in which they began to wait."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # A dict as an ordered set: a run of a simulation must wake its nodes in the same order every time.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for woken in waiting:
                _wake(woken)

    async def wait(self, until: float) -> bool:
        """Wait for `notify` and return True, or return False when the loop's time reaches `until` (infinity: no
        time-out)."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        self._waiting[woken] = None
        timer = None if until == math.inf else loop.call_at(until, _wake, woken)
        try:
            await woken
            return woken not in self._waiting
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.pop(woken, None)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
