"""A whole node with its WebSocket server and HTTP application in one process, under simulated time, without a network.

`Wire`, `Answer` and `Tap` hold the bytes that a client would get over a WebSocket, a request or an event stream, made by
the server's own code.
"""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from starlette.types import Message, Receive, Send

from herenow.api.application import make_app
from herenow.core.limits import Rate
from herenow.core.record import EPOCH_BYTES
from herenow.core.settle import Timings
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.kit.clock import NodeClock
from herenow.node import Node, make_context
from herenow.ports import RelationRow
from herenow.settings import Settings
from herenow.transport.auth import Auth, mint
from herenow.transport.http import PIPE, PipeWriter
from herenow.transport.server import PATH, WebSocketServer
from herenow.transport.websocket import Accept, Handler, Pause, Sockets, Upgrade
from herenow.wire.inputs import SERVICE
from herenow_testing.world.manual_clock import START, LoopClock
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.settings import node_settings

SECRET = "the secret of the twins, which is long enough"  # noqa: S105
TIMINGS = Timings(idle_after=60_000, dead_after=40_000, grace=10_000)
SETTINGS = node_settings(timings=TIMINGS, beat_every=20.0, polling=Rate(every=0, burst=1), embedded=False)
SHARDS = 4
LEDGER_DELAY = 0.003
"""Seconds that each read and write of blocks and preferences takes, as in a database: hiding must not show that it is
written. Other calls answer at once, so that timers of viewers end when a probe begins."""


class Stage:
    """One node with empty stores. A subclass may configure `node` in its constructor, before `start`."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        loop = asyncio.get_running_loop()
        rng = Random("twins")
        self.clock = LoopClock()
        self._ledger = MemoryLedger()
        context = make_context(
            MemoryEngine(MemoryStore(SHARDS, clock=self.clock.now)),
            self._ledger,
            settings,
            clock=NodeClock(START + round(loop.time() * 1000), monotonic=loop.time),
            make_epoch=lambda: urlsafe_b64encode(rng.randbytes(EPOCH_BYTES)).decode(),
        )
        self.node = Node(context)
        sockets = Sockets(10_000)
        auth = Auth((SECRET,), self.node.context.clock, 86_400.0)
        self.gateway = WebSocketServer(self.node, auth, sockets, settings)
        self.app = make_app(self.node, auth, Settings(ledger="sqlite://"), sockets=sockets)
        self._taps: list[Tap] = []

    async def start(self) -> None:
        await self.node.start({})
        self.gateway.start()
        self._ledger.privacy_delay = LEDGER_DELAY

    async def stop(self) -> None:
        await self.node.stop()
        for tap in self._taps:
            tap.cut()
            await tap.over
        await self.gateway.stop()

    @property
    def passed(self) -> int:
        """Simulated milliseconds since the event loop's time 0."""
        return self.clock.now() - START

    async def until(self, passed: int) -> None:
        await asyncio.sleep(max(0, passed - self.passed) / 1000)

    async def relate(self, *rows: tuple[str, str, str]) -> None:
        """Store relations (kind, a, b); a `follow` has one direction."""
        await self.node.viewing.apply_relations([RelationRow(*row) for row in rows])

    # Clients

    def socket(self, user: str, device: str, platform: str = "web") -> Wire:
        query = f"device_id={quote(device)}&platform={platform}&token={self._token(user)}"
        accepted = self.gateway.accept(Upgrade(PATH, query, {}, "herenow.test", None, (), None, secure=False))
        assert isinstance(accepted, Accept), accepted
        return Wire(self, accepted.handler)

    async def rest(self, method: str, path: str, *, by: str, body: object = None, service: bool = False) -> Answer:
        """Send an HTTP request with a token of `by` (with `service`: a service token) and return the response. `path`
        includes the query."""
        answer = Answer(self.passed)
        await self.app(self._scope(method, path, by, service=service), _body_of(body), answer.receiver(self))
        return answer

    def stream(self, query: str, *, by: str, service: bool = False) -> Tap:
        tap = Tap(self, Answer(self.passed))
        scope = self._scope("GET", f"/api/v1/presence/stream?{query}", by, service=service)
        scope["extensions"] = {PIPE: lambda: tap.lend}
        tap.over = asyncio.get_running_loop().create_task(
            self.app(scope, _body_of(None), tap.head.receiver(self)), name="stream"
        )
        self._taps.append(tap)
        return tap

    def _scope(self, method: str, path: str, by: str, *, service: bool) -> dict[str, Any]:
        path, _, query = path.partition("?")
        authorization = f"Bearer {self._token(by, SERVICE if service else None)}"
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [
                (b"host", b"herenow.test"),
                (b"authorization", authorization.encode()),
                (b"content-type", b"application/json"),
            ],
            "client": ("203.0.113.7", 1234),
            "server": ("127.0.0.1", 80),
        }

    def _token(self, user: str, scope: str | None = None) -> str:
        return mint(SECRET, user, scope=scope, ttl=3_600.0 * 12, now=self.clock.now() / 1000)


