"""The WebSocket server of a node: decides about opening handshakes, and holds the state shared by all sessions.

A handshake leads to a session, to a close code that browsers can read, or to an HTTP refusal. The server owns the timer
wheel for expired tokens, the pinger, and the queue of closed connections.
"""

from __future__ import annotations

import asyncio
import random
from ipaddress import ip_address
from urllib.parse import parse_qs

import structlog

from herenow.errors import ProtocolError
from herenow.kit.tasks import Tasks
from herenow.kit.wheel import Wheel
from herenow.node import Node
from herenow.settings import Settings
from herenow.transport.auth import SUBPROTOCOL, Auth, Claims, KeysPending, find_token, is_allowed
from herenow.transport.session import ClientSession
from herenow.transport.websocket import (
    Accept,
    CloseOnOpen,
    CloseQueue,
    Handler,
    PendingHandler,
    Pinger,
    Refuse,
    Socket,
    Sockets,
    Upgrade,
)
from herenow.wire.codes import CODES, Close
from herenow.wire.ids import parse_id
from herenow.wire.inputs import parse_platform
from herenow.wire.shapes import WelcomeLimits, error_frame

PATH = "/ws/presence"

COME_BACK = 5_000  # longest reconnect delay (ms) for clients that a full node refuses; random, to spread them

LOOK_AGAIN = 60_000
"""Longest time (ms) between two expiry checks of a session: the wheel holds a closed session until its next check, and a
token may be valid for a day."""

log = structlog.get_logger(__name__)


