"""Statements for the relation graph: follows, contacts, room members.

A contact is stored once per pair, the lesser id first. Python compares the ids, because databases order strings differently.
Only edges that a write really changed get rows in the change table. An edge from a user to itself is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    tuple_,
    union,
)
from sqlalchemy.sql.dml import ReturningDelete, ReturningInsert

from herenow.ledgers.sql.dialect import Dialect, every, rows, upsert
from herenow.ledgers.sql.schema import contacts, follows, members
from herenow.ports import IN_CONTACT, MUTUAL, STRANGERS, LedgerChange, Relation, RelationRow

Edge = tuple[str, str]


class Edges:
    def __init__(self, dialect: Dialect) -> None:
        self._between = dialect.query(_between(dialect))
        self._contacts = dialect.query(_contacts())
        self._follows = _is_edge(follows)
        self._is_member = _is_edge(members)
        self._share_rooms = dialect.query(_share_rooms(dialect))
        self._kinds = {
            "follow": _Kind(dialect, follows),
            "contact": _Kind(dialect, contacts),
            "room": _Kind(dialect, members),
        }

    def between(self, connection: Connection, viewer: str, targets: Sequence[str], now: int) -> list[Relation]:
        asked = rows(sorted(set(targets))) | {"viewer": viewer, "now": now}
        found = {
            target: _relation(mutual, contact, until)
            for target, mutual, contact, until in self._between(connection, asked)
        }
        return [found.get(target, STRANGERS) for target in targets]

    def contacts(self, connection: Connection, user: str, now: int) -> list[str]:
        return sorted(other for (other,) in self._contacts(connection, {"viewer": user, "now": now}))

    def follows(self, connection: Connection, a: str, b: str) -> bool:
        return bool(connection.scalar(self._follows, {"a": a, "b": b}))

    def is_member(self, connection: Connection, room: str, user: str) -> bool:
        return bool(connection.scalar(self._is_member, {"a": room, "b": user}))

    def share_rooms(self, connection: Connection, user: str, others: Collection[str]) -> set[str]:
        found = self._share_rooms(connection, rows(sorted(others)) | {"viewer": user})
        return {other for (other,) in found} - {user}

    def apply(self, connection: Connection, asked: Sequence[RelationRow]) -> tuple[int, list[LedgerChange]]:
        """Add or remove the relations that `asked` lists. Return how many were changed, and the rows to add to the
        change table."""
        count = 0
        changes: dict[LedgerChange, None] = {}
        for kind, edges in _last_rows(asked).items():
            changed = self._kinds[kind].write(connection, edges)
            count += len(changed)
            changes.update(dict.fromkeys(_change(kind, edge) for edge in changed))
        return count, list(changes)


def _relation(mutual: object, contact: object, until: int | None) -> Relation:
    if until is None and not (mutual and contact):
        return MUTUAL if mutual else IN_CONTACT
    return Relation(bool(mutual), bool(contact), until)


class _Kind:
    def __init__(self, dialect: Dialect, table: Table) -> None:
        self._put = _put(dialect, table)
        self._remove = _remove(dialect, table)
        self._has_until = "until" in table.c

    def write(self, connection: Connection, edges: dict[Edge, RelationRow]) -> list[Edge]:
        put = [(*edge, row.until) if self._has_until else edge for edge, row in edges.items() if not row.remove]
        gone = [edge for edge, row in edges.items() if row.remove]
        return [*_changed(connection, self._put, put), *_changed(connection, self._remove, gone)]


def _last_rows(asked: Iterable[RelationRow]) -> dict[str, dict[Edge, RelationRow]]:
    """Group the requested relations by kind and by pair of ids (edge), and keep only the last request about each pair.
    Pairs are in key order, because neighbours are on the same database page. Raises `ValueError` for an unknown
    kind."""
    last: dict[str, dict[Edge, RelationRow]] = {"follow": {}, "contact": {}, "room": {}}
    for row in asked:
        if row.kind not in last:
            raise ValueError(f"{row.kind!r} is not a kind of relation: allowed are {', '.join(last)}")
        if row.a != row.b or row.kind == "room":
            last[row.kind][_edge(row)] = row
    return {kind: dict(sorted(edges.items(), key=_by_edge)) for kind, edges in last.items() if edges}


def _by_edge(item: tuple[Edge, RelationRow]) -> Edge:
    return item[0]


def _edge(row: RelationRow) -> Edge:
    return _pair(row.a, row.b) if row.kind == "contact" else (row.a, row.b)


def _pair(a: str, b: str) -> Edge:
    return (a, b) if a < b else (b, a)


def _change(kind: str, edge: Edge) -> LedgerChange:
    """Return the row of the change table that reports a changed relation; `edge` is its pair of ids. A follow is
    reported as an unordered pair: a reader reloads both directions anyway, and a mutual follow is one row."""
    if kind == "room":
        return LedgerChange("member", *edge)
    return LedgerChange("relation", *_pair(*edge))


def _changed(
    connection: Connection, statement: ReturningInsert[str, str] | ReturningDelete[str, str], values: list[Any]
) -> list[Edge]:
    if not values:
        return []
    return [(a, b) for a, b in connection.execute(statement, rows(values))]


# --- Statements -------------------------------------------------------------------------------------------------


def _between(dialect: Dialect) -> Select[Any]:
    """Build the query for relations between `viewer` and each user of a batch: four primary key look-ups per user."""
    viewer = bindparam("viewer", type_=follows.c.a.type)
    target = dialect.batch(follows.c.b)
    forth, back = follows.alias("forth"), follows.alias("back")
    first, second = contacts.alias("first"), contacts.alias("second")
    mutual = and_(forth.c.a.is_not(None), back.c.a.is_not(None))
    contact = or_(first.c.a.is_not(None), second.c.a.is_not(None))
    return (
        select(target.c.b, mutual, contact, func.coalesce(first.c.until, second.c.until))
        .select_from(
            target.outerjoin(forth, and_(forth.c.a == viewer, forth.c.b == target.c.b))
            .outerjoin(back, and_(back.c.a == target.c.b, back.c.b == viewer))
            .outerjoin(first, and_(first.c.a == viewer, first.c.b == target.c.b, _open(first.c.until)))
            .outerjoin(second, and_(second.c.a == target.c.b, second.c.b == viewer, _open(second.c.until)))
        )
        .where(or_(mutual, contact))
    )


def _contacts() -> CompoundSelect[Any]:
    viewer = bindparam("viewer", type_=follows.c.a.type)
    forth, back = follows.alias("forth"), follows.alias("back")
    return union(
        select(forth.c.b.label("other"))
        .join(back, and_(back.c.a == forth.c.b, back.c.b == forth.c.a))
        .where(forth.c.a == viewer),
        select(contacts.c.b).where(contacts.c.a == viewer, _open(contacts.c.until)),
        select(contacts.c.a).where(contacts.c.b == viewer, _open(contacts.c.until)),
    )


def _share_rooms(dialect: Dialect) -> Select[Any]:
    mine, theirs = members.alias("mine"), members.alias("theirs")
    viewer = bindparam("viewer", type_=members.c.user.type)
    return (
        select(theirs.c.user)
        .join(mine, and_(mine.c.room == theirs.c.room, mine.c.user == viewer))
        .where(theirs.c.user.in_(select(dialect.batch(members.c.user))))
        .distinct()
    )


def _open(until: ColumnElement[int | None]) -> ColumnElement[bool]:
    return or_(until.is_(None), until > bindparam("now", type_=contacts.c.until.type))


def _is_edge(table: Table) -> Select[Any]:
    a, b = _ends(table)
    return select(exists().where(a == bindparam("a"), b == bindparam("b")))


def _put(dialect: Dialect, table: Table) -> ReturningInsert[str, str]:
    put = upsert(dialect, table, every(dialect.batch(*table.c)), lambda new: new.until.is_distinct_from(table.c.until))
    return put.returning(*_ends(table))


def _remove(dialect: Dialect, table: Table) -> ReturningDelete[str, str]:
    ends = _ends(table)
    return delete(table).where(tuple_(*ends).in_(select(dialect.batch(*ends)))).returning(*ends)


def _ends(table: Table) -> tuple[Column[str], Column[str]]:
    a, b = table.primary_key.columns
    return a, b
