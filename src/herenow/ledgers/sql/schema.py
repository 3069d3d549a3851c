"""What the ledger keeps, as tables: the one schema of every SQL ledger.

The tables are narrow and clustered by their key (`WITHOUT ROWID` where SQLite offers it): an edge or a last seen is one
B-tree entry. What only PostgreSQL must be told the migrations say: that ids are ordered byte by byte, and how full a page of
`last_seen` may be. An option of its own here would load all of its dialect for a ledger in SQLite.

The migrations say how a ledger comes to be; a test keeps them equal to this. Change both, and `NEWEST`, together.
Every `*_at`, `at` and `until` is epoch milliseconds.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, SmallInteger, Table, Text

NEWEST = "0003"
"""The newest revision. Written here so that opening an up-to-date ledger does not have to import alembic."""

VERSION_TABLE = "herenow_schema"
"""Where the revision stands. Not alembic's default, so that a shared database may have other alembic users."""

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""`id` → the ledger's random id, made with the tables."""

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
    sqlite_with_rowid=False,
)
"""Mode and custom status. They share a version, so they share a row. `custom_text` NULL: no custom status. A row stays
when everything in it has ended: its version keeps late writes out."""

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
    sqlite_with_rowid=False,
)
"""One nullable column per preference, NULL is the default: a later one is added by `ALTER TABLE ADD COLUMN`."""

follows = Table(
    "follows",
    metadata,
    Column("a", Text, primary_key=True),
    Column("b", Text, primary_key=True),
    Index("follows_of_b", "b"),
    sqlite_with_rowid=False,
)
"""a follows b. Both directions of a mutual follow are looked up by this key: (a, b), then (b, a). The index finds who
follows somebody, for when they are deleted."""

contacts = Table(
    "contacts",
    metadata,
    Column("a", Text, primary_key=True),
    Column("b", Text, primary_key=True),
    Column("until", BigInteger),
    Index("contacts_of_b", "b"),
    sqlite_with_rowid=False,
)
"""a and b are in contact. Stored once per pair, a < b by code points; the index finds those who stand second."""

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
"""Tokens of this user issued before `before` are void. `until`: every token that could be meant has expired, and the row
may go. `erased`: when the user was deleted, if so; what was known of them until then is not written again."""

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
"""Who blocks whom, and what each knew of the other's last seen when it began. The index finds those who are blocked."""

changes = Table(
    "changes",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("a", Text, nullable=False),
    Column("b", Text, nullable=False),
    # Ids are never used again, also when the newest rows were forgotten: readers hold them as cursors.
    sqlite_autoincrement=True,
)

runs = Table(
    "runs",
    metadata,
    Column("run", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""When a process last stamped its run."""

open_marks = Table(
    "open_marks",
    metadata,
    Column("run", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    sqlite_with_rowid=False,
)
"""Who was visibly here in a run."""
