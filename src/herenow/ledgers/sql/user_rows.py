"""Statements for single users: last seen, choices (modes and custom statuses), idle time."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, and_, null, or_, select, update

from herenow.core.model import Custom, Mode, Sourced
from herenow.core.record import decode_sources, encode_sources
from herenow.ledgers.sql.dialect import Dialect, Row, every, rows, upsert
from herenow.ledgers.sql.runs import VISIBLE_AT
from herenow.ledgers.sql.schema import choices, last_seen, open_marks, preferences, runs
from herenow.ledgers.sql.voids import outlived
from herenow.ports import Choice, Remembered


class UserRows:
    def __init__(self, dialect: Dialect) -> None:
        asked = dialect.batch(last_seen.c.user)
        self._remembered = dialect.query(
            select(
                last_seen.c.at,
                preferences.c.idle_after,
                choices.c.version,
                asked.c.user,
                *_CHOSEN,
                VISIBLE_AT.label("visible_at"),
                preferences.c.hidden_at,
                preferences.c.hidden_last_seen,
            )
            .select_from(
                asked.outerjoin(last_seen, last_seen.c.user == asked.c.user)
                .outerjoin(preferences, preferences.c.user == asked.c.user)
                .outerjoin(choices, choices.c.user == asked.c.user)
                .outerjoin(open_marks, open_marks.c.user == asked.c.user)
                .outerjoin(runs, and_(runs.c.run == open_marks.c.run, outlived(open_marks, VISIBLE_AT)))
            )
            .where(
                or_(
                    last_seen.c.at.is_not(None),
                    preferences.c.idle_after.is_not(None),
                    choices.c.version.is_not(None),
                    runs.c.run.is_not(None),
                )
            )
        )
        seen, chosen = dialect.batch(*last_seen.c), dialect.batch(*choices.c)
        self._save_last_seen = upsert(
            dialect, last_seen, select(seen).where(outlived(seen, seen.c.at)), lambda new: new.at > last_seen.c.at
        )
        self._save_choices = upsert(
            dialect,
            choices,
            select(chosen).where(outlived(chosen, chosen.c.version)),
            lambda new: new.version > choices.c.version,
        ).returning(choices.c.user, choices.c.mode)
        named = dialect.batch(choices.c.user)
        self._invisible = dialect.query(
            select(choices.c.user).where(choices.c.user.in_(select(named)), choices.c.mode == int(Mode.INVISIBLE))
        )
        self._set_idle_after = upsert(
            dialect,
            preferences,
            every(dialect.batch(preferences.c.user, preferences.c.idle_after)),
            lambda new: new.idle_after.is_distinct_from(preferences.c.idle_after),
        ).returning(preferences.c.user)
        self._unset_idle_after = (
            update(preferences)
            .values(idle_after=None)
            .where(
                preferences.c.user.in_(select(dialect.batch(preferences.c.user))), preferences.c.idle_after.is_not(None)
            )
            .returning(preferences.c.user)
        )

    # Batches are in key order: neighbours are on the same database page.

    def remembered(self, connection: Connection, users: Collection[str]) -> dict[str, Remembered]:
        known: dict[str, Remembered] = {}
        for row in self._remembered(connection, rows(sorted(users))):  # one per mark of a user, or one without
            user, found = row[3], _remembered(row)
            if row[_MARK] is None:
                known.setdefault(user, found)
            elif found != _UNKNOWN:
                known[user] = max(found, known.get(user, _UNKNOWN), key=_last_seen)
        return known

    def save_last_seen(self, connection: Connection, seen: Mapping[str, int]) -> None:
        connection.execute(self._save_last_seen, rows(sorted(seen.items())))

    def save_choices(self, connection: Connection, chosen: Sequence[Choice]) -> list[str]:
        """Save modes and custom statuses of users, except over those with a higher version. Returns the users whose saved
        mode is or was invisible and changed, perhaps in its end only."""
        # Only the newest choice of each user: PostgreSQL refuses to update a row twice in one statement.
        newest: dict[str, Choice] = {}
        for choice in chosen:
            if choice.user not in newest or choice.version > newest[choice.user].version:
                newest[choice.user] = choice
        users = sorted(newest)
        hidden = {row[0] for row in self._invisible(connection, rows(users))}
        saved = connection.execute(self._save_choices, rows(_columns(newest[user]) for user in users))
        return [user for user, mode in saved if mode == int(Mode.INVISIBLE) or user in hidden]

    def chosen(self, connection: Connection, after: str, limit: int) -> list[Choice]:
        more_than_default = or_(
            choices.c.mode != int(Mode.AUTO), choices.c.custom_text.is_not(None), choices.c.sources.is_not(None)
        )
        walk = (
            select(null(), null(), choices.c.version, choices.c.user, *_CHOSEN)
            .where(choices.c.user > after, more_than_default)
            .order_by(choices.c.user)
            .limit(limit)
        )
        return [_choice(row) for row in connection.execute(walk)]

    def set_idle_after(self, connection: Connection, user: str, idle_after: int | None) -> bool:
        """Store after how many milliseconds without activity this user counts as idle; None: the server's default.
        Return whether the value changed."""
        if idle_after is None:
            changed = connection.execute(self._unset_idle_after, rows([user]))
        else:
            changed = connection.execute(self._set_idle_after, rows([(user, idle_after)]))
        return len(changed.all()) > 0


_CHOSEN = (
    choices.c.mode,
    choices.c.mode_until,
    choices.c.custom_text,
    choices.c.custom_emoji,
    choices.c.custom_until,
    choices.c.sources,
)

_MARK = 4 + len(_CHOSEN)
"""Index of the first column of a mark, after last seen, idle time, version, user and the columns of the choice."""

_UNKNOWN = Remembered()


def _last_seen(known: Remembered) -> int:
    return known.last_seen or 0


def _remembered(row: Row) -> Remembered:
    choice = None if row[2] is None else _choice(row[:_MARK])
    at, visible_at = row[0], row[_MARK]
    if visible_at is not None:
        at = _with_mark(at, visible_at, choice, *row[_MARK + 1 :])
    return Remembered(at, choice, row[1])


def _with_mark(
    at: int | None, visible_at: int, choice: Choice | None, hidden_at: int | None, hidden_last_seen: int | None
) -> int | None:
    """Return the last seen of a user who is marked as visible in an open run: the later of `at` (the stored one) and
    `visible_at` (the run's). `visible_at` counts less, or not at all, if the user hid, as when the run is closed
    (`runs`)."""
    if choice is not None and choice.mode is Mode.INVISIBLE:
        return at
    if hidden_at is not None:
        if hidden_last_seen is None:
            return at
        visible_at = min(visible_at, hidden_last_seen)
    return visible_at if at is None else max(at, visible_at)


def _choice(row: Row) -> Choice:
    _, _, version, user, mode, mode_until, text, emoji, until, sources = row
    return Choice(
        user,
        version,
        Mode(mode),
        mode_until,
        None if text is None else Custom(text, emoji, until),
        () if sources is None else _sources(sources),
    )


def _sources(column: str) -> tuple[Sourced, ...]:
    """Decode the column with the modes and custom statuses of all sources. If it is unreadable, return an empty tuple:
    the row still has the mode and custom status that count."""
    try:
        return decode_sources(b64decode(column))
    except ValueError:
        return ()


def _columns(choice: Choice) -> tuple[object, ...]:
    custom = choice.custom
    own = (None, None, None) if custom is None else (custom.text, custom.emoji, custom.until)
    sources = b64encode(encode_sources(choice.sources)).decode() if choice.sources else None
    return (choice.user, choice.version, int(choice.mode), choice.mode_until, *own, sources)
