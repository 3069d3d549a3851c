"""What "online" means, and how one presence becomes the next. This is the only place that knows.

Answers: given a record, what its node truly holds, and what somebody asked for, what is the record at `now`, is there
a change to announce, and when must somebody look again?
Does not know: clocks, stores, nodes, viewers. Time is an argument; every rule is a row or a property in the tests.

How it works. A record says everything a status depends on, so a status is a function of the record. Time enters only
as events that have a due time (`_next_due`): a grace ends, a REST session dies, a device falls idle, a mode or a custom
status ends, an arrival may be shown, a note is forgotten. `settle` lets them happen in their order and at their own
times, together with the losses the node reports, until one of them changes what others see: that is one change, one
commit, and the caller comes again for the rest. So a grace that ended while everybody slept still yields "offline, then
online", with true times.

Order within one settle, and why:
  1. fresher stamps of what the node holds (activity in the same millisecond as the idle timer wins over the timer)
  2. due events and reported losses, in the order of their times
  3. edits: what users asked for (a sign-out before the losses it causes, so it skips the grace)
  4. sessions of this node that it no longer holds, then those it holds and the record does not know yet
After each step the status is stated anew, so that one that freezes is the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from herenow.core.model import (
    UNLEASED,
    Custom,
    Idle,
    Mode,
    Platform,
    Presence,
    Session,
    SignedOut,
    Status,
    View,
    devices,
    public,
)
from herenow.core.values import replace

REMEMBER_SIGN_OUT = 600_000
"""Milliseconds a sign-out (or a deletion) is kept for a holder that missed it: a node frozen for longer has lost its
sockets anyway."""


@dataclass(frozen=True, slots=True)
class Timings:
    """The timings that give a status its meaning, in milliseconds, and the cap on sessions of one user."""

    idle_after: int = 300_000
    dead_after: int = 90_000
    grace: int = 30_000
    online_delay: int = 0
    max_sessions: int = 50


@dataclass(frozen=True, slots=True)
class Held:
    """What a node truly knows of one session it holds, or has just lost. Fresher than the record."""

    device: str
    holder: str
    """The node's present epoch, or UNLEASED for a REST beat it received."""
    since: int
    """When this connection (or series of beats) began; a device that comes back is a new one."""
    seen_at: int
    active_at: int = 0
    """0: the person has not acted since connecting."""
    platform: Platform = Platform.OTHER
    idle: bool = False
    """The device said that it is idle, after `active_at`."""
    lost_at: int | None = None
    asserted: int = 0
    """The version of the record in which this session last stood; 0: never yet."""
    asserted_by: str = ""
    """The epoch it stood there under, which may be an earlier one of this node."""
    idle_at: int | None = None
    """When the device said that it is idle. None: not known, and taken to be later than any activity in the record."""


@dataclass(frozen=True, slots=True)
class Change:
    """An announced difference: what others saw before and see now."""

    before: View
    after: View


@dataclass(frozen=True, slots=True)
class Outcome:
    presence: Presence
    change: Change | None
    wake_at: int | None
    news: bool
    """Somebody (another viewer, the user's own devices, another holder) must hear of it: it belongs into the log."""
    unsaved: bool
    """Last seen, mode or custom status differ: the ledger must hear of it."""
    applied: bool = True
    """The edits are part of this presence."""
    more: bool = False
    """Settle again after the commit: something else happens after this change."""
    signed_out: tuple[str, ...] = ()
    """Held devices that were signed out elsewhere: close them, never assert them again."""
    refused: tuple[str, ...] = ()
    """Held devices for which the user has no session left."""


Edit = Callable[[Presence, int, Timings], Presence]
"""What somebody asked for, as a function of the record. It may be applied twice (after a commit of unknown outcome),
so applying it again must change nothing."""


