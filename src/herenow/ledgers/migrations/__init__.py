"""Alembic migrations of the ledger schema, the same for SQLite and PostgreSQL."""
