"""`SqlLedger`: the methods of the `Ledger` port for any SQL database, one transaction each.

Each method passes a plain function over a connection to `_read` or `_write` of the subclass, which runs it in a thread, or
with an async driver by `AsyncConnection.run_sync`. The statements are in the other modules of this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, select

from herenow.core.visibility import Preferences, PreferencesEdit
from herenow.errors import Unavailable
from herenow.ledgers.sql.blocks_and_preferences import BlocksAndPreferences
from herenow.ledgers.sql.change_table import ChangeTable
from herenow.ledgers.sql.dialect import Dialect, LockKind
from herenow.ledgers.sql.edges import Edges
from herenow.ledgers.sql.late_rows import LateRows
from herenow.ledgers.sql.runs import Runs
from herenow.ledgers.sql.schema import meta
from herenow.ledgers.sql.user_rows import UserRows
from herenow.ledgers.sql.voids import Voids
from herenow.ports import (
    BlockRow,
    Choice,
    LedgerChange,
    LedgerFacts,
    Relation,
    RelationRow,
    Remembered,
    TooManyBlocks,
    Void,
    frozen_row,
    lifted_row,
)

T = TypeVar("T")


class Statements:
    """All statements, in one dialect. Building them takes some milliseconds; they hold no state, so build them once."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.users = UserRows(dialect)
        self.late = LateRows(dialect, self.users)
        self.edges = Edges(dialect)
        self.visibility = BlocksAndPreferences(dialect)
        self.runs = Runs(dialect)
        self.changes = ChangeTable(dialect)
        self.voids = Voids(dialect)