def settle(
    record: Presence,
    now: int,
    timings: Timings,
    *,
    epoch: str = UNLEASED,
    held: Sequence[Held] = (),
    edits: Sequence[Edit] = (),
    settled: bool = True,
) -> Outcome:
    """The one decision. `held` is everything this node holds of the user (with `epoch` as holder) and the REST beats
    it received; `settled` says whether a session missing from the record was removed on purpose (promise P6)."""
    seen = public(record)
    presence = _stamped(record, held, now, timings)
    losses = _losses(held)
    while (happening := _next_happening(presence, losses, now, timings)) is not None:
        at, loss = happening
        if loss is None:
            presence = _pass(presence, at, timings)
        else:
            losses.remove(loss)
            presence = _lose_held(presence, loss, at, timings)
        presence = _restated(presence, at)
        if public(presence) != seen:
            return _outcome(record, presence, now, timings, seen, applied=not edits, more=True)

    if edits:
        for edit in edits:
            presence = _restated(edit(presence, now, timings), now)
        if public(presence) != seen and not _holds_as_recorded(presence, epoch, held):
            return _outcome(record, presence, now, timings, seen, more=True)

    before = presence
    presence = _without_unheld(presence, epoch, held, now)
    presence, signed_out, refused = _with_held(presence, held, now, timings, settled=settled)
    if presence is not before:
        presence = _restated(presence, now)
    return _outcome(record, presence, now, timings, seen, signed_out=signed_out, refused=refused)


def wake_at(presence: Presence, timings: Timings) -> int | None:
    """When this record must be settled again though nothing happens."""
    return _next_due(presence, timings)


def droppable(presence: Presence) -> bool:
    """May this record leave the store once the ledger has it? Not while it says more than the ledger could."""
    return not (presence.sessions or presence.custom or presence.signed_out or presence.extra) and (
        presence.mode is Mode.AUTO and presence.erased_at is None
    )


# --- Edits: what somebody asks for ---------------------------------------------------------------------------------


def set_mode(mode: Mode, until: int | None) -> Edit:
    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        end = None if mode is Mode.AUTO else until
        if end is not None and end <= now:
            return presence  # it came too late to be chosen at all: its end must not clear what came after it
        hiding = mode is Mode.INVISIBLE and public(presence).status is not Status.OFFLINE
        showing = presence.mode is Mode.INVISIBLE and mode is not Mode.INVISIBLE
        if hiding and presence.live:  # a live session is evidence now; what was lost has left its own
            presence = replace(presence, last_seen=_later(presence.last_seen, now))
        presence = replace(presence, mode=mode, mode_until=end)
        return _shown(presence, now) if showing else presence

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
        if not gone:
            return presence
        notes = tuple(SignedOut(device, s.holder, now) for s in gone if s.holder not in (UNLEASED, *epochs))
        last_seen = presence.last_seen
        if any(s.live for s in gone) and not presence.hidden:
            last_seen = _later(last_seen, now)
        rest = tuple(s for s in presence.sessions if s.device != device)
        frozen = bool(rest) and not any(s.live for s in rest)
        if frozen and _include_the_last_live_one(gone, rest):  # judged without it, then frozen
            rest = _idled(rest, now - _idle_after(presence, timings))
            presence = replace(presence, sessions=rest)
            presence = _stated(presence, _judged(presence), now)
        return replace(presence, sessions=rest, signed_out=presence.signed_out + notes, last_seen=last_seen)

    return edit


def sign_out_all(epochs: Sequence[str] = ()) -> Edit:
    """Every device of the user, as `sign_out` does it with one."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        for device in {session.device: None for session in presence.sessions}:
            presence = sign_out(device, epochs)(presence, now, timings)
        return presence

    return edit


def erase(at: int, epochs: Sequence[str] = ()) -> Edit:
    """The user was deleted at this time: nothing is left but the notes for those who hold a session, and the mark that
    says so. `epochs` are the caller's own: it needs no note."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        if presence.erased_at is not None and presence.erased_at >= at:
            return presence
        notes = tuple(
            SignedOut(s.device, s.holder, now)
            for s in presence.sessions
            if s.holder not in (UNLEASED, *epochs)
        )
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
        return _lose(presence, device, UNLEASED, now, now)

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


