"""Statements for users whose newest mode, custom status or idle time was saved while the live store could not be written.
The nodes apply these values to the store after its return, and delete the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, and_, bindparam, delete, exists, select

from herenow.ledgers.sql.dialect import Dialect, every, rows, upsert
from herenow.ledgers.sql.schema import late_choices
from herenow.ledgers.sql.user_rows import UserRows
from herenow.ports import Choice


class LateRows:
    def __init__(self, dialect: Dialect, users: UserRows) -> None:
        self._users = users
        self._mark = upsert(
            dialect,
            late_choices,
            every(dialect.batch(*late_choices.c)),
            lambda new: new.version > late_choices.c.version,
        )
        self._walk = (
            select(late_choices.c.user, late_choices.c.version)
            .where(late_choices.c.user > bindparam("after", type_=late_choices.c.user.type))
            .order_by(late_choices.c.user)
            .limit(bindparam("most"))
        )
        applied = dialect.batch(*late_choices.c)
        self._forget = delete(late_choices).where(
            exists().where(and_(applied.c.user == late_choices.c.user, applied.c.version >= late_choices.c.version))
        )

    def choose(self, connection: Connection, user: str, choose: Callable[[Choice | None], Choice]) -> Choice:
        """Save the choice that `choose` makes from the stored one (None: there is none), and mark the user."""
        known = self._users.remembered(connection, (user,)).get(user)
        choice = choose(None if known is None else known.choice)
        self._users.save_choices(connection, (choice,))
        self.mark(connection, user, choice.version)
        return choice

    def mark(self, connection: Connection, user: str, version: int) -> None:
        connection.execute(self._mark, rows([(user, version)]))

    def walk(self, connection: Connection, after: str, limit: int) -> list[tuple[str, int]]:
        return [(row[0], row[1]) for row in connection.execute(self._walk, {"after": after, "most": limit})]

    def forget(self, connection: Connection, applied: Mapping[str, int]) -> None:
        connection.execute(self._forget, rows(sorted(applied.items())))
