"""Column types that need different options per database."""

import sqlalchemy as sa

ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Compared byte by byte, as in SQLite: an update of the server's locale libraries can change other collations, and so
break indexes."""
