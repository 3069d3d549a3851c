"""Fresher than the record: when its sessions last lived and acted, as their holder knows.

Which news is worth a commit is decided here: activity that changes something, and the life of a session that would
end without it. Nothing else about a session changes. Another way to show life or activity is the reason to change
this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.inputs import Held, Timings
from herenow.core.model import UNLEASED, Idle, Presence, Session
from herenow.core.sessions import find, idle_limit
from herenow.core.status import update_status
from herenow.core.values import replace

# An attribute of an enum is slow to get.
_ACTS, _SAID, _TIMED_OUT = Idle.NO, Idle.SAID, Idle.TIMED_OUT


def apply_evidence(presence: Presence, held: Sequence[Held], now: int, timings: Timings) -> Presence:
    """The record's live sessions with the stamps their holder knows."""
    sessions = presence.sessions
    for h in held:
        session = find(sessions, h.device, h.holder)
        if session is None or not session.live or _began_after(session, h, timings):
            continue
        fresh = _freshened(session, h, now, idle_limit(presence, timings), timings.dead_after)
        if fresh is not session:
            sessions = tuple([fresh if s is session else s for s in sessions])
    return presence if sessions is presence.sessions else update_status(replace(presence, sessions=sessions), now)


def _began_after(session: Session, held: Held, timings: Timings) -> bool:
    """REST beats that began when this session was dead already, though nobody had looked: they are another one."""
    return session.holder == UNLEASED and held.since > session.seen_at + timings.dead_after


def _freshened(session: Session, held: Held, now: int, idle_after: int, dead_after: int) -> Session:
    """Life alone is not committed (`seen_at` moves with something else), unless it is what keeps a REST session."""
    acted = held.active_at > session.active_at
    if says_idle(held, session.active_at):
        idle = _SAID
    elif not acted:
        idle = session.idle
    elif session.idle is _ACTS or now < held.active_at + idle_after:
        idle = _ACTS
    else:
        idle = _TIMED_OUT  # we learn late of activity that is too old to wake anybody
    if not acted and idle is session.idle and not _prolongs(session, held, now, dead_after):
        return session
    return replace(
        session, active_at=max(session.active_at, held.active_at), idle=idle, seen_at=max(session.seen_at, held.seen_at)
    )


def says_idle(held: Held, active_at: int) -> bool:
    """And nobody knows of later activity, through another node."""
    return held.idle and (held.idle_at is None or held.idle_at >= active_at)


def _prolongs(session: Session, held: Held, now: int, dead_after: int) -> bool:
    """A beat moves the deadline of a REST session when a third of its time has passed since the beat in the record,
    or when less than a third of it is left: frequent beats cost no writes."""
    if session.holder != UNLEASED or held.seen_at <= session.seen_at:
        return False
    return 3 * (held.seen_at - session.seen_at) >= dead_after or 3 * (now - session.seen_at) >= 2 * dead_after
