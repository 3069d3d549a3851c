"""`SqliteLedger`: a ledger in an SQLite file or in memory. It needs no server.

With WAL, readers and the writer do not wait for each other. Writes of this process queue for one thread instead of
competing for the file lock; other processes (an import, a second worker) compete for it, for at most `busy_timeout`.

`synchronous=FULL`, because a user's mode and custom status must not be lost: NORMAL survives a `kill -9`, but not a power
failure. The price is one disk sync per transaction, and transactions are batches: a handful per second.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, QueuePool, StaticPool, create_engine, event, inspect
from sqlalchemy.exc import DBAPIError

from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers.sql import NEWEST, VERSION_TABLE, SqlLedger, Statements, read_id, revisions
from herenow.ledgers.sqlite.file_watch import FileWatch
from herenow.ledgers.sqlite.pair_facts_query import pair_facts
from herenow.ledgers.sqlite.sqlite_dialect import MINIMUM, SqliteDialect
from herenow.ledgers.sqlite.sqlite_errors import at_open, is_locked, while_running
from herenow.ledgers.sqlite.sqlite_process_lock import FILE_MODE, SqliteProcessLock
from herenow.ledgers.sqlite.worker_threads import WorkerThreads
from herenow.ports import LedgerChange, LedgerFacts

T = TypeVar("T")

STATEMENTS = Statements(SqliteDialect())

READERS = 3
"""Threads that read. Reads are short; more threads would only compete for the interpreter lock."""

CACHE = 8_000
"""KiB per connection. With the default of 2 000, reading 1 000 of half a million users is a third slower."""

BUSY_TIMEOUT = 2.0
"""Seconds to wait for a write of another process. The longest that we expect is a batch of an import, about 0.1 s."""


class SqliteLedger(SqlLedger):
    """The ledger in the SQLite file `path`. None: in memory, lost on `close`."""

    def __init__(self, path: str | Path | None, *, busy_timeout: float = BUSY_TIMEOUT) -> None:
        super().__init__(STATEMENTS)
        self._path = None if path is None else Path(path).absolute()
        self._busy_timeout = busy_timeout
        self._writer: WorkerThreads | None = None
        self._readers: WorkerThreads | None = None
        self._lock_timeouts = 0
        self._run = None if self._path is None else SqliteProcessLock(self._path)
        self._file = FileWatch(self._path)

    async def open(self) -> None:
        if self._writer is not None:
            return
        _check_library()
        self._check_place()
        await self.schema()  # refuses another application's database before anything is written to it
        self._writer = WorkerThreads(self._engine(1, wal=True), 1, "herenow-ledger-writer")
        self._readers = self._writer if self._path is None else self._reader_threads()
        try:
            self._id = await self._run_on(self._writer, self._exclusively(_prepare), self._at_open)
            self._file.begin()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for threads in (self._readers, self._writer):
            if threads is not None:
                await threads.close()
        self._readers = self._writer = self._id = None
        self._file.end()
        if self._run is not None:
            self._run.end()

    async def close_runs(self) -> int:
        """Lock the ledger for this process, then close the runs that earlier processes left: store a last seen for
        users that were visibly online in them. Returns the number of these users. Raises `ConfigurationError` if
        another process is running on this ledger."""
        if self._run is not None:
            self._run.begin()
        return await super().close_runs()

    async def pair_facts(
        self, user: str, others: Sequence[str], users: Sequence[str], now: int, *, related: bool, rooms: bool
    ) -> LedgerFacts:
        asked, wanted = tuple(others), tuple(users)

        def work(connection: Connection) -> LedgerFacts:
            found = pair_facts(connection, user, asked, wanted, now, related=related)
            relations, blocks, preferences = found
            mates = self._edges.share_rooms(connection, user, asked) if asked and rooms else frozenset[str]()
            return LedgerFacts(relations, blocks, mates, preferences)

        return await self._read(work)

    async def changes(self, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        def work(connection: Connection) -> tuple[list[LedgerChange], int]:
            self._file.check()
            return self._changes.after(connection, after, limit)

        return await self._run_on(self._readers, work, while_running, together=True)

    async def schema(self) -> tuple[str | None, str]:
        self._check_place()
        if self._writer is None and (self._path is None or not self._path.exists()):
            return None, NEWEST
        async with self._any_threads() as threads:
            return await self._run_on(threads, self._revision, self._at_open), NEWEST

    async def found_id(self) -> str | None:
        if (await self.schema())[0] is None:
            return None
        async with self._any_threads() as threads:
            return await self._run_on(threads, read_id, self._at_open)

    async def migrate(self) -> None:
        self._check_place()
        async with self._any_threads() as threads:
            await self._run_on(threads, self._exclusively(revisions.upgrade), self._at_open)

    async def _read(self, work: Callable[[Connection], T]) -> T:
        self._file.raise_if_lost()
        return await self._run_on(self._readers, work, while_running, together=True)

    async def _write(self, work: Callable[[Connection], T], *, at_length: bool = False) -> T:
        return await self._run_on(self._writer, self._exclusively(work), while_running)

    async def _run_on(
        self,
        threads: WorkerThreads | None,
        work: Callable[[Connection], T],
        explain: Callable[[Exception], Exception],
        *,
        together: bool = False,
    ) -> T:
        if threads is None:
            raise Unavailable("The database is not open.")
        try:
            return await (threads.ask(work) if together else threads.run(work))
        except (DBAPIError, sqlite3.Error) as error:
            explained = explain(error)
            if explained is error:
                raise
            raise explained from error

    def _exclusively(self, work: Callable[[Connection], T]) -> Callable[[Connection], T]:
        """Wrap `work` in a function that first takes the write lock of the file, so that `work` cannot fail for the
        lock half-way. If a write ahead in the queue times out waiting for the lock, all writes queued by then fail too,
        instead of waiting one time-out each."""
        asked = self._lock_timeouts

        def exclusive(connection: Connection) -> T:
            if asked != self._lock_timeouts:
                raise Unavailable("The database is locked by another process.")
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except DBAPIError as error:
                self._lock_timeouts += is_locked(error)
                raise
            self._file.check()
            result = work(connection)
            self._file.check()  # a commit to a file that was deleted meanwhile would be lost
            return result

        return exclusive

    def _at_open(self, error: Exception) -> Exception:
        return at_open(error, self._path)

    def _revision(self, connection: Connection) -> str | None:
        # All names in one query: another process may be creating the ledger, and its tables become visible all at once.
        tables = inspect(connection).get_table_names()
        if tables and VERSION_TABLE not in tables:
            raise ConfigurationError(
                f"The database {self._path} belongs to another application (it has a table {tables[0]!r}): "
                "name another file."
            )
        return revisions.found(connection) if tables else None

    def _check_place(self) -> None:
        if self._path is None:
            return
        if not self._path.parent.is_dir():
            raise ConfigurationError(
                f"The database {self._path} cannot be created: create the directory {self._path.parent}, "
                "or name a file in another one."
            )
        if self._path.is_dir():
            raise ConfigurationError(f"The database {self._path} is a directory: name a file in it.")

    @asynccontextmanager
    async def _any_threads(self) -> AsyncIterator[WorkerThreads]:
        """Provide the writer thread, or a temporary thread if the ledger is not open, as a context manager."""
        if self._writer is not None:
            yield self._writer
            return
        threads = WorkerThreads(self._engine(1), 1, "herenow-ledger-look")
        try:
            yield threads
        finally:
            await threads.close()

    def _reader_threads(self) -> WorkerThreads:
        return WorkerThreads(self._engine(READERS), READERS, "herenow-ledger-reader")

    def _engine(self, connections: int, *, wal: bool = False) -> Engine:
        arguments = {"timeout": self._busy_timeout, "check_same_thread": False}
        if self._path is None:
            engine = create_engine("sqlite://", poolclass=StaticPool, connect_args=arguments)
        else:
            _create_file(self._path)
            engine = create_engine(
                URL.create("sqlite", database=str(self._path)),
                poolclass=QueuePool,
                pool_size=connections,
                max_overflow=0,
                pool_use_lifo=True,  # the last used connection has the warmest cache
                connect_args=arguments,
            )
        event.listen(engine, "do_connect", self._refuse_other_file)
        event.listen(engine, "connect", partial(_set_up, wal=wal))
        return engine

    def _refuse_other_file(self, *_arguments: object) -> None:
        """Before SQLAlchemy opens a connection, check that the ledger's file is in place: SQLite would create a missing
        one. Raises `Unavailable`."""
        self._file.check()


def _create_file(path: Path) -> None:
    """Create the database as an empty file that other users of the machine cannot read, whatever the umask is. SQLite
    gives its `-wal` and `-shm` the same mode. An existing file stays as it is; if this fails, SQLite reports why.

    The file is created under another name, because closing a descriptor of the database would drop SQLite's locks."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{token_hex(8)}")
    with suppress(OSError):
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        try:
            os.link(draft, path)
        finally:
            draft.unlink()


def _prepare(connection: Connection) -> str:
    """Upgrade the database schema if it is not the newest, and return the ledger's id."""
    if revisions.found(connection) != NEWEST:
        revisions.upgrade(connection)
    return read_id(connection)


def _set_up(connection: sqlite3.Connection, _record: object, *, wal: bool) -> None:
    connection.isolation_level = None  # no implicit transactions: reads need none
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE}")
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")  # stored in the file: readers need not set it


def _check_library() -> None:
    if sqlite3.sqlite_version_info < MINIMUM:
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} is too old: Python must be linked to "
            f"{'.'.join(map(str, MINIMUM))} or newer."
        )
