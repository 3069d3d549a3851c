"""A ledger in PostgreSQL. Importing this package imports asyncpg."""

from herenow.ledgers.postgres.pool import Deadlines
from herenow.ledgers.postgres.postgres_diagnostics import Diagnostics
from herenow.ledgers.postgres.postgres_ledger import CONNECTIONS, DEADLINES, PostgresLedger
from herenow.ledgers.postgres.postgres_url import PostgresUrl, parse_postgres_url

__all__ = [
    "CONNECTIONS",
    "DEADLINES",
    "Deadlines",
    "Diagnostics",
    "PostgresLedger",
    "PostgresUrl",
    "parse_postgres_url",
]
