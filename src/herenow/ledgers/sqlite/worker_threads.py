"""Threads in front of a blocking database: one hop per transaction, or one for all that is asked in a turn of the loop.

SQLite blocks, so it lives in threads. A driver that hops once per call (aiosqlite makes about a dozen hops for a small
transaction) pays for each with a handover of the interpreter lock: measured, a one-row write takes 2.2 ms that way and
0.5 ms as one hop, beside a saturated event loop 270 ms to 10 s against 3 ms. It is also simpler to end, and a cancelled
caller leaves no transaction half done: what has begun in the thread comes to its end there.

A hop costs more than a small question takes to answer. So what a storm of arrivals asks in the same turn of the loop, or
while an earlier hop is under way, goes there together (`ask`), and a thread keeps the connection that it asks by: to get one
from the pool for every hop, in a transaction, took half of the hop's time. A transaction that writes goes alone (`run`), for
its caller waits for its own disk sync and for no other's.

`WorkerThreads` knows threads and an engine, not what is asked nor what the driver's errors mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from threading import local
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from herenow.errors import Unavailable
from herenow.kit.batcher import Answers, Batcher
from herenow.ledgers.sqlite.thread_pool import ThreadPool

T = TypeVar("T")

TOGETHER = 50
"""Questions in one hop: a few milliseconds, so that nobody waits long for the answers to others."""

PATIENCE = 0.02
"""Seconds that questions wait for a hop to come back: it may have met a long one, and there are other threads."""


REST = 0.003
"""Seconds between two hops: arrivals come one by one, in a turn of the loop each, and in a storm this brings them together.
Who asks when nobody did for so long does not wait."""


class _Question:
    __slots__ = ("given_up", "work")

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work = work
        self.given_up = False
        """The caller was cancelled."""


class WorkerThreads:
    """Every piece of work gets a connection of the engine: what is run, in a transaction (what that means, the engine says);
    what is asked, outside of any."""

    def __init__(self, engine: Engine, threads: int, name: str) -> None:
        self._engine = engine
        self._threads = ThreadPool(threads, name, self._let_go)
        self._kept = local()
        """Each thread's connection for questions."""
        self._questions: Batcher[_Question, Any] = Batcher(
            self._hop, name, most=TOGETHER, spacing=REST, patience=PATIENCE
        )
        self._closed = False

    async def run(self, work: Callable[[Connection], T]) -> T:
        self._check()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def transact() -> T | None:
            # Who gave up before it began wants nothing.
            return None if done.cancelled() else self._transact(work)

        self._threads.do(transact, partial(_tell, done))
        return await done

    async def ask(self, work: Callable[[Connection], T]) -> T:
        """For work that changes nothing: it shares a hop, and a connection, with whatever else is asked now."""
        self._check()
        question = _Question(work)
        try:
            answer: T = await self._questions.ask(question)
        except asyncio.CancelledError:
            question.given_up = True
            raise
        return answer

    async def close(self) -> None:
        """Let what is under way end, then close all connections."""
        self._closed = True
        await self._questions.finish()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ending = ThreadPool(1, "herenow-ledger-end", _nothing)  # it waits for the others, which we may not
        ending.do(self._end, partial(_tell, done))
        await done
        ending.close()

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("The ledger is closed.")

    async def _hop(self, together: tuple[_Question, ...]) -> Answers[_Question, Any]:
        done: asyncio.Future[Answers[_Question, Any]] = asyncio.get_running_loop().create_future()
        self._threads.do(partial(self._answer, together), partial(_tell, done))
        try:
            return await done
        except Exception as error:  # noqa: BLE001 - there was no connection, for none of them
            return dict.fromkeys(together, error)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)

    def _answer(self, together: tuple[_Question, ...]) -> Answers[_Question, Any]:
        """What each of them led to. An error of one is not the others'; who has given up is not answered, so that a thread
        that was held up has no heap of old questions before it."""
        if all(question.given_up for question in together):
            return dict.fromkeys(together)
        connection = self._connection()
        answers = {question: _tried(question, connection) for question in together}
        if any(isinstance(answer, Exception) for answer in answers.values()):
            self._let_go()  # whatever is wrong with it
        elif connection.in_transaction():
            connection.rollback()  # what is asked next sees what is there then
        return answers

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._kept, "connection", None)
        if connection is None:
            connection = self._kept.connection = self._engine.connect()
        return connection

    def _let_go(self) -> None:
        connection: Connection | None = getattr(self._kept, "connection", None)
        if connection is not None:
            self._kept.connection = None
            connection.close()

    def _end(self) -> None:
        self._threads.close()
        self._engine.dispose()


def _nothing() -> None:
    pass


def _tried(question: _Question, connection: Connection) -> object:
    """The answer, or the exception that is raised where the question was asked."""
    try:
        return None if question.given_up else question.work(connection)
    except Exception as error:  # noqa: BLE001 - handed on
        return error


def _tell(asker: asyncio.Future[Any], answer: object, error: BaseException | None) -> None:
    if asker.done():
        return  # who asked has given up
    if error is None:
        asker.set_result(answer)
    else:
        asker.set_exception(error)
