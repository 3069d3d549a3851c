"""What "online" means, and how one presence becomes the next. This, and the modules it calls, is all that knows.

Answers: given a record, what its node truly holds, and what somebody asked for, what is the record at `now`, is there
a change to announce, and when must somebody look again?
Does not know: clocks, stores, nodes, viewers. Time is an argument; every rule is a row or a property in the tests.

How it works. A record says everything a status depends on, so a status is a function of the record. Time enters only
as events that have a due time (`next_due`): a grace ends, a REST session dies, a device falls idle, a mode or a custom
status ends, an arrival may be shown, a note is forgotten. `settle` lets them happen in their order and at their own
times, together with the losses the node reports, until one of them changes what others see: that is one change, one
commit, and the caller comes again for the rest. So a grace that ended while everybody slept still yields "offline, then
online", with true times.

Order within one settle, where it stands, and why:
  1. `evidence`: fresher stamps of what the node holds (activity in the same millisecond as the idle timer wins over it)
  2. `timeline`: due events and reported losses, in the order of their times
  3. `edits`: what users asked for (a sign-out before the losses it causes, so it skips the grace)
  4. `reconcile`: sessions of this node that it no longer holds, then those it holds and the record does not know yet
After each step the status is updated (`status`), so that one that freezes is the right one.
"""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.evidence import apply_evidence
from herenow.core.inputs import Edit, Held, Timings
from herenow.core.model import UNLEASED, Custom, Mode, Presence, View, devices, public
from herenow.core.reconcile import holds_as_recorded, with_held, without_unheld
from herenow.core.status import update_status
from herenow.core.timeline import apply_due, next_due, next_event, reported_losses, with_history, with_loss
from herenow.core.values import Value, replace

_AUTO = Mode.AUTO  # an attribute of an enum is slow to get

__all__ = ["Change", "Edit", "Held", "Outcome", "Timings", "droppable", "settle", "wake_at"]


class Change(Value, frozen=True):
    """An announced difference: what others saw before and see now."""

    before: View
    after: View


class Outcome(Value, frozen=True):
    presence: Presence
    change: Change | None
    wake_at: int | None
    news: bool
    """Somebody (another viewer, the user's own devices, another holder) must hear of it: it belongs into the log."""
    unsaved: bool
    """Last seen, mode or custom status differ: the ledger must hear of it."""
    applied: bool = True
    """The edits are part of this presence."""
    more: bool = False
    """Settle again after the commit: something else happens after this change."""
    signed_out: tuple[str, ...] = ()
    """Held devices that were signed out elsewhere: close them, never assert them again."""
    refused: tuple[str, ...] = ()
    """Held devices for which the user has no session left."""


def settle(
    record: Presence,
    now: int,
    timings: Timings,
    *,
    epoch: str = UNLEASED,
    held: Sequence[Held] = (),
    edits: Sequence[Edit] = (),
    settled: bool = True,
) -> Outcome:
    """The one decision. `held` is everything this node holds of the user (with `epoch` as holder) and the REST beats
    it received; `settled` says whether a session missing from the record was removed on purpose (promise P6)."""
    seen = public(record)
    presence = with_history(apply_evidence(record, held, now, timings), held)
    losses = reported_losses(held)
    while (event := next_event(presence, losses, now, timings)) is not None:
        at, loss = event
        if loss is None:
            presence = apply_due(presence, at, timings)
        else:
            losses.remove(loss)
            presence = with_loss(presence, loss, at, timings)
        presence = update_status(presence, at)
        if public(presence) != seen:
            rest = bool(edits or losses or held) or _has_session_of(epoch, presence)
            return _outcome(record, presence, now, timings, seen, applied=not edits, more=rest)

    if edits:
        for edit in edits:
            presence = update_status(edit(presence, now, timings), now)
        if public(presence) != seen and not holds_as_recorded(presence, epoch, held):
            return _outcome(record, presence, now, timings, seen, more=True)

    before = presence
    presence = without_unheld(presence, epoch, held, now)
    presence, signed_out, refused = with_held(presence, held, now, timings, settled=settled)
    if presence is not before:
        presence = update_status(presence, now)
    return _outcome(record, presence, now, timings, seen, signed_out=signed_out, refused=refused)


def wake_at(presence: Presence, timings: Timings) -> int | None:
    """When this record must be settled again though nothing happens."""
    return next_due(presence, timings)


def droppable(presence: Presence) -> bool:
    """May this record leave the store once the ledger has it? Not while it says more than the ledger could."""
    return not (presence.sessions or presence.custom or presence.signed_out or presence.extra) and (
        presence.mode is _AUTO and presence.erased_at is None
    )


def _outcome(
    record: Presence,
    presence: Presence,
    now: int,
    timings: Timings,
    seen: View,
    *,
    applied: bool = True,
    more: bool = False,
    signed_out: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
) -> Outcome:
    due = next_due(presence, timings)
    more = more or (due is not None and due <= now)
    if presence is record or presence == record:
        return Outcome(
            record,
            None,
            due,
            news=False,
            unsaved=False,
            applied=applied,
            more=more,
            signed_out=signed_out,
            refused=refused,
        )
    version = max(record.version + 1, now)
    chose = _choices(presence) != _choices(record)
    shows = public(presence)
    change = Change(seen, shows) if shows != seen else None
    forgotten = presence.chosen != record.chosen  # with all that was chosen
    chosen = version if chose and not forgotten else presence.chosen
    return Outcome(
        presence=replace(presence, version=version, chosen=chosen),
        change=change,
        wake_at=due,
        news=change is not None or chose or _devices_hear_of_it(record, presence),
        unsaved=chose or record.last_seen != presence.last_seen,
        applied=applied,
        more=more,
        signed_out=signed_out,
        refused=refused,
    )


def _has_session_of(epoch: str, presence: Presence) -> bool:
    return epoch in [session.holder for session in presence.sessions]


def _choices(presence: Presence) -> tuple[Mode, int | None, Custom | None]:
    return presence.mode, presence.mode_until, presence.custom


def _devices_hear_of_it(record: Presence, presence: Presence) -> bool:
    """The user's own devices, who is shown the truth, or a holder whose session was signed out."""
    if record.status is not presence.status or record.platforms != presence.platforms:
        return True
    if devices(record) != devices(presence):
        return True
    return any(note not in record.signed_out for note in presence.signed_out)
