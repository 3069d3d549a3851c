"""One viewer's event stream: frames of the hub out as server-sent events, and its end.

Answers: what does a viewer get who cannot, or need not, open a WebSocket, and when does that end? It is a `Socket` to
the hub and to the registry of sockets, so that bounds, conflation and the drain are the same ones. Who may open one and
whom it shows is decided before (`api.stream`, `service.streams`).
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
"""Seconds between two comments: proxies commonly give up on a silent answer after 60, some after 30."""

COME_BACK = (1_000, 4_000)
"""Milliseconds after which a client comes back that lost its stream without a word: spread, because a node that is
killed loses all of them at once."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Streaming:
    """What all streams of a node share."""

    node: Node
    sockets: Sockets
    silence: float
    """Seconds a vanished peer is waited for: `dead_after`, as for sessions."""
    limits: SocketLimits = field(default_factory=SocketLimits)

    def check_room(self) -> None:
        if self.node.draining:
            raise ProtocolError("not_ready", "The node is draining.")
        if self.sockets.full:
            raise ProtocolError("overloaded", "The node has as many connections as it can hold.")


class EventStream:
    """From the request to the end. Also the `Socket` that the registry keeps."""

    __slots__ = ("_claims", "_early", "_pipe", "_said", "_streaming", "_timer", "ended", "stream")

    def __init__(self, streaming: Streaming, lender: Lender, claims: Claims, viewer: str | None) -> None:
        """Raises `ProtocolError` when there is no room for it."""
        streaming.check_room()
        self._streaming = streaming
        self._claims = claims
        self._early: list[bytes] | None = []
        """What the hub says before the snapshot is out."""
        self._said = "client"
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
        """The head is out."""
        early, self._early = self._early, None
        frames = [*snapshot, *(early or ())]
        self._pipe.write(retry(random.randint(*COME_BACK)) + b"".join(map(event, frames)))
        self._wait()
        log.info("stream.opened", **self.described)

    def on_gone(self) -> None:
        """The connection is closed, or never was a stream; may be called twice."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._streaming.node.context.metrics.stream_ends[self._said] += 1
            log.info("stream.closed", code=self._said, **self.described)
        self._streaming.sockets.discard(self)
        self._streaming.node.viewing.close_stream(self.stream)

    @property
    def described(self) -> dict[str, str]:
        """For the log."""
        return {"user": self._claims.user, "viewer": self.stream.user or "-"}

    # A socket

    def send_text(self, payload: bytes) -> None:
        if self._early is None:
            self._pipe.write(event(payload))
        else:
            self._early.append(payload)

    def ping(self) -> None:
        self._pipe.write(STILL_HERE)

    def close(self, code: int, reason: str = "") -> None:
        """With the words that a socket would be closed with: an event says what its code would."""
        name = _NAMES.get(code) or (reason if reason in CODES else "internal")
        words = event(error_frame(name, CODES[name].meaning))
        if reason.startswith(_RETRY):
            words = retry(int(reason.removeprefix(_RETRY))) + words
        self._said = name
        self._pipe.finish(words)

    def abort(self) -> None:
        self._pipe.abort()

    def buffered(self) -> int:
        return self._pipe.buffered()

    # Its speed

    def on_pause(self) -> None:
        self._streaming.node.delivery.pause(self.stream.outbox)

    def on_resume(self) -> None:
        self._streaming.node.delivery.resume(self.stream.outbox)

    def _stuck(self) -> None:
        """The peer has not read for too long: nobody waits for it."""
        self._said = "stuck"
        self._pipe.abort()

    # Its time

    def _wait(self) -> None:
        left = (self._claims.expires_at_ms - self._streaming.node.context.clock.now()) / 1000
        pause = max(0.0, min(KEEP_ALIVE, left))
        self._timer = asyncio.get_running_loop().call_later(pause, self._turn)

    def _turn(self) -> None:
        if self._streaming.node.context.clock.now() >= self._claims.expires_at_ms:
            self.close(Close.UNAUTHORIZED, "token_expired")
        else:
            self.ping()
            self._wait()


_RETRY = "retry_after_ms="
_NAMES = {int(Close.DRAINING): "not_ready", int(Close.OVERLOADED): "overloaded"}
"""The code of the last event, where the reason of a close does not name one."""
