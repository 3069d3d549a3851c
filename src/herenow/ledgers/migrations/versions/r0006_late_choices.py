"""Users whose newest mode, custom status or idle time the live store may lack."""

import sqlalchemy as sa
from alembic import op

from herenow.ledgers.migrations.column_types import ID

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "late_choices",
        sa.Column("user", ID, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
