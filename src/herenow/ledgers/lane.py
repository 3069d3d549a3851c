"""Threads in front of a blocking database: one hop per transaction, or one for all that is asked in a turn of the loop.

SQLite blocks, so it lives in threads. A driver that hops once per call (aiosqlite makes about a dozen hops for a small
transaction) pays for each with a handover of the interpreter lock: measured, a one-row write takes 2.2 ms that way and
0.5 ms as one hop, beside a saturated event loop 270 ms to 10 s against 3 ms. It is also simpler to end, and a cancelled
caller leaves no transaction half done: what has begun in the thread comes to its end there.

A hop costs 150 µs of CPU, ten times what a small question takes to answer. So what a storm of arrivals asks in the same
turn of the loop, or while an earlier hop is under way, goes there together (`ask`); a transaction that writes goes alone
(`run`), for its caller waits for its own disk sync and for no other's.

A lane knows threads and an engine, not what is asked nor what the driver's errors mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from herenow.errors import Unavailable

T = TypeVar("T")

TOGETHER = 50
"""Questions in one hop: a few milliseconds, so that nobody waits long for the answers to others."""

PATIENCE = 0.02
"""Seconds that questions wait for a hop to come back: it may have met a long one, and there are other threads."""


_Asked = tuple[Callable[[Connection], Any], "asyncio.Future[Any]"]
_Answers = list[tuple[Any, Exception | None]]
_UNASKED: tuple[Any, Exception | None] = (None, None)


class Lane:
    """Every piece of work gets a connection of the engine, in a transaction (what that means, the engine says)."""

    def __init__(self, engine: Engine, threads: int, name: str) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._asked: list[_Asked] = []
        self._under_way = 0
        self._sending: asyncio.Handle | None = None
        self._closed = False

    async def run(self, work: Callable[[Connection], T]) -> T:
        self._check()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._transact, work)

    async def ask(self, work: Callable[[Connection], T]) -> T:
        """For work that changes nothing: it shares a hop, and a connection, with whatever else is asked now."""
        self._check()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._asked.append((work, answer))
        if self._sending is None:
            self._sending = (
                loop.call_later(PATIENCE, self._send) if self._under_way else loop.call_soon(self._send)
            )
        return await answer

    async def close(self) -> None:
        """Let what is under way end, then close all connections."""
        self._closed = True
        self._send()
        await asyncio.to_thread(self._end)

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("The ledger is closed.")

    def _send(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        while self._asked:
            together, self._asked = self._asked[:TOGETHER], self._asked[TOGETHER:]
            hop = asyncio.get_running_loop().run_in_executor(self._threads, self._answer, together)
            self._under_way += 1
            hop.add_done_callback(partial(self._came_back, together))

    def _came_back(self, together: list[_Asked], hop: asyncio.Future[_Answers]) -> None:
        self._under_way -= 1
        _hand_out(together, hop)
        if self._asked and not self._closed:
            self._send()

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)

    def _answer(self, together: list[_Asked]) -> _Answers:
        """What each of them led to. An error of one is not the others'; who has given up is not answered, so that a thread
        that was held up has no heap of old questions before it."""
        if all(asker.done() for _, asker in together):
            return [_UNASKED] * len(together)
        with self._engine.begin() as connection:
            return [
                _UNASKED if asker.done() else _tried(question, connection) for question, asker in together
            ]

    def _end(self) -> None:
        self._threads.shutdown(wait=True)
        self._engine.dispose()


def _tried(question: Callable[[Connection], T], connection: Connection) -> tuple[T | None, Exception | None]:
    try:
        return question(connection), None
    except Exception as error:  # noqa: BLE001 - it is raised where the question was asked
        return None, error


def _hand_out(together: list[_Asked], hop: asyncio.Future[_Answers]) -> None:
    failure = hop.exception()  # there was no connection, for none of them
    answered = [(None, failure)] * len(together) if failure is not None else hop.result()
    for (_, asker), (answer, error) in zip(together, answered, strict=True):
        if asker.done():
            continue  # who asked has given up
        if error is None:
            asker.set_result(answer)
        else:
            asker.set_exception(error)
