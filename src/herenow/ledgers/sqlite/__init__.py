"""A ledger in an SQLite file or in memory."""

from herenow.ledgers.sqlite.sqlite_ledger import SqliteLedger

__all__ = ["SqliteLedger"]
