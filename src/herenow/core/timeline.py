"""Events by the clock: what falls due in a record, and the losses that a node reports. Each takes effect at its own time,
also when it is processed later. A new kind of event is a row in `next_due` and a line in `apply_due`."""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.inputs import Held, Timings
from herenow.core.model import UNLEASED, Idle, Presence, Retired, Session
from herenow.core.reconcile import joined
from herenow.core.sessions import find, idle_limit, idled, lost, removed, seen
from herenow.core.sources import ends, without_ended
from herenow.core.status import platforms_of, update_status
from herenow.core.values import replace

REMEMBER_SIGN_OUT = 600_000
"""Milliseconds for which sign-out entries and deletions are kept, for nodes that missed them. A node that was frozen for
longer has no sockets."""

_NOT_IDLE = Idle.NO  # looking up an enum attribute is slow


def next_event(
    presence: Presence, losses: Sequence[Held], now: int, timings: Timings
) -> tuple[int, Held | None] | None:
    """Return the next event that takes effect by `now`: (time, loss) for the first of the reported `losses`, or (time,
    None) if something in the record falls due earlier. None: there is neither."""
    due = next_due(presence, timings)
    if losses and (due is None or _lost_at(losses[0]) <= due):
        return min(_lost_at(losses[0]), now), losses[0]
    return (due, None) if due is not None and due <= now else None


def next_due(presence: Presence, timings: Timings) -> int | None:
    """Return the earliest time at which the clock alone changes the record: a grace, a mode or a delay ends, a session
    becomes idle … None: never."""
    dues: list[int] = []
    live = presence.live
    for session in presence.sessions:
        if session.lost_at is not None:
            dues.append(session.lost_at + timings.grace)
        elif session.holder == UNLEASED:
            dues.append(session.seen_at + timings.dead_after)
        if live and session.idle is _NOT_IDLE:  # while all are in grace the status is frozen, idleness too
            dues.append(session.active_at + idle_limit(presence, timings))
    if live and presence.arriving_until is not None:
        dues.append(presence.arriving_until)
    if presence.mode_until is not None:
        dues.append(presence.mode_until)
    if presence.custom is not None and presence.custom.until is not None:
        dues.append(presence.custom.until)
    if presence.sources:
        dues += ends(presence.sources)
    if presence.signed_out or presence.erased_at is not None:
        dues += _forgotten_at(presence)
    return min(dues) if dues else None


def _forgotten_at(presence: Presence) -> list[int]:
    """Return the times at which this record forgets its sign-out entries and the user's deletion."""
    kept_since = [tombstone.at for tombstone in presence.signed_out]
    if presence.erased_at is not None:
        kept_since.append(presence.erased_at)
    return [at + REMEMBER_SIGN_OUT for at in kept_since]


def apply_due(presence: Presence, at: int, timings: Timings) -> Presence:
    presence = _apply_due_to_sessions(presence, at, timings)
    presence = without_ended(presence, at)
    if presence.live and presence.arriving_until is not None and presence.arriving_until <= at:
        presence = replace(presence, arriving_until=None, platforms=platforms_of(presence))
    if presence.signed_out:
        tombstones = tuple(t for t in presence.signed_out if t.at + REMEMBER_SIGN_OUT > at)
        presence = replace(presence, signed_out=tombstones)
    if presence.retired:  # dropped with other events: it is not visible, so it needs no due time
        presence = replace(presence, retired=still_expected(presence.retired, at))
    if presence.erased_at is not None and presence.erased_at + REMEMBER_SIGN_OUT <= at:
        presence = replace(presence, erased_at=None)
    return presence


def still_expected(retired: Sequence[Retired], at: int) -> tuple[Retired, ...]:
    """Return those of the retired sessions that are recent enough for their nodes to come back with them."""
    return tuple(r for r in retired if r.at + REMEMBER_SIGN_OUT > at)


