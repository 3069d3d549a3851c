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
    """Return the record with the later activity and signs of life that only the node knows (`held`), and with the
    status that follows. Returns `presence` itself if none of them is worth a commit."""
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
    """True if the REST heartbeats `held` began after the recorded session timed out. They are then a new session,
    although the time-out was not processed yet."""
    return session.holder == UNLEASED and held.since > session.seen_at + timings.dead_after


def _with_later_times(session: Session, held: Held, now: int, idle_after: int, dead_after: int) -> Session:
    """Return the recorded session with the later activity, idleness and sign of life that the node knows (`held`).
    Returns it unchanged if only the sign of life is later and need not be committed (`_extends_deadline`)."""
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
    """True if the device reported that it is idle, and was not active after that. `active_at`: its last activity in the
    record, which another node may have received."""
    return held.idle and (held.idle_at is None or held.idle_at >= active_at)


def _extends_deadline(session: Session, held: Held, now: int, dead_after: int) -> bool:
    """True if a heartbeat must be committed to extend the deadline of a REST session: it is at least a third of
    `dead_after` later than the committed one, or at most a third of `dead_after` is left at `now`. More frequent
    heartbeats cost no writes."""
    if session.holder != UNLEASED or held.seen_at <= session.seen_at:
        return False
    return 3 * (held.seen_at - session.seen_at) >= dead_after or 3 * (now - session.seen_at) >= 2 * dead_after


def holds_as_recorded(presence: Presence, epoch: str, held: Sequence[Held]) -> bool:
    """True if the record has the same live sessions of this node (`epoch`) as the node itself (`held`), so that nothing
    is left to do after an edit."""
    live = {(s.device, s.holder) for s in presence.sessions if s.live}
    mine = {(h.device, h.holder) for h in held if h.lost_at is None}
    return mine <= live and all(key in mine for key in live if key[1] == epoch != UNLEASED)


def without_unheld(presence: Presence, epoch: str, held: Sequence[Held], now: int) -> Presence:
    """Move recorded sessions of this epoch that the node no longer holds into grace. There are some if a connection
    closed before its start was committed, for example."""
    if epoch == UNLEASED:
        return presence
    for session in presence.sessions:
        if session.holder == epoch and not any(h.device == session.device and h.holder == epoch for h in held):
            presence = lost(presence, session.device, epoch, session.seen_at, now)
    return presence


def with_held(
    presence: Presence, held: Sequence[Held], now: int, timings: Timings, *, settled: bool
) -> tuple[Presence, tuple[str, ...], tuple[str, ...]]:
    """Add sessions that the node holds and the record lacks. `settled` False: the shard lost data, so a missing session need
    not have been signed out. Returns (record, devices that were signed out elsewhere, devices beyond `max_sessions`)."""
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


def without_answered(presence: Presence, epoch: str, held: Sequence[Held]) -> Presence:
    """Remove the sign-out entries for this epoch whose devices the node does not hold any more: it has closed their
    sessions, or they had ended before. It cannot write them again, so nothing needs the entries."""
    if not presence.signed_out:
        return presence
    devices = {h.device for h in held}
    left = tuple(t for t in presence.signed_out if t.holder != epoch or t.device in devices)
    return presence if len(left) == len(presence.signed_out) else replace(presence, signed_out=left)


def with_arrivals(
    presence: Presence, held: Sequence[Held], before: int, now: int, timings: Timings, *, settled: bool
) -> Presence:
    """Add sessions that the node holds and the record lacks, if they began before the time `before`. Each is added at its
    own start, so that an arrival that could not be written for a while still comes before a timeout that fell due later."""
    for h in sorted(held, key=_since):
        stale = h.holder == UNLEASED and _is_stale_beat(presence, h, now, timings)
        if h.since < before and not stale:
            presence, _, _ = with_held(presence, (h,), h.since, timings, settled=settled)
    return presence


def _since(held: Held) -> int:
    return held.since


def _is_rest(held: Held) -> bool:
    """Sort key that puts sessions with a socket before REST sessions: a device that has a socket needs no REST session."""
    return held.holder == UNLEASED


def _is_stale_beat(presence: Presence, beat: Held, now: int, timings: Timings) -> bool:
    """True if a REST heartbeat must not create or revive a session: it is older than `dead_after`, the device has a
    live session, or the record already has a sign of life of the device that is as late."""
    if now >= beat.seen_at + timings.dead_after:
        return True
    return any(s.device == beat.device and (s.live or beat.seen_at <= s.seen_at) for s in presence.sessions)


def _was_signed_out(presence: Presence, held: Held, session: Session | None, *, settled: bool) -> bool:
    """True if the session `held` was signed out through another node: the record has a sign-out entry for it, or is
    newer than the last record with this session and lacks it. The latter proves nothing if `settled` is False (the
    shard lost data)."""
    if any(t.device == held.device and t.holder == held.asserted_by for t in presence.signed_out):
        return True
    if session is not None or held.asserted_by != held.holder or not settled:
        return False
    if held.holder == UNLEASED and held.seen_at > presence.version:
        return False  # a later heartbeat: the device is back
    return presence.version > held.asserted > 0


def _with_room(presence: Presence, held: Held, timings: Timings) -> Presence | None:
    """Return the record with room for one more session: if it has `max_sessions`, sessions in grace are removed, oldest
    first. None if that does not make room, because all are live."""
    replaced = sum(1 for s in presence.sessions if _is_replaced(s, held))
    while len(presence.sessions) - replaced >= timings.max_sessions:
        in_grace = [s for s in presence.sessions if s.lost_at is not None and s.device != held.device]
        if not in_grace:
            return None
        presence = removed(presence, min(in_grace, key=lambda s: s.lost_at or 0))
    return presence


def _is_replaced(session: Session, held: Held) -> bool:
    """True if the new session `held` replaces the recorded `session`: both are of one device, and the recorded one is
    in grace, exists by REST heartbeats, or was committed by this same node, perhaps under an earlier epoch."""
    if session.device != held.device:
        return False
    return not session.live or session.holder in (UNLEASED, held.asserted_by)


def joined(presence: Presence, held: Held, now: int, timings: Timings) -> Presence:
    """Add a session to the record, in place of earlier ones of its device (`_is_replaced`). If the user is offline,
    `online_delay` begins."""
    same = [s for s in presence.sessions if s.device == held.device]
    session = _continued_session(same, held) if same else _new_session(held)
    rest = tuple(s for s in presence.sessions if not _is_replaced(s, held)) if same else presence.sessions
    arriving = presence.arriving_until
    if timings.online_delay and not presence.live and (presence.status is Status.OFFLINE or arriving is not None):
        arriving = now + timings.online_delay
    tombstones = presence.signed_out
    if tombstones:  # a new connection to the same node: the sign-out entry was for the one before
        tombstones = tuple(t for t in tombstones if (t.device, t.holder) != (held.device, held.holder))
    retired = presence.retired
    if retired:  # the node is back with its session
        retired = tuple(r for r in retired if (r.device, r.holder) != (held.device, held.asserted_by))
    # Idleness that fell due while all were in grace, or while no node ran, takes effect now: the user is not online first.
    sessions = idled((*rest, session), now - idle_limit(presence, timings))
    return replace(presence, sessions=sessions, arriving_until=arriving, signed_out=tombstones, retired=retired)


def _new_session(held: Held) -> Session:
    """Create the session of a device that has no other, live or in grace. Connecting counts as activity."""
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
    """Create the session of a device that has others (`same`), live or in grace. It takes over their start and last
    activity; connecting is no activity."""
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
