"""A queue that coalesces by key: it keeps the latest value per key, so a slow reader cannot make it grow without bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Mailbox(Generic[Key, Value]):
    """Supports one reader at a time. Keys are read in the order of their oldest unread value."""

    def __init__(self) -> None:
        self._waiting: dict[Key, Value] = {}
        self._news = asyncio.Event()
        self._end: BaseException | None = None

    def put(self, key: Key, value: Value) -> None:
        self._waiting[key] = value
        self._news.set()

    def waiting(self, key: Key) -> Value | None:
        return self._waiting.get(key)

    def end(self, why: BaseException) -> None:
        """End the queue: `take` raises `why` once the remaining values are read. Iteration then raises it too, except a
        `StopAsyncIteration`, on which it just ends."""
        self._end = why
        self._news.set()

    async def take(self) -> Value:
        while not self._waiting:
            if self._end is not None:
                raise self._end.with_traceback(
                    None
                )  # the same exception is raised repeatedly: do not grow its traceback
            self._news.clear()
            await self._news.wait()
        return self._waiting.pop(next(iter(self._waiting)))

    async def __aiter__(self) -> AsyncIterator[Value]:
        while True:
            try:
                yield await self.take()
            except StopAsyncIteration:
                return
