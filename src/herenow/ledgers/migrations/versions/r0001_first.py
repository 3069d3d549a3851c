"""The first schema, and the ledger's id."""

import secrets

import sqlalchemy as sa
from alembic import op

from herenow.ledgers.migrations.column_types import ID

revision = "0001"
down_revision = None


def upgrade() -> None:
    _meta()
    _people()
    _graph()
    _changes()
    _runs()


def _meta() -> None:
    meta = op.create_table("meta", _id("key"), _text("value"), sqlite_with_rowid=False)
    op.bulk_insert(meta, [{"key": "id", "value": secrets.token_hex(16)}])


def _people() -> None:
    op.create_table(
        "last_seen",
        _id("user"),
        _time("at", nullable=False),
        sqlite_with_rowid=False,
        # Free space in each page: an updated row stays in its page, and the index need not change (a HOT update).
        postgresql_with={"fillfactor": 80},
    )
    op.create_table(
        "choices",
        _id("user"),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("mode", sa.SmallInteger, nullable=False),
        _time("mode_until"),
        sa.Column("custom_text", sa.Text),
        sa.Column("custom_emoji", sa.Text),
        _time("custom_until"),
        sqlite_with_rowid=False,
    )
    op.create_table("preferences", _id("user"), sa.Column("idle_after", sa.BigInteger), sqlite_with_rowid=False)


def _graph() -> None:
    op.create_table("follows", _id("a"), _id("b"), sqlite_with_rowid=False)
    op.create_table("contacts", _id("a"), _id("b"), _time("until"), sqlite_with_rowid=False)
    op.create_index("contacts_of_b", "contacts", ["b"])
    op.create_table("members", _id("room"), _id("user"), sqlite_with_rowid=False)


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        _text("kind"),
        _text("a"),
        _text("b"),
        sqlite_autoincrement=True,
    )


def _runs() -> None:
    op.create_table("runs", _id("run"), _time("at", nullable=False), sqlite_with_rowid=False)
    op.create_table("open_marks", _id("run"), _id("user"), sqlite_with_rowid=False)


def _id(name: str) -> sa.Column[str]:
    return sa.Column(name, ID, primary_key=True)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _time(name: str, *, nullable: bool = True) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)
