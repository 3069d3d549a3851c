"""How a ledger's schema came to be, step by step, for SQLite and PostgreSQL alike."""
