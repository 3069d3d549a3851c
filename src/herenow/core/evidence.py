"""Signs of life and activity that the holder of a session knows and the record does not. Worth a commit are later activity,
reported idleness, and a sign of life only where a REST session would time out without it."""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.inputs import Held, Timings
from herenow.core.model import UNLEASED, Idle, Presence, Session
from herenow.core.sessions import find, idle_limit
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
    if says_idle(held, session.active_at):
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


def says_idle(held: Held, active_at: int) -> bool:
    """True if the device reported idleness, and the record has no later activity (received by another node)."""
    return held.idle and (held.idle_at is None or held.idle_at >= active_at)


def _extends_deadline(session: Session, held: Held, now: int, dead_after: int) -> bool:
    """True if a heartbeat must extend the deadline of a REST session: it is a third of `dead_after` later than the committed
    one, or at most a third is left at `now`. More frequent heartbeats cost no writes."""
    if session.holder != UNLEASED or held.seen_at <= session.seen_at:
        return False
    return 3 * (held.seen_at - session.seen_at) >= dead_after or 3 * (now - session.seen_at) >= 2 * dead_after
