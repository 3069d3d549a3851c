"""`PostgresLedger`: a ledger in PostgreSQL. Every call has a deadline (see `pool`).

The tables are created at the first start. An older schema is not upgraded at start but by `herenow migrate`, because nodes
of the previous version may still use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import structlog
from sqlalchemy import Connection, NullPool
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from herenow.errors import ConfigurationError, Unavailable, UnknownOutcome
from herenow.ledgers.postgres.connector import Connector, PostgresSession
from herenow.ledgers.postgres.pool import URL, Deadlines, Pool
from herenow.ledgers.postgres.postgres_diagnostics import Diagnostics, diagnose
from herenow.ledgers.postgres.postgres_dialect import PostgresDialect
from herenow.ledgers.postgres.postgres_errors import FAILURES, at_open, error_text, while_running
from herenow.ledgers.postgres.postgres_process_lock import PostgresProcessLock
from herenow.ledgers.postgres.postgres_url import PostgresUrl
from herenow.ledgers.postgres.schema_check import check_rights, make_schema, revision
from herenow.ledgers.sql import NEWEST, SqlLedger, Statements, read_id, revisions
from herenow.ports import LedgerChange

T = TypeVar("T")

log = structlog.get_logger(__name__)

STATEMENTS = Statements(PostgresDialect())

LOOK = 10.0
"""Seconds for a read-only check of a database that is not open."""

CONNECTIONS, WRITERS = 6, 3
"""Per node. With more connections, queries would only queue in the server. Writers may not take all of them, because they
can wait for each other's locks (see `dialect.LockKind`)."""

DEADLINES = Deadlines(read=3.0, write=6.0, at_length=300.0)
"""`at_length` is for work on a whole table, or on all rows of a deleted user with very many relations."""

MILLISECONDS = {"statement_timeout": 2_500, "lock_timeout": 4_500, "idle_in_transaction_session_timeout": 5_000}
"""Time-outs in the server. They are shorter than our deadlines, so that its error arrives first. `lock_timeout` leaves
time for a hundred writes that wait for each other; `pool` sets a longer `statement_timeout` for writes. The last one
releases the locks of a frozen node."""

MIGRATING = {"statement_timeout": 0, "lock_timeout": 5_000, "idle_in_transaction_session_timeout": 0}
"""A migration may run for long, but not wait for a lock for long: all other queries on that table would queue behind it."""


