"""The SQL dialect of PostgreSQL, and its locks.

In SQLite one transaction writes at a time. In PostgreSQL many do, each on its own snapshot. That would break two promises of
the ledger, so transactions take advisory locks that end with them (see `dialect.LockKind` and docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    FromClause,
    Select,
    SmallInteger,
    Table,
    Text,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

from herenow.ledgers.sql import LockKind, Query, Row

LOCKS = 0x68657265
"""The first half of our advisory lock keys ("here" in ASCII), to be distinct from the locks of other applications."""

MIGRATING, RUNNING = 0, 3
"""The second half for locks without a `LockKind`: a migration; a run of the memory engine (held by its session)."""

LOCK_NUMBERS = {LockKind.CHANGING: 1, LockKind.SAVING: 2, LockKind.ERASING: 2}

NAMES: tuple[tuple[type[TypeEngine[Any]], str], ...] = (
    (BigInteger, "BIGINT"),
    (SmallInteger, "SMALLINT"),
    (Boolean, "BOOLEAN"),
)


class PostgresDialect:
    def insert(self, table: Table) -> postgresql.Insert:
        return postgresql.insert(table)

    def batch(self, *columns: Column[Any]) -> FromClause:
        rows = cast(bindparam("rows", type_=Text), postgresql.JSONB)
        if len(columns) == 1:
            plain = func.jsonb_array_elements_text(rows).table_valued(column("value", Text), name="each")
            return select(plain.c.value.label(columns[0].name)).subquery("batch")
        each = func.jsonb_array_elements(rows).table_valued(column("value", postgresql.JSONB), name="each")
        values = (_item(place, named).label(named.name) for place, named in enumerate(columns))
        return select(*values).select_from(each).subquery("batch")

    def query(self, asked: Select[Any] | CompoundSelect[Any]) -> Query:
        def ask(connection: Connection, variables: Mapping[str, object]) -> Sequence[Row]:
            return connection.execute(asked, variables).all()

        return ask

    def lock(self, kind: LockKind, connection: Connection) -> None:
        shared = "_shared" if kind is LockKind.SAVING else ""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock{shared}({LOCKS}, {LOCK_NUMBERS[kind]})")

    def newest_change(self, connection: Connection) -> int:
        """Return the highest id that any row of the change table had. An id is assigned before its row is visible, so
        wait for the transaction that may have just taken one."""
        newest: int = connection.exec_driver_sql(NEWEST_NUMBER).scalar_one()
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared({LOCKS}, {LOCK_NUMBERS[LockKind.CHANGING]})")
        return newest


NEWEST_NUMBER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM changes_id_seq"


def _item(place: int, named: Column[Any]) -> ColumnElement[Any]:
    text = f"each.value ->> {place}"
    name = next((name for kind, name in NAMES if isinstance(named.type, kind)), None)
    return literal_column(f"({text})" if name is None else f"CAST({text} AS {name})", named.type)
