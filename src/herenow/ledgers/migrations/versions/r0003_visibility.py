"""Visibility preferences and blocks."""

import sqlalchemy as sa
from alembic import op

from herenow.ledgers.migrations.column_types import ID

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for name, kind in (
        ("visibility", sa.SmallInteger),
        ("hidden_at", sa.BigInteger),
        ("hidden_last_seen", sa.BigInteger),
        ("share_last_seen", sa.Boolean),
        ("public", sa.Boolean),
    ):
        op.add_column("preferences", sa.Column(name, kind))
    op.create_table(
        "blocks",
        sa.Column("blocker", ID, primary_key=True),
        sa.Column("blocked", ID, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("blocker_seen", sa.BigInteger),
        sa.Column("blocked_seen", sa.BigInteger),
        sa.Column("lifted_at", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_index("blocks_of_blocked", "blocks", ["blocked"])
