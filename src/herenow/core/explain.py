"""Why a status is what it is: the rules of `status`, applied backwards. It shows the truth: for services only."""

from __future__ import annotations

from dataclasses import dataclass

from herenow.core.model import UNLEASED, Custom, Mode, Presence, Session, Source, Sourced, Status
from herenow.core.settle import Timings, wake_at
from herenow.core.sources import choices

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
    """`live`, or `grace`: lost, and may return."""
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
    """The device that decided the status, if one did."""
    mode: Mode
    mode_until: int | None
    mode_source: Source | None
    """None: no source has a mode."""
    custom: Custom | None
    custom_source: Source | None
    choices: tuple[Sourced, ...]
    """Modes and custom statuses of all sources, the user's own included, highest first."""
    hidden: bool
    """Others see the user as signed out: invisible, or arriving within `online_delay`."""
    look_at: int | None
    """When the record next changes by itself."""
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
        presence.mode_source,
        presence.custom,
        presence.custom_source,
        choices(presence),
        presence.hidden,
        wake_at(presence, timings),
        tuple(_facts(each) for each in presence.sessions),
    )


def _reason(presence: Presence) -> tuple[str, Session | None]:
    """Return the reason for the status (`NO_SESSION`, `MODE` …), and the session that determines it; None if no session
    does."""
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