def retire(dead: Mapping[str, int]) -> Edit:
    """Sessions of dead epochs (→ time of their last renewal) are lost into grace. A running grace goes on as it is."""

    def edit(presence: Presence, now: int, timings: Timings) -> Presence:
        for session in presence.sessions:
            if session.holder in dead:
                presence = _lose(presence, session.device, session.holder, dead[session.holder], now)
        return presence

    return edit


def _acted(session: Session, now: int) -> Session:
    return replace(session, active_at=max(session.active_at, now), idle=Idle.NO)


def _include_the_last_live_one(gone: Sequence[Session], rest: Sequence[Session]) -> bool:
    """None of `rest` is live. Lost a moment ago and signed out now is signed out: both orders end alike."""
    frozen_at = max(s.lost_at or 0 for s in rest)
    return any(s.lost_at is None or s.lost_at >= frozen_at for s in gone)


# --- What happens by itself ----------------------------------------------------------------------------------------


def _losses(held: Sequence[Held]) -> list[Held]:
    """In the order of their times. Once a device is back and stands in the record, its loss before that is history."""
    back = {(h.device, h.holder) for h in held if h.lost_at is None and h.asserted}
    losses = [h for h in held if h.lost_at is not None and (h.device, h.holder) not in back]
    losses.sort(key=_lost_at)
    return losses


def _next_happening(
    presence: Presence, losses: Sequence[Held], now: int, timings: Timings
) -> tuple[int, Held | None] | None:
    """The earliest of what is due and what was lost, if it is not in the future."""
    due = _next_due(presence, timings)
    if losses and (due is None or _lost_at(losses[0]) <= due):
        return min(_lost_at(losses[0]), now), losses[0]
    return (due, None) if due is not None and due <= now else None


def _next_due(presence: Presence, timings: Timings) -> int | None:
    dues: list[int] = []
    live = presence.live
    idle_after = _idle_after(presence, timings)
    for session in presence.sessions:
        if session.lost_at is not None:
            dues.append(session.lost_at + timings.grace)
        elif session.holder == UNLEASED:
            dues.append(session.seen_at + timings.dead_after)
        if live and session.idle is Idle.NO:  # frozen while all are in grace: no idleness falls due then
            dues.append(session.active_at + idle_after)
    if live and presence.arriving_until is not None:
        dues.append(presence.arriving_until)
    if presence.mode_until is not None:
        dues.append(presence.mode_until)
    if presence.custom is not None and presence.custom.until is not None:
        dues.append(presence.custom.until)
    for note in presence.signed_out:
        dues.append(note.at + REMEMBER_SIGN_OUT)
    if presence.erased_at is not None:
        dues.append(presence.erased_at + REMEMBER_SIGN_OUT)
    return min(dues) if dues else None


def _pass(presence: Presence, at: int, timings: Timings) -> Presence:
    """Everything that is due at this instant happens."""
    presence = _sessions_at(presence, at, timings)
    if presence.mode_until is not None and presence.mode_until <= at:
        showing = presence.mode is Mode.INVISIBLE
        presence = replace(presence, mode=Mode.AUTO, mode_until=None)
        presence = _shown(presence, at) if showing else presence
    if presence.custom is not None and presence.custom.until is not None and presence.custom.until <= at:
        presence = replace(presence, custom=None)
    if presence.live and presence.arriving_until is not None and presence.arriving_until <= at:
        presence = replace(presence, arriving_until=None, platforms=_platforms(presence))
    if presence.signed_out:
        notes = tuple(n for n in presence.signed_out if n.at + REMEMBER_SIGN_OUT > at)
        presence = replace(presence, signed_out=notes)
    if presence.erased_at is not None and presence.erased_at + REMEMBER_SIGN_OUT <= at:
        presence = replace(presence, erased_at=None)
    return presence


