"""Run markers by user, each with a time, for nodes on any engine."""

import sqlalchemy as sa
from alembic import op

from herenow.ledgers.migrations.column_types import ID

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table of run markers (users visible in a run of a node) again, with the key (user, run) and a time,
    and copy its rows: SQLite cannot change the key of a table. Few markers exist while no process runs."""
    old = sa.table("open_marks", sa.column("run"), sa.column("user"))
    kept = op.get_bind().execute(sa.select(old.c.run, old.c.user)).all()
    op.drop_table("open_marks")
    new = op.create_table(
        "open_marks",
        sa.Column("user", ID, primary_key=True),
        sa.Column("run", ID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sqlite_with_rowid=False,
    )
    op.bulk_insert(new, [{"user": user, "run": run, "at": 0} for run, user in kept])
