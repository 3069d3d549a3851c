"""Thousands wait for an answer, all of them for the same time at most: one timer for all.

A timer each costs as much as what is waited for, and nearly all of them are for nothing. Who waits stands in a queue, in
the order in which their time is over; who got an answer leaves it when somebody comes, or with the timer.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Patience:
    __slots__ = ("_seconds", "_timer", "_waiting")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait_for(self, answer: asyncio.Future[None]) -> None:
        """Raises `TimeoutError` when it takes too long. Nobody else may wait for this answer."""
        if not answer.done():
            self._leave_who_is_done()
            loop = asyncio.get_running_loop()
            until = loop.time() + self._seconds
            self._waiting.append((until, answer))
            if self._timer is None:
                self._timer = loop.call_at(until, self._look)
        await answer

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for _, answer in waiting:  # nobody will look after them any more
            if not answer.done():
                answer.set_exception(TimeoutError())

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting and self._waiting[0][0] <= loop.time():
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(TimeoutError())
        self._leave_who_is_done()
        if self._waiting:
            self._timer = loop.call_at(self._waiting[0][0], self._look)

    def _leave_who_is_done(self) -> None:
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
