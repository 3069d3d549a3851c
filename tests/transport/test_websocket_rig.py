"""Helpers of the WebSocket tests: a real server in a thread, and a client that may send invalid bytes.

This module has no tests; its name keeps it beside them. The client is a plain TCP socket, so that tests control every
byte, and every wait is for an event, with a timeout.
"""

import asyncio
import contextlib
import queue
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
import uvicorn

from herenow.node.metrics import Metrics
from herenow.transport.http.first_bytes import ProtocolSniffer
from herenow.transport.http.peer_events import PeerEvents
from herenow.transport.http.peer_limits import PeerLimits
from herenow.transport.http.uvicorn_server import UvicornServer
from herenow.transport.websocket import Accept, Acceptor, Refuse, Socket, SocketLimits, Sockets, Upgrade
from herenow.transport.websocket.picows import picows_protocol
from herenow.transport.websocket.websockets_socket import websockets_protocol

IMPLEMENTATIONS = {"picows": picows_protocol, "websockets": websockets_protocol}
PATIENCE = 10.0  # seconds; a bound for events that should come at once

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

HANDSHAKE = (
    "GET /ws HTTP/1.1",
    "Host: here",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
)

T = TypeVar("T")


def lines(*said: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (*said, "")).encode("latin-1")


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bytes | None = b"\x11\x22\x33\x44"
) -> bytes:
    head = bytes([fin << 7 | rsv << 4 | opcode])
    masked = 0x80 if mask is not None else 0
    if len(payload) < 126:
        head += bytes([masked | len(payload)])
    elif len(payload) < 65536:
        head += struct.pack("!BH", masked | 126, len(payload))
    else:
        head += struct.pack("!BQ", masked | 127, len(payload))
    return head + payload if mask is None else head + mask + xor(payload, mask)


