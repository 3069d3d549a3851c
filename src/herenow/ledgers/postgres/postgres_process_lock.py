"""A lock that lets only one process with the memory engine use a ledger (`sqlite_process_lock` says why).

It is an advisory lock on a connection of its own, which the server releases when the process ends for any reason. If the
server restarts, the lock is taken again before the next timestamp of the run is written.
"""

from __future__ import annotations

from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers.postgres.connector import CONNECT, Connector, PostgresSession
from herenow.ledgers.postgres.pool import close_connection
from herenow.ledgers.postgres.postgres_dialect import LOCKS, RUNNING
from herenow.ledgers.postgres.postgres_url import PostgresUrl


class PostgresProcessLock:
    def __init__(self, url: PostgresUrl, connector: Connector) -> None:
        self._url = url
        self._connector = connector
        self._session: PostgresSession | None = None
        self.begun = False  # True: this process has the memory engine

    async def begin(self) -> None:
        """Lock the ledger, so that no other process with the memory engine can use it. Raises `ConfigurationError` if
        another process has the lock."""
        if not await self._take():
            raise ConfigurationError(
                f"The database {self._url} is in use by another herenow serve with the engine memory://: "
                "stop that one, or name another database."
            )
        self.begun = True

    async def keep(self) -> None:
        """Check that this process still has the lock, and take it again if it was lost. Raises `Unavailable` if another
        process has it now."""
        if not await self._take():
            raise Unavailable("Another herenow serve with the engine memory:// has started on this database.")

    async def end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await close_connection(session)

    async def _take(self) -> bool:
        if self._session is not None and not self._session.is_closed():
            return await self._is_alive(self._session)
        session = await self._connector.connect()
        try:
            taken = await session.fetchval(f"SELECT pg_try_advisory_lock({LOCKS}, {RUNNING})", timeout=CONNECT)
        except BaseException:
            session.terminate()
            raise
        if not taken:
            await close_connection(session)
            return False
        self._session = session
        return True

    async def _is_alive(self, session: PostgresSession) -> bool:
        """Ask the server whether the connection with the lock still works: one that was cut silently seems open but
        holds no lock. Returns True, or raises the driver's error."""
        try:
            await session.execute("SELECT 1", timeout=CONNECT)
        except BaseException:
            session.terminate()
            raise
        return True