class SqlLedger(ABC):
    """A subclass adds `open` (which sets `_id`), `close`, `schema`, `found_id`, `migrate`, `_read` and `_write`. Methods
    copy their collection arguments, because the caller may change them while a thread reads them."""

    def __init__(self, statements: Statements) -> None:
        self._dialect = statements.dialect
        self._users = statements.users
        self._late = statements.late
        self._edges = statements.edges
        self._visibility = statements.visibility
        self._runs = statements.runs
        self._changes = statements.changes
        self._voids = statements.voids
        self._id: str | None = None

    @abstractmethod
    async def _read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which only reads the database, and return its result. Raises `Unavailable` for errors of the
        driver."""

    @abstractmethod
    async def _write(self, work: Callable[[Connection], T], *, at_length: bool = False) -> T:
        """Run `work` in a transaction, commit it and return the result of `work`. `at_length`: it may take minutes.
        Raises `Unavailable` for errors of the driver, or `UnknownOutcome` if the transaction may have been committed
        nevertheless."""

    async def _save(self, work: Callable[[Connection], T], *, at_length: bool = False) -> T:
        """Run `work` in a transaction like `_write`, but never concurrently with the deletion of a user."""

        def save(connection: Connection) -> T:
            self._dialect.lock(LockKind.SAVING, connection)
            return work(connection)

        return await self._write(save, at_length=at_length)

    async def _change(
        self, work: Callable[[Connection], tuple[T, Sequence[LedgerChange]]], *, at_length: bool = False
    ) -> T:
        """Run `work` in a transaction like `_write`, and add the changes that it returns beside its result to the
        change table in the same transaction."""

        def change(connection: Connection) -> T:
            self._changes.lock(connection)
            result, added = work(connection)
            self._changes.add(connection, added)
            return result

        return await self._write(change, at_length=at_length)

    @property
    def id(self) -> str:
        if self._id is None:
            raise Unavailable("The database has not been opened.")
        return self._id

    @abstractmethod
    async def found_id(self) -> str | None:
        """Return the id of the ledger in the database; None if the ledger was not created yet. Only reads, and works
        without `open`."""

    # Last seen, choices (modes and custom statuses) and idle time of single users

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        asked = frozenset(users)
        return await self._read(lambda c: self._users.remembered(c, asked))

    async def save_last_seen(self, rows: Mapping[str, int]) -> None:
        seen = dict(rows)
        if seen:
            await self._save(lambda c: self._users.save_last_seen(c, seen))

    async def save_choices(self, rows: Sequence[Choice]) -> None:
        chosen = tuple(rows)

        def work(connection: Connection) -> tuple[None, list[LedgerChange]]:
            self._dialect.lock(LockKind.SAVING, connection)
            return None, [LedgerChange("choice", user, "") for user in self._users.save_choices(connection, chosen)]

        if chosen:
            await self._change(work)

    async def chosen(self, after: str, limit: int) -> list[Choice]:
        return await self._read(lambda c: self._users.chosen(c, after, limit))

    async def set_idle_after(self, user: str, idle_after: int | None) -> None:
        def work(connection: Connection) -> tuple[None, list[LedgerChange]]:
            changed = self._users.set_idle_after(connection, user, idle_after)
            return None, [LedgerChange("preferences", user, "")] if changed else []

        await self._change(work)

    async def choose_late(self, user: str, choose: Callable[[Choice | None], Choice]) -> Choice:
        def work(connection: Connection) -> tuple[Choice, list[LedgerChange]]:
            self._dialect.lock(LockKind.SAVING, connection)  # `_change` excludes `save_choices` and `erase`
            return self._late.choose(connection, user, choose), [LedgerChange("choice", user, "")]

        return await self._change(work)

    async def mark_late(self, user: str, version: int) -> None:
        def work(connection: Connection) -> tuple[None, list[LedgerChange]]:
            self._late.mark(connection, user, version)
            return None, [LedgerChange("choice", user, "")]

        await self._change(work)

    async def late_users(self, after: str, limit: int) -> list[tuple[str, int]]:
        return await self._read(lambda c: self._late.walk(c, after, limit))

    async def forget_late(self, applied: Mapping[str, int]) -> None:
        rows = dict(applied)
        if rows:
            await self._write(lambda c: self._late.forget(c, rows))

    # Runs

    async def open_marks(self, run: str, here: Mapping[str, int], gone: Iterable[str]) -> None:
        came, left = dict(here), frozenset(gone)
        if came or left:
            await self._write(lambda c: self._runs.mark(c, run, came, left))

    async def stamp_run(self, run: str, at: int) -> bool:
        return await self._write(lambda c: self._runs.stamp(c, run, at))

    async def end_run(self, run: str) -> None:
        await self._write(lambda c: self._runs.end(c, run), at_length=True)

    async def open_runs(self) -> dict[str, int]:
        return await self._read(self._runs.found)

    async def close_run(self, run: str, latest: int | None = None) -> int:
        return await self._save(lambda c: self._runs.close_one(c, run, latest), at_length=True)

    async def close_runs(self) -> int:
        return await self._save(self._runs.close, at_length=True)

    # The graph

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation]:
        asked = tuple(targets)
        return await self._read(lambda c: self._edges.between(c, viewer, asked, now))

    async def contacts(self, user: str, now: int) -> list[str]:
        return await self._read(lambda c: self._edges.contacts(c, user, now))

    async def contact(self, a: str, b: str, now: int) -> tuple[bool, int | None]:
        [relation] = await self.between(a, [b], now)
        return relation.contact, relation.contact_until

    async def follows(self, a: str, b: str) -> bool:
        return await self._read(lambda c: self._edges.follows(c, a, b))

    async def is_member(self, room: str, user: str) -> bool:
        return await self._read(lambda c: self._edges.is_member(c, room, user))

    async def apply(self, rows: Sequence[RelationRow]) -> int:
        asked = tuple(rows)

        return await self._change(lambda c: self._edges.apply(c, asked)) if asked else 0

    # Revoked tokens, deleted users

    async def void(self, row: Void) -> None:
        def work(connection: Connection) -> tuple[None, list[LedgerChange]]:
            is_new = self._voids.put(connection, row)
            return None, [LedgerChange("void", row.user, "")] if is_new else []

        await self._change(work)

    async def erase(self, row: Void) -> list[LedgerChange]:
        def work(connection: Connection) -> tuple[list[LedgerChange], list[LedgerChange]]:
            self._dialect.lock(LockKind.ERASING, connection)
            changes = self._voids.erase(connection, row)
            return changes, changes

        return await self._change(work, at_length=True)

    async def voids(self, after: str, limit: int) -> list[Void]:
        return await self._read(lambda c: self._voids.walk(c, after, limit))

    async def void_of(self, user: str) -> Void | None:
        return await self._read(lambda c: self._voids.of(c, user))

    async def forget_voids(self, now: int) -> None:
        await self._write(lambda c: self._voids.forget(c, now))

    async def share_rooms(self, user: str, others: Sequence[str]) -> set[str]:
        asked = frozenset(others)
        return await self._read(lambda c: self._edges.share_rooms(c, user, asked))

    # Visibility preferences and blocks

    async def preferences(self, users: Sequence[str]) -> dict[str, Preferences]:
        asked = frozenset(users)
        return await self._read(lambda c: self._visibility.preferences(c, asked))

    async def set_preferences(self, user: str, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
        def work(connection: Connection) -> tuple[Preferences, list[LedgerChange]]:
            after, changed = self._visibility.set_preferences(connection, user, edit, now, last_seen)
            return after, [LedgerChange("preferences", user, "")] if changed else []

        return await self._change(work)

    async def blocked(self, user: str) -> list[str]:
        return await self._read(lambda c: self._visibility.blocked(c, user))

    async def blocks(self, user: str, others: Sequence[str]) -> list[BlockRow]:
        asked = frozenset(others)
        return await self._read(lambda c: self._visibility.blocks(c, user, asked))

    async def block(self, row: BlockRow, limit: int | None = None) -> bool:
        def work(connection: Connection) -> tuple[bool, list[LedgerChange]]:
            between = self._visibility.blocks(connection, row.blocker, (row.blocked,))
            is_new = all(known.blocker != row.blocker for known in between)
            if is_new and limit is not None and not self._visibility.make_room(connection, row.blocker, limit):
                raise TooManyBlocks(f"A user may block {limit} users.")
            preferences = self._visibility.preferences(connection, (row.blocker, row.blocked))
            stored = self._visibility.block(connection, frozen_row(row, between, preferences))
            return _relation_change(row.blocker, row.blocked, stored)

        return await self._change(work)

    async def unblock(self, blocker: str, blocked: str, now: int, if_shown: int | None = None) -> bool:
        def work(connection: Connection) -> tuple[bool, list[LedgerChange]]:
            between = self._visibility.blocks(connection, blocker, (blocked,))
            row = next((row for row in between if row.blocker == blocker and row.lifted_at is None), None)
            if row is not None:
                own = self._visibility.preferences(connection, (blocker,)).get(blocker, Preferences())
                self._visibility.lift(connection, lifted_row(row, now, if_shown, own))
            return _relation_change(blocker, blocked, row is not None)

        return await self._change(work)

    async def pair_facts(
        self, user: str, others: Sequence[str], users: Sequence[str], now: int, *, related: bool, rooms: bool
    ) -> LedgerFacts:
        asked, among, wanted = tuple(others), frozenset(others), frozenset(users)

        def work(connection: Connection) -> LedgerFacts:
            return LedgerFacts(
                self._edges.between(connection, user, asked, now) if asked and related else (),
                self._visibility.blocks(connection, user, among) if among else (),
                self._edges.share_rooms(connection, user, among) if among and rooms else frozenset(),
                self._visibility.preferences(connection, wanted) if wanted else {},
            )

        return await self._read(work)

    # The change table

    async def note_changes(self, changes: Sequence[LedgerChange]) -> None:
        added = tuple(changes)
        if added:
            await self._change(lambda _: (None, added))

    async def changes_head(self) -> int:
        return await self._read(self._changes.head)

    async def changes(self, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        return await self._read(lambda c: self._changes.after(c, after, limit))

    async def forget_changes(self, before: int) -> None:
        await self._write(lambda c: self._changes.forget(c, before))


def _relation_change(a: str, b: str, changed: bool) -> tuple[bool, list[LedgerChange]]:  # noqa: FBT001 - it is the answer
    return changed, [LedgerChange("relation", a, b)] if changed else []


def read_id(connection: Connection) -> str:
    found: str = connection.execute(select(meta.c.value).where(meta.c.key == "id")).scalar_one()
    return found