def _body_of(body: object) -> Receive:
    sent = b"" if body is None else json.dumps(body).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": sent, "more_body": False}

    return receive


@dataclass
class Answer:
    """The response to one request, with the times (ms) of request and response."""

    asked_at: int
    answered_at: int = -1
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    def receiver(self, stage: Stage) -> Send:
        async def send(message: Message) -> None:
            self.answered_at = stage.passed
            if message["type"] == "http.response.start":
                self.status, self.headers = message["status"], [*message["headers"]]
            else:
                self.body += message.get("body", b"")

        return send

    @property
    def shown(self) -> bytes:
        """The whole response with its duration, as bytes to compare."""
        head = b"".join(b"%b: %b\n" % header for header in self.headers)
        return b"%d ms: %d\n%b\n%b" % (self.answered_at - self.asked_at, self.status, head, self.body)


class Wire:
    """Both ends of one WebSocket: it is the `Socket` of the server, and the client of the test."""

    def __init__(self, stage: Stage, handler: Handler) -> None:
        self._stage = stage
        self._handler: Handler | None = handler
        self.frames: list[tuple[int, bytes]] = []
        """(ms, frame) as the client received them; a close is the last entry."""
        self.silent = False
        """The connection is half-open: the client neither receives nor sends."""
        handler.on_open(self)

    @property
    def is_open(self) -> bool:
        return self._handler is not None

    # The client's end

    def say(self, type_: str, **fields: object) -> None:
        if self._handler is not None and not self.silent:
            self._handler.on_text(json.dumps({"type": type_, **fields}).encode())

    def drop(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.on_closed(None, "")

    # The server's end

    def send_text(self, payload: bytes) -> None:
        if self._handler is not None and not self.silent:
            self.frames.append((self._stage.passed, payload))

    def ping(self) -> None:
        if self._handler is not None and not self.silent:
            self._handler.on_sign_of_life()

    def close(self, code: int, reason: str = "") -> None:
        self.send_text(b"close %d %b" % (code, reason.encode()))
        handler, self._handler = self._handler, None
        if handler is not None:
            asyncio.get_running_loop().call_soon(handler.on_closed, code, reason)

    def abort(self) -> None:
        self.close(1006)

    def buffered(self) -> int:
        return 0

    def pause_reading(self, why: Pause) -> None: ...
    def resume_reading(self, why: Pause) -> None: ...


class Tap:
    """Both ends of one event stream: it is the transport of the pipe, and the client of the test."""

    def __init__(self, stage: Stage, head: Answer) -> None:
        self._stage = stage
        self._writer: PipeWriter | None = None
        self._closing = False
        self.head = head
        self.over: asyncio.Task[None]
        self.chunks: list[tuple[int, bytes]] = []

    def lend(self, writer: PipeWriter) -> Tap:
        self._writer = writer
        return self

    def cut(self) -> None:
        """Close the event stream as its client."""
        self._closing = True
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.on_gone()

    # The part of `asyncio.Transport` that the server uses

    def write(self, data: bytes) -> None:
        self.chunks.append((self._stage.passed, data))

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        asyncio.get_running_loop().call_soon(self.cut)

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default
