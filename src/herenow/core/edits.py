"""Requested changes. Each function returns an `Edit`: a function of the record that `settle.settle` applies. It changes the
record only; `settle` computes what follows from that (status, announcement, wake-up)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herenow.core.inputs import Edit, Timings
from herenow.core.model import UNLEASED, Custom, Idle, Mode, Presence, Retired, Session, SignedOut, Source
from herenow.core.sessions import idle_limit, idled, later, lost
from herenow.core.sources import choice_of, restored, with_choice
from herenow.core.status import live_status, set_status
from herenow.core.timeline import still_expected
from herenow.core.values import replace


def set_mode(mode: Mode, until: int | None, source: Source = Source.USER, asked_at: int | None = None) -> Edit:
    """An edit that sets the mode of one source. `asked_at`: when the user asked for it, which is the last seen of a user
    that it hides, as for a sign-out; None: when it is applied."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        end = None if mode is Mode.AUTO else until
        if end is not None and end <= now:
            return presence  # applied after its own end: its expiry must not clear a later choice
        choice = replace(choice_of(presence, source), mode=mode, mode_until=end)
        return with_choice(presence, choice, now, now if asked_at is None else min(now, asked_at))

    return edit


def set_custom(custom: Custom | None, source: Source = Source.USER) -> Edit:
    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        if custom is not None and custom.until is not None and custom.until <= now:
            return presence
        return with_choice(presence, replace(choice_of(presence, source), custom=custom), now)

    return edit


def restore_choices(lost: Presence) -> Edit:
    """An edit that writes the modes and custom statuses of `lost`, a record that the store has lost, into the record
    again, each under its source. Those that have ended are left out."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        return restored(presence, lost, now)

    return edit


def set_idle_after(idle_after: int | None) -> Edit:
    """An edit that sets the user's own `idle_after` (ms; None: the server's default). A session that is idle by timeout
    becomes active again if its last activity is within the new time."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        limit = timings.idle_after if idle_after is None else idle_after
        sessions = tuple(
            replace(s, idle=Idle.NO) if s.idle is Idle.TIMED_OUT and now < s.active_at + limit else s
            for s in presence.sessions
        )
        return replace(presence, idle_after=idle_after, sessions=sessions)

    return edit


def sign_out(device: str, epochs: Sequence[str] = ()) -> Edit:
    """An edit that removes all sessions of a device at once, without grace. Each node that held one gets a sign-out entry in
    the record, so that it does not write the session again. `epochs`: those of the caller itself, which need no entry."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        gone = [s for s in presence.sessions if s.device == device]
        missing = [r for r in presence.retired if r.device == device]
        if not gone and not missing:
            return presence
        retired = tuple(r for r in presence.retired if r.device != device)
        tombstones = _tombstones([*gone, *missing], now, epochs)
        last_seen = presence.last_seen
        if any(s.live for s in gone) and not presence.hidden:
            last_seen = later(last_seen, now)
        rest = tuple(s for s in presence.sessions if s.device != device)
        frozen = bool(rest) and not any(s.live for s in rest)
        if frozen and _includes_last_live(gone, rest):  # the status without it, then frozen
            rest = idled(rest, now - idle_limit(presence, timings))
            presence = replace(presence, sessions=rest)
            presence = set_status(presence, live_status(presence), now)
        return replace(
            presence,
            sessions=rest,
            signed_out=_newest(presence.signed_out + tombstones, timings),
            retired=retired,
            last_seen=last_seen,
        )

    return edit


def _tombstones(ended: Sequence[Session | Retired], now: int, epochs: Sequence[str]) -> tuple[SignedOut, ...]:
    """Return sign-out entries for these sessions, so that the nodes that held them do not write them again. REST
    sessions and sessions of `epochs`, which are the caller's own, need none."""
    holders = dict.fromkeys((each.device, each.holder) for each in ended)
    return tuple(SignedOut(device, holder, now) for device, holder in holders if holder not in (UNLEASED, *epochs))


