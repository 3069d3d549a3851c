"""Kinds of columns that databases need told differently."""

import sqlalchemy as sa

ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
"""Compared byte by byte, as SQLite does anyway: the order of no language, which changes with the server's libraries and then
leaves broken indexes behind."""
