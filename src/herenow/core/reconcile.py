"""Reconcile a record with what its node holds. `apply_evidence` adopts signs of life and activity that only the node knows;
worth a commit are later activity, reported idleness, and a sign of life only where a REST session would time out without it.
The rest decides which held sessions are added to the record, which recorded ones are lost, and which
sessions the node must close: signed out elsewhere, or beyond the limit."""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.inputs import Held, Timings
from herenow.core.model import UNLEASED, Idle, Presence, Session, Status
from herenow.core.sessions import find, idle_limit, idled, lost, removed
from herenow.core.status import update_status
from herenow.core.values import replace

# Looking up an enum attribute is slow.
_NOT_IDLE, _SAID, _TIMED_OUT = Idle.NO, Idle.SAID, Idle.TIMED_OUT


def apply_evidence(presence: Presence, held: Sequence[Held], now: int, timings: Timings) -> Presence:
    """The record with later times from `held` and the resulting status; `presence` itself if nothing is worth a commit."""
    sessions = presence.sessions
    for h in held:
        session = find(sessions, h.device, h.holder)
        if session is None or not session.live or _began_after(session, h, timings):
            continue
        updated = _with_later_times(session, h, now, idle_limit(presence, timings), timings.dead_after)
        if updated is not session:
            sessions = tuple([updated if s is session else s for s in sessions])
    return presence if sessions is presence.sessions else update_status(replace(presence, sessions=sessions), now)


def _began_after(session: Session, held: Held, timings: Timings) -> bool:
    """True if these REST heartbeats began after the recorded session timed out (unprocessed yet): a new session."""
    return session.holder == UNLEASED and held.since > session.seen_at + timings.dead_after


def _with_later_times(session: Session, held: Held, now: int, idle_after: int, dead_after: int) -> Session:
    """The session with later activity, idleness and `seen_at`; unchanged if a sign of life alone extends nothing."""
    acted = held.active_at > session.active_at
    if _says_idle(held, session.active_at):
        idle = _SAID
    elif not acted:
        idle = session.idle
    elif session.idle is _NOT_IDLE or now < held.active_at + idle_after:
        idle = _NOT_IDLE
    else:
        idle = _TIMED_OUT  # reported late, and too old to make the device active
    if not acted and idle is session.idle and not _extends_deadline(session, held, now, dead_after):
        return session
    return replace(
        session, active_at=max(session.active_at, held.active_at), idle=idle, seen_at=max(session.seen_at, held.seen_at)
    )


def _says_idle(held: Held, active_at: int) -> bool:
    """True if the device reported idleness, and the record has no later activity (received by another node)."""
    return held.idle and (held.idle_at is None or held.idle_at >= active_at)


def _extends_deadline(session: Session, held: Held, now: int, dead_after: int) -> bool:
    """True if a heartbeat must extend the deadline of a REST session: it is a third of `dead_after` later than the committed
    one, or at most a third is left at `now`. More frequent heartbeats cost no writes."""
    if session.holder != UNLEASED or held.seen_at <= session.seen_at:
        return False
    return 3 * (held.seen_at - session.seen_at) >= dead_after or 3 * (now - session.seen_at) >= 2 * dead_after


def holds_as_recorded(presence: Presence, epoch: str, held: Sequence[Held]) -> bool:
    """True if the live sessions held by this node match those in the record: nothing is left to do after an edit."""
    live = {(s.device, s.holder) for s in presence.sessions if s.live}
    mine = {(h.device, h.holder) for h in held if h.lost_at is None}
    return mine <= live and all(key in mine for key in live if key[1] == epoch != UNLEASED)


def without_unheld(presence: Presence, epoch: str, held: Sequence[Held], now: int) -> Presence:
    """Lose recorded sessions of this epoch that the node does not hold: after a close that overtook its connect, say."""
    if epoch == UNLEASED:
        return presence
    for session in presence.sessions:
        if session.holder == epoch and not any(h.device == session.device and h.holder == epoch for h in held):
            presence = lost(presence, session.device, epoch, session.seen_at, now)
    return presence


def with_held(
    presence: Presence, held: Sequence[Held], now: int, timings: Timings, *, settled: bool
) -> tuple[Presence, tuple[str, ...], tuple[str, ...]]:
    """Add held sessions that the record lacks. Returns (record, devices signed out elsewhere, devices over the limit)."""
    signed_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    for h in sorted(held, key=_is_rest) if len(held) > 1 else held:
        session = find(presence.sessions, h.device, h.holder)
        if h.lost_at is not None or (session is not None and session.live):
            continue
        if h.holder == UNLEASED and _is_stale_beat(presence, h, now, timings):
            continue
        if _was_signed_out(presence, h, session, settled=settled):
            signed_out = (*signed_out, h.device)
        elif (room := _with_room(presence, h, timings)) is not None:
            presence = joined(room, h, now, timings)
        else:
            refused = (*refused, h.device)
    return presence, signed_out, refused


