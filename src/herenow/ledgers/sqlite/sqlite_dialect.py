"""The SQL dialect of SQLite.

A result of many rows is fetched as one JSON text, because fetching rows releases the interpreter lock at every row (see
`dialect`). Frequent queries are compiled once and passed to the driver as text: SQLAlchemy's overhead for a query about 50
users is three times what SQLite itself needs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    Column,
    CompoundSelect,
    Connection,
    FromClause,
    Select,
    Table,
    bindparam,
    column,
    func,
    literal_column,
    select,
    table,
)
from sqlalchemy.dialects import sqlite

from herenow.ledgers.sql import LockKind, Query, Row, changes

MINIMUM = (3, 38, 0)
"""The first version with built-in JSON; upserts and RETURNING are older."""


class SqliteDialect:
    def insert(self, table: Table) -> sqlite.Insert:
        return sqlite.insert(table)

    def batch(self, *columns: Column[Any]) -> FromClause:
        each = func.json_each(bindparam("rows")).table_valued("value", name="each")
        if len(columns) == 1:
            return select(each.c.value.label(columns[0].name)).subquery("batch")
        values = (
            func.json_extract(each.c.value, literal_column(f"'$[{place}]'"), type_=named.type).label(named.name)
            for place, named in enumerate(columns)
        )
        return select(*values).subquery("batch")

    def query(self, asked: Select[Any] | CompoundSelect[Any]) -> Query:
        answer = asked.subquery("answer")
        packed = select(func.json_group_array(func.json_array(*answer.c)))
        compiled = packed.compile(dialect=_NAMED)
        statement, constants = str(compiled), {k: v for k, v in compiled.params.items() if v is not None}

        def ask(connection: Connection, variables: Mapping[str, object]) -> Sequence[Row]:
            driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
            [answered] = driver.execute(statement, {**constants, **variables}).fetchone()
            return _decode(answered)

        return ask

    def lock(self, kind: LockKind, connection: Connection) -> None:
        """Do nothing: SQLite runs one writing transaction at a time."""

    def newest_change(self, connection: Connection) -> int:
        newest: int | None = connection.scalar(_NEWEST_CHANGE)
        return newest or 0


_NAMED = sqlite.dialect(paramstyle="named")
_decode = msgspec.json.Decoder(list[list[Any]]).decode
_sequence = table("sqlite_sequence", column("name"), column("seq"))  # SQLite's own table for AUTOINCREMENT
_NEWEST_CHANGE = select(_sequence.c.seq).where(_sequence.c.name == changes.name)
