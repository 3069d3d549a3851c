"""What can become of a session in a record: its person rests, its connection is lost, it is removed.

Why it comes to that is not known here: time (`timeline`), its holder (`reconcile`) and people (`edits`) all lead here.
Another thing that a loss or idleness does to the record is the reason to change this module.
"""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.inputs import Timings
from herenow.core.model import Idle, Presence, Session
from herenow.core.values import replace

_ACTS = Idle.NO  # an attribute of an enum is slow to get


def find(sessions: Sequence[Session], device: str, holder: str) -> Session | None:
    for session in sessions:
        if session.device == device and session.holder == holder:
            return session
    return None


def idle_limit(presence: Presence, timings: Timings) -> int:
    return timings.idle_after if presence.idle_after is None else presence.idle_after


def idled(sessions: tuple[Session, ...], since: int) -> tuple[Session, ...]:
    """Who has not acted after `since` is idle."""
    idle = [s for s in sessions if s.idle is _ACTS and s.active_at <= since]
    return tuple(replace(s, idle=Idle.TIMED_OUT) if s in idle else s for s in sessions) if idle else sessions


def lost(presence: Presence, device: str, holder: str, seen_at: int, at: int) -> Presence:
    """A live session falls into grace; beside a live one of the same device it is simply no longer there."""
    session = find(presence.sessions, device, holder)
    if session is None or not session.live:
        return presence
    seen_at = max(session.seen_at, seen_at)
    if any(s.live and s.device == device and s is not session for s in presence.sessions):
        sessions = tuple(_heir(s, session) for s in presence.sessions if s is not session)
    else:
        in_grace = replace(session, seen_at=seen_at, lost_at=at)
        sessions = tuple(in_grace if s is session else s for s in presence.sessions)
    return seen(replace(presence, sessions=sessions), seen_at)


def seen(presence: Presence, at: int) -> Presence:
    """Evidence of life, which others may know of unless the user hides."""
    if presence.hidden:
        return presence
    return replace(presence, last_seen=later(presence.last_seen, max(at, presence.shown_at or 0)))


def _heir(session: Session, gone: Session) -> Session:
    """The device's other session knows what its person last did through this one."""
    if session.device != gone.device or gone.active_at <= session.active_at:
        return session
    idle = session.idle if session.idle is Idle.SAID else gone.idle
    return replace(session, active_at=gone.active_at, idle=idle)


def removed(presence: Presence, session: Session) -> Presence:
    return replace(presence, sessions=tuple(s for s in presence.sessions if s != session))


def later(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)
