"""Why is somebody's status what it is? The rules of a status (`settle`), told backwards for one record.

For operators who ask. Everything in here is the truth, so it is for services alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from herenow.core.model import UNLEASED, Mode, Presence, Session, Status
from herenow.core.settle import Timings, wake_at

NO_SESSION = "no_session"
ALL_IN_GRACE = "all_in_grace"
MODE = "mode"
ACTIVE = "active"
IDLE = "idle"


@dataclass(frozen=True, slots=True)
class SessionFacts:
    device: str
    platform: str
    state: str
    """`live`, or `grace`: lost, with time left to return."""
    by: str
    """`socket`, or `rest`."""
    idle: str
    """`no`, `timed_out` or `said`."""
    since: int
    seen_at: int
    active_at: int
    lost_at: int | None


@dataclass(frozen=True, slots=True)
class Explained:
    status: Status
    since: int | None
    last_seen: int | None
    because: str
    device: str | None
    """The device that made it so, if one did."""
    mode: Mode
    mode_until: int | None
    hidden: bool
    """To others they look as if they had signed out: invisible, or arriving while `online_delay` lasts."""
    look_at: int | None
    """When something ends or falls due by itself: the record's next timer."""
    sessions: tuple[SessionFacts, ...]


def explained(presence: Presence, timings: Timings) -> Explained:
    because, session = _reason(presence)
    return Explained(
        presence.status,
        presence.since,
        presence.last_seen,
        because,
        None if session is None else session.device,
        presence.mode,
        presence.mode_until,
        presence.hidden,
        wake_at(presence, timings),
        tuple(_facts(each) for each in presence.sessions),
    )


def _reason(presence: Presence) -> tuple[str, Session | None]:
    """The first that applies, in the order of the rules."""
    if not presence.sessions:
        return NO_SESSION, None
    if not presence.live:
        return ALL_IN_GRACE, max(presence.sessions, key=lambda session: session.lost_at or 0)
    if presence.mode in (Mode.BUSY, Mode.AWAY):
        return MODE, None
    latest = max(presence.sessions, key=lambda session: (not session.idle, session.active_at))
    return IDLE if latest.idle else ACTIVE, latest


def _facts(session: Session) -> SessionFacts:
    return SessionFacts(
        session.device,
        session.platform.word,
        "live" if session.live else "grace",
        "rest" if session.holder == UNLEASED else "socket",
        session.idle.name.lower(),
        session.since,
        session.seen_at,
        session.active_at,
        session.lost_at,
    )
