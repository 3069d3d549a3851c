"""Saves the last seen of sessions with an end that the store did not take, because it is unreachable or in recovery.

Usually the end of a session is committed at once, and the last seen in the record is saved after that. If it is still not
committed at the next flush of the ledger, the last seen is saved without the store. The record gets the same last seen when
the store is back (`store_lacks`), so that every node learns of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from herenow.core.model import Mode, Presence
from herenow.kit.deadline import read_within, write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.people import LocalSession, Person, newest_missing
from herenow.ports import Remembered

PART = 2_000  # users per statement batch


class UncommittedEnds:
    def __init__(self, context: Context, forget: Callable[[str], None]) -> None:
        """`forget` is called with each user that gets a new last seen in the ledger."""
        self._context = context
        self._forget = forget
        self._ended: list[LocalSession] = []

    def note(self, session: LocalSession) -> None:
        """Remember a lost session: `save` saves its last seen, unless the store has accepted the loss by then. Call
        when a session is lost."""
        self._ended.append(session)

    async def save(self) -> None:
        """Save in the ledger the last seen of users with lost sessions that the store has not accepted as lost yet;
        raises the ledger's errors."""
        ended, self._ended = self._ended, []
        left = [session for session in ended if session in session.person.held]
        saved = 0
        try:
            for start in range(0, len(left), PART):
                await self._save(_latest(left[start : start + PART], self._context.timings.online_delay))
                saved = start + PART
        finally:
            self._ended = left[saved:] + self._ended

    async def _save(self, seen: dict[Person, int]) -> None:
        if not seen:
            return
        known = await read_within(self._context.ledger.remembered([person.user for person in seen]), LEDGER_DEADLINE)
        visible = {person: at for person, at in seen.items() if not _is_hidden(person, known.get(person.user))}
        # One millisecond less than the record will get: an equal value would not change the record, and cause no log entry.
        await write_within(
            self._context.ledger.save_last_seen({person.user: at - 1 for person, at in visible.items()}),
            LEDGER_DEADLINE,
        )
        for person, at in visible.items():
            self._forget(person.user)
            record = person.record
            record.store_lacks = newest_missing(record.presence, Presence(last_seen=at), record.store_lacks)


def _latest(sessions: Iterable[LocalSession], online_delay: int) -> dict[Person, int]:
    """Return the last sign of life (ms) of each user in these sessions. Sessions that were shorter than `online_delay`,
    or ended because the user was deleted, do not count."""
    latest: dict[Person, int] = {}
    for session in sessions:
        if session.seen_at >= session.since + online_delay and not session.ended_by_deletion:
            latest[session.person] = max(session.seen_at, latest.get(session.person, 0))
    return latest


def _is_hidden(person: Person, known: Remembered | None) -> bool:
    """True if the user's mode is invisible by the record or by the ledger (`known`): either of them may be out of
    date."""
    choice = None if known is None else known.choice
    return person.record.presence.mode is Mode.INVISIBLE or (choice is not None and choice.mode is Mode.INVISIBLE)
