"""What waits for a reader: the latest per key, in the order the keys came up. However slow it is, nothing else grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Mailbox(Generic[Key, Value]):
    """One reader at a time."""

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
        """After what waits, reading raises this."""
        self._end = why
        self._news.set()

    async def take(self) -> Value:
        while not self._waiting:
            if self._end is not None:
                raise self._end.with_traceback(None)  # the same one may be raised for ever
            self._news.clear()
            await self._news.wait()
        return self._waiting.pop(next(iter(self._waiting)))

    async def __aiter__(self) -> AsyncIterator[Value]:
        while True:
            try:
                yield await self.take()
            except StopAsyncIteration:
                return
