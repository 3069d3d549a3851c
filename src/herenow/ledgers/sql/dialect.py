"""What databases say differently, so that everything else is said once.

A batch travels as *one* bound variable, a JSON array. The text of a statement therefore does not depend on how many
rows it gets (it is compiled and prepared once), there is no limit of variables to mind, and a batch is one statement.
That matters most for SQLite: `executemany` gives up the interpreter lock at every row and then waits for a busy event
loop to hand it back (measured: 2 000 upserts beside a saturated loop take 30 ms to 1.2 s, as one statement 10 to 17).

A reason to change this is a database that can do none of it with JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from sqlalchemy import Column, ColumnElement, CompoundSelect, Connection, FromClause, Select, Table, select, true

if TYPE_CHECKING:  # each `Dialect` imports SQLAlchemy's for its own database only
    from sqlalchemy.dialects import postgresql, sqlite

Insert: TypeAlias = "sqlite.Insert | postgresql.Insert"
Row = Sequence[Any]
Query = Callable[[Connection, Mapping[str, object]], Sequence[Row]]
"""A prepared question: rows as plain values, in no particular order."""


class LockKind(Enum):
    """A lock that a transaction holds until its end, where several write at once."""

    CHANGING = auto()
    """Alone among those that change what the change table tells of: what they decide by stays true until they are done, and
    rows become visible in the order of their numbers."""
    SAVING = auto()
    """Together with others that save what is known of users, but not beside one that deletes a user."""
    ERASING = auto()
    """Beside none that saves: it would not see that its user is being deleted."""


class Dialect(Protocol):
    """What differs between databases."""

    def insert(self, table: Table) -> Insert:
        """An INSERT that knows ON CONFLICT."""

    def batch(self, *columns: Column[Any]) -> FromClause:
        """The variable made by `rows`, as a table with these columns' names."""

    def query(self, asked: Select[Any] | CompoundSelect[Any]) -> Query: ...

    def lock(self, kind: LockKind, connection: Connection) -> None:
        """The first statement of such a transaction, so that two of them never wait for each other."""

    def newest_change(self, connection: Connection) -> int:
        """The id of the newest change there ever was, forgotten or not; 0: none. All up to it can be seen."""


def rows(values: Iterable[object]) -> dict[str, object]:
    """The variable that `batch` reads: one plain value per row where it has one column, otherwise a tuple."""
    return {"rows": msgspec.json.encode(list(values)).decode()}


def upsert(
    dialect: Dialect, table: Table, source: Select[Any], only_if: Callable[[Any], ColumnElement[bool]] | None = None
) -> Insert:
    """Put the rows of `source`; where a key exists, overwrite the other columns that `source` has.

    `only_if` gets the new row's columns and may keep the old row. A source with nothing but the key keeps it too.
    """
    names = [column.name for column in source.selected_columns]
    keys = [column.name for column in table.primary_key]
    insert = dialect.insert(table).from_select(names, source)
    values = {name: insert.excluded[name] for name in names if name not in keys}
    if not values:
        return insert.on_conflict_do_nothing(index_elements=keys)
    where = None if only_if is None else only_if(insert.excluded)
    return insert.on_conflict_do_update(index_elements=keys, set_=values, where=where)


def every(batch: FromClause) -> Select[Any]:
    """All rows of a batch. The condition ends the FROM for SQLite, which otherwise takes ON CONFLICT for a join's."""
    return select(batch).where(true())
