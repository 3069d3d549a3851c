"""Open connections to PostgreSQL: to the first host that answers in time, is not a standby, and can hold a ledger.

Each connection has a *history* id. After a failover that lost transactions, or a restored backup, the ids of the change
table continue from an older value, and a reader with a higher cursor would miss changes; another history id reveals this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import asyncpg

from herenow.ledgers.postgres.postgres_errors import Unfit
from herenow.ledgers.postgres.postgres_url import PostgresUrl

SCHEMA = "herenow"
"""The schema of our tables. The application may have tables with the same names in this database."""

OLDEST = 14
"""The oldest supported major version of PostgreSQL."""

CONNECT = 3.0
"""Default deadline per host, in seconds."""

SETTINGS = {
    "application_name": "herenow",
    "search_path": SCHEMA,
    "jit": "off",  # statements are short and many: to compile one takes longer than to run it
    "plan_cache_mode": "force_custom_plan",  # a plan made for empty tables is slow when they have grown
    # The server releases the locks of a dead client after 25 s instead of two hours.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

STATE = """
SELECT pg_is_in_recovery() AS is_standby,
       current_setting('server_version_num')::int / 10000 AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('synchronous_commit') AS synchronous
"""

HISTORY = """
SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
                      left(pg_walfile_name(pg_current_wal_lsn()), 8), to_regclass('changes')::oid)
"""
"""The history id: database cluster, its timeline (a new one starts when a standby is promoted), oid of the change table."""

HISTORY_ELSEWHERE = "SELECT coalesce(to_regclass('changes')::oid::text, '')"
"""The history id on hosted services that deny those functions. Their storage survives a failover."""


if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection


class PostgresSession(_Connection):
    history = ""


class Connector:
    def __init__(self, url: PostgresUrl, settings: Mapping[str, object], deadline: float = CONNECT) -> None:
        self._url = url
        self._settings = SETTINGS | {name: str(value) for name, value in settings.items()}
        self._deadline = deadline
        self._hosts: list[tuple[str, int] | None] = [*url.hosts] or [None]

    async def connect(self) -> PostgresSession:
        """Connect to the first host of the URL that answers in time and can hold a ledger; it is tried first next time.
        Raises `Unfit`, or an error of the driver."""
        failures: list[Exception] = []
        for host in tuple(self._hosts):
            try:
                session = await self._connect(host)
            except (OSError, asyncpg.CannotConnectNowError, Unfit) as failure:
                failures.append(failure)
                continue
            self._hosts.sort(key=lambda each: each != host)  # try this host first next time
            return session
        raise next((each for each in failures if isinstance(each, TimeoutError)), failures[-1])

    async def _connect(self, host: tuple[str, int] | None) -> PostgresSession:
        name, port = host or (None, None)
        try:
            session = await asyncpg.connect(
                self._url.url,
                host=name,
                port=port,
                timeout=self._deadline,
                server_settings=self._settings,
                connection_class=PostgresSession,
            )
        except (asyncpg.ClientConfigurationError, ValueError) as error:
            raise Unfit("has a parameter in its URL that cannot be used") from error
        try:
            await self._examine(session)
        except BaseException:
            session.terminate()
            raise
        return session

    async def _examine(self, session: PostgresSession) -> None:
        found = await session.fetchrow(STATE, timeout=self._deadline)
        assert found is not None
        _check(found["version"], found["encoding"], is_standby=found["is_standby"])
        if found["synchronous"] == "off":  # an acknowledged commit must be durable
            await session.execute("SET synchronous_commit = on", timeout=self._deadline)
        try:
            session.history = await session.fetchval(HISTORY, timeout=self._deadline)
        except asyncpg.PostgresError:
            session.history = await session.fetchval(HISTORY_ELSEWHERE, timeout=self._deadline)


def _check(version: int, encoding: str, *, is_standby: bool) -> None:
    if is_standby:
        raise Unfit("is a standby in recovery, which cannot be written: name the primary", temporary="it is a standby")
    if version < OLDEST:
        raise Unfit(f"is PostgreSQL {version}: {OLDEST} or newer is needed")
    if encoding != "UTF8":
        raise Unfit(f"has the encoding {encoding}: create the database with the encoding UTF8")
