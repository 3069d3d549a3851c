"""What this node holds: connections come, show life, act, fall silent and go.

A beat ends here, as two stamps in memory. Only what changes the record is decided: a new session, a device that acts
after resting or rests after acting, a loss, a sign-out. Silence is found by a wheel, not by a scan.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_urlsafe

from herenow.core.machine import Timings, act, act_on, lose, sign_out
from herenow.core.model import UNLEASED, Idle, Platform
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
node's reaper shows somebody away who is not; a tenth of `idle_after` where that is less."""


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
    ) -> Connection:
        """A device is here. Raises `ProtocolError` (too_many_connections)."""
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
            self._wheel.put(session, now + self._timings.dead_after)
        session.seen_at = now
        connection = Connection(session, Outbox(user, send, abort), token_urlsafe(9), end)
        session.connections.append(connection)
        person.outboxes.append(connection.outbox)
        self._metrics.connections += 1
        self._decider.touch(person)
        return connection

    def greet(self, session: HeldSession) -> None:
        """The session stands in the record: its connections learn how they are seen."""
        for connection in session.connections:
            if connection.welcomed and not connection.greeted:
                connection.greeted = True
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
            if session.resting:
                self._decider.touch(session.person)
        elif not session.idle:
            session.idle = True
            self._decider.touch(session.person)

    # Beats without a connection

    async def rest_beat(self, user: str, device: str, platform: Platform, activity: Activity | None) -> bool:
        """A beat by REST: an unleased session, unless the device has a socket, which then is what counts. Answers as
        `beat` does. Raises `ProtocolError` (too_many_sessions)."""
        person = self._people.get(user)
        person.pins += 1
        try:
            return await self._rest_beat(person, device, platform, activity)
        finally:
            person.pins -= 1
            self._people.release(person, self._clock.now())

    async def _rest_beat(self, person: Person, device: str, platform: Platform, activity: Activity | None) -> bool:
        held = person.session(device)
        if held is not None:
            return self.beat(held, activity)
        counts = True
        session = person.session(device, unleased=True)
        if session is None:
            session = HeldSession(person, device, platform, self._clock.now(), unleased=True)
            session.beat_at = session.seen_at
            person.sessions.append(session)
            self._wheel.put(session, session.seen_at + self._timings.dead_after * 2 // 3)
            self._metrics.beats_accepted += 1
            if activity is not None:
                self._note_activity(session, activity, session.seen_at)
            await self._decider.decided(person.user)
        else:
            counts = self.beat(session, activity)
            committed = session.in_record(UNLEASED)
            if committed is None or session.seen_at - committed.seen_at >= self._timings.dead_after // 3:
                self._decider.touch(person)
            if person.dirty:
                await self._decider.decided(person.user)
        if session.asserted == 0 and session not in person.sessions:
            raise ProtocolError(
                "too_many_sessions", f"This user has {self._timings.max_sessions} sessions, which is the most allowed."
            )
        if activity is not None and session.in_record(UNLEASED) is None:
            await self._decider.ask(person.user, act_on(device, idle=activity is Activity.IDLE))
        return counts

    async def user_acted(self, user: str) -> bool:
        """Activity of unknown device: of the live sessions, never a new one. Answers whether there are any."""
        person = self._people.find(user)
        if person is not None:
            for session in person.sessions:
                if session.lost_at is None:
                    session.active_at = self._clock.now()
                    session.idle = False
        return (await self._decider.ask(user, act())).live

    async def rest_gone(self, user: str, device: str) -> None:
        """An outside gateway lost this device's connection: into grace."""
        self._drop_held(user, device, unleased=True)
        await self._decider.ask(user, lose(device))

    # Leaving

    async def sign_out(self, user: str, device: str, *, but: Connection | None = None) -> bool:
        """End a device on purpose: all its tabs, on all nodes, without grace. Answers whether it was there.
        `but` is the connection that asked, which closes itself."""
        person = self._people.get(user)
        person.pins += 1
        try:
            before = {s.device for s in (await self._decider.decided(user)).sessions}
            for session in self._drop_held(user, device):
                self._close(session, Close.SIGNED_OUT, "signed out", but=but)
            await self._decider.ask(user, sign_out(device, (self._standing.epoch,)))
        finally:
            person.pins -= 1
            self._people.release(person, self._clock.now())
        return device in before

    def _drop_held(self, user: str, device: str, *, unleased: bool | None = None) -> list[HeldSession]:
        person = self._people.find(user)
        if person is None:
            return []
        dropped = [
            s for s in person.sessions if s.device == device and (unleased is None or s.unleased is unleased)
        ]
        for session in dropped:
            person.sessions.remove(session)
            if not session.unleased and session.lost_at is None:
                self._metrics.sessions -= 1
        return dropped

    def end_all(self, code: int, reason: Callable[[], str]) -> None:
        """Close everything, as a node does that stops."""
        for person in self._people:
            for session in person.sessions:
                for connection in list(session.connections):
                    connection.end(code, reason())

    # Silence

    def turn(self) -> None:
        """Look at those whose time has come; a few times a second."""
        self._wheel.turn(self._clock.now())

    def assert_again(self) -> None:
        """After a new epoch: everything we hold, under that one."""
        for person in self._people:
            if person.sessions:
                self._decider.touch(person)

    def _look(self, session: HeldSession, now: int) -> int | None:
        if session.lost_at is not None or session not in session.person.sessions:
            return None
        if now - session.seen_at >= self._timings.dead_after:
            self._silent(session)
            return None
        return self._keep_record_fresh(session, now)

    def _silent(self, session: HeldSession) -> None:
        if session.unleased:  # the record has its deadline and loses it by itself
            session.person.sessions.remove(session)
            self._people.release(session.person, self._clock.now())
            return
        self._lose(session, session.seen_at + self._timings.dead_after)
        self._close(session, Close.NO_LIFE, "no sign of life")

    def _keep_record_fresh(self, session: HeldSession, now: int) -> int:
        """Fresher stamps reach the record before it would fall due by its own."""
        committed = session.in_record(self._standing.epoch)
        again = [session.seen_at + self._timings.dead_after]
        if committed is None:
            return min(again[0], now + 1_000)
        if committed.idle is Idle.NO:
            idle_after = session.person.presence.idle_after or self._timings.idle_after
            refresh = max(committed.active_at, 0) + idle_after - min(MARGIN, idle_after // 10)
            if now >= refresh and session.active_at > committed.active_at:
                self._decider.touch(session.person)
                refresh = session.active_at + idle_after - min(MARGIN, idle_after // 10)
            if refresh > now:
                again.append(refresh)
        if session.unleased:
            refresh = committed.seen_at + self._timings.dead_after * 2 // 3
            if now >= refresh and session.seen_at > committed.seen_at:
                self._decider.touch(session.person)
                refresh = session.seen_at + self._timings.dead_after * 2 // 3
            if refresh > now:
                again.append(refresh)
        return min(again)

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
        self._hub.forget(connection.outbox, person)
        self.on_gone(connection)


def _nothing(connection: Connection) -> None:
    pass