def xor(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    whole = mask * (size // 4 + 1)
    mixed: int = int.from_bytes(payload, "big") ^ int.from_bytes(whole[:size], "big")
    return mixed.to_bytes(size, "big")


def close_frame(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason)


class Client:
    """One TCP connection; closed by `with`."""

    def __init__(self, port: int, *, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.tcp = socket.socket()
        if receive_buffer is not None:
            self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.tcp.settimeout(PATIENCE)
        self.tcp.connect(("127.0.0.1", port))
        self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.tcp = tls.wrap_socket(self.tcp)
        self._unread = b""
        self.handler: Echo  # its handler at the server, once it is open

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: object) -> None:
        self.tcp.close()

    def send(self, data: bytes) -> None:
        self.tcp.sendall(data)

    def finish(self) -> None:
        with contextlib.suppress(OSError):  # the server was faster
            self.tcp.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST instead of FIN."""
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.tcp.close()

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end of the stream."""
        while len(self._unread) < size and (more := self._receive()):
            self._unread += more
        taken, self._unread = self._unread[:size], self._unread[size:]
        return taken

    def read_answer(self) -> tuple[str, str]:
        """Head and body of an HTTP response with a length."""
        head = self.read_head()
        [size] = [int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        return head, self.read(size).decode()

    def read_head(self) -> str:
        """The head of an HTTP response."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.read(1)
            assert byte, head
            head += byte
        return head.decode("latin-1")

    def read_frame(self) -> tuple[int, bytes] | None:
        """Opcode and payload, or None at the end of the stream."""
        head = self.read(2)
        if not head:
            return None
        assert head[0] & 0x80, "the server does not fragment"
        assert not head[0] & 0x70, "the server sets no reserved bit"
        assert not head[1] & 0x80, "the server does not mask"
        size = head[1]
        if size == 126:
            (size,) = struct.unpack("!H", self.read(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self.read(8))
        return head[0] & 0x0F, self.read(size)

    def read_text(self) -> bytes:
        got = self.read_frame()
        assert got is not None
        assert got[0] == TEXT, got
        return got[1]

    def read_to_end(self) -> list[tuple[int, bytes]]:
        """All frames up to the end of the stream."""
        return list(iter(self.read_frame, None))

    def _receive(self) -> bytes:
        try:
            return self.tcp.recv(65536)
        except ConnectionResetError:
            return b""


class Echo:
    """Sends texts back; a binary message is answered with a text. Some texts are commands."""

    def __init__(self, server: "Server") -> None:
        self.texts = 0
        self.signs_of_life = 0
        self.other_frames = 0
        self.leavings = 0
        self._opened = server.opened
        self._flow: queue.Queue[str] = queue.Queue()
        self._closed: queue.Queue[tuple[int | None, str]] = queue.Queue()

    def on_open(self, socket: Socket) -> None:
        self.socket = socket
        self._opened.put(self)

    def on_text(self, payload: bytes) -> None:
        self.texts += 1
        if payload.startswith(b"!close "):
            code, _, reason = payload[7:].decode().partition(" ")
            self.socket.close(int(code), reason)
            self.socket.send_text(b"too late")
        elif payload == b"!abort":
            self.socket.abort()
        elif payload == b"!raise":
            raise RuntimeError("a defect of the handler")
        else:
            self.socket.send_text(payload)

    def on_binary(self) -> None:
        self.socket.send_text(b"binary")

    def on_sign_of_life(self) -> None:
        self.signs_of_life += 1

    def on_other_frame(self, size: int) -> None:
        self.other_frames += 1

    def on_pause(self) -> None:
        self._flow.put("pause")

    def on_resume(self) -> None:
        self._flow.put("resume")

    def on_leaving(self) -> None:
        self.leavings += 1

    def on_closed(self, code: int | None, reason: str) -> None:
        self._closed.put((code, reason))

    # For the test's thread.

    def next_flow(self) -> str:
        return self._flow.get(timeout=PATIENCE)

    def closed(self) -> tuple[int | None, str]:
        """Code and reason after the close; asserts that it is reported once."""
        said = self._closed.get(timeout=PATIENCE)
        assert self._closed.empty()
        return said


class Server(UvicornServer):
    """uvicorn with our protocol in its own thread."""

    def __init__(
        self,
        implementation: str,
        *,
        limits: SocketLimits | None = None,
        max_open: int = 1000,
        spare: int = 10,
        certificate: str | None = None,
        keep_alive: float = 5,
        peers: PeerLimits | None = None,
    ) -> None:
        self.implementation = implementation
        self.limits = limits or SocketLimits(close_timeout=PATIENCE, linger=PATIENCE)
        self.registry = Sockets(max_open, spare)
        self.acceptor: Acceptor = lambda _upgrade: Accept(Echo(self))
        self.opened: queue.Queue[Echo] = queue.Queue()
        self.trust: ssl.SSLContext | None = None  # for clients, if there is a certificate
        self.metrics = Metrics()
        self._ready = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        protocol = IMPLEMENTATIONS[implementation](self._accept, self.limits, self.registry)
        super().__init__(
            uvicorn.Config(
                plain_http,
                http=ProtocolSniffer,
                ws=protocol,  # type: ignore[arg-type]  # a callable is as good as a class
                loop="uvloop",
                lifespan="off",
                log_config=None,
                timeout_graceful_shutdown=1,
                ssl_certfile=certificate,
                timeout_keep_alive=keep_alive,  # type: ignore[arg-type]  # a fraction is as good
            ),
            peers or PeerLimits(check_every=0.1),
            PeerEvents(self.metrics, time.monotonic),
        )
        self._thread = threading.Thread(target=self.run, args=([self._listening],), daemon=True)

    def _accept(self, upgrade: Upgrade) -> Accept | Refuse:
        return self.acceptor(upgrade)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.event_loop = asyncio.get_running_loop()
        self._ready.set()

    def __enter__(self) -> "Server":
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_error: object) -> None:
        self.call(self.registry.abort_all)
        self.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def call(self, function: Callable[[], T]) -> T:
        """The function's result, called in the server's loop."""

        async def called() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self.event_loop).result(PATIENCE)

    def until_empty(self) -> None:
        """Wait until no socket is open."""
        ends = time.monotonic() + PATIENCE
        while self.call(lambda: self.registry.count):
            assert time.monotonic() < ends, "a socket stays open"
            time.sleep(0.005)

    def connect(self, *headers: str, with_it: bytes = b"", receive_buffer: int | None = None) -> Client:
        """An open WebSocket; `with_it` is sent in one segment with the handshake."""
        client = Client(self.port, receive_buffer=receive_buffer, tls=self.trust)
        try:
            client.send(lines(*HANDSHAKE, *headers) + with_it)
            assert client.read_head().startswith("HTTP/1.1 101 ")
            client.handler = self.opened.get(timeout=PATIENCE)
        except BaseException:
            client.tcp.close()
            raise
        return client


async def plain_http(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path; /never does not answer until the client has disconnected, /headers names the headers after the
    body, /big is an answer of 20 MB, /body waits for the whole body."""
    while scope["path"] == "/never" and (await receive())["type"] != "http.disconnect":
        pass
    while scope["path"] in ("/headers", "/body") and (await receive()).get("more_body"):
        pass
    body = scope["path"].encode()
    if scope["path"] == "/headers":
        body = b" ".join(name for name, _ in scope["headers"])
    elif scope["path"] == "/big":
        body = b"x" * 20_000_000
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def running(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(request.param) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """The module's server; a test may replace its acceptor."""
    acceptor = running.acceptor
    yield running
    running.acceptor = acceptor
