"""When hiding ended, and since when last seen is shared."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    for name in ("shown_at", "shown_last_seen", "shared_at"):
        op.add_column("preferences", sa.Column(name, sa.BigInteger))
