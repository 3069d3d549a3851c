"""A decision about a user with its inputs, and pure functions on it: restored values, log entry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from herenow.core.edits import restore_choices
from herenow.core.model import Mode, Presence
from herenow.core.sessions import later
from herenow.core.settle import Edit, Held, Outcome, Timings
from herenow.core.values import replace
from herenow.core.visibility import status_in_public
from herenow.node.deadlines import CLOCK_SKEW
from herenow.node.people import LocalSession, PendingEdit, Person, newest_missing
from herenow.ports import Write


@dataclass(slots=True, eq=False, repr=False)
class Decision:
    person: Person
    before: Presence
    expected: bytes | None
    outcome: Outcome
    epoch: str
    held: list[tuple[LocalSession, Held]]
    edits: tuple[PendingEdit, ...]
    unsaved: bool = False  # True: the record has values that the ledger does not have
    write: Write = field(init=False)  # set by `DecisionSteps.prepare`

    @property
    def changes_record(self) -> bool:
        return self.outcome.presence is not self.before


def NO_EDIT(presence: Presence, now: int, timings: Timings) -> Presence:  # noqa: N802 - a constant
    """Return the presence unchanged. A caller that waits for this edit waits for all changes that were requested before
    it."""
    return presence


def restored(person: Person) -> list[Edit]:
    """Return the edits that write again what the store has lost (`store_lacks`): last seen, and mode and custom status
    unless the record has newer ones."""
    lost = person.record.store_lacks
    if lost is None:
        return []

    def restore(presence: Presence, now: int, timings: Timings) -> Presence:
        hid_since = presence.mode is Mode.INVISIBLE and lost.chosen <= presence.chosen
        if lost.last_seen is not None and not (hid_since and lost.last_seen > presence.chosen):
            presence = replace(presence, last_seen=later(presence.last_seen, lost.last_seen))
        if presence.chosen >= lost.chosen:
            return presence
        return restore_choices(lost)(presence, now, timings)

    return [restore]


def kept_after_deletion(lost: Presence, erased: int) -> Presence | None:
    """Return those values of `lost`, which the store has lost, that were set at least `CLOCK_SKEW` after the user's
    deletion at `erased` (ms); None if there are none."""
    chosen = lost if lost.chosen >= erased + CLOCK_SKEW else _EMPTY
    seen = lost.last_seen if (lost.last_seen or 0) >= erased + CLOCK_SKEW else None
    return newest_missing(_EMPTY, replace(chosen, last_seen=seen))


_EMPTY = Presence()


def answers_caller(outcome: Outcome, edits: Iterable[PendingEdit]) -> bool:
    """Return True if a caller waits for the result of this decision, which changes nothing in the record: there is an
    edit, or a session was refused. Then read the record from the store first: the known one may be out of date."""
    return bool(outcome.refused) or any(pending.edit is not NO_EDIT for pending in edits)


def differ_in_stamps_only(before: Presence, after: Presence) -> bool:
    """True if two presences differ only in the times `seen_at` and `active_at` of sessions. Such a change needs no log
    entry: nodes that know older times act too early, never too late. Every other change needs one, because other nodes
    decide from the record they know."""
    if len(before.sessions) != len(after.sessions):
        return False
    for old, new in zip(before.sessions, after.sessions, strict=True):
        if old is not new and old != replace(new, seen_at=old.seen_at, active_at=old.active_at):
            return False
    return before == replace(after, version=before.version, sessions=before.sessions)


def log_note(before: Presence, after: Presence) -> bytes:
    """Encode the public status before and after a change in one byte, which is stored beside the record in the log. It
    is used to count users by status."""
    return bytes((status_in_public(before) << 4 | status_in_public(after),))
