"""Statements for visibility preferences and blocks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
    union_all,
    update,
)

from herenow.core.visibility import Preferences, PreferencesEdit, Visibility, edited
from herenow.ledgers.sql.dialect import Dialect, Row, every, rows, upsert
from herenow.ledgers.sql.schema import blocks, preferences
from herenow.ports import BlockRow

_OWN = (
    preferences.c.visibility,
    preferences.c.share_last_seen,
    preferences.c.public,
    preferences.c.hidden_at,
    preferences.c.hidden_last_seen,
    preferences.c.shown_at,
    preferences.c.shown_last_seen,
    preferences.c.shared_at,
)


class BlocksAndPreferences:
    def __init__(self, dialect: Dialect) -> None:
        asked = dialect.batch(preferences.c.user)
        decided = or_(*(column.is_not(None) for column in _OWN))
        self._preferences = dialect.query(
            select(preferences.c.user, *_OWN).where(preferences.c.user.in_(select(asked)), decided)
        )
        self._set_preferences = upsert(dialect, preferences, every(dialect.batch(preferences.c.user, *_OWN)))
        self._blocks = dialect.query(_between(dialect))
        self._block = upsert(
            dialect, blocks, every(dialect.batch(*blocks.c)), lambda _new: blocks.c.lifted_at.is_not(None)
        ).returning(blocks.c.blocker)
        others = select(blocks.c.blocked).where(blocks.c.blocker == bindparam("by")).limit(bindparam("most"))
        self._count = select(func.count()).select_from(others.subquery())
        this = and_(blocks.c.blocker == bindparam("by"), blocks.c.blocked == bindparam("whom"), _in_force())
        lifted: dict[str, Any] = {"lifted_at": bindparam("since"), "blocker_seen": bindparam("shown")}
        self._lift = update(blocks).values(lifted).where(this)
        first = select(func.min(blocks.c.lifted_at)).where(blocks.c.blocker == bindparam("by")).scalar_subquery()
        oldest = delete(blocks).where(blocks.c.blocker == bindparam("by"), blocks.c.lifted_at == first)
        self._forget_oldest = oldest.returning(blocks.c.blocker)

    def preferences(self, connection: Connection, users: Collection[str]) -> dict[str, Preferences]:
        found = self._preferences(connection, rows(sorted(users)))
        return {row[0]: preferences_of(row) for row in found}

    def set_preferences(
        self, connection: Connection, user: str, edit: PreferencesEdit, now: int, last_seen: int | None
    ) -> tuple[Preferences, bool]:
        """Apply an edit to the user's preferences, and return the new ones and whether they differ from the old ones.
        `last_seen`: `last_seen_after` the edit."""
        own = select(preferences.c.user, *_OWN).where(preferences.c.user == user)
        row = connection.execute(own).one_or_none()
        before = Preferences() if row is None else preferences_of(row)
        after = edited(before, edit, now, last_seen)
        if after != before:
            connection.execute(self._set_preferences, rows([(user, *_columns(after))]))
        return after, after != before

    def blocked(self, connection: Connection, user: str) -> list[str]:
        asked = select(blocks.c.blocked).where(blocks.c.blocker == user, _in_force())
        return sorted(connection.scalars(asked))

    def blocks(self, connection: Connection, user: str, others: Collection[str]) -> list[BlockRow]:
        found = self._blocks(connection, rows(sorted(others)) | {"viewer": user})
        return [BlockRow(*row) for row in found]

    def block(self, connection: Connection, row: BlockRow) -> bool:
        values = (row.blocker, row.blocked, row.at, row.blocker_seen, row.blocked_seen, row.lifted_at)
        return len(connection.execute(self._block, rows([values])).all()) > 0

    def make_room(self, connection: Connection, blocker: str, limit: int) -> bool:
        """Return True if fewer than `limit` blocks of this blocker are stored, lifted (ended) ones included. Otherwise the
        one that was lifted first is deleted; False if none was lifted."""
        count: int = connection.execute(self._count, {"by": blocker, "most": limit}).scalar_one()
        return count < limit or len(connection.execute(self._forget_oldest, {"by": blocker}).all()) > 0

    def lift(self, connection: Connection, row: BlockRow) -> None:
        pair = {"by": row.blocker, "whom": row.blocked}
        connection.execute(self._lift, pair | {"since": row.lifted_at, "shown": row.blocker_seen})


def _between(dialect: Dialect) -> CompoundSelect[Any]:
    """Build the query for blocks in both directions between `viewer` and each user of a batch: two primary key look-ups
    per user."""
    other = dialect.batch(blocks.c.blocked)
    viewer = bindparam("viewer", type_=blocks.c.blocker.type)
    by_viewer = select(*blocks.c).join(other, and_(blocks.c.blocker == viewer, blocks.c.blocked == other.c.blocked))
    against_viewer = select(*blocks.c).join(
        other, and_(blocks.c.blocker == other.c.blocked, blocks.c.blocked == viewer)
    )
    return union_all(by_viewer, against_viewer)


def _in_force() -> ColumnElement[bool]:
    return blocks.c.lifted_at.is_(None)


def preferences_of(row: Row) -> Preferences:
    """Convert a database row of (user, *the columns of `_OWN`) into `Preferences`. NULL is the default."""
    _, visibility, share_last_seen, public, *times = row
    return Preferences(
        Visibility(visibility or 0), share_last_seen is None or bool(share_last_seen), bool(public), *times
    )


def _columns(own: Preferences) -> tuple[object, ...]:
    return (
        int(own.visibility) or None,
        None if own.share_last_seen else False,
        own.public or None,
        own.hidden_at,
        own.hidden_last_seen,
        own.shown_at,
        own.shown_last_seen,
        own.shared_at,
    )