def _sessions_at(presence: Presence, at: int, timings: Timings) -> Presence:
    for session in presence.sessions:
        if session.lost_at is not None:
            if session.lost_at + timings.grace <= at:
                presence = _removed(presence, session)
        elif session.holder == UNLEASED and session.seen_at + timings.dead_after <= at:
            presence = _lose(presence, session.device, UNLEASED, session.seen_at, at)
    if not presence.live:
        return presence
    sessions = _idled(presence.sessions, at - _idle_after(presence, timings))
    return presence if sessions is presence.sessions else replace(presence, sessions=sessions)


def _idled(sessions: tuple[Session, ...], since: int) -> tuple[Session, ...]:
    """Who has not acted after `since` is idle."""
    idle = [s for s in sessions if s.idle is Idle.NO and s.active_at <= since]
    return tuple(replace(s, idle=Idle.TIMED_OUT) if s in idle else s for s in sessions) if idle else sessions


def _lose_held(presence: Presence, loss: Held, at: int, timings: Timings) -> Presence:
    session = _find(presence.sessions, loss.device, loss.holder)
    if loss.holder == UNLEASED and session is not None and session.seen_at > loss.seen_at:
        return presence  # another node got a later beat
    if (session is None or not session.live) and _came_and_went(presence, loss):
        presence = _restated(_joined(presence, loss, at, timings), at)
    return _lose(presence, loss.device, loss.holder, loss.seen_at, at)


def _came_and_went(presence: Presence, loss: Held) -> bool:
    """A return within grace that was lost again before anybody settled: only the second grace may fire."""
    return any(
        s.device == loss.device and s.lost_at is not None and s.lost_at <= loss.since
        for s in presence.sessions
    )


def _lose(presence: Presence, device: str, holder: str, seen_at: int, at: int) -> Presence:
    """A live session falls into grace; beside a live one of the same device it is simply no longer there."""
    session = _find(presence.sessions, device, holder)
    if session is None or not session.live:
        return presence
    seen_at = max(session.seen_at, seen_at)
    if any(s.live and s.device == device and s is not session for s in presence.sessions):
        sessions = tuple(_heir(s, session) for s in presence.sessions if s is not session)
    else:
        lost = replace(session, seen_at=seen_at, lost_at=at)
        sessions = tuple(lost if s is session else s for s in presence.sessions)
    last_seen = presence.last_seen
    if not presence.hidden:
        last_seen = _later(last_seen, max(seen_at, presence.shown_at or 0))
    return replace(presence, sessions=sessions, last_seen=last_seen)


def _heir(session: Session, gone: Session) -> Session:
    """The device's other session knows what its person last did through this one."""
    if session.device != gone.device or gone.active_at <= session.active_at:
        return session
    idle = session.idle if session.idle is Idle.SAID else gone.idle
    return replace(session, active_at=gone.active_at, idle=idle)


# --- What a node holds ---------------------------------------------------------------------------------------------


def _stamped(presence: Presence, held: Sequence[Held], now: int, timings: Timings) -> Presence:
    """The record's live sessions with the stamps their holder knows."""
    sessions = presence.sessions
    for h in held:
        session = _find(sessions, h.device, h.holder)
        if session is None or not session.live or _began_after(session, h, timings):
            continue
        fresh = _freshened(session, h, now, _idle_after(presence, timings), timings.dead_after)
        if fresh is not session:
            sessions = tuple([fresh if s is session else s for s in sessions])
    return presence if sessions is presence.sessions else _restated(replace(presence, sessions=sessions), now)


def _began_after(session: Session, held: Held, timings: Timings) -> bool:
    """REST beats that began when this session was dead already, though nobody had looked: they are another one."""
    return session.holder == UNLEASED and held.since > session.seen_at + timings.dead_after


def _freshened(session: Session, held: Held, now: int, idle_after: int, dead_after: int) -> Session:
    """Life alone is not committed (`seen_at` moves with something else), unless it is what keeps a REST session."""
    acted = held.active_at > session.active_at
    if _says_idle(held, session.active_at):
        idle = Idle.SAID
    elif not acted:
        idle = session.idle
    elif session.idle is Idle.NO or now < held.active_at + idle_after:
        idle = Idle.NO
    else:
        idle = Idle.TIMED_OUT  # we learn late of activity that is too old to wake anybody
    if not acted and idle is session.idle and not _prolongs(session, held, now, dead_after):
        return session
    return replace(
        session,
        active_at=max(session.active_at, held.active_at),
        idle=idle,
        seen_at=max(session.seen_at, held.seen_at),
    )