def _newest(entries: tuple[SignedOut, ...], timings: Timings) -> tuple[SignedOut, ...]:
    """Return the newest sign-out entries, at most twice `max_sessions`, so that a user who connects and signs out new
    devices without end cannot make the record long.

    One sign-out of all devices always fits: it leaves an entry for each session and for each retired one, of which a
    record has at most `max_sessions` each. An entry beyond that is dropped although its node has not answered it yet.
    The node needs it only if it had to take a new epoch meanwhile, or if the shard lost data; otherwise it finds the
    session missing from a newer record, and closes it (`reconcile._was_signed_out`). In these cases the session is
    back until its socket ends: a session of the user who caused it by signing out so many others."""
    return entries[-2 * timings.max_sessions :]


def _includes_last_live(gone: Sequence[Session], rest: Sequence[Session]) -> bool:
    """True if one of the sessions that are signed out (`gone`) was live when the last of the remaining ones (`rest`,
    all in grace) was lost. The present status may then depend on it and must be computed again without it."""
    frozen_at = max(s.lost_at or 0 for s in rest)
    return any(s.lost_at is None or s.lost_at >= frozen_at for s in gone)


def sign_out_all(epochs: Sequence[str] = ()) -> Edit:
    """An edit that signs out every device of the user, as `sign_out` does, including devices on nodes that were
    declared dead and may come back."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        devices = [s.device for s in presence.sessions] + [r.device for r in presence.retired]
        for device in dict.fromkeys(devices):
            presence = sign_out(device, epochs)(presence, now, timings)
        return presence

    return edit


def erase(at: int, epochs: Sequence[str] = ()) -> Edit:
    """An edit that clears the record of a user that was deleted at `at`. `erased_at` remains, and sign-out entries that
    keep other nodes from writing their sessions of the user again (`epochs`: those of the caller itself, which need no
    entry). No effect if the record has this deletion or a later one."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        if presence.erased_at is not None and presence.erased_at >= at:
            return presence
        tombstones = _tombstones([*presence.sessions, *presence.retired], now, epochs)
        return Presence(
            version=presence.version,
            signed_out=_newest((*presence.signed_out, *tombstones), timings),
            status=presence.status,
            since=presence.since,
            platforms=presence.platforms,
            erased_at=at,
        )

    return edit


def lose(device: str) -> Edit:
    """An edit that moves the REST session of a device into grace, as a closed socket does. For gateways that report the
    loss of a connection."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        return lost(presence, device, UNLEASED, now, now)

    return edit


def lived(seen_at: Mapping[str, int]) -> Edit:
    """An edit that raises `seen_at` of live REST sessions to the times of their last heartbeats (device → ms). For a
    node that stops."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        def seen(session: Session) -> Session:
            later_life = seen_at.get(session.device, 0)
            if session.holder != UNLEASED or not session.live or later_life <= session.seen_at:
                return session
            return replace(session, seen_at=later_life)

        return replace(presence, sessions=tuple(map(seen, presence.sessions)))

    return edit


def act() -> Edit:
    """An edit that records activity of the user on an unknown device: every live session counts as active now. It
    creates no session."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        return replace(presence, sessions=tuple(_acted(s, now) if s.live else s for s in presence.sessions))

    return edit


def act_on(device: str, *, idle: bool) -> Edit:
    """An edit that records a REST heartbeat of a device that has a live session on another node: as activity, or with
    `idle` as reported idleness. Either way it is a sign of life."""

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
    """An edit that moves the sessions of dead nodes into grace. `dead`: epoch → time of the node's last lease renewal.
    A grace that is running already is not restarted."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        for session in presence.sessions:
            if session.holder in dead:
                before = presence
                presence = lost(presence, session.device, session.holder, dead[session.holder], now)
                if presence is not before:
                    gone = Retired(session.device, session.holder, now)
                    retired = (*still_expected(presence.retired, now), gone)
                    presence = replace(presence, retired=retired[-timings.max_sessions :])
        return presence

    return edit
