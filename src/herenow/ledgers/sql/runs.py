"""Recover last-seen times after `kill -9` of a node with the memory engine.

A run is one process lifetime. The process marks users that are visibly online and writes a timestamp at intervals. A clean
shutdown deletes both. After a kill they remain, and the next start stores the run's last timestamp as the last seen of each
marked user, with SQL statements only.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, bindparam, delete, func, select

from herenow.ledgers.sql.dialect import Dialect, every, rows, upsert
from herenow.ledgers.sql.schema import last_seen, open_marks, runs
from herenow.ledgers.sql.voids import outlived


class Runs:
    def __init__(self, dialect: Dialect) -> None:
        users = dialect.batch(open_marks.c.user)
        self._stamp = upsert(dialect, runs, every(dialect.batch(*runs.c)))
        self._mark = upsert(dialect, open_marks, every(dialect.batch(*open_marks.c)))
        self._unmark = delete(open_marks).where(
            open_marks.c.run == bindparam("of_run"), open_marks.c.user.in_(select(users))
        )
        left_open = open_marks.join(runs, runs.c.run == open_marks.c.run)
        self._count = select(func.count(open_marks.c.user.distinct())).select_from(left_open)
        self._close = upsert(
            dialect,
            last_seen,
            select(open_marks.c.user, func.max(runs.c.at).label("at"))
            .select_from(left_open)
            .where(outlived(open_marks, runs.c.at))
            .group_by(open_marks.c.user),
            lambda new: new.at > last_seen.c.at,
        )

    def mark(self, connection: Connection, run: str, here: Collection[str], gone: Collection[str]) -> None:
        """A user in both sets is unmarked: a missing mark makes a last seen some seconds too early, but a mark too many
        could show when a hidden user was online."""
        connection.execute(self._mark, rows((run, user) for user in sorted(here)))
        connection.execute(self._unmark, rows(sorted(gone)) | {"of_run": run})

    def stamp(self, connection: Connection, run: str, at: int) -> None:
        connection.execute(self._stamp, rows([(run, at)]))

    def end(self, connection: Connection, run: str) -> None:
        connection.execute(delete(open_marks).where(open_marks.c.run == run))
        connection.execute(delete(runs).where(runs.c.run == run))

    def close(self, connection: Connection) -> int:
        """Store a last seen for all marked users, delete all marks and runs, return the number of marked users. Marks of a
        run without a timestamp are deleted without effect."""
        count = connection.scalar(self._count) or 0
        connection.execute(self._close)
        connection.execute(delete(open_marks))
        connection.execute(delete(runs))
        return count
