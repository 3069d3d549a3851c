"""Merges calls that are made at about the same time into one call.

A caller asks for a key, which joins the open batch. One call of `work` answers all keys of a batch, and each caller gets the
answer to its key, or the error. A key that is asked twice is in the batch once. A key never joins a batch that is under way:
that answer may be older than the change that made the caller ask.

An open batch is sent

- after `delay` seconds; 0: in the next iteration of the loop, with everything that was asked in this one;
- but not within `spacing` seconds of the previous batch;
- and not for `patience` seconds while another batch is under way, unless that one is answered before;
- in any case when it has `most` keys.

A batch runs in a task of its own: cancelling one caller does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

from herenow.errors import HerenowError, Unavailable
from herenow.kit.tasks import Tasks

Key = TypeVar("Key")
Answer = TypeVar("Answer")
Answers = Mapping[Key, Answer | Exception]


class Batcher(Generic[Key, Answer]):
    def __init__(
        self,
        work: Callable[[tuple[Key, ...]], Awaitable[Answers[Key, Answer]]],
        name: str,
        *,
        most: int | None = None,
        delay: float = 0.0,
        spacing: float = 0.0,
        patience: float = 0.0,
    ) -> None:
        """Merge calls into calls of `work`, which answers at most `most` keys, each with a value or an exception. A
        `HerenowError` that it raises is the answer to every key; any other error is logged with `name`, and the answer is
        `Unavailable`. `delay`, `spacing` and `patience` (seconds) determine when a batch is sent, as the module explains."""
        self._work = work
        self._name = name
        self._most = most
        self._delay = delay
        self._spacing = spacing
        self._patience = patience
        self._tasks = Tasks()
        self._open: _Batch[Key, Answer] | None = None
        self._under_way: set[_Batch[Key, Answer]] = set()
        self._sent_at = float("-inf")
        self.waiting = 0
        """Keys that wait for an answer."""

    async def ask(self, key: Key) -> Answer:
        """Ask for one key, and return its answer, or raise the answer if it is an exception."""
        answers = await self._join(key).waiter()
        answer = answers[key]
        if isinstance(answer, HerenowError):
            raise answer.with_traceback(None)  # may be shared: it would collect the tracebacks of all callers
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask_all(self, keys: Iterable[Key]) -> dict[Key, Answer | Exception]:
        """Ask for several keys, and return the answer to each, which may be an exception."""
        joined: dict[_Batch[Key, Answer], list[Key]] = {}
        for key in keys:
            joined.setdefault(self._join(key), []).append(key)
        waiters = [(batch.waiter(), wanted) for batch, wanted in joined.items()]
        found: dict[Key, Answer | Exception] = {}
        for waiter, wanted in waiters:
            answers = await waiter
            found.update((key, answers[key]) for key in wanted)
        return found

    async def finish(self) -> None:
        """Send the open batch at once, and wait until all keys that were asked are answered."""
        self._send_open()
        for waiter in [batch.waiter() for batch in self._under_way]:
            await waiter

    async def close(self) -> None:
        """Cancel all batches. Their callers get `Unavailable`."""
        self._send_open()
        await self._tasks.end()

    def _send_open(self) -> None:
        if self._open is not None and not self._open.sent:
            self._send(self._open)

    def _join(self, key: Key) -> _Batch[Key, Answer]:
        batch = self._open
        if batch is None:
            batch = self._open = _Batch()
            self._schedule(batch, self._patience if self._under_way else 0.0)
        if key not in batch.keys:
            batch.keys[key] = None
            self.waiting += 1
            if self._most is not None and len(batch.keys) >= self._most:
                self._open = None
                if not batch.sent:
                    self._send(batch)
        return batch

    def _schedule(self, batch: _Batch[Key, Answer], wait: float) -> None:
        loop = asyncio.get_running_loop()
        if self._spacing:
            # Never more than the spacing: the previous batch may have been sent on a loop with another time.
            wait = max(wait, min(self._spacing, self._sent_at + self._spacing - loop.time()))
        wait = max(wait, self._delay)
        if wait > 0.0:
            batch.timer = loop.call_later(wait, self._send, batch)
        else:
            self._send(batch)

    def _send(self, batch: _Batch[Key, Answer]) -> None:
        """Start the task that answers a batch. Keys may still join until the task runs, in the next iteration of the
        loop."""
        batch.sent = True
        if batch.timer is not None:
            batch.timer.cancel()
        if self._spacing:
            self._sent_at = asyncio.get_running_loop().time()
        self._under_way.add(batch)
        task = self._tasks.spawn(self._run(batch), self._name)
        task.add_done_callback(lambda _: self._ended(batch))

    async def _run(self, batch: _Batch[Key, Answer]) -> None:
        if self._open is batch:
            self._open = None
        try:
            answers = await self._work(tuple(batch.keys))
        except HerenowError as error:
            answers = dict.fromkeys(batch.keys, error)
        self._finish_batch(batch, answers)

    def _ended(self, batch: _Batch[Key, Answer]) -> None:
        if not batch.answered:  # cancelled, perhaps before it started, or failed unexpectedly
            if self._open is batch:
                self._open = None
            self._finish_batch(batch, dict.fromkeys(batch.keys, Unavailable(f"{self._name} was cancelled")))

    def _finish_batch(self, batch: _Batch[Key, Answer], answers: Answers[Key, Answer]) -> None:
        batch.answer(answers)
        self._under_way.discard(batch)
        self.waiting -= len(batch.keys)
        if self._patience and self._open is not None and not self._open.sent:
            assert self._open.timer is not None
            self._open.timer.cancel()
            self._schedule(self._open, 0.0)


class _Batch(Generic[Key, Answer]):
    __slots__ = ("answered", "keys", "sent", "timer", "waiters")

    def __init__(self) -> None:
        self.keys: dict[Key, None] = {}
        self.waiters: list[asyncio.Future[Answers[Key, Answer]]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.sent = False
        self.answered = False

    def waiter(self) -> asyncio.Future[Answers[Key, Answer]]:
        waiter: asyncio.Future[Answers[Key, Answer]] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return waiter

    def answer(self, answers: Answers[Key, Answer]) -> None:
        self.answered = True
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(answers)
