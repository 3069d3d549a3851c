"""Code that all SQL ledgers share: schema, revisions, statements, and the `Ledger` methods that use them."""

from herenow.ledgers.sql import revisions
from herenow.ledgers.sql.blocks_and_preferences import preferences_of
from herenow.ledgers.sql.dialect import Dialect, LockKind, Query, Row
from herenow.ledgers.sql.schema import NEWEST, VERSION_TABLE, changes, metadata
from herenow.ledgers.sql.sql_ledger import SqlLedger, Statements, read_id

__all__ = [
    "NEWEST",
    "VERSION_TABLE",
    "Dialect",
    "LockKind",
    "Query",
    "Row",
    "SqlLedger",
    "Statements",
    "changes",
    "metadata",
    "preferences_of",
    "read_id",
    "revisions",
]
