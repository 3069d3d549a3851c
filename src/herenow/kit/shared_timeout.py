"""One timer for thousands of waits that all have the same time limit.

A timer for each wait costs as much as what is waited for, and nearly all of them are cancelled. Here the waits stand in a
queue, in the order in which they end, and one timer is set for the first. A wait that is over leaves the queue when it gets
to its head: with the next wait, or with the timer.
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
        """Wait for `answer`, at most `seconds`; raises `TimeoutError` after that. The answer itself gets the error, so only
        one caller may wait for it."""
        if not answer.done():
            self._drop_done()
            loop = asyncio.get_running_loop()
            until = loop.time() + self._seconds
            self._waiting.append((until, answer))
            if self._timer is None:
                self._timer = loop.call_at(until, self._expire)
        await answer

    def close(self) -> None:
        """Every wait that is under way ends now, with `TimeoutError`."""
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
