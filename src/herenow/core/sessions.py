"""State changes of a session in a record: it becomes idle, is lost (enters grace), or is removed. The causes are elsewhere:
time (`timeline`), the holding node (`reconcile`), requests (`edits`)."""

from __future__ import annotations

from collections.abc import Sequence

from herenow.core.inputs import Timings
from herenow.core.model import Idle, Presence, Session
from herenow.core.values import replace

_NOT_IDLE = Idle.NO  # looking up an enum attribute is slow


def find(sessions: Sequence[Session], device: str, holder: str) -> Session | None:
    for session in sessions:
        if session.device == device and session.holder == holder:
            return session
    return None


def idle_limit(presence: Presence, timings: Timings) -> int:
    return timings.idle_after if presence.idle_after is None else presence.idle_after


def idled(sessions: tuple[Session, ...], since: int) -> tuple[Session, ...]:
    """Return the sessions with `TIMED_OUT` set on each active one that had its last activity at or before `since`."""
    idle = [s for s in sessions if s.idle is _NOT_IDLE and s.active_at <= since]
    return tuple(replace(s, idle=Idle.TIMED_OUT) if s in idle else s for s in sessions) if idle else sessions


def lost(presence: Presence, device: str, holder: str, seen_at: int, at: int) -> Presence:
    """Move a live session into grace from `at` on, or remove it if its device has another live session. `seen_at`: the
    session's last sign of life. No effect on a session that is absent or in grace: a running grace is never restarted."""
    session = find(presence.sessions, device, holder)
    if session is None or not session.live:
        return presence
    seen_at = max(session.seen_at, seen_at)
    if any(s.live and s.device == device and s is not session for s in presence.sessions):
        sessions = tuple(_with_activity_of(s, session) for s in presence.sessions if s is not session)
    else:
        in_grace = replace(session, seen_at=seen_at, lost_at=at)
        sessions = tuple(in_grace if s is session else s for s in presence.sessions)
    return seen(replace(presence, sessions=sessions), seen_at)


def seen(presence: Presence, at: int) -> Presence:
    """Raise the user's `last_seen` to `at`, or to `shown_at` (the end of invisibility) if that is later. No effect
    while the user is hidden."""
    if presence.hidden:
        return presence
    return replace(presence, last_seen=later(presence.last_seen, max(at, presence.shown_at or 0)))


def _with_activity_of(session: Session, gone: Session) -> Session:
    """Return the session with the last activity of `gone`, a removed session, if both are of the same device and that
    activity is later."""
    if session.device != gone.device or gone.active_at <= session.active_at:
        return session
    idle = session.idle if session.idle is Idle.SAID else gone.idle
    return replace(session, active_at=gone.active_at, idle=idle)


def removed(presence: Presence, session: Session) -> Presence:
    return replace(presence, sessions=tuple(s for s in presence.sessions if s != session))


def later(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)
