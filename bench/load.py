"""Thousands of clients in one thread, cheap enough not to distort the measurement.

No WebSocket library and no event loop: epoll, read, write, and as much of RFC 6455 as a correct server needs. A frame
costs about 3 µs to read and 5 µs to write, nearly all of it in the kernel. The load runs on its own core, and `Share`
measures how much of it was used: near one, the figures would be those of the load.
"""

from __future__ import annotations

import base64
import itertools
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from bench import machine
from bench.server import SECRET, Server
from herenow.transport.auth import mint

PATH = "/ws/presence"
WINDOW = 64
"""Handshakes or requests in flight: below any listener's backlog."""

PER_ADDRESS = 20_000
"""Connections per source address: there are 28 000 ephemeral ports for each."""

PATIENCE = 60.0
CHUNK = 1 << 16
MASK = b"\x37\xfa\x21\x3d"

PING, PONG = 0x89, 0x8A

Listener = Callable[[bytes], None]


class Crowd:
    """Clients of one server, or of several in rotation. A client is identified by its socket number."""

    def __init__(self, *servers: Server, address: int = 2) -> None:
        """`address`: the last number of the first source address, 127.0.0.N; each process of a load has its own."""
        self._ports = itertools.cycle([server.port for server in servers])
        self._address = address
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._opening: set[int] = set()
        self._rest: dict[int, bytes] = {}
        self.listeners: dict[int, Listener] = {}
        """Receivers of the payloads of a client's frames; other frames are only counted."""
        self.frames = 0
        self.pings = 0
        self.lost = 0
        self.on_lost: Callable[[int], None] | None = None
        """Called for every client whose connection the server has closed."""

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_error: object) -> None:
        for each in self._sockets.values():
            # RST instead of FIN: no port stays in TIME_WAIT for the next measurement.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        self._epoll.close()

    def __len__(self) -> int:
        return len(self._sockets)

    def join(self, handshakes: Iterable[bytes], *, frames_each: int = 0) -> list[int]:
        """Connects one client per handshake; returns when each is accepted and has so many frames."""
        goal = self.frames
        clients = []
        for handshake in handshakes:
            self.until(lambda: len(self._opening) < WINDOW)
            clients.append(self.knock(handshake))
            goal += frames_each
        self.until(lambda: not self._opening and self.frames >= goal)
        return clients

    def leave(self, clients: Iterable[int]) -> None:
        """Closes their sockets without a CLOSE frame."""
        for client in clients:
            self._epoll.unregister(client)
            self._sockets.pop(client).close()
            self.listeners.pop(client, None)
            self._rest.pop(client, None)

    def send(self, client: int, frame: bytes) -> None:
        os.write(client, frame)

    def send_all(self, clients: Iterable[int], frame: bytes) -> None:
        write = os.write
        for client in clients:
            write(client, frame)

    def ask(self, questions: Iterable[tuple[int, bytes]], answers: int = 1) -> None:
        """Sends each client its frame and waits for so many answers to each, few at a time: a burst would be another
        measurement.
        """
        goal = self.frames
        for client, question in questions:
            self.until_frames(goal - (WINDOW - 1) * answers)
            self.send(client, question)
            goal += answers
        self.until_frames(goal)

    def wire_bytes(self, client: int) -> int:
        """Bytes on the wire for this client in both directions, including TCP and IP headers."""
        return machine.wire_bytes(self._sockets[client])

    def until_frames(self, goal: int) -> None:
        self.until(lambda: self.frames >= goal)

    def until(self, done: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Reads until `done()` is true."""
        deadline = time.monotonic() + patience
        while not done():
            self.read(0.2)
            if self.lost:
                raise RuntimeError(f"the server closed {self.lost} connections")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server did not do it within {patience:g} s ({self.frames} frames came)")

    def read(self, timeout: float = 0.0) -> None:
        """Reads what is available, once from each client."""
        for client, _ in self._epoll.poll(timeout, 4096):
            try:
                data = os.read(client, CHUNK)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                data = b""
            if data:
                self._take(client, data)
            else:
                self._lose(client)

    def settle(self, seconds: float) -> None:
        """Lets time pass, and answers pings meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.read(left)

    def knock(self, handshake: bytes) -> int:
        """Connects one client without waiting until it is accepted."""
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.bind((f"127.0.0.{self._address + len(self._sockets) // PER_ADDRESS}", 0))
        client.connect(("127.0.0.1", next(self._ports)))
        number = self.adopt(client)
        self._opening.add(number)
        client.send(handshake)
        return number

    def adopt(self, client: socket.socket) -> int:
        """Takes over a connection that was opened and used elsewhere."""
        client.setblocking(False)  # noqa: FBT003
        number = client.fileno()
        self._sockets[number] = client
        self._epoll.register(number, select.EPOLLIN)
        return number

    def _lose(self, client: int) -> None:
        self.lost += 1
        self._opening.discard(client)
        self._epoll.unregister(client)
        self._sockets.pop(client).close()
        self.listeners.pop(client, None)  # the number will be reused by another client
        self._rest.pop(client, None)
        if self.on_lost is not None:
            self.on_lost(client)

    def _take(self, client: int, data: bytes) -> None:
        if client in self._rest:
            data = self._rest.pop(client) + data
        if client in self._opening:
            head, blank_line, data = data.partition(b"\r\n\r\n")
            if not blank_line:
                self._rest[client] = head
                return
            if not head.startswith(b"HTTP/1.1 101 "):
                raise RuntimeError(f"refused: {head[:200]!r}")
            self._opening.discard(client)
        at, end, listener = 0, len(data), self.listeners.get(client)
        while at < end:
            start, stop = _payload(data, at, end)
            if stop > end:
                self._rest[client] = data[at:]
                return
            if data[at] == PING:
                self.pings += 1
                os.write(client, masked(data[start:stop], PONG))
            else:
                self.frames += 1
                if listener is not None:
                    listener(data[start:stop])
            at = stop


def _payload(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Begin and end of the payload of the frame at `at`; beyond `end` if it is incomplete."""
    if at + 2 > end:
        return at, end + 1
    size = data[at + 1]
    if size < 126:
        return at + 2, at + 2 + size
    if at + 10 > end:
        return at, end + 1
    if size == 126:
        return at + 4, at + 4 + (data[at + 2] << 8 | data[at + 3])
    return at + 10, at + 10 + int.from_bytes(data[at + 2 : at + 10], "big")


def masked(payload: bytes, opcode: int = 0x81) -> bytes:
    """A client's frame."""
    size = len(payload)
    assert size < 1 << 16
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    key = int.from_bytes((MASK * (size // 4 + 1))[:size], "big")
    return bytes((opcode,)) + length + MASK + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def handshake(user: str | None = None) -> bytes:
    """The handshake of a browser; for the bare listener without a user."""
    query, offer = "", ""
    if user is not None:
        query = f"?device_id=browser-{user}&platform=web"
        offer = f"Sec-WebSocket-Protocol: herenow.v1, herenow.token.{token(user)}\r\n"
    return upgrade(PATH + query, offer)


def upgrade(target: str, headers: str = "") -> bytes:
    """The first request of a WebSocket at any server; each header ends with its line break."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{headers}\r\n"
    ).encode()


def token(user: str, *, scope: str | None = None) -> str:
    return mint(SECRET, user, scope=scope, ttl=7200, now=time.time())


def names(count: int, kind: str = "user") -> list[str]:
    return [f"{kind}{number:05d}" for number in range(count)]


def subscription(targets: Sequence[str]) -> bytes:
    listed = ",".join(f'"{target}"' for target in targets)
    return masked(f'{{"type":"presence.subscribe","target_user_ids":[{listed}]}}'.encode())


@contextmanager
def share() -> Iterator[Share]:
    """Measures how much of its core the load used inside this block."""
    measured = Share()
    yield measured
    measured.stop()


class Share:
    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.monotonic()
        self.used = self.seconds = 0.0

    def stop(self) -> None:
        self.seconds = time.monotonic() - self._wall
        self.used = (time.process_time() - self._cpu) / self.seconds


class Http:
    """One keep-alive connection; one request after the other. A chunked body is returned as received, with its sizes."""

    def __init__(self, server: Server, bearer: str, patience: float = 10.0) -> None:
        self._bearer = bearer
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=patience)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def request(self, method: str, target: str, body: bytes = b"") -> bytes:
        return (
            f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._bearer}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def fetch(self, request: bytes) -> tuple[int, bytes]:
        self._socket.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            while not body.endswith(b"\r\n0\r\n\r\n"):
                body += self._more()
            return int(head.split(b" ", 2)[1]), body
        lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
        size = int(lengths[0].split(b":")[1]) if lengths else 0
        while len(body) < size:
            body += self._more()
        return int(head.split(b" ", 2)[1]), body

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 18)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data
