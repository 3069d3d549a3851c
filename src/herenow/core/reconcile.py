"""A node holds a session that the record does not have, or the record has one that its node does not hold.

Answers which of them appear in the record, which go, and which the node must close: signed out elsewhere, or without
room. Another way for a session to begin, or another limit on them, is the reason to change this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.evidence import says_idle
from herenow.core.inputs import Held, Timings
from herenow.core.model import UNLEASED, Idle, Presence, Session, Status
from herenow.core.sessions import find, idle_limit, idled, lost, removed
from herenow.core.values import replace


def holds_as_recorded(presence: Presence, epoch: str, held: Sequence[Held]) -> bool:
    """What the node holds is what stands in the record: nothing is left to do after an edit."""
    live = {(s.device, s.holder) for s in presence.sessions if s.live}
    mine = {(h.device, h.holder) for h in held if h.lost_at is None}
    return mine <= live and all(key in mine for key in live if key[1] == epoch != UNLEASED)


def without_unheld(presence: Presence, epoch: str, held: Sequence[Held], now: int) -> Presence:
    """Sessions under this epoch that the node does not hold: a close that overtook its connect leaves no ghost."""
    if epoch == UNLEASED:
        return presence
    for session in presence.sessions:
        if session.holder == epoch and not any(h.device == session.device and h.holder == epoch for h in held):
            presence = lost(presence, session.device, epoch, session.seen_at, now)
    return presence


def with_held(
    presence: Presence, held: Sequence[Held], now: int, timings: Timings, *, settled: bool
) -> tuple[Presence, tuple[str, ...], tuple[str, ...]]:
    signed_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    for h in sorted(held, key=_is_rest) if len(held) > 1 else held:
        session = find(presence.sessions, h.device, h.holder)
        if h.lost_at is not None or (session is not None and session.live):
            continue
        if h.holder == UNLEASED and _says_nothing_new(presence, h, now, timings):
            continue
        if _was_signed_out(presence, h, session, settled=settled):
            signed_out = (*signed_out, h.device)
        elif (room := _with_room(presence, h, timings)) is not None:
            presence = joined(room, h, now, timings)
        else:
            refused = (*refused, h.device)
    return presence, signed_out, refused


def _is_rest(held: Held) -> bool:
    """Sockets come first: a device that has one needs no session by REST."""
    return held.holder == UNLEASED


def _says_nothing_new(presence: Presence, beat: Held, now: int, timings: Timings) -> bool:
    """A REST beat of a device that a socket speaks for; or one that its node still remembers, but that is too old to
    live, or no later than what the record knew of the device when it was lost."""
    if now >= beat.seen_at + timings.dead_after:
        return True
    return any(s.device == beat.device and (s.live or beat.seen_at <= s.seen_at) for s in presence.sessions)


def _was_signed_out(presence: Presence, held: Held, session: Session | None, *, settled: bool) -> bool:
    """Somebody left a note, or the session is missing from a later record than the one it stood in."""
    if any(n.device == held.device and n.holder == held.asserted_by for n in presence.signed_out):
        return True
    if session is not None or held.asserted_by != held.holder or not settled:
        return False
    if held.holder == UNLEASED and held.seen_at > presence.version:
        return False  # a beat after that: it is back
    return presence.version > held.asserted > 0


def _with_room(presence: Presence, held: Held, timings: Timings) -> Presence | None:
    """A place for one more session: those in grace give way, oldest first; None when all are live."""
    replaced = sum(1 for s in presence.sessions if _gives_way(s, held))
    while len(presence.sessions) - replaced >= timings.max_sessions:
        in_grace = [s for s in presence.sessions if s.lost_at is not None and s.device != held.device]
        if not in_grace:
            return None
        presence = removed(presence, min(in_grace, key=lambda s: s.lost_at or 0))
    return presence


def _gives_way(session: Session, held: Held) -> bool:
    """The same device in grace, by REST, or under an earlier epoch of this node: the new session takes its place."""
    if session.device != held.device:
        return False
    return not session.live or session.holder in (UNLEASED, held.asserted_by)


def joined(presence: Presence, held: Held, now: int, timings: Timings) -> Presence:
    """A session appears."""
    same = [s for s in presence.sessions if s.device == held.device]
    session = _continued(same, held) if same else _begun(held)
    rest = tuple(s for s in presence.sessions if not _gives_way(s, held)) if same else presence.sessions
    arriving = presence.arriving_until
    if timings.online_delay and not presence.live and (presence.status is Status.OFFLINE or arriving is not None):
        arriving = now + timings.online_delay
    notes = presence.signed_out
    if notes:  # a new connection to the same node: the note was about the one before
        notes = tuple(n for n in notes if (n.device, n.holder) != (held.device, held.holder))
    retired = presence.retired
    if retired:  # its node is back with it
        retired = tuple(r for r in retired if (r.device, r.holder) != (held.device, held.asserted_by))
    # Idleness that fell due while all were in grace, or while we were away, shows now and not a moment later.
    sessions = idled((*rest, session), now - idle_limit(presence, timings))
    return replace(presence, sessions=sessions, arriving_until=arriving, signed_out=notes, retired=retired)


def _begun(held: Held) -> Session:
    """Connecting is activity: this device has no session live or in grace."""
    return Session(
        device=held.device,
        holder=held.holder,
        since=held.since,
        seen_at=held.seen_at,
        active_at=max(held.active_at, held.since),
        platform=held.platform,
        idle=Idle.SAID if held.idle else Idle.NO,
    )


def _continued(same: Sequence[Session], held: Held) -> Session:
    """Connecting is no activity: the device goes on where its other session is or was."""
    latest = max(same, key=lambda s: s.active_at)
    idle = Idle.NO if held.active_at > latest.active_at else latest.idle
    return Session(
        device=held.device,
        holder=held.holder,
        since=min(s.since for s in same),
        seen_at=held.seen_at,
        active_at=max(held.active_at, latest.active_at),
        platform=held.platform,
        idle=Idle.SAID if says_idle(held, latest.active_at) else idle,
    )