class PostgresLedger(SqlLedger):
    def __init__(self, url: PostgresUrl, *, deadlines: Deadlines = DEADLINES) -> None:
        super().__init__(STATEMENTS)
        self._url = url
        self._deadlines = deadlines
        self._connector = Connector(url, MILLISECONDS)
        self._pool: Pool | None = None
        self._run = PostgresProcessLock(url, self._connector)
        self._history = ""
        self._logged_error = ""

    async def open(self) -> None:
        if self._pool is not None:
            return
        self._pool = Pool(self._connector.connect, size=CONNECTIONS, writers=WRITERS, deadlines=self._deadlines)
        try:
            with self._at_open():
                await self._check_revision(await self._pool.read(revision))
                self._id, self._history = await self._pool.read(self._read_identity)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        pool, self._pool, self._id = self._pool, None, None
        await self._run.end()
        if pool is not None:
            await pool.close()

    async def schema(self) -> tuple[str | None, str]:
        async with self._separate_connection(LOOK) as connection:
            return await connection.run_sync(revision), NEWEST

    async def found_id(self) -> str | None:
        async with self._separate_connection(LOOK) as connection:
            if await connection.run_sync(revision) is None:
                return None
            return await connection.run_sync(read_id)

    async def migrate(self) -> None:
        async with self._separate_connection() as connection:
            await _migrate(connection, if_empty=False)

    async def diagnose(self) -> Diagnostics:
        """Return version, schema revision, rights and clock of the server, for `herenow doctor`. Only reads, and works
        without `open`."""
        async with self._separate_connection(LOOK) as connection:
            return await connection.run_sync(diagnose, self._url)

    # Runs: with the memory engine, only one process may use the ledger

    async def close_runs(self) -> int:
        """Lock the ledger for this process, then close the runs that earlier processes left: store a last seen for
        users that were visibly online in them. Returns the number of these users. Raises `ConfigurationError` if
        another process is running on this ledger."""
        with self._at_open():
            await self._run.begin()
        return await super().close_runs()

    async def stamp_run(self, run: str, at: int) -> bool:
        if self._run.begun:
            await self._translate_errors(self._run.keep())
        return await super().stamp_run(run, at)

    # The change table

    async def changes(self, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        rows, cursor, history = await self._read(lambda c: (*self._changes.after(c, after, limit), _session(c).history))
        return (rows, cursor) if history == self._history else await self._restart_cursor()

    async def _restart_cursor(self) -> tuple[list[LedgerChange], int]:
        """Return the change `everything` and a new cursor, because the history id changed (a failover, a restored
        backup): the changes since the old cursor are unknown. Raises `Unavailable` if it is another ledger now."""
        head, id_, history = await self._read(lambda c: (self._changes.head(c), read_id(c), _session(c).history))
        if id_ != self._id:
            raise Unavailable("The database cannot be used: it is not the one that herenow started with.")
        self._history = history
        return [LedgerChange("everything", "", "")], head

    async def _read(self, work: Callable[[Connection], T]) -> T:
        return await self._translate_errors(self._open_pool().read(work))

    async def _write(self, work: Callable[[Connection], T], *, at_length: bool = False) -> T:
        return await self._translate_errors(self._open_pool().write(work, at_length=at_length))

    def _open_pool(self) -> Pool:
        if self._pool is None:
            raise Unavailable("The database is not open.")
        return self._pool

    async def _translate_errors(self, answer: Awaitable[T]) -> T:
        try:
            result = await answer
        except FAILURES as error:
            explained = while_running(error)
            if explained is error:
                raise
            self._log(error_text(error))
            raise explained from error
        except UnknownOutcome as error:
            self._log(error_text(error.__cause__ or error))
            raise
        self._logged_error = ""
        return result

    def _log(self, text: str) -> None:
        """Log the server's error text, once until a call succeeds or the text changes."""
        if text != self._logged_error:
            self._logged_error = text
            log.warning("ledger.refuses", error=text)

    @contextmanager
    def _at_open(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            explained = at_open(error, self._url)
            if explained is error:
                raise
            raise explained from error

    async def _check_revision(self, found: str | None) -> None:
        if found is None:
            async with self._separate_connection() as connection:
                found = await _migrate(connection, if_empty=True)
        if found < NEWEST:  # revisions are numbered
            raise ConfigurationError(
                f"The database {self._url} has schema {found!r}, and this herenow needs {NEWEST!r}: "
                "run herenow migrate first."
            )
        if found > NEWEST:
            raise revisions.unknown(found)

    def _read_identity(self, connection: Connection) -> tuple[str, str]:
        check_rights(connection, self._url)
        return read_id(connection), _session(connection).history

    @asynccontextmanager
    async def _separate_connection(self, deadline: float | None = None) -> AsyncIterator[AsyncConnection]:
        """Open a connection outside of the pool, as a context manager. It is dropped after `deadline` seconds; None
        (for migrations): no deadline."""
        connector = Connector(self._url, MIGRATING)

        async def connect(*_arguments: object, **_options: object) -> PostgresSession:
            session = await connector.connect()
            if deadline is not None:
                asyncio.get_running_loop().call_later(deadline, session.terminate)
            return session

        engine = create_async_engine(URL, async_creator=connect, poolclass=NullPool)
        with self._at_open():
            async with engine.connect() as connection:
                yield connection


async def _migrate(connection: AsyncConnection, *, if_empty: bool) -> str:
    """Create or upgrade the tables, in one transaction that locks out other processes, and return the schema revision
    afterwards. `if_empty`: do it only if there are no tables yet."""
    async with revisions.exclusive():
        await connection.run_sync(make_schema)
        found = await connection.run_sync(revision)
        if found is None or not if_empty:
            await connection.run_sync(revisions.upgrade_exclusively)
            await connection.commit()
            found = NEWEST
    return found


def _session(connection: Connection) -> PostgresSession:
    session = connection.connection.driver_connection
    assert isinstance(session, PostgresSession)
    return session
