"""What this node holds: connections come, show life, act, fall silent and go.

A beat ends here, as two stamps in memory. Only what changes the record is decided: a new session, a device that acts
after resting or rests after acting, a loss, a sign-out. Who fell silent is found by `silence`.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_urlsafe

from herenow.core.edits import sign_out
from herenow.core.model import Idle, Platform, Presence
from herenow.core.settle import Timings
from herenow.errors import ProtocolError
from herenow.kit.clock import Clock
from herenow.node.deadlines import CLOCK_SKEW
from herenow.node.delivery.connection import Connection
from herenow.node.delivery.hub import Hub
from herenow.node.delivery.outbox import Outbox
from herenow.node.metrics import Metrics
from herenow.node.people import HeldSession, People, Person, without
from herenow.node.records.authority import Standing
from herenow.node.records.decider import Decider
from herenow.node.sessions.liveness import Silence
from herenow.wire.codes import Close
from herenow.wire.inputs import Activity

_ACTS = Idle.NO  # an attribute of an enum is slow to get


class Sessions:
    def __init__(
        self,
        *,
        people: People,
        decider: Decider,
        hub: Hub,
        silence: Silence,
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
        self._silence = silence
        self._standing = standing
        self._clock = clock
        self._timings = timings
        self._metrics = metrics
        self._beat_min = beat_min
        self._max_connections = max_connections
        self.on_gone: Callable[[Connection], None] = _nothing
        silence.on_silent = self._fell_silent

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
        session, again_at = person.session(device), 0
        if session is None:
            session = HeldSession(person, device, platform, now)
            person.sessions += (session,)
            self._metrics.sessions += 1
            self._silence.look_by(session, now + self._timings.dead_after)
        elif not self._standing.may_decide(person.shard):
            again_at = now
        session.seen_at = now
        connection = Connection(session, Outbox(person.user, send, abort), end, now, again_at)
        self.refreshed(connection, now if issued_at is None else issued_at)
        session.connections += (connection,)
        person.outboxes += (connection.outbox,)
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
        if committed is None or committed.idle is not _ACTS:
            session.fresh_until = 0
        else:
            session.fresh_until = self._silence.fresh_until(session, committed)
            self._silence.look_by(session, session.fresh_until)
        self.greet(session)

    def greet(self, session: HeldSession) -> None:
        """Its connections learn how they are seen."""
        for connection in session.connections:
            if connection.welcomed:
                self._hub.join_own(connection.outbox, session.person)

    def gone(self, connection: Connection, *, alive: bool = True, left_at: int | None = None) -> None:
        """Its socket is closed, for whatever reason. `alive`: the closing itself was a sign of life (FIN, RST). `left_at`:
        when that was read, which may be a while ago where thousands go at once; None: now."""
        session = connection.session
        if connection not in session.connections:
            return
        person = session.person
        session.connections = without(session.connections, connection)
        self._let_go(connection, person)
        lost_at = now = self._clock.now()
        if alive:  # its other connections may have been heard since
            lost_at = session.seen_at = now if left_at is None else max(left_at, session.seen_at)
        if not session.connections and session in person.sessions and session.lost_at is None:
            # Of what was read after we stood still nobody knows when it was sent.
            session.seen_at = max(session.since, self._silence.arrived_by(session.seen_at))
            self._lose(session, lost_at)
        self._people.release(person, now)

    def ended(self, session: HeldSession, why: str) -> None:
        """The record says that this session is no more: signed out elsewhere, or no room for it."""
        if not session.unleased:
            self._metrics.sessions -= 1
        if why == "refused":
            self._close(session, Close.TOO_MANY_CONNECTIONS, "too many sessions")
        else:
            if again := self._came_again(session):
                self._begin_anew(session, again)
            self._close(session, Close.SIGNED_OUT, "signed out")

    def _came_again(self, session: HeldSession) -> tuple[Connection, ...]:
        """Who came after the sign-out, while we could not know of it."""
        presence = session.person.presence
        notes = [
            n.at for n in presence.signed_out if (n.device, n.holder) == (session.device, session.asserted_by)
        ]
        signed_out_at = max(notes, default=presence.version)
        for before, connection in enumerate(session.connections):
            if connection.again_at > signed_out_at + CLOCK_SKEW:
                return session.connections[before:]  # in the order they came
        return ()

    def _begin_anew(self, session: HeldSession, connections: tuple[Connection, ...]) -> None:
        """These are a session of their own."""
        session.connections = session.connections[: -len(connections)]
        anew = HeldSession(session.person, session.device, session.platform, connections[0].again_at)
        anew.seen_at = session.seen_at
        anew.connections = connections
        for connection in connections:
            connection.session = anew
            self.refreshed(connection, connection.issued_at)
        session.person.sessions += (anew,)
        self._metrics.sessions += 1
        self._silence.look_by(anew, anew.seen_at + self._timings.dead_after)
        self._decider.touch(session.person)

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
            self.note_activity(session, activity, now)
        return counts

    def act(self, session: HeldSession, activity: Activity) -> None:
        now = self._clock.now()
        session.seen_at = now
        self.note_activity(session, activity, now)

    def note_activity(self, session: HeldSession, activity: Activity, now: int) -> None:
        """Its person acts or rests. That the device lives is noted by the caller, if it is so."""
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
        caller's business; where nobody can tell it that, it hears of a loss, or it would say that the device was last seen
        when something was last committed. Answers whether there was anything."""
        now = self._clock.now()
        dropped = self.drop_held(user, device)
        for session in dropped:
            if session.asserted_by:
                if session.lost_at is None:
                    session.seen_at = session.lost_at = now
                session.person.sessions += (session,)
                self._decider.touch(session.person)
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
        for session in () if person is None else person.sessions:
            if session.issued_at < before:
                self._drop(session)
                session.barred = True
                self._close(session, Close.UNAUTHORIZED, "user_deleted")
            else:
                for connection in [c for c in session.connections if c.issued_at < before]:
                    self.gone(connection)
                    connection.end(Close.UNAUTHORIZED, "user_deleted")

    def drop_held(self, user: str, device: str | None, *, unleased: bool | None = None) -> list[HeldSession]:
        """What we hold of this device (None: of all) is held no longer: answers that. `unleased` None: by whatever way."""
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
        session.person.sessions = without(session.person.sessions, session)
        if not session.unleased and session.lost_at is None:
            self._metrics.sessions -= 1

    def end_all(self, code: int, reason: Callable[[], str]) -> None:
        """Close everything, as a node does that stops."""
        for person in self._people:
            for session in person.sessions:
                for connection in session.connections:
                    connection.end(code, reason())

    def let_go_all(self) -> None:
        """Those who did not go though they were told to: nobody will hear of them here any more."""
        for person in self._people:
            for session in person.sessions:
                for connection in session.connections:
                    self.gone(connection, alive=False)

    def assert_again(self) -> None:
        """After a new epoch: everything we hold, under that one."""
        for person in self._people:
            if person.sessions:
                self._decider.touch(person)

    def _fell_silent(self, session: HeldSession, lost_at: int) -> None:
        self._lose(session, lost_at)
        self._close(session, Close.NO_LIFE, "no sign of life")

    def _lose(self, session: HeldSession, lost_at: int) -> None:
        session.lost_at = lost_at
        self._metrics.sessions -= 1
        self._decider.touch(session.person)

    def _close(self, session: HeldSession, code: int, reason: str, *, but: Connection | None = None) -> None:
        connections, session.connections = session.connections, ()
        for connection in connections:
            self._let_go(connection, session.person)
            if connection is not but:
                connection.end(code, reason)
        self._people.release(session.person, self._clock.now())

    def _let_go(self, connection: Connection, person: Person) -> None:
        self._metrics.connections -= 1
        person.outboxes = without(person.outboxes, connection.outbox)
        self._hub.forget(connection.outbox)
        self.on_gone(connection)


def _nothing(connection: Connection) -> None:
    pass