def with_arrivals(
    presence: Presence, held: Sequence[Held], before: int, now: int, timings: Timings, *, settled: bool
) -> Presence:
    """Add held sessions that began before `before` and that the record lacks, each at its own time: an arrival that could
    not be written for a while still precedes an end that fell due later."""
    for h in sorted(held, key=_since):
        stale = h.holder == UNLEASED and _is_stale_beat(presence, h, now, timings)
        if h.since < before and not stale:
            presence, _, _ = with_held(presence, (h,), h.since, timings, settled=settled)
    return presence


def _since(held: Held) -> int:
    return held.since


def _is_rest(held: Held) -> bool:
    """Sort key: sockets first, because a device that has one needs no REST session."""
    return held.holder == UNLEASED


def _is_stale_beat(presence: Presence, beat: Held, now: int, timings: Timings) -> bool:
    """True if a REST heartbeat must not create or revive a session: it is older than `dead_after`, the device has a live
    session, or the record has a sign of life of the device that is as late."""
    if now >= beat.seen_at + timings.dead_after:
        return True
    return any(s.device == beat.device and (s.live or beat.seen_at <= s.seen_at) for s in presence.sessions)


def _was_signed_out(presence: Presence, held: Held, session: Session | None, *, settled: bool) -> bool:
    """True if it has a tombstone, or if the record is newer than the last one that contained it, and lacks it."""
    if any(t.device == held.device and t.holder == held.asserted_by for t in presence.signed_out):
        return True
    if session is not None or held.asserted_by != held.holder or not settled:
        return False
    if held.holder == UNLEASED and held.seen_at > presence.version:
        return False  # a later heartbeat: the device is back
    return presence.version > held.asserted > 0


def _with_room(presence: Presence, held: Held, timings: Timings) -> Presence | None:
    """The record with room for one more session: sessions in grace are removed, oldest first. None if all are live."""
    replaced = sum(1 for s in presence.sessions if _is_replaced(s, held))
    while len(presence.sessions) - replaced >= timings.max_sessions:
        in_grace = [s for s in presence.sessions if s.lost_at is not None and s.device != held.device]
        if not in_grace:
            return None
        presence = removed(presence, min(in_grace, key=lambda s: s.lost_at or 0))
    return presence


def _is_replaced(session: Session, held: Held) -> bool:
    """True if the new session replaces this one: the same device in grace, by REST, or under an earlier epoch."""
    if session.device != held.device:
        return False
    return not session.live or session.holder in (UNLEASED, held.asserted_by)


def joined(presence: Presence, held: Held, now: int, timings: Timings) -> Presence:
    """Add a session in place of earlier ones (`_is_replaced`). If the user is offline, `online_delay` begins."""
    same = [s for s in presence.sessions if s.device == held.device]
    session = _continued_session(same, held) if same else _new_session(held)
    rest = tuple(s for s in presence.sessions if not _is_replaced(s, held)) if same else presence.sessions
    arriving = presence.arriving_until
    if timings.online_delay and not presence.live and (presence.status is Status.OFFLINE or arriving is not None):
        arriving = now + timings.online_delay
    tombstones = presence.signed_out
    if tombstones:  # a new connection to the same node: the tombstone was for the one before
        tombstones = tuple(t for t in tombstones if (t.device, t.holder) != (held.device, held.holder))
    retired = presence.retired
    if retired:  # its holder is back with it
        retired = tuple(r for r in retired if (r.device, r.holder) != (held.device, held.asserted_by))
    # Idleness that fell due while all were in grace, or while no node ran, takes effect now: the user is not online first.
    sessions = idled((*rest, session), now - idle_limit(presence, timings))
    return replace(presence, sessions=sessions, arriving_until=arriving, signed_out=tombstones, retired=retired)


def _new_session(held: Held) -> Session:
    """The session of a device that has none, live or in grace: connecting counts as activity."""
    return Session(
        device=held.device,
        holder=held.holder,
        since=held.since,
        seen_at=held.seen_at,
        active_at=max(held.active_at, held.since),
        platform=held.platform,
        idle=Idle.SAID if held.idle else Idle.NO,
    )


def _continued_session(same: Sequence[Session], held: Held) -> Session:
    """The session of a device that has others, live or in grace: connecting is no activity, theirs carries over."""
    latest = max(same, key=lambda s: s.active_at)
    idle = Idle.NO if held.active_at > latest.active_at else latest.idle
    return Session(
        device=held.device,
        holder=held.holder,
        since=min(s.since for s in same),
        seen_at=held.seen_at,
        active_at=max(held.active_at, latest.active_at),
        platform=held.platform,
        idle=Idle.SAID if _says_idle(held, latest.active_at) else idle,
    )
