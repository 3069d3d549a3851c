"""What somebody asks for: each verb gives an `Edit`, a function of the record that `machine.settle` applies.

An edit says what changes; what follows from it (status, announcement, next look) is the machine's. Another verb of
users, back ends or nodes is the reason to change this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herenow.core.inputs import Edit, Timings
from herenow.core.model import UNLEASED, Custom, Idle, Mode, Presence, Retired, Session, SignedOut, Status, public
from herenow.core.sessions import idle_limit, idled, later, lost
from herenow.core.status import live_status, set_status, shown
from herenow.core.timeline import still_expected
from herenow.core.values import replace


def set_mode(mode: Mode, until: int | None) -> Edit:
    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        end = None if mode is Mode.AUTO else until
        if end is not None and end <= now:
            return presence  # it came too late to be chosen at all: its end must not clear what came after it
        hiding = mode is Mode.INVISIBLE and public(presence).status is not Status.OFFLINE
        showing = presence.mode is Mode.INVISIBLE and mode is not Mode.INVISIBLE
        if hiding and presence.live:  # a live session is evidence now; what was lost has left its own
            presence = replace(presence, last_seen=later(presence.last_seen, now))
        presence = replace(presence, mode=mode, mode_until=end)
        return shown(presence, now) if showing else presence

    return edit


def set_custom(custom: Custom | None) -> Edit:
    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        if custom is not None and custom.until is not None and custom.until <= now:
            return presence
        return replace(presence, custom=custom)

    return edit


def set_idle_after(idle_after: int | None) -> Edit:
    """The user's own `idle_after`: judged from the stored activity, not restarted."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        limit = timings.idle_after if idle_after is None else idle_after
        sessions = tuple(
            replace(s, idle=Idle.NO) if s.idle is Idle.TIMED_OUT and now < s.active_at + limit else s
            for s in presence.sessions
        )
        return replace(presence, idle_after=idle_after, sessions=sessions)

    return edit


def sign_out(device: str, epochs: Sequence[str] = ()) -> Edit:
    """End a device on purpose, without grace, wherever it is held. `epochs` are the caller's own: it needs no note."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        gone = [s for s in presence.sessions if s.device == device]
        away = [r for r in presence.retired if r.device == device]
        if not gone and not away:
            return presence
        retired = tuple(r for r in presence.retired if r.device != device)
        notes = _notes([*gone, *away], now, epochs)
        last_seen = presence.last_seen
        if any(s.live for s in gone) and not presence.hidden:
            last_seen = later(last_seen, now)
        rest = tuple(s for s in presence.sessions if s.device != device)
        frozen = bool(rest) and not any(s.live for s in rest)
        if frozen and _include_the_last_live_one(gone, rest):  # judged without it, then frozen
            rest = idled(rest, now - idle_limit(presence, timings))
            presence = replace(presence, sessions=rest)
            presence = set_status(presence, live_status(presence), now)
        return replace(
            presence, sessions=rest, signed_out=presence.signed_out + notes, retired=retired, last_seen=last_seen
        )

    return edit


def _notes(ended: Sequence[Session | Retired], now: int, epochs: Sequence[str]) -> tuple[SignedOut, ...]:
    """For those who hold these, or will when they are back; the caller needs none."""
    holders = dict.fromkeys((each.device, each.holder) for each in ended)
    return tuple(SignedOut(device, holder, now) for device, holder in holders if holder not in (UNLEASED, *epochs))


def _include_the_last_live_one(gone: Sequence[Session], rest: Sequence[Session]) -> bool:
    """None of `rest` is live. Lost a moment ago and signed out now is signed out: both orders end alike."""
    frozen_at = max(s.lost_at or 0 for s in rest)
    return any(s.lost_at is None or s.lost_at >= frozen_at for s in gone)


def sign_out_all(epochs: Sequence[str] = ()) -> Edit:
    """Every device of the user, as `sign_out` does it with one; also those whose node is expected back."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        devices = [s.device for s in presence.sessions] + [r.device for r in presence.retired]
        for device in dict.fromkeys(devices):
            presence = sign_out(device, epochs)(presence, now, timings)
        return presence

    return edit


def erase(at: int, epochs: Sequence[str] = ()) -> Edit:
    """The user was deleted at this time: nothing is left but the notes for those who hold a session, and the mark that
    says so. `epochs` are the caller's own: it needs no note."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        if presence.erased_at is not None and presence.erased_at >= at:
            return presence
        notes = _notes([*presence.sessions, *presence.retired], now, epochs)
        return Presence(
            version=presence.version,
            signed_out=(*presence.signed_out, *notes),
            status=presence.status,
            since=presence.since,
            platforms=presence.platforms,
            erased_at=at,
        )

    return edit


def lose(device: str) -> Edit:
    """An outside gateway says that this REST session's connection is gone: into grace, as with a closed socket."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        return lost(presence, device, UNLEASED, now, now)

    return edit


def lived(seen_at: Mapping[str, int]) -> Edit:
    """A node that stops says when these REST sessions (device → last beat) last lived: it is all that it knows better."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        def seen(session: Session) -> Session:
            later_life = seen_at.get(session.device, 0)
            if session.holder != UNLEASED or not session.live or later_life <= session.seen_at:
                return session
            return replace(session, seen_at=later_life)

        return replace(presence, sessions=tuple(map(seen, presence.sessions)))

    return edit


def act() -> Edit:
    """The user did something, on which device is not known: activity of all live sessions, never a new one."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        return replace(presence, sessions=tuple(_acted(s, now) if s.live else s for s in presence.sessions))

    return edit


def act_on(device: str, *, idle: bool) -> Edit:
    """A REST beat with an activity for a device whose live session another node holds: evidence of its life, too."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        def touched(session: Session) -> Session:
            if session.device != device or not session.live or (idle and session.idle is Idle.SAID):
                return session
            session = replace(session, seen_at=max(session.seen_at, now))
            return replace(session, idle=Idle.SAID) if idle else _acted(session, now)

        return replace(presence, sessions=tuple(map(touched, presence.sessions)))

    return edit


def _acted(session: Session, now: int) -> Session:
    return replace(session, active_at=max(session.active_at, now), idle=Idle.NO)


def retire(dead: Mapping[str, int]) -> Edit:
    """Sessions of dead epochs (→ time of their last renewal) are lost into grace. A running grace goes on as it is."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        for session in presence.sessions:
            if session.holder in dead:
                before = presence
                presence = lost(presence, session.device, session.holder, dead[session.holder], now)
                if presence is not before:
                    gone = Retired(session.device, session.holder, now)
                    presence = replace(presence, retired=(*still_expected(presence.retired, now), gone))
        return presence

    return edit
