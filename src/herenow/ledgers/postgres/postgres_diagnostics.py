"""Checks of a PostgreSQL server for `herenow doctor`. They only read."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from herenow.ledgers.postgres.postgres_url import PostgresUrl
from herenow.ledgers.postgres.schema_check import check_rights, revision
from herenow.ledgers.sql import NEWEST

STATE = """
SELECT current_setting('server_version'),
       has_database_privilege(current_database(), 'CREATE'),
       current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) OR inet_client_addr() IS NULL
           OR inet_client_addr() <<= '127.0.0.0/8' OR inet_client_addr() = '::1',
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       extract(epoch FROM clock_timestamp())::float8
"""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    revision: str | None
    version: str
    may_create: bool
    """The user may create a schema; needed only if ours does not exist yet."""
    survives_power_loss: bool
    is_private: bool
    """The connection is encrypted, or local."""
    connections_left: int
    now: float
    """The server's clock, in epoch seconds."""


def diagnose(connection: Connection, url: PostgresUrl) -> Diagnostics:
    """Read version, schema revision, rights and clock of the server, for `herenow doctor`. If the schema is up to date,
    raises `ConfigurationError` when its user lacks rights or the database is read-only."""
    found = revision(connection)
    if found == NEWEST:
        check_rights(connection, url)
    return Diagnostics(found, *connection.exec_driver_sql(STATE).one())
