"""What this node holds: connections come, show life, act, fall silent and go.

A beat ends here, as two stamps in memory. Only what changes the record is decided: a new session, a device that acts
after resting or rests after acting, a loss, a sign-out. Silence is found by a wheel, not by a scan.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_urlsafe

from herenow.core.machine import Timings, act, act_on, lose, sign_out
from herenow.core.model import UNLEASED, Idle, Platform, Presence, Session
from herenow.errors import ProtocolError
from herenow.service.clock import Clock
from herenow.service.connection import Connection
from herenow.service.decide import Decider
from herenow.service.hub import Hub
from herenow.service.metrics import Metrics
from herenow.service.outbox import Outbox
from herenow.service.people import HeldSession, People, Person
from herenow.service.standing import Standing
from herenow.service.wheel import Wheel
from herenow.wire.codes import Close
from herenow.wire.inputs import Activity

MARGIN = 5_000
"""Milliseconds before a device falls idle in the record at which its holder commits fresher activity, so that no other
node's reaper shows somebody away who is not. A tenth of `idle_after` where that is less, but not less than it takes to
turn the wheel."""

STOPPED = 2_000
"""Milliseconds between two turns of the wheel from which we take it that this process stood still: signs of life may wait
in our sockets, so that nobody is silent yet."""


class Sessions:
    def __init__(
        self,
        *,
        people: People,
        decider: Decider,
        hub: Hub,
        standing: Standing,
        clock: Clock,
        timings: Timings,
        metrics: Metrics,
        beat_min: int,
        max_connections: int,
    ) -> None:
        self._people = people
        self._decider = decider
        self._hub = hub
        self._standing = standing
        self._clock = clock
        self._timings = timings
        self._metrics = metrics
        self._beat_min = beat_min
        self._max_connections = max_connections
        self._wheel: Wheel[HeldSession] = Wheel(self._look)
        self._turned_at: int | None = None
        self._patient_until = 0
        self.on_gone: Callable[[Connection], None] = _nothing

    # Connections

    def connect(
        self,
        user: str,
        device: str | None,
        platform: Platform,
        *,
        send: Callable[[bytes], None],
        end: Callable[[int, str], None],
        abort: Callable[[], None],
        issued_at: int | None = None,
    ) -> Connection:
        """A device is here. `issued_at` is that of its token; None: now. Raises `ProtocolError` (too_many_connections)."""
        person = self._people.get(user)
        if len(person.outboxes) >= self._max_connections:
            raise ProtocolError(
                "too_many_connections", f"A user may have {self._max_connections} connections to one node."
            )
        device = device or token_urlsafe(6)
        now = self._clock.now()
        session = person.session(device)
        if session is None:
            session = HeldSession(person, device, platform, now)
            person.sessions.append(session)
            self._metrics.sessions += 1
            self._look_by(session, now + self._timings.dead_after)
        session.seen_at = now
        connection = Connection(session, Outbox(user, send, abort), end, now)
        self.refreshed(connection, now if issued_at is None else issued_at)
        session.connections.append(connection)
        person.outboxes.append(connection.outbox)
        self._metrics.connections += 1
        self._decider.touch(person)
        return connection

    def refreshed(self, connection: Connection, issued_at: int) -> None:
        """Its token was issued then."""
        connection.issued_at = issued_at
        connection.session.issued_at = max(connection.session.issued_at, issued_at)

    def stands(self, session: HeldSession) -> None:
        """The session stands in the record, as of now. From when on is activity news to it?"""
        committed = session.in_record(self._standing.epoch)
        if committed is None or committed.idle is not Idle.NO:
            session.fresh_until = 0
        else:
            session.fresh_until = committed.active_at + self._idle_after(session) - self._margin(session)
            self._look_by(session, session.fresh_until)
        self.greet(session)

    def greet(self, session: HeldSession) -> None:
        """Its connections learn how they are seen."""
        for connection in session.connections:
            if connection.welcomed:
                self._hub.join_own(connection.outbox, session.person)

    def gone(self, connection: Connection, *, alive: bool = True) -> None:
        """Its socket is closed, for whatever reason. `alive`: the closing itself was a sign of life (FIN, RST)."""
        session = connection.session
        if connection not in session.connections:
            return
        person = session.person
        session.connections.remove(connection)
        self._let_go(connection, person)
        now = self._clock.now()
        if alive:
            session.seen_at = now
        if not session.connections and session in person.sessions and session.lost_at is None:
            self._lose(session, now)
        self._people.release(person, now)

    def ended(self, session: HeldSession, why: str) -> None:
        """The record says that this session is no more: signed out elsewhere, or no room for it."""
        if not session.unleased:
            self._metrics.sessions -= 1
        if why == "refused":
            self._close(session, Close.TOO_MANY_CONNECTIONS, "too many sessions")
        else:
            self._close(session, Close.SIGNED_OUT, "signed out")

    # Life and activity

    def alive(self, session: HeldSession) -> None:
        session.seen_at = self._clock.now()

    def beat(self, session: HeldSession, activity: Activity | None) -> bool:
        """Answers whether it counts; one that comes too soon is evidence of life all the same."""
        now = self._clock.now()
        session.seen_at = now
        counts = now - session.beat_at >= self._beat_min
        if counts:
            session.beat_at = now
            self._metrics.beats_accepted += 1
        else:
            self._metrics.beats_dropped += 1
        if activity is not None:
            self._note_activity(session, activity, now)
        return counts

    def act(self, session: HeldSession, activity: Activity) -> None:
        now = self._clock.now()
        session.seen_at = now
        self._note_activity(session, activity, now)

    def _note_activity(self, session: HeldSession, activity: Activity, now: int) -> None:
        if activity is Activity.ACTIVE:
            session.active_at = now
            session.idle = False
            if now >= session.fresh_until or session.person.deciding:
                self._decider.touch(session.person)
        else:
            # The record may still say that it acts, by another way.
            news = not session.idle or session.fresh_until > 0
            session.idle = True
            session.idle_at = now
            if news:
                self._decider.touch(session.person)

    # Beats without a connection

    async def rest_beat(
        self,
        user: str,
        device: str,
        platform: Platform,
        activity: Activity | None,
        *,
        issued_at: int | None = None,
    ) -> bool:
        """A beat by REST: an unleased session, unless the device has a socket, which then is what counts. `issued_at` is
        that of the user's token; None: a service speaks for them, now. Answers as `beat` does. Raises `ProtocolError`
        (too_many_sessions, token_revoked)."""
        person = self._people.get(user)
        person.pins += 1
        try:
            issued = self._clock.now() if issued_at is None else issued_at
            return await self._rest_beat(person, device, platform, activity, issued)
        finally:
            person.pins -= 1
            self._people.release(person, self._clock.now())

    async def _rest_beat(
        self, person: Person, device: str, platform: Platform, activity: Activity | None, issued_at: int
    ) -> bool:
        held = person.session(device)
        if held is not None:
            return self.beat(held, activity)
        session = person.session(device, unleased=True)
        if session is None:
            session = self._hold_unleased(person, device, platform)
        session.issued_at = max(session.issued_at, issued_at)
        counts = self.beat(session, activity)
        committed = session.in_record(UNLEASED)
        if committed is None or not committed.live or self._is_due_again(session, committed):
            self._decider.touch(person)
        if person.dirty:
            await self._decider.decided(person.user)
        if session.in_record(UNLEASED) is None and session in person.sessions:
            await self._decider.decided(
                person.user, afresh=True
            )  # has another node its socket, as we believe?
        if session.barred:
            raise ProtocolError("token_revoked", "The token was issued before the user was deleted.")
        if session.asserted == 0 and session not in person.sessions:
            raise ProtocolError(
                "too_many_sessions",
                f"This user has {self._timings.max_sessions} sessions, which is the most allowed.",
            )
        if session.in_record(UNLEASED) is None:
            await self._beat_elsewhere(session, activity)
        return counts

    def _hold_unleased(self, person: Person, device: str, platform: Platform) -> HeldSession:
        session = HeldSession(person, device, platform, self._clock.now(), unleased=True)
        person.sessions.append(session)
        self._look_by(session, session.seen_at + self._timings.dead_after * 2 // 3)
        return session

    def _is_due_again(self, session: HeldSession, committed: Session) -> bool:
        """Its deadline is rewritten at most every third of `dead_after`."""
        return session.seen_at - committed.seen_at >= self._timings.dead_after // 3

    async def _beat_elsewhere(self, session: HeldSession, activity: Activity | None) -> None:
        """Another node has the device's socket. The beat is history then: kept, it could revive the device later."""
        person = session.person
        if session in person.sessions:
            person.sessions.remove(session)
        there = [s for s in person.presence.sessions if s.live and s.device == session.device]
        if activity is Activity.IDLE and any(s.idle is not Idle.SAID for s in there):
            await self._decider.ask(person.user, act_on(session.device, idle=True))
        elif activity is Activity.ACTIVE and any(self._is_news(s, session.seen_at) for s in there):
            await self._decider.ask(person.user, act_on(session.device, idle=False))

    def _is_news(self, committed: Session, acted_at: int) -> bool:
        return committed.idle is not Idle.NO or acted_at - committed.active_at >= self._beat_min

    async def user_acted(self, user: str) -> bool:
        """Activity of unknown device: of the live sessions, never a new one. Answers whether there are any."""
        person = self._people.get(user)
        person.pins += 1
        try:
            presence = person.presence if person.known else await self._decider.decided(user)
            now = self._clock.now()
            held = [session for session in person.sessions if session.lost_at is None]
            for session in held:
                self._note_activity(session, Activity.ACTIVE, now)
            here = {(s.device, UNLEASED if s.unleased else self._standing.epoch) for s in held}
            if any(s.live and (s.device, s.holder) not in here for s in presence.sessions):
                presence = await self._decider.ask(user, act())
            elif person.dirty:
                presence = await self._decider.decided(user)
            return presence.live
        finally:
            person.pins -= 1
            self._people.release(person, self._clock.now())

    async def rest_gone(self, user: str, device: str) -> None:
        """An outside gateway lost this device's connection: into grace."""
        self._drop_held(user, device, unleased=True)
        await self._decider.ask(user, lose(device))

    # Leaving

    async def sign_out(self, user: str, device: str, *, but: Connection | None = None) -> bool:
        """End a device on purpose: all its tabs, on all nodes, without grace. Answers whether it was there.
        `but` is the connection that asked, which closes itself."""
        was_there = self.drop(user, device, but=but)
        end = sign_out(device, (self._standing.epoch,))

        def edit(presence: Presence, now: int, timings: Timings) -> Presence:
            nonlocal was_there
            was_there = was_there or any(s.device == device for s in presence.sessions)
            return end(presence, now, timings)

        await self._decider.ask(user, edit)
        return was_there

    def drop(self, user: str, device: str | None = None, *, but: Connection | None = None) -> bool:
        """What we hold of this user, or of one device, is signed out: it is closed, and no longer held. The record is the
        caller's business. Answers whether there was anything."""
        dropped = self._drop_held(user, device)
        for session in dropped:
            self._close(session, Close.SIGNED_OUT, "signed out", but=but)
        return bool(dropped)

    def end_void(self, user: str, before: int, reason: str = "token_revoked") -> None:
        """Close what was opened with a token issued before: into grace, like any other end of a token."""
        person = self._people.find(user)
        for session in () if person is None else person.sessions:
            for connection in [c for c in session.connections if c.issued_at < before]:
                connection.end(Close.UNAUTHORIZED, reason)

    def drop_void(self, user: str, before: int) -> None:
        """The user was deleted: close the same, and hold nothing that no later token vouches for."""
        person = self._people.find(user)
        for session in () if person is None else list(person.sessions):
            if session.issued_at < before:
                self._drop(session)
                session.barred = True
                self._close(session, Close.UNAUTHORIZED, "user_deleted")
            else:
                for connection in [c for c in session.connections if c.issued_at < before]:
                    self.gone(connection)
                    connection.end(Close.UNAUTHORIZED, "user_deleted")

    def _drop_held(self, user: str, device: str | None, *, unleased: bool | None = None) -> list[HeldSession]:
        person = self._people.find(user)
        if person is None:
            return []
        dropped = [
            s
            for s in person.sessions
            if device in (None, s.device) and (unleased is None or s.unleased is unleased)
        ]
        for session in dropped:
            self._drop(session)
        return dropped

    def _drop(self, session: HeldSession) -> None:
        session.person.sessions.remove(session)
        if not session.unleased and session.lost_at is None:
            self._metrics.sessions -= 1

    def end_all(self, code: int, reason: Callable[[], str]) -> None:
        """Close everything, as a node does that stops."""
        for person in self._people:
            for session in person.sessions:
                for connection in list(session.connections):
                    connection.end(code, reason())

    # Silence

    def turn(self) -> None:
        """Look at those whose time has come; a few times a second."""
        now = self._clock.now()
        stopped = 0 if self._turned_at is None else now - self._turned_at
        if stopped >= STOPPED:
            self._patient_until = now + min(stopped, self._timings.dead_after)
        self._turned_at = now
        self._wheel.turn(now)

    def assert_again(self) -> None:
        """After a new epoch: everything we hold, under that one."""
        for person in self._people:
            if person.sessions:
                self._decider.touch(person)

    def _look_by(self, session: HeldSession, at: int) -> None:
        """Not later than this; an entry in the wheel that comes later is skipped then."""
        if session.look_at is None or at < session.look_at:
            session.look_at = at
            self._wheel.put(session, at)

    def _look(self, session: HeldSession, now: int) -> int | None:
        if session.look_at is None or now < session.look_at:
            return None  # another entry counts
        if session.lost_at is not None or session not in session.person.sessions:
            session.look_at = None
        elif now - session.seen_at <= self._timings.dead_after:  # a beat in the last millisecond counts
            session.look_at = self._keep_record_fresh(session, now)
        elif now < self._patient_until:
            session.look_at = self._patient_until
        else:
            session.look_at = None
            self._silent(session)
        return session.look_at

    def _silent(self, session: HeldSession) -> None:
        if session.unleased:  # the record has its deadline and loses it by itself
            session.person.sessions.remove(session)
            self._people.release(session.person, self._clock.now())
            return
        self._lose(session, max(session.seen_at + self._timings.dead_after, self._patient_until))
        self._close(session, Close.NO_LIFE, "no sign of life")

    def _keep_record_fresh(self, session: HeldSession, now: int) -> int:
        """Fresher stamps reach the record before it would fall due by its own. Answers when to look again."""
        again = session.seen_at + self._timings.dead_after + 1
        committed = session.in_record(self._standing.epoch)
        if committed is None:
            return min(again, now + 1_000)
        if committed.idle is Idle.NO:
            again = min(again, self._refresh_activity(session, committed, now))
        if session.unleased:
            again = min(again, self._refresh_life(session, committed, now))
        return again

    def _refresh_activity(self, session: HeldSession, committed: Session, now: int) -> int:
        due = committed.active_at + self._idle_after(session) - self._margin(session)
        if now < due:
            return due
        if session.active_at > committed.active_at:
            self._decider.touch(session.person)
        return now + self._timings.dead_after  # from here on activity is committed when it happens

    def _refresh_life(self, session: HeldSession, committed: Session, now: int) -> int:
        due = committed.seen_at + self._timings.dead_after * 2 // 3
        if now < due:
            return due
        if session.seen_at > committed.seen_at:
            self._decider.touch(session.person)
        return now + self._timings.dead_after // 6

    def _idle_after(self, session: HeldSession) -> int:
        own = session.person.presence.idle_after
        return self._timings.idle_after if own is None else own

    def _margin(self, session: HeldSession) -> int:
        idle_after = self._idle_after(session)
        return min(MARGIN, max(idle_after // 10, min(1_000, idle_after // 2)))

    def _lose(self, session: HeldSession, lost_at: int) -> None:
        session.lost_at = lost_at
        self._metrics.sessions -= 1
        self._decider.touch(session.person)

    def _close(self, session: HeldSession, code: int, reason: str, *, but: Connection | None = None) -> None:
        connections, session.connections = session.connections, []
        for connection in connections:
            self._let_go(connection, session.person)
            if connection is not but:
                connection.end(code, reason)
        self._people.release(session.person, self._clock.now())

    def _let_go(self, connection: Connection, person: Person) -> None:
        self._metrics.connections -= 1
        if connection.outbox in person.outboxes:
            person.outboxes.remove(connection.outbox)
        self._hub.forget(connection.outbox)
        self.on_gone(connection)


def _nothing(connection: Connection) -> None:
    pass
