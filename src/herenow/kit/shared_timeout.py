"""One timer for thousands of waits with the same time limit.

A timer per wait costs as much as the work that is waited for, and nearly all are cancelled. Here waits are queued in the
order in which they end, with one timer for the first. A finished wait is removed when it reaches the head of the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque


class SharedTimeout:
    __slots__ = ("_seconds", "_timer", "_waiting")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait_for(self, answer: asyncio.Future[None]) -> None:
        """Wait for the future `answer`; raise `TimeoutError` after the time limit. The error is set on the future
        itself, so that only one task may wait for it."""
        if not answer.done():
            self._drop_done()
            loop = asyncio.get_running_loop()
            until = loop.time() + self._seconds
            self._waiting.append((until, answer))
            if self._timer is None:
                self._timer = loop.call_at(until, self._expire)
        await answer

    def close(self) -> None:
        """End all waits with `TimeoutError`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for _, answer in waiting:
            if not answer.done():
                answer.set_exception(TimeoutError())

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting and self._waiting[0][0] <= loop.time():
            _, answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(TimeoutError())
        self._drop_done()
        if self._waiting:
            self._timer = loop.call_at(self._waiting[0][0], self._expire)

    def _drop_done(self) -> None:
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
