"""Revoked tokens, and the indexes that deleting a user needs."""

import sqlalchemy as sa
from alembic import op

from herenow.ledgers.migrations.column_types import ID

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "voids",
        sa.Column("user", ID, primary_key=True),
        sa.Column("before", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("erased", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_index("follows_of_b", "follows", ["b"])
    op.create_index("members_by_user", "members", ["user"])
