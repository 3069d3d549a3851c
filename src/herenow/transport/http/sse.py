"""Event streams (SSE): send one viewer's frames as server-sent events, without a WebSocket.

`EventStream` is a `Socket` for the node and the registry, so limits, conflation and drain are those of WebSockets. The
endpoint has checked before whether the client may open the stream and which targets it shows.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import structlog

from herenow.errors import ProtocolError
from herenow.node import Node
from herenow.node.viewing import Stream
from herenow.transport.auth import Claims
from herenow.transport.http.pipe import Lender, Pipe
from herenow.transport.websocket import SocketLimits, Sockets
from herenow.wire.codes import CODES, Close
from herenow.wire.events import STILL_HERE, event, retry
from herenow.wire.shapes import error_frame

KEEP_ALIVE = 15.0
"""Seconds between two comments that keep the stream open: most proxies end a silent response after 60 s, some after 30."""

COME_BACK = (1_000, 4_000)
"""Range of the client's reconnect delay in ms; random, because the clients of a killed node all reconnect at once."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Streaming:
    """Values that all event streams of a node share."""

    node: Node
    sockets: Sockets
    silence: float  # seconds without a sign of life until a connection is dropped: `dead_after`, as for sessions
    limits: SocketLimits = field(default_factory=SocketLimits)

    def check_room(self) -> None:
        if self.node.draining:
            raise ProtocolError("not_ready", "The node is draining.")
        if self.sockets.full:
            raise ProtocolError("overloaded", "The node has as many connections as it can hold.")


class EventStream:
    """One stream from request to end. It is also the `Socket` in the registry."""

    __slots__ = ("_claims", "_early", "_end_code", "_pipe", "_streaming", "_timer", "ended", "stream")

    def __init__(self, streaming: Streaming, lender: Lender, claims: Claims, viewer: str | None) -> None:
        """Open a stream for `viewer` (None: a service), which writes to the transport of `lender`. Raises
        `ProtocolError` if the node drains or is full, or the viewer has too many streams."""
        streaming.check_room()
        self._streaming = streaming
        self._claims = claims
        self._early: list[bytes] | None = []  # frames that the node sends before the snapshot; None after `begin`
        self._end_code = "client"
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stream: Stream = streaming.node.viewing.open_stream(
            viewer,
            bearer=claims.user,
            issued_at=claims.issued_at_ms,
            send=self.send_text,
            end=self.close,
            abort=self._stuck,
        )
        self._pipe = Pipe(lender(self), streaming.limits, silence=streaming.silence)
        streaming.sockets.add(self)

    def begin(self, snapshot: list[bytes]) -> None:
        """Send the `snapshot` (frames with the first statuses), then the frames that came meanwhile. Call it when the
        response's head was sent."""
        early, self._early = self._early, None
        frames = [*snapshot, *(early or ())]
        self._pipe.write(retry(random.randint(*COME_BACK)) + b"".join(map(event, frames)))
        self._wait()
        log.info("stream.opened", **self.described)

    def on_gone(self) -> None:
        """Release everything that belongs to the stream: its connection is closed, or it never began. May be called
        twice."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._streaming.node.context.metrics.stream_ends[self._end_code] += 1
            log.info("stream.closed", code=self._end_code, **self.described)
        self._streaming.sockets.discard(self)
        self._streaming.node.viewing.close_stream(self.stream)

    @property
    def described(self) -> dict[str, str]:
        """User and viewer of the stream, as fields for log lines."""
        return {"user": self._claims.user, "viewer": self.stream.user or "-"}

    # Methods of `Socket`

    def send_text(self, payload: bytes) -> None:
        if self._early is None:
            self._pipe.write(event(payload))
        else:
            self._early.append(payload)

    def ping(self) -> None:
        self._pipe.write(STILL_HERE)

    def close(self, code: int, reason: str = "") -> None:
        """End the stream with an error event that stands for the close code and reason of a WebSocket."""
        name = _NAMES.get(code) or (reason if reason in CODES else "internal")
        words = event(error_frame(name, CODES[name].meaning))
        if reason.startswith(_RETRY):
            words = retry(int(reason.removeprefix(_RETRY))) + words
        self._end_code = name
        self._pipe.finish(words)

    def abort(self) -> None:
        self._pipe.abort()

    def buffered(self) -> int:
        return self._pipe.buffered()

    # Back-pressure

    def on_pause(self) -> None:
        self._streaming.node.delivery.pause(self.stream.outbox)

    def on_resume(self) -> None:
        self._streaming.node.delivery.resume(self.stream.outbox)

    def _stuck(self) -> None:
        """Abort the connection, because the peer has not read for too long."""
        self._end_code = "stuck"
        self._pipe.abort()

    # Keep-alive and expiry

    def _wait(self) -> None:
        left = (self._claims.expires_at_ms - self._streaming.node.context.clock.now()) / 1000
        pause = max(0.0, min(KEEP_ALIVE, left))
        self._timer = asyncio.get_running_loop().call_later(pause, self._on_timer)

    def _on_timer(self) -> None:
        if self._streaming.node.context.clock.now() >= self._claims.expires_at_ms:
            self.close(Close.UNAUTHORIZED, "token_expired")
        else:
            self.ping()
            self._wait()


_RETRY = "retry_after_ms="
_NAMES = {int(Close.DRAINING): "not_ready", int(Close.OVERLOADED): "overloaded"}
"""Close codes whose reason does not name the error code."""
