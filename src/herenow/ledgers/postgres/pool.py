"""A small pool of PostgreSQL connections. Every transaction completes or hits its deadline.

A transaction runs in its own task. A cancelled caller does not stop it, so no connection is left in an unknown state. If
the server does not answer (frozen, or the network is cut), the connection is dropped without waiting for the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakSet

import asyncpg
from sqlalchemy import Connection, PoolProxiedConnection, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from herenow.errors import Unavailable, UnknownOutcome
from herenow.ledgers.postgres.postgres_errors import FAILURES, NO_CONNECTION_LEFT, may_be_repeated, state_of

T = TypeVar("T")

URL = "postgresql+asyncpg://"
"""Tells SQLAlchemy only the dialect; `Connector` makes the connections."""

RETRY_EVERY = 0.5
"""Seconds between two attempts to reach an unresponsive server."""

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds to wait before each retry when the server has no connection left: one of ours may become free."""

CLOSE_WITHIN = 1.0
"""Seconds for a clean close of a connection."""

STATEMENT_MS = 800
"""`statement_timeout` of a write, in milliseconds per second of its deadline: the server stops at 80 % of the deadline."""

TRIES = 3
"""Attempts at a transaction that fails because of a deadlock or serialization conflict."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines of calls of the database, in seconds."""

    read: float
    write: float
    at_length: float
    """For writes that may take minutes (`at_length`)."""