class WebSocketServer:
    def __init__(self, node: Node, auth: Auth, sockets: Sockets, settings: Settings) -> None:
        self.node = node
        self.auth = auth
        self.tasks = Tasks()
        self.close_queue = CloseQueue()
        self.beat_every = settings.beat_every
        self.limits = WelcomeLimits(settings.max_subscriptions, settings.max_frame, settings.max_bulk)
        self._origins = settings.origins
        self._trusted_proxies = settings.trusted_networks  # proxies whose X-Forwarded-Proto is trusted
        self._sockets = sockets
        self._expiry: Wheel[ClientSession] = Wheel(self._check_expiry)
        self._pinger: Pinger[ClientSession]

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._pinger = Pinger(
            self.beat_every,
            last_life=lambda session: session.last_life / 1000,
            ping=lambda session: session.ping(),
            clock=lambda: self.node.context.clock.now() / 1000,
            call_later=loop.call_later,
        )
        self._pinger.start()
        self.tasks.every(0.25, self._end_expired, "expiry")

    async def stop(self) -> None:
        self._pinger.stop()
        self.close_queue.finish()
        await self.tasks.end()

    async def _end_expired(self) -> None:
        self._expiry.turn(self.node.context.clock.now())

    def _check_expiry(self, session: ClientSession, now: int) -> int | None:
        """End the session if its token has expired. Return the time (ms) of its next expiry check, or None if it needs
        none."""
        expires_at = session.expires_at
        if (
            expires_at is None or session.expiry_check_at is None or now < session.expiry_check_at
        ):  # closed, or a later entry is valid
            return None
        if now >= expires_at:
            session.end(Close.UNAUTHORIZED, "token_expired")
            return None
        session.expiry_check_at = min(expires_at, now + LOOK_AGAIN)
        return session.expiry_check_at

    def _schedule_expiry_check(self, session: ClientSession) -> None:
        """Schedule a check whether the session's token has expired, unless one is scheduled before the token
        expires."""
        expires_at = session.expires_at
        if expires_at is not None and (session.expiry_check_at is None or expires_at < session.expiry_check_at):
            session.expiry_check_at = min(expires_at, self.node.context.clock.now() + LOOK_AGAIN)
            self._expiry.put(session, session.expiry_check_at)

    # Handshakes

    def accept(self, upgrade: Upgrade) -> Accept | Refuse:
        if upgrade.path.rstrip("/") != PATH:
            return Refuse(404, f"There is no WebSocket here; presence is at {PATH}.\n")
        secure = upgrade.secure or self._came_by_tls(upgrade)
        if not is_allowed(upgrade.origin, host=upgrade.host, secure=secure, origins=self._origins):
            self.node.context.metrics.refusals["forbidden_origin"] += 1
            return Refuse(
                403, "Pages of this origin may not connect; the operator can add it to the setting `origins`.\n"
            )
        subprotocol = SUBPROTOCOL if SUBPROTOCOL in upgrade.subprotocols else None
        return Accept(self._handler(upgrade), subprotocol)

    def _came_by_tls(self, upgrade: Upgrade) -> bool:
        """Return True if a trusted proxy reports that the client uses TLS."""
        if upgrade.peer is None or upgrade.header("x-forwarded-proto") != "https":
            return False
        peer = ip_address(upgrade.peer[0])
        return any(peer in network for network in self._trusted_proxies)

    def _handler(self, upgrade: Upgrade) -> Handler:
        if self.node.draining:
            return CloseOnOpen(Close.DRAINING, self.node.retry_after())
        if self._sockets.full or not self.node.ready:
            return CloseOnOpen(Close.OVERLOADED, _retry_after())
        token = find_token(upgrade.header("authorization"), upgrade.query, upgrade.subprotocols)
        try:
            return self._session(upgrade, self.auth.check(token, once=True))
        except KeysPending:
            return PendingHandler(self.tasks, lambda: self._late_handler(upgrade, token))
        except ProtocolError as error:
            return self._close_for(error)

    async def _late_handler(self, upgrade: Upgrade, token: str | None) -> Handler:
        """Wait for public keys that are being read, verify the token, and return the handler of the connection like
        `_handler`."""
        try:
            claims = await self.auth.checked(token, once=True)
        except ProtocolError as error:
            return self._close_for(error)
        if self.node.draining:  # since the handshake
            return CloseOnOpen(Close.DRAINING, self.node.retry_after())
        return self._session(upgrade, claims)

    def _close_for(self, error: ProtocolError) -> CloseOnOpen:
        self.node.context.metrics.refusals[error.code] += 1
        if error.code == "keys_unavailable":  # the token may be valid: the client should retry
            return CloseOnOpen(Close.OVERLOADED, _retry_after())
        return CloseOnOpen(Close.UNAUTHORIZED, error.code)

    def _session(self, upgrade: Upgrade, claims: Claims) -> ClientSession | CloseOnOpen:
        if claims.is_service:
            self.node.context.metrics.refusals["token_of_service"] += 1
            return CloseOnOpen(Close.SERVICE_TOKEN, CODES["token_of_service"].meaning)
        try:
            parameters = _query_parameters(upgrade.query)
            device = parse_id(parameters["device_id"]) if parameters.get("device_id") else None
            platform = parse_platform(parameters.get("platform") or None)
        except ProtocolError as error:
            self.node.context.metrics.refusals[error.code] += 1
            return ErrorThenClose(error)
        return ClientSession(self, claims, device, platform)

    # Methods of `SessionHost`

    def opened(self, session: ClientSession) -> None:
        session.slot = self._pinger.add(session)
        self._schedule_expiry_check(session)
        log.info("connection.opened", **session.described)

    def refreshed(self, session: ClientSession) -> None:
        """Schedule the expiry check of a session with a new token. If it expires later than the old one, nothing
        changes: the scheduled check reads the new time."""
        self._schedule_expiry_check(session)

    def closed(self, session: ClientSession, code: int | None, reason: str) -> None:
        if session.slot >= 0:
            self._pinger.discard(session, session.slot)
            log.info(
                "connection.closed",
                code=None if code is None else int(code),
                reason=reason if reason.isprintable() else ascii(reason),  # from the peer: no control characters
                **session.described,
            )


class ErrorThenClose(CloseOnOpen):
    """A handler that sends one error frame, for an invalid query of the handshake, and closes."""

    __slots__ = ("_frame",)

    def __init__(self, error: ProtocolError) -> None:
        super().__init__(Close.BAD_FRAMES, error.code)
        self._frame = error_frame(error.code, error.message)

    def on_open(self, socket: Socket) -> None:
        socket.send_text(self._frame)
        super().on_open(socket)


def _query_parameters(query: str) -> dict[str, str]:
    """Return the query parameters. Bytes that are not UTF-8 become surrogates, which later checks of ids refuse.

    Raises `ProtocolError` for a repeated `device_id` or `platform`."""
    parameters = parse_qs(query, keep_blank_values=True, errors="surrogateescape")
    for name in ("device_id", "platform"):
        if len(parameters.get(name, ())) > 1:
            raise ProtocolError("bad_shape", f"The parameter {name} is given more than once.")
    return {name: values[0] for name, values in parameters.items()}


def _retry_after() -> str:
    return f"retry_after_ms={random.randint(COME_BACK // 10, COME_BACK)}"
