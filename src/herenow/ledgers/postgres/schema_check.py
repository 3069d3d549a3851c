"""Check and create our schema in a database. Works for a user that may only read and write the tables of this schema."""

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
    """Return the schema revision of the database; None if it has no ledger. Raises `ConfigurationError` if the user may
    not use the schema."""
    usable: bool | None = connection.scalar(_SCHEMA, {"name": SCHEMA})
    if usable is None:
        return None
    if not usable:  # without this check, the tables would seem not to exist
        raise ConfigurationError(f"The database user may not use the schema {SCHEMA}: {RIGHTS}.")
    return revisions.found(connection)


def make_schema(connection: Connection) -> None:
    """Lock out other migrations until the end of the transaction, and create the PostgreSQL schema, without tables, if
    it is missing."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCKS}, {MIGRATING})")
    # Not IF NOT EXISTS: that requires the right to create a schema even if it exists.
    if connection.scalar(_SCHEMA, {"name": SCHEMA}) is None:
        connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")


def check_rights(connection: Connection, url: PostgresUrl) -> None:
    """Check that the user may read and write all tables of the ledger. Raises `ConfigurationError` if a right is
    missing or the database is read-only."""
    missing = connection.scalars(_MISSING_RIGHTS, {"name": SCHEMA, "version": VERSION_TABLE}).first()
    if missing is not None:
        raise ConfigurationError(
            f"The database {url} does not let its user read and write {SCHEMA}.{missing}: {RIGHTS}."
        )
    if connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on":
        raise ConfigurationError(f"The database {url} {TO_FIX[READ_ONLY]}.")