def _says_idle(held: Held, active_at: int) -> bool:
    """And nobody knows of later activity, through another node."""
    return held.idle and (held.idle_at is None or held.idle_at >= active_at)


def _prolongs(session: Session, held: Held, now: int, dead_after: int) -> bool:
    """A beat moves the deadline of a REST session when a third of its time has passed since the beat in the record,
    or when less than a third of it is left: frequent beats cost no writes."""
    if session.holder != UNLEASED or held.seen_at <= session.seen_at:
        return False
    return 3 * (held.seen_at - session.seen_at) >= dead_after or 3 * (now - session.seen_at) >= 2 * dead_after


def _holds_as_recorded(presence: Presence, epoch: str, held: Sequence[Held]) -> bool:
    """What the node holds is what stands in the record: nothing is left to do after an edit."""
    live = {(s.device, s.holder) for s in presence.sessions if s.live}
    mine = {(h.device, h.holder) for h in held if h.lost_at is None}
    return mine <= live and all(key in mine for key in live if key[1] == epoch != UNLEASED)


def _without_unheld(presence: Presence, epoch: str, held: Sequence[Held], now: int) -> Presence:
    """Sessions under this epoch that the node does not hold: a close that overtook its connect leaves no ghost."""
    if epoch == UNLEASED:
        return presence
    for session in presence.sessions:
        if session.holder == epoch and not any(
            h.device == session.device and h.holder == epoch for h in held
        ):
            presence = _lose(presence, session.device, epoch, session.seen_at, now)
    return presence


def _with_held(
    presence: Presence, held: Sequence[Held], now: int, timings: Timings, *, settled: bool
) -> tuple[Presence, tuple[str, ...], tuple[str, ...]]:
    signed_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    for h in sorted(held, key=_is_rest) if len(held) > 1 else held:
        session = _find(presence.sessions, h.device, h.holder)
        if h.lost_at is not None or (session is not None and session.live):
            continue
        if h.holder == UNLEASED and _says_nothing_new(presence, h, now, timings):
            continue
        if _was_signed_out(presence, h, session, settled=settled):
            signed_out = (*signed_out, h.device)
        elif (room := _with_room(presence, h, timings)) is not None:
            presence = _joined(room, h, now, timings)
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
        presence = _removed(presence, min(in_grace, key=lambda s: s.lost_at or 0))
    return presence


def _gives_way(session: Session, held: Held) -> bool:
    """The same device in grace, by REST, or under an earlier epoch of this node: the new session takes its place."""
    if session.device != held.device:
        return False
    return not session.live or session.holder in (UNLEASED, held.asserted_by)


def _joined(presence: Presence, held: Held, now: int, timings: Timings) -> Presence:
    """A session appears."""
    same = [s for s in presence.sessions if s.device == held.device]
    session = _continued(same, held) if same else _begun(held)
    rest = tuple(s for s in presence.sessions if not _gives_way(s, held)) if same else presence.sessions
    arriving = presence.arriving_until
    if (
        timings.online_delay
        and not presence.live
        and (presence.status is Status.OFFLINE or arriving is not None)
    ):
        arriving = now + timings.online_delay
    notes = presence.signed_out
    if notes:  # a new connection to the same node: the note was about the one before
        notes = tuple(n for n in notes if (n.device, n.holder) != (held.device, held.holder))
    # Idleness that fell due while all were in grace, or while we were away, shows now and not a moment later.
    sessions = _idled((*rest, session), now - _idle_after(presence, timings))
    return replace(presence, sessions=sessions, arriving_until=arriving, signed_out=notes)


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
        idle=Idle.SAID if _says_idle(held, latest.active_at) else idle,
    )


