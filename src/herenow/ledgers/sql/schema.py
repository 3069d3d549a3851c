"""The tables of every SQL ledger. Every `*_at`, `at` and `until` is in epoch milliseconds.

Tables are clustered by their key (`WITHOUT ROWID` in SQLite): an edge or a last seen is one B-tree entry. Options only for
PostgreSQL (byte-wise collation of ids, fill factor of `last_seen`) are in the migrations alone: here they would load
SQLAlchemy's PostgreSQL dialect for SQLite too. The migrations create the tables; a test checks that they match this module.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, SmallInteger, Table, Text, text

NEWEST = "0007"
"""The newest revision: change it with the tables and the migrations. Here, so that opening need not import alembic."""

VERSION_TABLE = "herenow_schema"
"""The table with the revision. Not alembic's default name, because the application may use alembic in the same database."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""One row: `id` → the ledger's random id, created with the tables."""

last_seen = Table(
    "last_seen",
    metadata,
    Column("user", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

choices = Table(
    "choices",
    metadata,
    Column("user", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("mode", SmallInteger, nullable=False),
    Column("mode_until", BigInteger),
    Column("custom_text", Text),
    Column("custom_emoji", Text),
    Column("custom_until", BigInteger),
    Column("sources", Text),
    sqlite_with_rowid=False,
)
"""Mode and custom status that count, and those of `sources` (base64 of `core.record.encode_sources`; NULL: none). All share
one version. `custom_text` NULL: no custom status. A row is kept after everything in it has expired: its version rejects late
writes. A node of schema 0003 that still runs leaves `sources` as it is when it writes the rest."""

preferences = Table(
    "preferences",
    metadata,
    Column("user", Text, primary_key=True),
    Column("idle_after", BigInteger),
    Column("visibility", SmallInteger),
    Column("hidden_at", BigInteger),
    Column("hidden_last_seen", BigInteger),
    Column("share_last_seen", Boolean),
    Column("public", Boolean),
    Column("shown_at", BigInteger),
    Column("shown_last_seen", BigInteger),
    Column("shared_at", BigInteger),
    sqlite_with_rowid=False,
)
"""One nullable column per preference; NULL is the default, so a new one needs only `ALTER TABLE ADD COLUMN`."""

follows = Table(
    "follows",
    metadata,
    Column("a", Text, primary_key=True),
    Column("b", Text, primary_key=True),
    Index("follows_of_b", "b"),
    sqlite_with_rowid=False,
)
"""a follows b. A mutual follow is two primary key look-ups: (a, b) and (b, a). The index is for deleting a user."""

contacts = Table(
    "contacts",
    metadata,
    Column("a", Text, primary_key=True),
    Column("b", Text, primary_key=True),
    Column("until", BigInteger),
    Index("contacts_of_b", "b"),
    sqlite_with_rowid=False,
)
"""a and b are in contact. Stored once per pair, a < b by code points; the index finds the pairs with a user as b."""

members = Table(
    "members",
    metadata,
    Column("room", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Index("members_by_user", "user"),
    sqlite_with_rowid=False,
)

voids = Table(
    "voids",
    metadata,
    Column("user", Text, primary_key=True),
    Column("before", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("erased", BigInteger),
    sqlite_with_rowid=False,
)
"""Tokens of this user issued before `before` are revoked. `until`: all of them have expired by then, and the row may be
deleted. `erased`: when the user was deleted, or NULL; older data about the user is not written again."""

blocks = Table(
    "blocks",
    metadata,
    Column("blocker", Text, primary_key=True),
    Column("blocked", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("blocker_seen", BigInteger),
    Column("blocked_seen", BigInteger),
    Column("lifted_at", BigInteger),
    Index("blocks_of_blocked", "blocked"),
    sqlite_with_rowid=False,
)
"""Blocks, with the last seen of each user as the other one knew it when the block began. Lifted ones are kept for a while:
`blocker_seen` is then what `blocked` is shown until the blocker has been here again."""

changes = Table(
    "changes",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("a", Text, nullable=False),
    Column("b", Text, nullable=False),
    # Readers keep ids as cursors: an id must never be used again, even if the newest rows were deleted.
    sqlite_autoincrement=True,
)

runs = Table(
    "runs",
    metadata,
    Column("run", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""The last timestamp of each epoch of a node (see the module `runs`)."""

open_marks = Table(
    "open_marks",
    metadata,
    Column("user", Text, primary_key=True),
    Column("run", Text, primary_key=True),
    Column("at", BigInteger, nullable=False, server_default=text("0")),  # the default: for nodes of schema 0004
    sqlite_with_rowid=False,
)
"""Users that are visibly online in a run; `at`: their last sign of life when that was written. The key begins with the
user, because readers of last seen look users up, and runs are closed rarely."""

late_choices = Table(
    "late_choices",
    metadata,
    Column("user", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Users with a mode, custom status or idle time (in the tables above) that was saved while the live store could not be
written. `version`: that of the choice, or the time at which the idle time was saved. Nearly always empty."""