class Pool:
    def __init__(
        self,
        connect: Callable[[], Awaitable[asyncpg.Connection[Any]]],
        *,
        size: int,
        writers: int,
        deadlines: Deadlines,
    ) -> None:
        """Create a pool of `size` connections, which `connect` opens when they are needed. At most `writers` of them
        write at the same time; the others are kept free for reads."""
        self._connect = connect
        self._deadlines = deadlines
        self._slots = asyncio.Semaphore(size)
        self._writing = asyncio.Semaphore(writers)
        self._open: WeakSet[asyncpg.Connection[Any]] = WeakSet()
        self._running: set[asyncio.Task[Any]] = set()
        self._breaker = _Breaker()
        self._closed = False
        self._engine = create_async_engine(
            URL,
            async_creator=self._open_connection,
            pool_size=size,
            max_overflow=0,
            pool_use_lifo=True,  # under low load, few connections are used
        )
        event.listen(self._engine.sync_engine, "checkout", _refuse_closed)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a connection, without a transaction, and return its result. Raises `Unavailable` or a driver
        error."""
        return await self._run_shielded(self._read(work))

    async def write(self, work: Callable[[Connection], T], *, at_length: bool = False) -> T:
        """Run `work` in one transaction, commit it and return the result of `work`. `at_length`: it may take minutes.
        Raises `UnknownOutcome`; or, if nothing was committed, `Unavailable` or a driver error."""
        return await self._run_shielded(self._write(work, at_length=at_length))

    async def close(self) -> None:
        """Wait for running transactions (at most the write deadline), then close all connections."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=self._deadlines.write)
        await asyncio.gather(*(close_connection(each) for each in self._open))
        if self._running:
            await asyncio.wait(self._running)
        await self._engine.dispose(close=False)

    async def _run_shielded(self, transaction: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(transaction, name="ledger")
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller may have been cancelled

    async def _read(self, work: Callable[[Connection], T]) -> T:
        async with self._connection(self._deadlines.read) as connection:
            plain = await connection.execution_options(isolation_level="AUTOCOMMIT")
            return await plain.run_sync(work)

    async def _write(self, work: Callable[[Connection], T], *, at_length: bool) -> T:
        async with self._slot(self._writing):
            for tries_left in reversed(range(TRIES)):
                try:
                    return await self._transact(work, at_length=at_length)
                except FAILURES as error:
                    if not tries_left or not may_be_repeated(error):
                        raise
        raise AssertionError("the last try returns or raises")

    async def _transact(self, work: Callable[[Connection], T], *, at_length: bool) -> T:
        deadline = self._deadlines.at_length if at_length else self._deadlines.write
        async with self._connection(deadline) as connection:
            await connection.exec_driver_sql(f"SET LOCAL statement_timeout = {round(deadline * STATEMENT_MS)}")
            result = await connection.run_sync(work)
            try:
                await connection.commit()
            except FAILURES as error:
                raise UnknownOutcome(
                    "The connection to the database was lost during a commit; the outcome is unknown."
                ) from error
            return result

    @asynccontextmanager
    async def _connection(self, deadline: float) -> AsyncIterator[AsyncConnection]:
        async with self._slot(self._slots):
            if self._closed:
                raise Unavailable("The database is closed.")
            with self._breaker.guard(), _DeadlineGuard(deadline, self._breaker) as deadline_guard:
                connection = self._engine.connect()
                await self._start(connection)
                try:
                    deadline_guard.watch(_driver(connection))
                    yield connection
                finally:
                    await connection.close()

    async def _start(self, connection: AsyncConnection) -> None:
        for pause in (*PAUSES, None):
            try:
                await connection.start()
                return
            except TimeoutError:
                self._breaker.failed()
                raise
            except FAILURES as error:
                if pause is None or state_of(error) != NO_CONNECTION_LEFT or not self._open:
                    raise
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def _slot(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        self._breaker.check()
        try:
            async with asyncio.timeout(self._deadlines.read):
                await slots.acquire()
        except TimeoutError:
            raise Unavailable("The database is busy: its connections are all in use.") from None
        try:
            yield
        finally:
            slots.release()

    async def _open_connection(self, *_arguments: object, **_options: object) -> asyncpg.Connection[Any]:
        connection = await self._connect()
        self._open.add(connection)
        return connection


class _Breaker:
    """A circuit breaker for an unresponsive server (error responses do not open it). While it is open, one call at a time
    may try the server, at most once per `RETRY_EVERY` seconds; other calls fail at once instead of at their deadline."""

    def __init__(self) -> None:
        self._is_open = False
        self._trying = False
        self._backing_off = False
        self._failures = 0

    def check(self) -> None:
        if self._is_open and (self._trying or self._backing_off):
            raise Unavailable("The database cannot be used: it does not answer.")

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Wrap a call of the database server, as a context manager. If `failed` is not called meanwhile, the server has
        answered, and the circuit breaker closes. Raises `Unavailable` at once if the breaker is open and no new try is
        due."""
        self.check()
        if not self._is_open:
            yield
            return
        failures, self._trying = self._failures, True
        try:
            yield
        finally:
            self._trying = False
            self._is_open = self._failures != failures

    def failed(self) -> None:
        self._is_open = True
        self._failures += 1
        if not self._backing_off:
            self._backing_off = True
            asyncio.get_running_loop().call_later(RETRY_EVERY, self._end_back_off)

    def _end_back_off(self) -> None:
        self._backing_off = False


class _DeadlineGuard:
    """Drops a connection when its deadline passes; the resulting driver error is raised as `TimeoutError`."""

    def __init__(self, seconds: float, breaker: _Breaker) -> None:
        self._seconds = seconds
        self._breaker = breaker
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False

    def __enter__(self) -> _DeadlineGuard:
        return self

    def watch(self, connection: asyncpg.Connection[Any]) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire, connection)

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and isinstance(error, FAILURES):
            raise TimeoutError(f"no answer within {self._seconds:g} s") from error

    def _expire(self, connection: asyncpg.Connection[Any]) -> None:
        self._expired = True
        self._breaker.failed()
        connection.terminate()


def _driver(connection: AsyncConnection) -> asyncpg.Connection[Any]:
    assert connection.sync_connection is not None
    driver: asyncpg.Connection[Any] | None = connection.sync_connection.connection.driver_connection
    assert driver is not None
    return driver


def _refuse_closed(_connection: object, record: PoolProxiedConnection, _proxy: object) -> None:
    """Make SQLAlchemy replace a pooled connection that the server has closed. SQLAlchemy calls it for each connection
    that it takes from its pool."""
    driver: asyncpg.Connection[Any] | None = record.driver_connection
    if driver is None or driver.is_closed():
        raise DisconnectionError


async def close_connection(connection: asyncpg.Connection[Any]) -> None:
    with suppress(*FAILURES):
        await connection.close(timeout=CLOSE_WITHIN)
    connection.terminate()
