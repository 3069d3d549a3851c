"""Our schema in somebody's database: is it there, how far is it, and may we use it?

All of it works for a user who owns nothing but this schema, or who only may read and write its tables.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from herenow.errors import ConfigurationError
from herenow.ledgers.postgres.connector import SCHEMA
from herenow.ledgers.postgres.postgres_dialect import LOCKS, MIGRATING
from herenow.ledgers.postgres.postgres_errors import READ_ONLY, RIGHTS, TO_FIX
from herenow.ledgers.postgres.postgres_url import PostgresUrl
from herenow.ledgers.sql import VERSION_TABLE, revisions

_SCHEMA = text("SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = :name")

_MISSING_RIGHTS = text(
    """
    SELECT relname FROM pg_class
    WHERE relnamespace = CAST(:name AS regnamespace) AND CASE relkind
        WHEN 'S' THEN NOT (has_sequence_privilege(oid, 'USAGE') AND has_sequence_privilege(oid, 'SELECT'))
        WHEN 'r' THEN NOT (has_table_privilege(oid, 'SELECT') AND (relname = :version
            OR has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')
               AND has_table_privilege(oid, 'DELETE')))
        ELSE false END
    ORDER BY relname
    """
)


def revision(connection: Connection) -> str | None:
    """What stands in the database; None: no ledger was ever made in it."""
    usable: bool | None = connection.scalar(_SCHEMA, {"name": SCHEMA})
    if usable is None:
        return None
    if not usable:  # its tables would look as if they were not there
        raise ConfigurationError(f"The ledger's user may not use the schema {SCHEMA} of the database: {RIGHTS}.")
    return revisions.found(connection)


def make_schema(connection: Connection) -> None:
    """From here on no other migration is under way. The schema is there, its tables are the migrations' to make."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCKS}, {MIGRATING})")
    # Not IF NOT EXISTS: that needs the right to make one even where there is one.
    if connection.scalar(_SCHEMA, {"name": SCHEMA}) is None:
        connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")


def check_rights(connection: Connection, url: PostgresUrl) -> None:
    """Raises `ConfigurationError` where something will not be possible that is only needed later."""
    missing = connection.scalars(_MISSING_RIGHTS, {"name": SCHEMA, "version": VERSION_TABLE}).first()
    if missing is not None:
        raise ConfigurationError(f"The ledger {url} does not let its user read and write {SCHEMA}.{missing}: {RIGHTS}.")
    if connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on":
        raise ConfigurationError(f"The ledger {url} {TO_FIX[READ_ONLY]}.")