def _apply_due_to_sessions(presence: Presence, at: int, timings: Timings) -> Presence:
    for session in presence.sessions:
        if session.lost_at is not None:
            if session.lost_at + timings.grace <= at:
                presence = removed(presence, session)
        elif session.holder == UNLEASED and session.seen_at + timings.dead_after <= at:
            presence = lost(presence, session.device, UNLEASED, session.seen_at, at)
    if not presence.live:
        return presence
    sessions = idled(presence.sessions, at - idle_limit(presence, timings))
    return presence if sessions is presence.sessions else replace(presence, sessions=sessions)


def reported_losses(held: Sequence[Held]) -> list[Held]:
    """Return the lost sessions among those of the node (`held`), sorted by `lost_at`. Left out are sessions of devices
    that have come back and were committed again: their loss changes nothing any more."""
    if not held:
        return []
    back = _returned(held)
    losses = [h for h in held if h.lost_at is not None and (h.device, h.holder) not in back]
    losses.sort(key=_lost_at)
    return losses


def with_history(presence: Presence, held: Sequence[Held]) -> Presence:
    """Raise `last_seen` for devices that were lost and came back before the loss could be committed: `last_seen` gets
    the last sign of life before that loss."""
    if len(held) < 2:
        return presence
    back = _returned(held)
    for h in held:
        if h.lost_at is not None and (h.device, h.holder) in back:
            session = find(presence.sessions, h.device, h.holder)
            if session is not None and session.live and h.seen_at > (presence.last_seen or 0):
                presence = seen(presence, h.seen_at)
    return presence


def _returned(held: Sequence[Held]) -> set[tuple[str, str]]:
    return {(h.device, h.holder) for h in held if h.lost_at is None and h.asserted}


def with_loss(presence: Presence, loss: Held, at: int, timings: Timings) -> Presence:
    """Move the session of a reported loss into grace, from `at` on. If the record has already ended the session, only a
    later sign of life is adopted (`_seen_later`)."""
    session = find(presence.sessions, loss.device, loss.holder)
    if loss.holder == UNLEASED and session is not None and session.seen_at > loss.seen_at:
        return presence  # another node received a later heartbeat
    if session is None or not session.live:
        if not _returned_and_lost(presence, loss):
            return _seen_later(presence, session, loss, timings)
        presence = update_status(joined(presence, loss, at, timings), at)
    return lost(presence, loss.device, loss.holder, loss.seen_at, at)


def _seen_later(presence: Presence, session: Session | None, loss: Held, timings: Timings) -> Presence:
    """Apply the loss of a session that other nodes have ended because they took its node for dead. The node knows a
    later sign of life than they did:

        n2   cut off ────── the device leaves ─────────── is back: it was seen until then
        n1        └─ retires n2: last seen at its last renewal

    A running grace continues unchanged. If the session is gone, `last_seen` is raised only if the user was certainly
    visible then: `online_delay` was over, and there was no new mode or custom status, no sign-out and no deletion
    since.
    """
    if session is not None:
        if loss.seen_at <= session.seen_at:
            return presence
        later_seen = replace(session, seen_at=loss.seen_at)
        sessions = tuple(later_seen if s is session else s for s in presence.sessions)
        return seen(replace(presence, sessions=sessions), loss.seen_at)
    shown = bool(loss.asserted_by) and loss.seen_at >= loss.since + timings.online_delay
    signed_out = any((t.device, t.holder) == (loss.device, loss.holder) for t in presence.signed_out)
    if not shown or signed_out or presence.erased_at is not None or loss.seen_at <= presence.chosen:
        return presence
    return seen(presence, loss.seen_at)


def _returned_and_lost(presence: Presence, loss: Held) -> bool:
    """True if the device of a reported loss had come back within its grace and was lost again before its return was
    committed. Only the second grace then counts."""
    return any(s.device == loss.device and s.lost_at is not None and s.lost_at <= loss.since for s in presence.sessions)


def _lost_at(held: Held) -> int:
    assert held.lost_at is not None
    return held.lost_at
