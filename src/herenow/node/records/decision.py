"""What was decided about somebody, by what, and what others must hear of it. Values and functions: `decide` does it."""

from __future__ import annotations

from collections.abc import Iterable

from herenow.core.edits import set_custom, set_mode
from herenow.core.model import Presence
from herenow.core.sessions import later
from herenow.core.settle import Edit, Held, Outcome, Timings
from herenow.core.values import replace
from herenow.core.visibility import status_in_public
from herenow.node.people import Ask, HeldSession, Person
from herenow.ports import Write


class Weighed:
    """What is to be done about somebody, and what that was decided by."""

    __slots__ = ("asks", "before", "epoch", "expected", "held", "outcome", "person", "unsaved", "write")

    def __init__(
        self,
        person: Person,
        outcome: Outcome,
        epoch: str,
        held: list[tuple[HeldSession, Held]],
        asks: tuple[Ask, ...],
    ) -> None:
        self.person = person
        self.before = person.presence
        self.expected = person.record
        self.outcome = outcome
        self.epoch = epoch
        self.held = held
        self.asks = asks
        self.unsaved = False
        """The ledger must hear of it."""
        self.write: Write
        """Made when it is committed."""


def as_it_is(presence: Presence, now: int, timings: Timings) -> Presence:
    return presence


def restored(person: Person) -> list[Edit]:
    """What was chosen and lost is chosen again, unless something else was chosen since; and who was seen was seen."""
    lost = person.lost
    if lost is None:
        return []

    def restore(presence: Presence, now: int, timings: Timings) -> Presence:
        if lost.last_seen is not None:
            presence = replace(presence, last_seen=later(presence.last_seen, lost.last_seen))
        if presence.chosen >= lost.chosen:
            return presence
        presence = set_mode(lost.mode, lost.mode_until)(presence, now, timings)
        return set_custom(lost.custom)(presence, now, timings)

    return [restore]


def says_something(outcome: Outcome, asks: Iterable[Ask]) -> bool:
    """Somebody takes it for an answer that nothing had to change."""
    return bool(outcome.refused) or any(ask.edit is not as_it_is for ask in asks)


def differ_in_stamps_only(before: Presence, after: Presence) -> bool:
    """Then it need not be in the log. Everything else must be, news or not: other nodes decide by the record they know,
    and one that is behind in stamps alone expects things too early, never too late."""
    if len(before.sessions) != len(after.sessions):
        return False
    for old, new in zip(before.sessions, after.sessions, strict=True):
        if old is not new and old != replace(new, seen_at=old.seen_at, active_at=old.active_at):
            return False
    return before == replace(after, version=before.version, sessions=before.sessions)


def note_of(before: Presence, after: Presence) -> bytes:
    """Beside the record in the log: what others saw before and see now, for whoever counts."""
    return bytes((status_in_public(before) << 4 | status_in_public(after),))
