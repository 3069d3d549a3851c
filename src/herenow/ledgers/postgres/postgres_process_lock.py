"""Does another process run on this ledger? An embedded run must be the only one (`sqlite_process_lock` says why).

The run holds a lock of the database on a connection of its own, which the server takes from a process that ends, however it
ends. When the server itself was away, the lock is taken again before the next stamp.
"""

from __future__ import annotations

from herenow.errors import ConfigurationError, Unavailable
from herenow.ledgers.postgres.connector import CONNECT, Connector, PostgresSession
from herenow.ledgers.postgres.pool import leave
from herenow.ledgers.postgres.postgres_dialect import LOCKS, RUNNING
from herenow.ledgers.postgres.postgres_url import PostgresUrl


class PostgresProcessLock:
    def __init__(self, url: PostgresUrl, connector: Connector) -> None:
        self._url = url
        self._connector = connector
        self._session: PostgresSession | None = None

    async def begin(self) -> None:
        """Raises `ConfigurationError` where another run is under way."""
        if not await self._take():
            raise ConfigurationError(
                f"The ledger {self._url} is in use by another herenow serve with the engine memory://: "
                "stop that one, or name another ledger."
            )

    async def keep(self) -> None:
        """Raises `Unavailable` where another run has begun while the server was away."""
        if not await self._take():
            raise Unavailable("Another herenow serve with the engine memory:// has begun on this ledger.")

    async def end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await leave(session)

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
            await leave(session)
            return False
        self._session = session
        return True

    async def _is_alive(self, session: PostgresSession) -> bool:
        """True, or it raises: a connection that was cut without a word looks as good as ever, and holds no lock."""
        try:
            await session.execute("SELECT 1", timeout=CONNECT)
        except BaseException:
            session.terminate()
            raise
        return True
