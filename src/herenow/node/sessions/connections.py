"""Sessions with sockets on this node: connect, heartbeat, activity, loss, sign-out.

A heartbeat only writes two time stamps in memory. A decision is requested only for changes of the record: a new session, a
device that becomes active or idle, a loss, a sign-out.
"""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_urlsafe
from typing import Protocol

from herenow.core.edits import sign_out
from herenow.core.model import Idle, Platform, Presence
from herenow.core.settle import Timings
from herenow.errors import ProtocolError
from herenow.node.context import Context
from herenow.node.deadlines import CLOCK_SKEW
from herenow.node.delivery import Delivery
from herenow.node.people import Connection, LocalSession, Outbox, without
from herenow.node.records import Records
from herenow.node.sessions.liveness import LivenessMonitor
from herenow.settings import milliseconds
from herenow.wire.codes import Close
from herenow.wire.inputs import Activity

_ACTIVE = Idle.NO  # looking up an enum attribute is slow


class ConnectionEvents(Protocol):
    """Implemented by `viewing`."""

    def on_connection_closed(self, connection: Connection) -> None:
        """Called when the connection was removed from this node."""


class Connections:
    def __init__(self, context: Context, records: Records, delivery: Delivery, liveness: LivenessMonitor) -> None:
        self._people = context.people
        self._authority = context.authority
        self._clock = context.clock
        self._timings = context.timings
        self._metrics = context.metrics
        self._beat_min = milliseconds(context.settings.beat_min)
        self._max_connections = context.settings.max_connections_per_user
        self._records, self._delivery = records, delivery
        self._liveness = liveness
        self._listeners: list[ConnectionEvents] = []

    def subscribe(self, listener: ConnectionEvents) -> None:
        self._listeners.append(listener)

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
        """Add a connection of a device, and a session if the device has none here. `send`, `end` and `abort` send bytes
        on the socket, close it with a code and a reason, or cut it. `issued_at`: when the token was issued (ms); None:
        now. Raises `ProtocolError` (too_many_connections)."""
        person = self._people.get(user)
        if len(person.watchers.outboxes) >= self._max_connections:
            raise ProtocolError(
                "too_many_connections", f"A user may have {self._max_connections} connections to one node."
            )
        device = device or token_urlsafe(6)
        now = self._clock.now()
        session, again_at = person.session(device), 0
        if session is None:
            session = LocalSession(person, device, platform, since=now, seen_at=now)
            person.held += (session,)
            self._metrics.sessions += 1
            self._liveness.check_by(session, now + self._timings.dead_after)
        elif not self._authority.may_decide(person.shard):
            again_at = now
        session.seen_at = now
        connection = Connection(session, Outbox(person.user, send, abort), end, now, again_at)
        self.refreshed(connection, now if issued_at is None else issued_at)
        session.connections += (connection,)
        self._delivery.add_outbox(person, connection.outbox)
        self._metrics.connections += 1
        self._records.mark_dirty(person)
        return connection

    def refreshed(self, connection: Connection, issued_at: int) -> None:
        """Record the issue time (ms) of the token that the client has just presented on this connection."""
        connection.issued_at = issued_at
        connection.session.issued_at = max(connection.session.issued_at, issued_at)

    def on_committed(self, session: LocalSession) -> None:
        committed = session.in_record(self._authority.epoch)
        if committed is None or committed.idle is not _ACTIVE:
            session.fresh_until = 0
        else:
            session.fresh_until = self._liveness.fresh_until(session, committed)
            self._liveness.check_by(session, session.fresh_until)
        self.greet(session)

    def greet(self, session: LocalSession) -> None:
        """Send the user's own view (`presence.self`), now and after each change, to the session's connections that have
        got the welcome frame."""
        for connection in session.connections:
            if connection.welcomed:
                self._delivery.join_own(connection.outbox, session.person)

    def gone(self, connection: Connection, *, alive: bool = True, left_at: int | None = None) -> None:
        """Remove a connection with a closed socket; if it was the last one of its session, the session is lost.
        `alive`: the close was a sign of life (FIN, RST). `left_at`: when the close was read (ms), which is earlier than
        now if thousands close at once."""
        session = connection.session
        if connection not in session.connections:
            return
        person = session.person
        session.connections = without(session.connections, connection)
        self._remove(connection)
        lost_at = now = self._clock.now()
        if alive:  # `seen_at` may be later, because of other connections
            lost_at = session.seen_at = now if left_at is None else max(left_at, session.seen_at)
        if not session.connections and session in person.held and session.lost_at is None:
            # Data that was read after the process was suspended may have arrived long before.
            session.seen_at = max(session.since, self._liveness.arrived_by(session.seen_at))
            self._lose(session, lost_at)
        self._people.release(person)

    def on_loss_committed(self, session: LocalSession) -> None:
        if session in session.person.held:
            session.person.held = without(session.person.held, session)

    def on_ended(self, session: LocalSession, why: str) -> None:
        if session not in session.person.held:
            return
        session.person.held = without(session.person.held, session)
        if session.lost_at is not None:
            return
        if not session.unleased:
            self._metrics.sessions -= 1
        if why == "refused":
            self._close(session, Close.TOO_MANY_CONNECTIONS, "too many sessions")
        else:
            if again := self._connected_again(session):
                self._move_to_new_session(session, again)
            self._close(session, Close.SIGNED_OUT, "signed out")

    def _connected_again(self, session: LocalSession) -> tuple[Connection, ...]:
        """Return those connections of a signed-out session that arrived after the sign-out, while this node could not
        commit and did not know of it."""
        presence = session.person.record.presence
        times = [n.at for n in presence.signed_out if (n.device, n.holder) == (session.device, session.asserted_by)]
        signed_out_at = max(times, default=presence.version)
        for before, connection in enumerate(session.connections):
            if connection.again_at > signed_out_at + CLOCK_SKEW:
                return session.connections[before:]  # they are in order of arrival
        return ()

    def _move_to_new_session(self, session: LocalSession, connections: tuple[Connection, ...]) -> None:
        """Move these connections into a new session of the same device."""
        session.connections = session.connections[: -len(connections)]
        moved = LocalSession(
            session.person,
            session.device,
            session.platform,
            since=connections[0].again_at,
            seen_at=session.seen_at,
            connections=connections,
        )
        for connection in connections:
            connection.session = moved
            self.refreshed(connection, connection.issued_at)
        session.person.held += (moved,)
        self._metrics.sessions += 1
        self._liveness.check_by(moved, moved.seen_at + self._timings.dead_after)
        self._records.mark_dirty(session.person)

    # Life and activity

    def alive(self, session: LocalSession) -> None:
        session.seen_at = self._clock.now()

    def beat(self, session: LocalSession, activity: Activity | None) -> bool:
        """Record a heartbeat of the session, with activity if given. Returns False if it came sooner than `beat_min`
        after the last one; it is a sign of life all the same."""
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

    def act(self, session: LocalSession, activity: Activity) -> None:
        now = self._clock.now()
        session.seen_at = now
        self.note_activity(session, activity, now)

    def note_activity(self, session: LocalSession, activity: Activity, now: int) -> None:
        """Set the session active or idle as of `now` (ms), and request a commit if the record must change. Leaves
        `seen_at` as it is: activity on an unknown device is no sign of life of this one."""
        if activity is Activity.ACTIVE:
            session.active_at = now
            session.idle = False
            if now >= session.fresh_until or session.person.record.deciding:
                self._records.mark_dirty(session.person)
        else:
            # The record may have activity from elsewhere.
            news = not session.idle or session.fresh_until > 0
            session.idle = True
            session.idle_at = now
            if news:
                self._records.mark_dirty(session.person)

    # Leaving

    async def sign_out(self, user: str, device: str, *, but: Connection | None = None) -> bool:
        """End all sessions of a device, on all nodes, without grace. Returns True if there were any. `but`: the
        connection that requested it, which closes itself."""
        was_there = self.drop(user, device, but=but)
        end = sign_out(device, (self._authority.epoch,))

        def edit(presence: Presence, now: int, timings: Timings) -> Presence:
            nonlocal was_there
            was_there = was_there or any(s.device == device for s in presence.sessions)
            return end(presence, now, timings)

        await self._records.apply(user, edit)
        return was_there

    def drop(self, user: str, device: str | None = None, *, but: Connection | None = None) -> bool:
        """Close the sessions of a user, or of one device, on this node; returns True if there were any. The caller
        signs them out in the record. In case that fails, committed sessions stay here as lost, so that last seen
        becomes right; so do others while nothing can be committed. `but`: a connection that closes itself."""
        now = self._clock.now()
        dropped = self.drop_held(user, device)
        for session in dropped:
            if session.asserted_by or self._cannot_commit(session):
                if session.lost_at is None:
                    session.seen_at = session.lost_at = now
                session.person.held += (session,)
                self._records.note_end(session)
                self._records.mark_dirty(session.person)
            self._close(session, Close.SIGNED_OUT, "signed out", but=but)
        return bool(dropped)

    def _cannot_commit(self, session: LocalSession) -> bool:
        shard = session.person.shard
        return not self._authority.may_decide(shard) or shard in self._authority.outages.failing

    def end_void(self, user: str, before: int, reason: str = "token_revoked") -> None:
        """Close the user's connections with a token that was issued before `before` (ms); their sessions go into
        grace, and so do sessions by REST heartbeats with such a token. One by heartbeats of a service goes on with the
        next heartbeat."""
        person = self._people.find(user)
        for session in () if person is None else person.held:
            if session.unleased and session.lost_at is None and session.issued_at < before:
                session.lost_at = self._clock.now()
                self._records.mark_dirty(session.person)
            for connection in [c for c in session.connections if c.issued_at < before]:
                connection.end(Close.UNAUTHORIZED, reason)

    def drop_void(self, user: str, before: int) -> None:
        """Close a deleted user's connections with a token that was issued before `before` (ms), and remove the user's
        sessions that have no later token."""
        person = self._people.find(user)
        for session in () if person is None else person.held:
            if session.issued_at < before:
                self._drop(session)
                session.ended_by_deletion = True
                self._close(session, Close.UNAUTHORIZED, "user_deleted")
            else:
                for connection in [c for c in session.connections if c.issued_at < before]:
                    self.gone(connection)
                    connection.end(Close.UNAUTHORIZED, "user_deleted")

    def drop_held(self, user: str, device: str | None, *, unleased: bool | None = None) -> list[LocalSession]:
        """Remove and return the sessions of a device (None: of all devices) on this node, without closing sockets.
        `unleased`: True: only REST sessions; False: only others; None: both."""
        person = self._people.find(user)
        if person is None:
            return []
        dropped = [
            s for s in person.held if device in (None, s.device) and (unleased is None or s.unleased is unleased)
        ]
        for session in dropped:
            self._drop(session)
        return dropped

    def _drop(self, session: LocalSession) -> None:
        session.person.held = without(session.person.held, session)
        if not session.unleased and session.lost_at is None:
            self._metrics.sessions -= 1

    def end_all(self, code: int, reason: Callable[[], str]) -> None:
        for person in self._people:
            for session in person.held:
                for connection in session.connections:
                    connection.end(code, reason())

    def let_go_all(self) -> None:
        """Treat all connections that are still open as closed, without a sign of life. Call when the node stops."""
        for person in self._people:
            for session in person.held:
                for connection in session.connections:
                    self.gone(connection, alive=False)

    def assert_again(self) -> None:
        """Request that all sessions of this node are committed. Call when the node has a new epoch."""
        for person in self._people:
            if person.held:
                self._records.mark_dirty(person)

    def on_silent(self, session: LocalSession, lost_at: int) -> None:
        self._lose(session, lost_at)
        self._close(session, Close.NO_LIFE, "no sign of life")

    def _lose(self, session: LocalSession, lost_at: int) -> None:
        session.lost_at = lost_at
        self._metrics.sessions -= 1
        self._records.note_end(session)
        self._records.mark_dirty(session.person)

    def _close(self, session: LocalSession, code: int, reason: str, *, but: Connection | None = None) -> None:
        connections, session.connections = session.connections, ()
        for connection in connections:
            self._remove(connection)
            if connection is not but:
                connection.end(code, reason)
        self._people.release(session.person)

    def _remove(self, connection: Connection) -> None:
        self._metrics.connections -= 1
        self._delivery.forget(connection.outbox)
        for listener in self._listeners:
            listener.on_connection_closed(connection)
