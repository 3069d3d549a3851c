"""Modes and custom statuses of sources other than the user."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("choices", sa.Column("sources", sa.Text))