# --- What it amounts to --------------------------------------------------------------------------------------------


def _restated(presence: Presence, at: int) -> Presence:
    """The record says again what it amounts to: DESIGN section 3, rules 1 to 5."""
    if not presence.sessions:
        return _stated(presence, Status.OFFLINE, at)
    if not presence.live:
        return presence  # frozen: what it was when the last live one was lost
    return _stated(presence, _judged(presence), at)


def _judged(presence: Presence) -> Status:
    if presence.mode is Mode.BUSY:
        return Status.BUSY
    if presence.mode is Mode.AWAY:
        return Status.AWAY
    for session in presence.sessions:
        if session.idle is Idle.NO:
            return Status.ONLINE
    return Status.AWAY


def _stated(presence: Presence, status: Status, at: int) -> Presence:
    if status is Status.OFFLINE:
        if presence.status is Status.OFFLINE and presence.arriving_until is None:
            return presence
        return replace(
            presence, status=status, since=None, platforms=frozenset(), arriving_until=None, shown_at=None
        )
    here = _platforms(presence)
    if status is presence.status:
        return presence if presence.platforms <= here else replace(presence, platforms=here)
    since = at
    if status is Status.AWAY and presence.mode is not Mode.AWAY:
        since = max(max(s.active_at for s in presence.sessions), presence.shown_at or 0)
    return replace(presence, status=status, since=since, platforms=here)


def _shown(presence: Presence, at: int) -> Presence:
    """No longer invisible: to others it begins now, and no time that they get to see is earlier."""
    if not presence.sessions:
        return presence
    return replace(presence, platforms=_platforms(presence), since=at, shown_at=at)


def _outcome(
    record: Presence,
    presence: Presence,
    now: int,
    timings: Timings,
    seen: View,
    *,
    applied: bool = True,
    more: bool = False,
    signed_out: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
) -> Outcome:
    due = _next_due(presence, timings)
    more = more or (due is not None and due <= now)
    if presence is record or presence == record:
        return Outcome(
            record,
            None,
            due,
            news=False,
            unsaved=False,
            applied=applied,
            more=more,
            signed_out=signed_out,
            refused=refused,
        )
    version = max(record.version + 1, now)
    chose = _choices(presence) != _choices(record)
    shows = public(presence)
    change = Change(seen, shows) if shows != seen else None
    forgotten = presence.chosen != record.chosen  # with all that was chosen
    chosen = version if chose and not forgotten else presence.chosen
    return Outcome(
        presence=replace(presence, version=version, chosen=chosen),
        change=change,
        wake_at=due,
        news=change is not None or chose or _devices_hear_of_it(record, presence),
        unsaved=chose or record.last_seen != presence.last_seen,
        applied=applied,
        more=more,
        signed_out=signed_out,
        refused=refused,
    )


def _devices_hear_of_it(record: Presence, presence: Presence) -> bool:
    """The user's own devices, or a holder whose session was signed out."""
    if record.status is not presence.status or devices(record) != devices(presence):
        return True
    return any(note not in record.signed_out for note in presence.signed_out)


# --- Small facts ---------------------------------------------------------------------------------------------------


def _choices(presence: Presence) -> tuple[Mode, int | None, Custom | None]:
    return presence.mode, presence.mode_until, presence.custom


def _find(sessions: Sequence[Session], device: str, holder: str) -> Session | None:
    for session in sessions:
        if session.device == device and session.holder == holder:
            return session
    return None


def _removed(presence: Presence, session: Session) -> Presence:
    return replace(presence, sessions=tuple(s for s in presence.sessions if s != session))


def _platforms(presence: Presence) -> frozenset[Platform]:
    return frozenset([s.platform for s in presence.sessions])


def _idle_after(presence: Presence, timings: Timings) -> int:
    return timings.idle_after if presence.idle_after is None else presence.idle_after


def _later(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def _lost_at(held: Held) -> int:
    assert held.lost_at is not None
    return held.lost_at
