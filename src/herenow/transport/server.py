"""The WebSocket server of a node: decides what an opening handshake leads to, and holds what all sessions share.

A handshake leads to a client's session, to a close code that a browser can read, or to a plain HTTP refusal. The server
owns the wheel that ends sessions whose token has expired, the pinger, and the queue of closed connections.
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
from herenow.wire.codes import Close
from herenow.wire.ids import parse_id
from herenow.wire.inputs import parse_platform
from herenow.wire.shapes import WelcomeLimits, error_frame

PATH = "/ws/presence"

COME_BACK = 5_000
"""Milliseconds over which those are spread that a full node sends away."""

LOOK_AGAIN = 60_000
"""Milliseconds after which the wheel looks at a token at the latest: it keeps who has gone until then, and a token may be
good for a day."""

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
        self._trusted_proxies = settings.trusted_networks
        """Proxies that are believed how a browser reached them."""
        self._sockets = sockets
        self._expiry: Wheel[ClientSession] = Wheel(self._look)
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

    def _look(self, session: ClientSession, now: int) -> int | None:
        """Has its token expired? When to look again; None: not by this entry."""
        expires_at = session.expires_at
        if expires_at is None or session.look_at is None or now < session.look_at:  # gone, or another entry counts
            return None
        if now >= expires_at:
            session.end(Close.UNAUTHORIZED, "token_expired")
            return None
        session.look_at = min(expires_at, now + LOOK_AGAIN)
        return session.look_at

    def _look_in_time(self, session: ClientSession) -> None:
        """One entry per session counts; another is put there only where it must come sooner."""
        expires_at = session.expires_at
        if expires_at is not None and (session.look_at is None or expires_at < session.look_at):
            session.look_at = min(expires_at, self.node.context.clock.now() + LOOK_AGAIN)
            self._expiry.put(session, session.look_at)

    # Handshakes

    def accept(self, upgrade: Upgrade) -> Accept | Refuse:
        if upgrade.path.rstrip("/") != PATH:
            return Refuse(404, f"There is no WebSocket here; presence is at {PATH}.\n")
        secure = upgrade.secure or self._came_by_tls(upgrade)
        if not is_allowed(upgrade.origin, host=upgrade.host, secure=secure, origins=self._origins):
            self.node.context.metrics.refusals["forbidden_origin"] += 1
            return Refuse(403, "Pages of this origin may not connect; the operator can name it in `origins`.\n")
        subprotocol = SUBPROTOCOL if SUBPROTOCOL in upgrade.subprotocols else None
        return Accept(self._handler(upgrade), subprotocol)

    def _came_by_tls(self, upgrade: Upgrade) -> bool:
        """A proxy we trust says that it ended TLS for us."""
        if upgrade.peer is None or upgrade.header("x-forwarded-proto") != "https":
            return False
        peer = ip_address(upgrade.peer[0])
        return any(peer in network for network in self._trusted_proxies)

    def _handler(self, upgrade: Upgrade) -> Handler:
        if self.node.draining:
            return CloseOnOpen(Close.DRAINING, self.node.retry_after())
        if self._sockets.full or not self.node.ready:
            return CloseOnOpen(Close.OVERLOADED, _come_back())
        token = find_token(upgrade.header("authorization"), upgrade.query, upgrade.subprotocols)
        try:
            return self._session(upgrade, self.auth.check(token, once=True))
        except KeysPending:
            return PendingHandler(self.tasks, lambda: self._late_handler(upgrade, token))
        except ProtocolError as error:
            return self._turned_away(error)

    async def _late_handler(self, upgrade: Upgrade, token: str | None) -> Handler:
        """Who it is depends on keys that are being read."""
        try:
            claims = await self.auth.checked(token, once=True)
        except ProtocolError as error:
            return self._turned_away(error)
        if self.node.draining:  # meanwhile
            return CloseOnOpen(Close.DRAINING, self.node.retry_after())
        return self._session(upgrade, claims)

    def _turned_away(self, error: ProtocolError) -> CloseOnOpen:
        self.node.context.metrics.refusals[error.code] += 1
        if error.code == "keys_unavailable":  # nothing is wrong with the token, as far as we know
            return CloseOnOpen(Close.OVERLOADED, _come_back())
        return CloseOnOpen(Close.UNAUTHORIZED, error.code)

    def _session(self, upgrade: Upgrade, claims: Claims) -> ClientSession | CloseOnOpen:
        try:
            asked = _asked(upgrade.query)
            device = parse_id(asked["device_id"]) if asked.get("device_id") else None
            platform = parse_platform(asked.get("platform") or None)
        except ProtocolError as error:
            self.node.context.metrics.refusals[error.code] += 1
            return ErrorThenClose(error)
        return ClientSession(self, claims, device, platform)

    # What sessions tell

    def opened(self, session: ClientSession) -> None:
        session.slot = self._pinger.add(session)
        self._look_in_time(session)
        log.info("connection.opened", **session.described)

    def refreshed(self, session: ClientSession) -> None:
        """A later end needs nothing: the wheel asks when the old one has come."""
        self._look_in_time(session)

    def closed(self, session: ClientSession, code: int | None, reason: str) -> None:
        if session.slot >= 0:
            self._pinger.discard(session, session.slot)
            log.info(
                "connection.closed",
                code=None if code is None else int(code),
                reason=reason if reason.isprintable() else ascii(reason),  # the peer's words, for a terminal
                **session.described,
            )


class ErrorThenClose(CloseOnOpen):
    """A handler that sends one error frame, for what is wrong with the query of the handshake, and closes."""

    __slots__ = ("_frame",)

    def __init__(self, error: ProtocolError) -> None:
        super().__init__(Close.BAD_FRAMES, error.code)
        self._frame = error_frame(error.code, error.message)

    def on_open(self, socket: Socket) -> None:
        socket.send_text(self._frame)
        super().on_open(socket)


def _asked(query: str) -> dict[str, str]:
    """The parameters of a handshake, each once. Bytes that are no UTF-8 become surrogates, which no id has: refused, not
    repaired."""
    parameters = parse_qs(query, keep_blank_values=True, errors="surrogateescape")
    for name in ("device_id", "platform"):
        if len(parameters.get(name, ())) > 1:
            raise ProtocolError("bad_shape", f"The parameter {name} stands in the address more than once.")
    return {name: values[0] for name, values in parameters.items()}


def _come_back() -> str:
    return f"retry_after_ms={random.randint(COME_BACK // 10, COME_BACK)}"
