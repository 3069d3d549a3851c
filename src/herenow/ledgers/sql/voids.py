"""Statements for revoked tokens and for deleting a user.

A deletion covers every table that names a user, in one transaction. Add a new table whose rows name one user to `ERASED`;
a table that names other users too needs a statement in `Voids` and rows in the change table.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    bindparam,
    case,
    delete,
    exists,
    func,
    or_,
    select,
)

from herenow.ledgers.sql.dialect import Dialect, every, rows
from herenow.ledgers.sql.schema import (
    blocks,
    choices,
    contacts,
    follows,
    last_seen,
    late_choices,
    members,
    open_marks,
    preferences,
    voids,
)
from herenow.ports import LedgerChange, Void

ERASED = (last_seen, choices, preferences, open_marks, late_choices)
"""Tables whose rows name one user."""


class Voids:
    def __init__(self, dialect: Dialect) -> None:
        put = dialect.insert(voids).from_select([c.name for c in voids.c], every(dialect.batch(*voids.c)))
        new: Any = put.excluded
        self._put = put.on_conflict_do_update(
            index_elements=["user"],
            set_={
                "before": _greater(new.before, voids.c.before),
                "until": _greater(new.until, voids.c.until),
                "erased": func.coalesce(new.erased, voids.c.erased),
            },
            where=or_(new.before > voids.c.before, func.coalesce(new.erased, 0) > func.coalesce(voids.c.erased, 0)),
        ).returning(voids.c.user)
        user = bindparam("of_user", type_=voids.c.user.type)
        self._forget_edges = (
            delete(follows).where(or_(follows.c.a == user, follows.c.b == user)).returning(follows.c.a, follows.c.b),
            delete(contacts)
            .where(or_(contacts.c.a == user, contacts.c.b == user))
            .returning(contacts.c.a, contacts.c.b),
            delete(blocks)
            .where(or_(blocks.c.blocker == user, blocks.c.blocked == user))
            .returning(blocks.c.blocker, blocks.c.blocked),
        )
        self._forget_rooms = delete(members).where(members.c.user == user).returning(members.c.room)
        self._forget_rows = tuple(delete(table).where(table.c.user == user) for table in ERASED)
        self._of = select(voids).where(voids.c.user == user)
        self._walk = (
            select(voids)
            .where(voids.c.user > bindparam("after", type_=voids.c.user.type))
            .order_by(voids.c.user)
            .limit(bindparam("most"))
        )
        self._forget = delete(voids).where(voids.c.until <= bindparam("now", type_=BigInteger))

    def put(self, connection: Connection, void: Void) -> bool:
        """Store the revocation of a user's tokens, merged with the stored one: `before` and `until` keep the greater
        value, `erased` (time of the user's deletion) the new one if given. Write nothing and return False if neither
        `before` nor `erased` is later than stored."""
        row = (void.user, void.before, void.until, void.erased)
        return len(connection.execute(self._put, rows([row])).all()) > 0

    def erase(self, connection: Connection, void: Void) -> list[LedgerChange]:
        """Delete all data about a user, and store the revocation of the user's tokens. Return the rows to add to the
        change table."""
        user = {"of_user": void.user}
        self.put(connection, void)
        changes: dict[LedgerChange, None] = {LedgerChange("void", void.user, ""): None}
        for statement in self._forget_edges:
            for a, b in connection.execute(statement, user):
                changes[LedgerChange("relation", min(a, b), max(a, b))] = None
        for (room,) in connection.execute(self._forget_rooms, user):
            changes[LedgerChange("member", room, void.user)] = None
        changes[LedgerChange("preferences", void.user, "")] = None
        for gone in self._forget_rows:
            connection.execute(gone, user)
        return list(changes)

    def walk(self, connection: Connection, after: str, limit: int) -> list[Void]:
        return [Void(*row) for row in connection.execute(self._walk, {"after": after, "most": limit})]

    def of(self, connection: Connection, user: str) -> Void | None:
        row = connection.execute(self._of, {"of_user": user}).first()
        return None if row is None else Void(*row)

    def forget(self, connection: Connection, now: int) -> None:
        connection.execute(self._forget, {"now": now})


def outlived(batch: FromClause, at: ColumnElement[int]) -> ColumnElement[bool]:
    """Build the SQL condition that the user of each row in `batch` was not deleted, or was deleted before `at`."""
    return ~exists().where(voids.c.user == batch.c.user, voids.c.erased >= at)


def _greater(one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
    """Build SQL for the greater of two values; databases name that function differently."""
    return case((one > other, one), else_=other)
