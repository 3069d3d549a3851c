"""The state machine of presence. `settle` computes the next record of a user from the stored record, the sessions that the
node holds, the requested edits and the time. It also returns the change to announce and the time of the next call.

How it works. A record contains everything that a status depends on, so the status is a function of the record. Time enters
only as events with a due time (`timeline.next_due`): a grace ends, a REST session times out, a device becomes idle, a mode
or a custom status of one of its sources ends, an arrival may be shown, a sign-out entry expires. `settle` applies them in
the order of their times, together with the losses that the node reports, until one of them changes what others see. That is
one change and one commit; `Outcome.more` asks the caller to settle again for the remaining events. So a grace that ended
while no node was running still yields "offline, then online", each with its true time.

Order of the steps, by module, and why:
  1. `reconcile.apply_evidence`: later times of held sessions (activity in the millisecond of the idle timer wins over it)
  2. `timeline`: due events and reported losses, in the order of their times. Held sessions that began before an event, but
     are not in the record, join before it: they could not be written until now
  3. `edits`: requested changes (a sign-out comes before the losses that it causes, so it skips the grace)
  4. `reconcile`: recorded sessions that this node no longer holds, then held sessions that the record lacks, then sign-out
     entries for this node that need no answer any more; a sign-out that the node learns of now is answered by the next call
Before them, `sources.agreed` repairs what a node without knowledge of sources did to a record that has some.
The status is updated after each step (`status`), because it freezes when the last live session is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.inputs import Edit, Held, Timings
from herenow.core.model import UNLEASED, Custom, Mode, Presence, Sourced, Status, View, devices, public
from herenow.core.reconcile import (
    apply_evidence,
    holds_as_recorded,
    with_arrivals,
    with_held,
    without_answered,
    without_unheld,
)
from herenow.core.sources import agreed, with_newer_choices
from herenow.core.status import update_status
from herenow.core.timeline import apply_due, next_due, next_event, reported_losses, with_history, with_loss
from herenow.core.values import Value, replace

_AUTO = Mode.AUTO  # looking up an enum attribute is slow

__all__ = ["Change", "Edit", "Held", "Outcome", "Timings", "droppable", "ends", "settle", "wake_at"]


class Change(Value, frozen=True):
    """A difference to announce: the public view before and after."""

    before: View
    after: View


class Outcome(Value, frozen=True):
    """Result of `settle`. `presence` is the input record itself if nothing changed."""

    presence: Presence
    change: Change | None
    wake_at: int | None
    news: bool
    """A viewer, the user's own devices or another node must learn of the new record: it belongs into the log."""
    unsaved: bool
    """Last seen, mode or custom status differ: the ledger must be updated."""
    applied: bool = True
    """The edits are part of `presence`."""
    more: bool = False
    """Call `settle` again after the commit: more events follow."""
    signed_out: tuple[str, ...] = ()
    """Devices of this node that were signed out elsewhere: close them and do not write them again."""
    refused: tuple[str, ...] = ()
    """Devices of this node beyond `max_sessions`."""


