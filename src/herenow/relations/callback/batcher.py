"""Questions that come at the same time are asked together.

A thousand viewers who look at once make one request, not a thousand. What is asked is put into an open batch; a moment
later, or when it is full, the batch is sent. A question never joins a batch that is already on its way: the answer may be
from before the change that the asker has just heard of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from herenow.relations.callback.failures import Failed

GATHER = 0.005
"""Seconds a batch stays open."""

MOST_WAITING = 100_000
"""Keys that may wait for an answer; beyond, the next is refused at once."""

Key = TypeVar("Key")
Fact = TypeVar("Fact")
Answers = Mapping[Key, Fact | Failed]


class Gathering(Generic[Key, Fact]):
    def __init__(self, most: int, answer: Callable[[tuple[Key, ...]], Awaitable[Answers[Key, Fact]]]) -> None:
        """`answer` says something, or `Failed`, of each of at most `most` keys, within its own deadline."""
        self._most = most
        self._answer = answer
        self._open: _Batch[Key, Fact] | None = None
        self._waiting = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, keys: Iterable[Key]) -> dict[Key, Fact]:
        """What is missing could not be answered. Raises `Failed` when that is all of it."""
        facts: dict[Key, Fact] = {}
        failed: Failed | None = None
        for batch, wanted in self._joined(dict.fromkeys(keys)).items():
            answers = await asyncio.shield(batch.answers)  # who gives up must not take it from the others
            for key in wanted:
                answer = answers[key]
                if isinstance(answer, Failed):
                    failed = answer
                else:
                    facts[key] = answer
        if failed is not None and not facts:
            raise Failed(failed.kind, str(failed), away=failed.away)
        return facts

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._open is not None:
            self._open.timer.cancel()

    def _joined(self, keys: Iterable[Key]) -> dict[_Batch[Key, Fact], list[Key]]:
        joined: dict[_Batch[Key, Fact], list[Key]] = {}
        for key in keys:
            if self._waiting >= MOST_WAITING:
                raise Failed("busy", f"{self._waiting} questions wait for the application already.")
            batch = self._open or self._begin()
            if key not in batch.keys:
                batch.keys[key] = None
                self._waiting += 1
            joined.setdefault(batch, []).append(key)
            if len(batch.keys) >= self._most:
                self._send(batch)
        return joined

    def _begin(self) -> _Batch[Key, Fact]:
        loop = asyncio.get_running_loop()
        batch = self._open = _Batch(loop.create_future())
        batch.timer = loop.call_later(GATHER, self._send, batch)
        return batch

    def _send(self, batch: _Batch[Key, Fact]) -> None:
        batch.timer.cancel()
        self._open = None
        task = asyncio.get_running_loop().create_task(self._settle(batch), name="relations-callback")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, batch: _Batch[Key, Fact]) -> None:
        keys = tuple(batch.keys)
        answers: Answers[Key, Fact] = dict.fromkeys(keys, _CUT_OFF)
        try:
            answers = await self._answer(keys)
        finally:
            self._waiting -= len(keys)
            if not batch.answers.done():
                batch.answers.set_result(answers)


class _Batch(Generic[Key, Fact]):
    __slots__ = ("answers", "keys", "timer")

    def __init__(self, answers: asyncio.Future[Answers[Key, Fact]]) -> None:
        self.keys: dict[Key, None] = {}
        self.answers = answers
        self.timer: asyncio.TimerHandle


_CUT_OFF = Failed("unreachable", "The node is stopping.")
