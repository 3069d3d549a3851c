"""Accepts connections, refuses those above a limit, and gives each one its first protocol.

The servers of asyncio and uvloop cannot do this. Both start TLS before they report a connection, so unfinished handshakes
would not be counted. When descriptors run out, uvloop closes connections silently, and its listening socket if that fails.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from herenow.transport.address import BACKLOG
from herenow.transport.http.admission import AcceptedSocket, Admission
from herenow.transport.http.peer_events import PeerEvents
from herenow.transport.websocket import Refuse, http_answer

BATCH = 64  # most connections accepted per call, so that other callbacks of the loop can run

PAUSE = 0.2  # seconds until the next try after `accept` failed; connections wait in the system's queue

NO_ROOM = http_answer(Refuse(503, "too many connections\n", (("retry-after", "10"),)))


class AcceptLoop:
    """Accepts on one listening socket; uvicorn gets it in place of an `asyncio.Server`."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        admission: Admission,
        events: PeerEvents,
        *,
        tls: ssl.SSLContext | None = None,
        handshake_within: float = 10.0,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._admission = admission
        self._events = events
        self._tls = tls
        self._handshake_within = handshake_within
        self._opening: set[asyncio.Task[None]] = set()
        self._resumption: asyncio.TimerHandle | None = None
        self._batch = 1
        """Connections to accept in the next call: doubles in a storm, else 1, because a second `accept` rarely succeeds."""
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._listening.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Stop accepting new connections; open ones stay."""
        if self._listening.fileno() < 0:
            return
        if self._resumption is not None:
            self._resumption.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    async def wait_closed(self) -> None:
        """Do nothing: uvicorn calls this, but itself waits for the connections to end."""

    def _resume(self) -> None:
        self._resumption = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        batch, self._batch = self._batch, 1
        for _ in range(batch):
            try:
                descriptor, address = self._listening._accept()  # type: ignore[attr-defined]  # `accept` calls it
            except BlockingIOError:
                return
            except ConnectionError:  # the peer disconnected while it waited
                continue
            except OSError as error:
                self._events.accept_failed(error)
                self._loop.remove_reader(self._listening)
                self._resumption = self._loop.call_later(PAUSE, self._resume)
                return
            self._admit(descriptor, address[0] if isinstance(address, tuple) else "")
        self._batch = min(BATCH, 2 * batch)

    def _admit(self, descriptor: int, host: str) -> None:
        listening = self._listening
        connection = AcceptedSocket(listening.family, listening.type, listening.proto, fileno=descriptor)
        refusal = self._admission.refusal(host)
        if refusal is not None:
            self._events.refused(refusal, host)
            self._refuse(connection)
            return
        self._admission.add(connection, host)
        task = self._loop.create_task(self._open(connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _refuse(self, connection: socket.socket) -> None:
        if self._tls is None:
            try:
                connection.send(NO_ROOM)
            except OSError:
                pass
        connection.close()

    async def _open(self, connection: socket.socket) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._make_protocol, connection)
            else:
                await self._loop.connect_accepted_socket(
                    self._make_protocol, connection, ssl=self._tls, ssl_handshake_timeout=self._handshake_within
                )
        except OSError as error:  # includes errors of TLS
            connection.close()
            if isinstance(error, ConnectionAbortedError):
                self._events.cut("tls")