def settle(
    record: Presence,
    now: int,
    timings: Timings,
    *,
    epoch: str = UNLEASED,
    held: Sequence[Held] = (),
    edits: Sequence[Edit] = (),
    settled: bool = True,
    outage: tuple[int, int] | None = None,
    newer: Presence | None = None,
) -> Outcome:
    """Compute the record of a user at `now`, the change to announce, and the time of the next call. `held`: all
    sessions of the user that this node holds (with `epoch` as holder) or has lost since the last commit, and the REST
    heartbeats it received. `settled` False: the shard lost data, so a session that is missing from the record was not
    necessarily ended on purpose (promise P6). `outage`: begin and end of a time in which the shard could not be
    written; timeouts that fell due then come after the arrivals of that time. `newer`: modes and custom statuses that
    may be newer than those of the record (`with_newer_choices`); they come first, because the end of an older mode must
    not replace them."""
    seen = public(record)
    base = with_newer_choices(record, newer, now)
    presence = with_history(apply_evidence(base, held, now, timings), held)
    if presence.sources and (decided := agreed(presence, now)) is not presence:
        presence = update_status(decided, now)
    losses = reported_losses(held)
    while (event := next_event(presence, losses, now, timings)) is not None:
        at, loss = event
        arrived = with_arrivals(presence, held, _takes_effect(at, outage), now, timings, settled=settled)
        if arrived is not presence:
            presence = update_status(arrived, at)  # the arrival may replace the session of the event
        elif loss is None:
            presence = update_status(apply_due(presence, at, timings), at)
        else:
            losses.remove(loss)
            presence = update_status(with_loss(presence, loss, at, timings), at)
        if public(presence) != seen:
            more = bool(edits or losses or held) or _has_session_of(epoch, presence)
            return _outcome(record, base, presence, now, timings, seen, applied=not edits, more=more)

    if edits:
        for edit in edits:
            presence = update_status(edit(presence, now, timings), now)
        if public(presence) != seen and not holds_as_recorded(presence, epoch, held):
            return _outcome(record, base, presence, now, timings, seen, more=True)

    before = presence
    presence = without_unheld(presence, epoch, held, now)
    presence, signed_out, refused = with_held(presence, held, now, timings, settled=settled)
    presence = without_answered(presence, epoch, held)
    if presence is not before:
        presence = update_status(presence, now)
    return _outcome(
        record, base, presence, now, timings, seen, more=bool(signed_out), signed_out=signed_out, refused=refused
    )


def wake_at(presence: Presence, timings: Timings) -> int | None:
    """Return the time at which `settle` must be called for this record if nothing else happens; None: never."""
    return next_due(presence, timings)


def droppable(presence: Presence) -> bool:
    """True if the record has nothing but last seen and `idle_after`, so that the store may drop it once the ledger has
    them."""
    kept = presence.sessions or presence.custom or presence.sources or presence.signed_out or presence.extra
    return not kept and presence.mode is _AUTO and presence.erased_at is None


def ends(before: Presence, after: Presence) -> bool:
    """True if the user goes offline between these two records. A deletion does not count: it is committed at once,
    while other departures may be delayed."""
    left = after.status is Status.OFFLINE and before.status is not Status.OFFLINE
    return left and after.erased_at == before.erased_at


def _outcome(
    record: Presence,
    base: Presence,
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
    return Outcome(
        presence=replace(presence, version=version, chosen=_chosen(base, presence, version)),
        change=change,
        wake_at=due,
        news=change is not None or chose or _concerns_devices(record, presence),
        unsaved=chose or record.last_seen != presence.last_seen,
        applied=applied,
        more=more,
        signed_out=signed_out,
        refused=refused,
    )


def _chosen(base: Presence, presence: Presence, version: int) -> int:
    """Return the version at which mode, custom status or sources last changed: `version` if they differ from those of
    `base`, the record with the newer choices that it lacked. They keep a version of their own."""
    forgotten = presence.chosen != base.chosen  # `erase` reset it
    return version if _choices(presence) != _choices(base) and not forgotten else presence.chosen


def _takes_effect(at: int, outage: tuple[int, int] | None) -> int:
    """Return the time at which an event of time `at` takes effect: the end of the outage, if `at` is within it. So time
    in which the shard could not be written counts against no session."""
    return outage[1] if outage is not None and outage[0] <= at < outage[1] else at


def _has_session_of(epoch: str, presence: Presence) -> bool:
    return epoch in [session.holder for session in presence.sessions]


def _choices(presence: Presence) -> tuple[Mode, int | None, Custom | None, tuple[Sourced, ...]]:
    return presence.mode, presence.mode_until, presence.custom, presence.sources


def _concerns_devices(record: Presence, presence: Presence) -> bool:
    """True if the change from `record` to `presence` must reach the user's own devices, services, or a node with a
    session that was signed out."""
    if record.status is not presence.status or record.platforms != presence.platforms:
        return True
    if devices(record) != devices(presence):
        return True
    return any(tombstone not in record.signed_out for tombstone in presence.signed_out)
