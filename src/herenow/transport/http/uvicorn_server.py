"""uvicorn's server with our own accept loop and a periodic check for slow peers. Check this module with each new uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Iterator
from typing import Protocol, cast

import uvicorn

from herenow.transport.http.accept_loop import AcceptLoop
from herenow.transport.http.admission import Admission
from herenow.transport.http.peer_events import PeerEvents
from herenow.transport.http.peer_limits import PeerLimits

TICKS = 10  # calls of `on_tick` per second


class Timed(Protocol):
    """A connection with time limits for its peer."""

    def check(self, now: float, limits: PeerLimits) -> str | None:
        """End the connection if its peer is late at `now` (loop time). Return what is late, such as "head", or None."""


class UvicornServer(uvicorn.Server):
    """Accepts through `AcceptLoop`. It installs no signal handlers: the caller of `serve` handles signals."""

    def __init__(self, config: uvicorn.Config, limits: PeerLimits, events: PeerEvents) -> None:
        super().__init__(config)
        self._limits = limits
        self._events = events
        self.admission = Admission(limits)
        self._ticks_per_check = max(1, round(limits.check_every * TICKS))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loops = [self._accept_loop(each) for each in sockets or ()]
        for each in loops:
            each.start()
        self.servers = loops  # type: ignore[assignment]  # uvicorn only calls `close` and `wait_closed`
        self.started = True

    def _accept_loop(self, listening: socket.socket) -> AcceptLoop:
        config = self.config

        def make_protocol() -> asyncio.BaseProtocol:
            return config.http_protocol_class(config=config, server_state=self.server_state, app_state={})  # type: ignore[call-arg]

        return AcceptLoop(
            listening,
            make_protocol,
            self.admission,
            self._events,
            tls=config.ssl,
            handshake_within=self._limits.head_within,
        )

    async def on_tick(self, counter: int) -> bool:
        if counter % self._ticks_per_check == 0:
            # Called by the loop, so that an error does not end the server.
            asyncio.get_running_loop().call_soon(self._check_connections)
        return await super().on_tick(counter)

    def _check_connections(self) -> None:
        now = asyncio.get_running_loop().time()
        connections = cast(Iterable[Timed], tuple(self.server_state.connections))
        for connection in connections:
            late_with = connection.check(now, self._limits)
            if late_with is not None:
                self._events.cut(late_with)
