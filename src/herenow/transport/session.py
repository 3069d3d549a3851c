"""One client's WebSocket session: translates commands into calls of the node, and sends the answers.

`wire` parses frames; the node decides about presence. A heartbeat is handled on arrival. All other commands wait in a queue
per connection, so that answers come in the order of the commands, and no update of a target follows the answer to its
unsubscribe.

Everything that a client sends is paid from the budgets of its connection and its user (`core.limits`). While one of them is
in debt, or many commands wait, nothing is read from the client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from secrets import token_urlsafe
from typing import Protocol, assert_never

import structlog

from herenow.core.limits import (
    CONNECT_COST,
    CONNECTION_BUDGET,
    CREDIT,
    FRAME_COST,
    HEARTBEAT_COST,
    LONGEST_PAUSE,
    MOST_AT_ONCE,
    size_cost,
)
from herenow.core.model import Platform
from herenow.errors import HerenowError, ProtocolError, Unavailable, UnknownOutcome
from herenow.kit.tasks import Tasks
from herenow.node import Node
from herenow.node.people import Connection
from herenow.node.viewing import Granted
from herenow.transport.auth import Auth, Claims
from herenow.transport.websocket import CloseQueue, Pause, Socket
from herenow.wire.codes import CODES, Close
from herenow.wire.decode import BEATS
from herenow.wire.frames import (
    Active,
    Away,
    Bye,
    Command,
    FrameId,
    HeartbeatCommand,
    Refresh,
    RoomClose,
    RoomOpen,
    SetPresence,
    Subscribe,
    TypingCommand,
    Unsubscribe,
)
from herenow.wire.inputs import Activity
from herenow.wire.peer import Peer, Rejection
from herenow.wire.shapes import (
    WelcomeLimits,
    dated_statuses_frame,
    denied_frame,
    denied_list_frame,
    error_frame,
    ok_frame,
    status_frame,
    unsubscribed_frame,
    welcome_frame,
)

MAX_WAITING = 32  # commands of one connection that may wait; then nothing is read until half of them are answered
MAX_WAITING_BYTES = 262_144  # the same limit in bytes of the commands' frames
AT_ONCE = 16  # commands of one connection that are answered in one iteration of the event loop

WELCOME_WITHIN = 1.0  # most seconds that the welcome waits for the user's record, which has their `idle_after`

log = structlog.get_logger(__name__)


class SessionHost(Protocol):
    """State that all sessions share, and their callbacks; implemented by `server.WebSocketServer`."""

    node: Node
    auth: Auth
    tasks: Tasks
    close_queue: CloseQueue
    beat_every: float
    limits: WelcomeLimits

    def opened(self, session: ClientSession) -> None:
        """Called when the node has accepted the connection of this session."""

    def refreshed(self, session: ClientSession) -> None:
        """Called when the session has got a new token; its `expires_at` may be earlier than before."""

    def closed(self, session: ClientSession, code: int | None, reason: str) -> None:
        """Called when the connection is gone, also for sessions without `opened`. `code`: close code; None if it ended
        without one."""


class ClientSession:
    """A `Handler` for one authenticated connection."""

    __slots__ = (
        "_connection",
        "_credit",
        "_device",
        "_ended_by_us",
        "_expires_at",
        "_full_at",
        "_host",
        "_issued_at",
        "_left_at",
        "_paused_by",
        "_peer",
        "_platform",
        "_socket",
        "_user",
        "_waiting",
        "_waiting_bytes",
        "_working",
        "expiry_check_at",
        "slot",
    )

    def __init__(self, host: SessionHost, claims: Claims, device: str | None, platform: Platform) -> None:
        self._host = host
        # Only these claims are needed later; the others are not kept.
        self._user = claims.user
        self._issued_at = claims.issued_at_ms
        self._expires_at = claims.expires_at_ms
        self._device = device
        self._platform = platform
        self._peer = Peer()
        self._socket: Socket
        self._connection: Connection | None = None
        self._waiting: deque[tuple[Command | Rejection | None, int]] | None = None  # with the bytes of its frame
        self._waiting_bytes = 0
        self._working = False
        self._credit = CREDIT  # cost that may be used before the next payment
        self._full_at = 0  # when the budget of this connection is full again (ms)
        self._paused_by: asyncio.TimerHandle | None = None  # ends the pause of a client in debt
        self._ended_by_us = False
        self._left_at: int | None = None  # when the peer's CLOSE or FIN was read (ms)
        self.slot = -1  # slot in the pinger; -1 before `opened`
        self.expiry_check_at: int | None = None  # time (ms) of the next expiry check; other wheel entries are ignored

    # Methods of `Handler`

    def on_open(self, socket: Socket) -> None:
        self._socket = socket
        if self._host.auth.is_void(self._user, self._issued_at):  # revoked since the handshake
            self.end(Close.UNAUTHORIZED, "token_revoked")
            return
        try:
            try:
                self._connection = self._connect(socket)
            except ProtocolError:
                self._host.close_queue.finish()  # closed connections of the user may wait there and still count
                self._connection = self._connect(socket)
        except ProtocolError as error:
            self._host.node.context.metrics.refusals[error.code] += 1
            self.end(Close.TOO_MANY_CONNECTIONS, error.message)
            return
        self._user = self._connection.user  # the shared string object, to save memory
        self._host.opened(self)
        self._host.node.context.budgets.spend(self._user, CONNECT_COST)
        self._do_later(None)

    def _connect(self, socket: Socket) -> Connection:
        return self._host.node.sessions.connect(
            self._user,
            self._device,
            self._platform,
            send=socket.send_text,
            end=self.end,
            abort=self._stuck,
            issued_at=self._issued_at or 0,
        )

    def on_text(self, payload: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            activity = BEATS[payload]
        except KeyError:
            self._on_command(connection, payload)
        else:
            self._host.node.sessions.beat(connection.session, activity)
            self._credit -= HEARTBEAT_COST
            if self._credit < 0:
                self._pay()

    def _on_command(self, connection: Connection, payload: bytes) -> None:
        node, size = self._host.node, len(payload)
        command = self._peer.receive(payload, node.context.clock.now(), self._host.limits.bulk)
        if isinstance(command, HeartbeatCommand):  # with an id or in an unusual spelling: not in BEATS
            node.sessions.beat(connection.session, command.activity)
            if command.id is not None:
                self._do_later(command, size)
        else:
            node.sessions.alive(connection.session)
            self._do_later(command, size)
        self._spend(FRAME_COST + size_cost(size))

    def on_binary(self) -> None:
        if self._connection is not None:
            self.on_sign_of_life()
            self._do_later(self._peer.binary(self._host.node.context.clock.now()))

    def on_other_frame(self, size: int) -> None:
        if self._connection is not None:
            self._spend(FRAME_COST + size_cost(size))

    def on_sign_of_life(self) -> None:
        if self._connection is not None:
            self._host.node.sessions.alive(self._connection.session)

    def on_pause(self) -> None:
        if self._connection is not None:
            self._host.node.delivery.pause(self._connection.outbox)

    def on_resume(self) -> None:
        if self._connection is not None:
            self._host.node.delivery.resume(self._connection.outbox)
            self._start_work()

    def on_leaving(self) -> None:
        self._left_at = self._host.node.context.clock.now()

    def on_closed(self, code: int | None, reason: str) -> None:
        connection, self._connection = self._connection, None
        self._host.node.context.budgets.spend(self._user, CREDIT - self._credit)
        self._credit = CREDIT
        if self._paused_by is not None:
            self._paused_by.cancel()
            self._paused_by = None
        if self._left_at is None:
            self._left_at = self._host.node.context.clock.now()
        alive, self._ended_by_us = not self._ended_by_us, True  # later calls of `end` do nothing
        self._host.close_queue.take(lambda: self._depart(connection, code, reason, alive=alive))

    def _depart(self, connection: Connection | None, code: int | None, reason: str, *, alive: bool) -> None:
        self._host.closed(self, code, reason)
        if connection is not None:
            # A FIN, an RST or a CLOSE of the peer is a sign of life; a close by the server is not.
            self._host.node.sessions.gone(connection, alive=alive, left_at=self._left_at)

    # Closing by the server

    def end(self, code: int, reason: str) -> None:
        if self._ended_by_us:
            return  # the first reason counts
        self._ended_by_us = True
        self._host.node.context.metrics.closes[code] += 1
        self._socket.close(code, reason)

    def _stuck(self) -> None:
        """Abort the connection, because the peer has not read for too long."""
        self._ended_by_us = True
        self._host.node.context.metrics.closes[Close.NO_LIFE] += 1
        self._socket.abort()

    @property
    def expires_at(self) -> int | None:
        """When the session's token expires (epoch ms); None if the connection is closed."""
        return None if self._connection is None else self._expires_at

    @property
    def last_life(self) -> int:
        connection = self._connection
        return 0 if connection is None else connection.session.seen_at

    def ping(self) -> None:
        self._socket.ping()

    @property
    def described(self) -> dict[str, str]:
        """User and device of the session, as fields for log lines."""
        return {"user": self._user, "device": self._device or "-"}

    # The budget

    def _spend(self, cost: int) -> None:
        self._credit -= cost
        if self._credit < 0:
            self._pay()

    def _pay(self) -> None:
        """Take the used credit from the budgets of the connection and the user, and pause reading if one is in debt."""
        context, used = self._host.node.context, CREDIT - self._credit
        self._credit, now = CREDIT, context.clock.now()
        self._full_at, wait = CONNECTION_BUDGET.spend(self._full_at, now, used)
        user_wait = context.budgets.spend(self._user, used)
        if self._paused_by is not None:
            return
        if wait or user_wait:
            context.metrics.reading_pauses["connection" if wait else "user"] += 1
            self._socket.pause_reading(Pause.BUDGET)
            seconds = min(max(wait, user_wait), LONGEST_PAUSE) / 1000
            self._paused_by = asyncio.get_running_loop().call_later(seconds, self._end_pause)
        elif self._full_at - now > MOST_AT_ONCE:
            self._socket.pause_reading(Pause.ITERATION)
            self._socket.resume_reading(Pause.ITERATION)

    def _end_pause(self) -> None:
        self._paused_by = None
        self._socket.resume_reading(Pause.BUDGET)
        self._start_work()

    # Commands

    def _reject(self, rejection: Rejection) -> None:
        self._host.node.context.metrics.refusals[rejection.code] += 1
        self._send(rejection.frame)
        if rejection.close is not None:
            self.end(rejection.close, "too many malformed frames")

    def _do_later(self, command: Command | Rejection | None, size: int = 0) -> None:
        """Queue a command, a rejection of an invalid frame, or None for the welcome frame, which comes first. They are
        processed in order. `size`: bytes of the frame. Pauses reading if too many wait."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((command, size))
        self._waiting_bytes += size
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            self._host.node.context.metrics.reading_pauses["commands"] += 1
            self._socket.pause_reading(Pause.COMMANDS)
        self._start_work()

    def _start_work(self) -> None:
        """Start to answer the commands that wait, unless they are being answered or must wait."""
        if self._waiting and not self._working and self._may_answer:
            self._working = True
            self._host.tasks.spawn(self._work(), "commands")

    @property
    def _may_answer(self) -> bool:
        """False while the client is in debt, or does not read its answers."""
        return self._paused_by is None and (self._connection is None or self._connection.outbox.paused_at is None)

    async def _work(self) -> None:
        answered = 0
        try:
            # After a close by the server, waiting commands are dropped: their answers could not be sent.
            while self._waiting and self._connection is not None and not self._ended_by_us:
                if not self._may_answer:
                    return
                answered += 1
                if answered % AT_ONCE == 0:
                    await asyncio.sleep(0)
                    continue
                command = self._next_command(self._waiting)
                if command is None:
                    await self._welcome(self._connection)
                elif isinstance(command, Rejection):
                    self._reject(command)
                else:
                    await self._answer(self._connection, command)
            self._waiting = None
        finally:
            self._working = False

    def _next_command(self, waiting: deque[tuple[Command | Rejection | None, int]]) -> Command | Rejection | None:
        command, size = waiting.popleft()
        self._waiting_bytes -= size
        self.on_sign_of_life()  # reading may be paused because commands wait: the client's heartbeats are not read then
        if len(waiting) <= MAX_WAITING // 2 and self._waiting_bytes <= MAX_WAITING_BYTES // 2:
            self._socket.resume_reading(Pause.COMMANDS)
        return command

    async def _welcome(self, connection: Connection) -> None:
        node = self._host.node
        try:
            async with asyncio.timeout(WELCOME_WITHIN):
                presence = await node.records.wait_decided(connection.user)
        except (HerenowError, TimeoutError):
            presence = connection.session.person.record.presence
        if self._connection is None:
            return
        idle_after = node.context.timings.idle_after if presence.idle_after is None else presence.idle_after
        self._socket.send_text(
            welcome_frame(
                user_id=connection.user,
                device_id=connection.session.device,
                session_id=token_urlsafe(9),
                beat_every=self._host.beat_every,
                idle_after=idle_after / 1000,
                server_time=node.context.clock.now(),
                limits=self._host.limits,
            )
        )
        connection.welcomed = True
        if connection.session.asserted:
            node.sessions.greet(connection.session)

    async def _answer(self, connection: Connection, command: Command) -> None:
        try:
            await self._do(connection, command)
        except ProtocolError as error:
            self._refuse(error.code, error.message, command.id)
        except Unavailable as error:
            self._refuse("unavailable", str(error), command.id)
        except UnknownOutcome:
            self._refuse(
                "unknown_outcome",
                "There was no answer in time; the outcome is unknown: read before you retry.",
                command.id,
            )
        except Exception:
            # A bug in one command must not stop the commands after it.
            log.error("command.failed", command=type(command).__name__, exc_info=True)
            self._refuse("internal", "Internal error; the server's log has the details.", command.id)

    async def _do(self, connection: Connection, command: Command) -> None:  # noqa: C901 - a table of verbs
        node, stale = self._host.node, False
        match command:
            case Subscribe():
                await self._subscribe(connection, command)
                return
            case Unsubscribe():
                await self._unsubscribe(connection, command)
                return
            case Bye():
                await self._bye(connection, command.id)
                return
            case HeartbeatCommand():
                pass  # handled on arrival; only its answer is sent here, in order
            case Active():
                node.sessions.act(connection.session, Activity.ACTIVE)
            case Away():
                node.sessions.act(connection.session, Activity.IDLE)
            case SetPresence():
                stale = await self._set(connection, command)
            case TypingCommand():
                node.sessions.act(connection.session, Activity.ACTIVE)
                await node.viewing.type(connection, command.to, command.room, typing=command.typing)
            case RoomOpen():
                await node.viewing.open_room(connection, command.room)
            case RoomClose():
                node.viewing.close_room(connection, command.room)
            case Refresh():
                await self._refresh(connection, command)
            case _:
                assert_never(command)
        if command.id is not None:
            self._send(ok_frame(command.id, stale=stale))

    async def _subscribe(self, connection: Connection, command: Subscribe) -> None:
        viewing = self._host.node.viewing
        if command.contacts:
            granted = await viewing.subscribe_contacts(connection.outbox)
        else:
            granted = await viewing.subscribe(connection.outbox, command.targets)
        if connection.outbox.closed:
            return  # signed out meanwhile: nothing was granted
        granted.denied.extend(command.invalid)
        if command.single:
            self._send(_single(granted, command.id))
            return
        self._send(dated_statuses_frame(granted.statuses, command.id))
        if granted.denied:
            self._send(denied_list_frame(granted.denied, command.id))

    async def _unsubscribe(self, connection: Connection, command: Unsubscribe) -> None:
        viewing, targets = self._host.node.viewing, list(command.targets)
        if command.contacts:
            targets = await viewing.unsubscribe_contacts(connection.outbox)
        else:
            viewing.unsubscribe(connection.outbox, targets)
        if targets or not command.invalid:
            self._send(unsubscribed_frame(targets, command.id))
        if command.invalid:
            first, _ = command.invalid[0]
            message = f"{len(command.invalid)} of these are not user ids; the first is {first!r}."
            raise ProtocolError("invalid_user_id", message)

    async def _set(self, connection: Connection, command: SetPresence) -> bool:
        """Set the user's mode, custom status or both. Returns True if the store gets them later (`Chosen.stale`)."""
        sessions, user = self._host.node.sessions, connection.user
        saved = command.id is not None  # without an answer there is no need to wait for the ledger
        if command.mode is not None and command.has_custom:
            chosen = await sessions.set_both(user, command.mode, command.until, command.custom, saved=saved)
        elif command.mode is not None:
            chosen = await sessions.set_mode(user, command.mode, command.until, saved=saved)
        else:
            chosen = await sessions.set_custom(user, command.custom, saved=saved)
        return chosen.stale

    async def _bye(self, connection: Connection, frame_id: FrameId) -> None:
        await self._host.node.sessions.sign_out(connection.user, connection.session.device, but=connection)
        if frame_id is not None:
            self._send(ok_frame(frame_id))
        self.end(Close.NORMAL, "signed out")

    async def _refresh(self, connection: Connection, command: Refresh) -> None:
        claims = await self._host.auth.checked(command.token, once=True)
        if claims.user != self._user:
            raise ProtocolError("token_other_user", "The new token is for another user than this connection.")
        if claims.is_service:
            raise ProtocolError("token_of_service", CODES["token_of_service"].meaning)
        self._host.node.sessions.refreshed(connection, claims.issued_at_ms or 0)
        self._issued_at, self._expires_at = claims.issued_at_ms, claims.expires_at_ms
        self._host.refreshed(self)

    def _refuse(self, code: str, message: str, frame_id: FrameId) -> None:
        self._host.node.context.metrics.refusals[code] += 1
        self._send(error_frame(code, message, frame_id))

    def _send(self, frame: bytes) -> None:
        if self._connection is not None:
            self._socket.send_text(frame)
            self._spend(size_cost(len(frame)))


def _single(granted: Granted, frame_id: FrameId) -> bytes:
    if granted.denied:
        target, reason = granted.denied[0]
        return denied_frame(target, reason, frame_id)
    body, as_of = granted.statuses[0]
    return status_frame(body, as_of, frame_id)
