"""Recover last-seen times after nodes were lost together with their live store.

A run is one epoch of a node. The node marks users that are visibly online, and writes a time stamp at intervals. A clean
shutdown deletes both. After a loss they remain: until the run is closed, readers take them into account (`user_rows`); then
the last seen of each marked user is stored, with SQL statements only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    bindparam,
    case,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from herenow.core.model import Mode
from herenow.ledgers.sql.dialect import Dialect, every, rows, upsert
from herenow.ledgers.sql.schema import choices, last_seen, open_marks, preferences, runs
from herenow.ledgers.sql.voids import outlived

OPEN = open_marks.join(runs, runs.c.run == open_marks.c.run)
"""Run markers, each with the time stamp of its run."""

VISIBLE_AT: ColumnElement[int] = case(
    (open_marks.c.at > runs.c.at, open_marks.c.at), (runs.c.at.is_not(None), runs.c.at)
)
"""The latest time at which a marked user was visible, in a join of markers and runs; NULL without a run."""

NO_LIMIT = 2**62


class Runs:
    def __init__(self, dialect: Dialect) -> None:
        users = dialect.batch(open_marks.c.user)
        self._stamp = upsert(dialect, runs, every(dialect.batch(*runs.c)))
        self._move = update(runs).where(runs.c.run == bindparam("of_run")).values(at=bindparam("now"))
        self._mark = upsert(
            dialect, open_marks, every(dialect.batch(*open_marks.c)), lambda new: new.at > open_marks.c.at
        )
        self._unmark = delete(open_marks).where(
            open_marks.c.run == bindparam("of_run"), open_marks.c.user.in_(select(users))
        )
        self._runs = select(runs.c.run, runs.c.at)
        one = runs.c.run == bindparam("of_run")
        counted = select(func.count(open_marks.c.user.distinct())).select_from(OPEN)
        self._count_all, self._count_one = counted, counted.where(one)
        self._close_all, self._close_one = (
            upsert(dialect, last_seen, found, lambda new: new.at > last_seen.c.at)
            for found in (_last_seens(), _last_seens().where(one))
        )

    def mark(self, connection: Connection, run: str, here: Mapping[str, int], gone: Collection[str]) -> None:
        """Mark the users `here` (→ time of their last sign of life) as visible in this run of a node, and delete the
        markers of `gone`, also of users in both: a missing marker makes a last seen some seconds too early, but one too
        many could show when a hidden user was online."""
        if here:
            connection.execute(self._mark, rows((user, run, at) for user, at in sorted(here.items())))
        if gone:
            connection.execute(self._unmark, rows(sorted(gone)) | {"of_run": run})

    def stamp(self, connection: Connection, run: str, at: int) -> bool:
        """Store that the users marked in this run of a node were visible at `at` (epoch ms). Returns False if the run
        had no such time stamp before."""
        moved = connection.execute(self._move, {"of_run": run, "now": at}).rowcount > 0
        if not moved:
            connection.execute(self._stamp, rows([(run, at)]))
        return moved

    def found(self, connection: Connection) -> dict[str, int]:
        return {row[0]: row[1] for row in connection.execute(self._runs)}

    def end(self, connection: Connection, run: str) -> None:
        """Delete the time stamp and the user markers of a run, and also markers without a run, which a node wrote after
        its run was closed."""
        connection.execute(delete(runs).where(runs.c.run == run))
        connection.execute(delete(open_marks).where(open_marks.c.run.not_in(select(runs.c.run))))

    def close_one(self, connection: Connection, run: str, latest: int | None) -> int:
        """Close a run of a lost node: store a last seen, not later than `latest` (epoch ms; None: no limit), for the
        users marked in it, delete the run, and return the number of these users."""
        count = connection.scalar(self._count_one, {"of_run": run}) or 0
        if count:
            connection.execute(self._close_one, {"of_run": run, "latest": NO_LIMIT if latest is None else latest})
        self.end(connection, run)
        return count

    def close(self, connection: Connection) -> int:
        """Close all runs of lost nodes: store a last seen for the users marked in them, delete the runs, and return the
        number of these users. Markers of a run without a time stamp are deleted without effect."""
        count = connection.scalar(self._count_all) or 0
        connection.execute(self._close_all, {"latest": NO_LIMIT})
        connection.execute(delete(open_marks))
        connection.execute(delete(runs))
        return count


def _last_seens() -> Select[tuple[str, int]]:
    """Build the query for (user, last seen) of all users with run markers. No time is later than the bound variable
    `latest`, or than the moment at which the user hid."""
    limit = bindparam("latest", type_=BigInteger)
    at: ColumnElement[int] = case((limit < VISIBLE_AT, limit), else_=VISIBLE_AT)
    at = case((preferences.c.hidden_last_seen < at, preferences.c.hidden_last_seen), else_=at)
    invisible = exists().where(choices.c.user == open_marks.c.user, choices.c.mode == int(Mode.INVISIBLE))
    return (
        select(open_marks.c.user, func.max(at).label("at"))
        .select_from(OPEN.outerjoin(preferences, preferences.c.user == open_marks.c.user))
        .where(
            outlived(open_marks, VISIBLE_AT),
            ~invisible,
            or_(preferences.c.hidden_at.is_(None), preferences.c.hidden_last_seen.is_not(None)),
        )
        .group_by(open_marks.c.user)
    )
