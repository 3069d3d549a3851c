"""`Dialect`: the SQL that differs between databases.

A batch of rows is *one* bound variable, a JSON array. A statement's text is therefore the same for any number of rows: it
is compiled and prepared once, and cannot exceed the database's limit of variables. This matters most for SQLite:
`executemany` releases the interpreter lock at every row and then waits for a busy event loop to release it again. 2 000
upserts beside a saturated loop took 30 ms to 1.2 s by `executemany`, 10 to 17 ms as one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from sqlalchemy import Column, ColumnElement, CompoundSelect, Connection, FromClause, Select, Table, select, true

if TYPE_CHECKING:  # at run time, each `Dialect` imports only SQLAlchemy's dialect for its own database
    from sqlalchemy.dialects import postgresql, sqlite

Insert: TypeAlias = "sqlite.Insert | postgresql.Insert"
Row = Sequence[Any]
Query = Callable[[Connection, Mapping[str, object]], Sequence[Row]]
"""A prepared SELECT: gets the bound variables, returns rows of plain values in no particular order."""


class LockKind(Enum):
    """A lock held until the end of the transaction. Only databases with concurrent writers need it."""

    CHANGING = auto()
    """Exclusive, for transactions that add to the change table. Their reads stay true until they commit, and their rows
    become visible in the order of their ids, so that a reader with a cursor misses none."""
    SAVING = auto()
    """Shared, for transactions that save user data; excludes `ERASING`."""
    ERASING = auto()
    """Exclusive, for deleting a user; excludes `SAVING`, because a concurrent save would not see the deletion."""


class Dialect(Protocol):
    def insert(self, table: Table) -> Insert:
        """Return the database's own INSERT statement for a table, which supports ON CONFLICT."""

    def batch(self, *columns: Column[Any]) -> FromClause:
        """Return a subquery with these columns whose rows come from the bound variable that the function `rows`
        makes."""

    def query(self, asked: Select[Any] | CompoundSelect[Any]) -> Query: ...

    def lock(self, kind: LockKind, connection: Connection) -> None:
        """Take a lock until the end of the transaction. Locks come before its other statements, so that two
        transactions cannot deadlock."""

    def newest_change(self, connection: Connection) -> int:
        """Return the highest id that any row of the change table ever had; 0 if there was none. On return, all rows up
        to this id are visible."""


def rows(values: Iterable[object]) -> dict[str, object]:
    """Return the bound variable that provides a statement with the rows of its `Dialect.batch`. A row is a plain value
    if the batch has one column, otherwise a tuple."""
    return {"rows": msgspec.json.encode(list(values)).decode()}


def upsert(
    dialect: Dialect, table: Table, source: Select[Any], only_if: Callable[[Any], ColumnElement[bool]] | None = None
) -> Insert:
    """Build a statement that inserts the rows of `source` and, where the key exists, overwrites the other columns that
    `source` selects. `only_if` gets the new row's columns and returns the condition for overwriting."""
    names = [column.name for column in source.selected_columns]
    keys = [column.name for column in table.primary_key]
    insert = dialect.insert(table).from_select(names, source)
    values = {name: insert.excluded[name] for name in names if name not in keys}
    if not values:
        return insert.on_conflict_do_nothing(index_elements=keys)
    where = None if only_if is None else only_if(insert.excluded)
    return insert.on_conflict_do_update(index_elements=keys, set_=values, where=where)


def every(batch: FromClause) -> Select[Any]:
    """Return a SELECT of all rows of a batch (see `Dialect.batch`). Its WHERE is for SQLite, which otherwise parses ON
    CONFLICT as the ON of a join."""
    return select(batch).where(true())
