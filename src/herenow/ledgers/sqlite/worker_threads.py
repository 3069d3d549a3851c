"""`WorkerThreads`: runs work on a blocking database in threads, one thread job per transaction or per batch of reads.

aiosqlite makes about a dozen thread jobs for a small transaction, and each passes the interpreter lock back and forth.
Measured: a one-row write takes 2.2 ms that way and 0.5 ms as one job; beside a saturated event loop 270 ms to 10 s against
3 ms. With one job, a cancelled caller also leaves no transaction half done.

A job costs more than a small query. So `ask` batches the queries of the same loop iteration, and those that arrive while an
earlier batch runs. Each thread keeps its connection for queries: to take one from the engine's pool for every job took half
of the job's time. A writing transaction is a job of its own (`run`), so that its caller waits only for its own disk sync.
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
"""Maximum queries per batch. They take a few milliseconds, which bounds how long one query delays the others."""

PATIENCE = 0.02
"""Seconds that a batch waits for an earlier one to complete. That one may contain a slow query; there are other threads."""


SPACING = 0.003
"""Minimum seconds between two batches. When many clients connect at once, each is a loop iteration of its own; this puts
their queries into one batch. A query after a longer pause is not delayed."""


class _Question:
    __slots__ = ("cancelled", "work")

    def __init__(self, work: Callable[[Connection], Any]) -> None:
        self.work = work
        self.cancelled = False
        """The caller was cancelled; do not run the query."""


class WorkerThreads:
    def __init__(self, engine: Engine, threads: int, name: str) -> None:
        self._engine = engine
        self._threads = ThreadPool(threads, name, self._drop_connection)
        self._local = local()
        """Each thread's connection for `ask`."""
        self._questions: Batcher[_Question, Any] = Batcher(
            self._run_batch, name, most=TOGETHER, spacing=SPACING, patience=PATIENCE
        )
        self._closed = False

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction, as a thread job of its own, and return its result. If the caller is cancelled
        before that, nothing runs."""
        self._check()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def transact() -> T | None:
            return None if done.cancelled() else self._transact(work)

        self._threads.do(transact, partial(_resolve, done))
        return await done

    async def ask(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads, in a thread and in one batch with other queries, without a transaction. Return
        its result."""
        self._check()
        question = _Question(work)
        try:
            answer: T = await self._questions.ask(question)
        except asyncio.CancelledError:
            question.cancelled = True
            raise
        return answer

    async def close(self) -> None:
        """Wait for queued work, then close all connections."""
        self._closed = True
        await self._questions.finish()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ending = ThreadPool(1, "herenow-ledger-end", _nothing)  # joins the other threads, which would block the loop
        ending.do(self._end, partial(_resolve, done))
        await done
        ending.close()

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("The database is closed.")

    async def _run_batch(self, batch: tuple[_Question, ...]) -> Answers[_Question, Any]:
        done: asyncio.Future[Answers[_Question, Any]] = asyncio.get_running_loop().create_future()
        self._threads.do(partial(self._answer, batch), partial(_resolve, done))
        try:
            return await done
        except Exception as error:  # noqa: BLE001 - no connection: the whole batch fails
            return dict.fromkeys(batch, error)

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)

    def _answer(self, batch: tuple[_Question, ...]) -> Answers[_Question, Any]:
        """Run a batch of queries; return the result or exception of each one. Cancelled queries are skipped."""
        if all(question.cancelled for question in batch):
            return dict.fromkeys(batch)
        connection = self._connection()
        answers = {question: _result_of(question, connection) for question in batch}
        if any(isinstance(answer, Exception) for answer in answers.values()):
            self._drop_connection()  # the connection may be broken
        elif connection.in_transaction():
            connection.rollback()  # the next batch must not read an old snapshot
        return answers

    def _connection(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._engine.connect()
        return connection

    def _drop_connection(self) -> None:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            self._local.connection = None
            connection.close()

    def _end(self) -> None:
        self._threads.close()
        self._engine.dispose()


def _nothing() -> None:
    pass


def _result_of(question: _Question, connection: Connection) -> object:
    """Run one query; return its result, or the exception to raise in the caller. A cancelled query is not run."""
    try:
        return None if question.cancelled else question.work(connection)
    except Exception as error:  # noqa: BLE001 - handed on
        return error


def _resolve(future: asyncio.Future[Any], answer: object, error: BaseException | None) -> None:
    if future.done():
        return  # the caller was cancelled
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)
