"""A handler for a connection whose token cannot be verified yet, because the issuer's keys are being read.

The connection is opened at once, since browsers cannot read an HTTP refusal. Messages are kept, up to a limit, until the
token is verified, so that the client need not retry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from herenow.kit.tasks import Tasks
from herenow.transport.websocket.contract import Handler, Socket
from herenow.wire.codes import Close

MOST = 100  # events kept; normal clients send only a few before the welcome

MOST_BYTES = 65_536


class PendingHandler:
    """Keeps events until `decide` returns a handler, then passes everything on to that one."""

    def __init__(self, tasks: Tasks, decide: Callable[[], Awaitable[Handler]]) -> None:
        self._tasks = tasks
        self._decide = decide
        self._handler: Handler | None = None
        self._kept: list[Callable[[Handler], None]] = []
        self._bytes = 0
        self._socket: Socket
        self._closed = False

    def on_open(self, socket: Socket) -> None:
        self._socket = socket
        self._tasks.spawn(self._become(), "handshake")

    async def _become(self) -> None:
        handler = await self._decide()
        if self._closed:
            return
        self._handler = handler
        handler.on_open(self._socket)
        kept, self._kept = self._kept, []
        for event in kept:
            event(handler)

    def _pass_on(self, event: Callable[[Handler], None], size: int = 0) -> None:
        if self._handler is not None:
            event(self._handler)
            return
        self._kept.append(event)
        self._bytes += size
        if len(self._kept) > MOST or self._bytes > MOST_BYTES:
            self._closed = True
            self._kept.clear()
            self._socket.close(Close.OVERLOADED, "retry_after_ms=1000")

    def on_text(self, payload: bytes) -> None:
        self._pass_on(lambda handler: handler.on_text(payload), len(payload))

    def on_binary(self) -> None:
        self._pass_on(lambda handler: handler.on_binary())

    def on_sign_of_life(self) -> None:
        if self._handler is not None:
            self._handler.on_sign_of_life()

    def on_pause(self) -> None:
        self._pass_on(lambda handler: handler.on_pause())

    def on_resume(self) -> None:
        self._pass_on(lambda handler: handler.on_resume())

    def on_other_frame(self, size: int) -> None:
        if self._handler is not None:
            self._handler.on_other_frame(size)

    def on_leaving(self) -> None:
        if self._handler is not None:
            self._handler.on_leaving()

    def on_closed(self, code: int | None, reason: str) -> None:
        self._closed = True
        if self._handler is not None:
            self._handler.on_closed(code, reason)
