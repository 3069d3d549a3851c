"""The change table, which every node polls: a lost message between nodes cannot leave a viewer with revoked access.

A row says that something about one or two users has changed, not what: the reader loads the current state again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select

from herenow.ledgers.sql.dialect import Dialect, LockKind, Row, rows
from herenow.ledgers.sql.schema import changes
from herenow.ports import LedgerChange


class ChangeTable:
    def __init__(self, dialect: Dialect) -> None:
        columns = (changes.c.kind, changes.c.a, changes.c.b)
        self._insert = insert(changes).from_select([column.name for column in columns], select(dialect.batch(*columns)))
        self._dialect = dialect
        self._after = dialect.query(
            select(changes.c.id, *columns)
            .where(changes.c.id > bindparam("after"))
            .order_by(changes.c.id)
            .limit(bindparam("most"))
        )
        self._forget = delete(changes).where(changes.c.id <= bindparam("before"))

    def lock(self, connection: Connection) -> None:
        """Exclude other transactions that add changes until the end of this one, so that rows of the change table
        become visible in the order of their ids. Must be the first statement of such a transaction."""
        self._dialect.lock(LockKind.CHANGING, connection)

    def add(self, connection: Connection, added: Sequence[LedgerChange]) -> None:
        if added:
            connection.execute(self._insert, rows((change.kind, change.a, change.b) for change in added))

    def head(self, connection: Connection) -> int:
        return self._dialect.newest_change(connection)

    def after(self, connection: Connection, after: int, limit: int) -> tuple[list[LedgerChange], int]:
        found = sorted(self._after(connection, {"after": after, "most": limit}), key=_by_id)
        return [LedgerChange(kind, a, b) for _, kind, a, b in found], found[-1][0] if found else after

    def forget(self, connection: Connection, before: int) -> None:
        connection.execute(self._forget, {"before": before})


def _by_id(row: Row) -> int:
    number: int = row[0]
    return number
