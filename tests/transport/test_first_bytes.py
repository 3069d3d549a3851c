"""A handshake recognised in the first bytes has the same result as one through HTTP; and connections without any bytes."""

import asyncio
import queue
import socket

import pytest
import uvicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.transport.test_websocket_rig import (
    HANDSHAKE,
    IMPLEMENTATIONS,
    TEXT,
    Client,
    Echo,
    Server,
    frame,
    lines,
    plain_http,
)
from uvicorn.server import ServerState

from herenow.transport.http.first_bytes import LONGEST, ProtocolSniffer, plain_handshake
from herenow.transport.http.uvicorn_patches import HttpProtocol
from herenow.transport.websocket import Accept, SocketLimits, Sockets
from herenow.transport.websocket.picows.self_test import RecordingTransport

BROWSERS = {
    "Chrome": (
        "GET /ws/presence?device_id=d&platform=web HTTP/1.1",
        "Host: localhost:8000",
        "Connection: Upgrade",
        "Pragma: no-cache",
        "Cache-Control: no-cache",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0",
        "Upgrade: websocket",
        "Origin: http://localhost:8000",
        "Sec-WebSocket-Version: 13",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Accept-Language: de-DE,de;q=0.9,en-US;q=0.8",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
        "Sec-WebSocket-Protocol: herenow.v1, herenow.token.a.b.c",
    ),
    "Firefox": (
        "GET /ws/presence HTTP/1.1",
        "Host: localhost:8000",
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0",
        "Accept: */*",
        "Sec-WebSocket-Version: 13",
        "Origin: http://localhost:8000",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
    ),
    "nginx": (
        "GET /ws/presence HTTP/1.1",
        "Upgrade: websocket",
        "Connection: upgrade",
        "Host: example.org",
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-Proto: https",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ),
}


@pytest.mark.parametrize("client", BROWSERS)
def test_websocket_handshakes_of_browsers_and_proxies_are_recognised_without_the_http_parser(client: str):
    head = lines(*BROWSERS[client])
    assert plain_handshake(head) == len(head)
    assert plain_handshake(head + frame(TEXT, b"early")) == len(head)


def without(name: str) -> tuple[str, ...]:
    return tuple(line for line in HANDSHAKE if not line.startswith(name))


@pytest.mark.parametrize(
    "said",
    [
        ("GET /a HTTP/1.1", "Host: here"),
        without("Upgrade"),
        without("Connection"),
        (*without("Connection"), "Connection: keep-alive"),
        (*without("Connection"), "Connection: not-upgrade"),
        (*without("Upgrade"), "Upgrade: h2c"),
        (*HANDSHAKE, "Connection: close"),
        (*HANDSHAKE, "Upgrade: h2c"),
        (*HANDSHAKE, "Content-Length: 0"),
        (*HANDSHAKE, "Transfer-Encoding: chunked"),
        (*HANDSHAKE, "Space : before"),
        (*HANDSHAKE, "Folded: a", " b"),
        (*HANDSHAKE, "X-Null: \0"),
        (*HANDSHAKE, "X-Long: " + "x" * LONGEST),
        ("GET /ws HTTP/1.0", *HANDSHAKE[1:]),
        ("POST /ws HTTP/1.1", *HANDSHAKE[1:]),
        ("GET http://here/ws HTTP/1.1", *HANDSHAKE[1:]),
        ("GET /ws ws HTTP/1.1", *HANDSHAKE[1:]),
        ("GET /ws#there HTTP/1.1", *HANDSHAKE[1:]),
    ],
)
def test_an_unusual_websocket_handshake_is_passed_to_the_http_parser(said: tuple[str, ...]):
    assert plain_handshake(lines(*said)) == 0


@pytest.mark.parametrize("size", [1, 20, -1])
def test_an_incomplete_websocket_handshake_is_passed_to_the_http_parser(size: int):
    assert plain_handshake(lines(*HANDSHAKE)[:size]) == 0


# Both paths compared


class Ear(RecordingTransport):
    """Records what a protocol and its successor write."""

    def __init__(self, nowhere: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        super().__init__(nowhere)
        self._protocol = protocol
        self.closed = False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def write_eof(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...


class Talk:
    """A server of which only the protocol runs."""

    def __init__(self, implementation: str) -> None:
        self.asked: list[object] = []
        self.opened = queue.Queue[Echo]()
        self._config = uvicorn.Config(
            plain_http,
            ws=IMPLEMENTATIONS[implementation](self._accept, SocketLimits(), Sockets(1)),  # type: ignore[arg-type]
            lifespan="off",
            log_config=None,
            date_header=False,
        )
        self._config.load()

    def _accept(self, upgrade: object) -> Accept:
        self.asked.append(upgrade)
        return Accept(Echo(self))  # type: ignore[arg-type]

    async def hear(self, first: type[ProtocolSniffer] | type[HttpProtocol], data: bytes) -> tuple[bytes, bool, object]:
        """(bytes written, whether it was closed, requests to the acceptor)"""
        self.asked = []
        protocol = first(self._config, ServerState(), {})
        with socket.socket() as nowhere:
            ear = Ear(nowhere, protocol)
            protocol.connection_made(ear)
            protocol.data_received(data)
            for _ in range(5):  # loop iterations that an answer needs
                await asyncio.sleep(0)
            heard = ear.sent, ear.closed, self.asked
            last = ear.get_protocol()
            if isinstance(last, asyncio.Protocol | asyncio.BufferedProtocol):
                last.connection_lost(None)
        return heard


def ways(implementation: str, data: bytes) -> list[tuple[bytes, bool, object]]:
    async def both() -> list[tuple[bytes, bool, object]]:
        talk = Talk(implementation)
        return [await talk.hear(ProtocolSniffer, data), await talk.hear(HttpProtocol, data)]

    return asyncio.run(both())


ODD = st.sampled_from(
    [
        "Connection: Upgrade",
        "Connection: close",
        "Proxy-Connection: close",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Upgrade: WebSocket",
        "Upgrade:websocket",
        "Upgrade: h2c",
        "Host: there",
        "Host:",
        "Origin: https://example.org",
        "Sec-WebSocket-Version: 8",
        "Sec-WebSocket-Key: short",
        "Sec-WebSocket-Protocol: a, b",
        "Content-Length: 0",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "X-A: \xc4\t ",
        "X-B:",
        " folded",
        "no colon",
        "X C: d",
        "",
    ]
)
FIRST = st.sampled_from(
    [
        HANDSHAKE[0],
        "GET / HTTP/1.1",
        "GET /a?b=%20&c=\xc4 HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET * HTTP/1.1",
        "GET //x HTTP/1.1",
        "GET  /ws HTTP/1.1",
        "get /ws HTTP/1.1",
        "HEAD /ws HTTP/1.1",
        "CONNECT /ws HTTP/1.1",
        "GET /ws HTTP/1.0",
        "GET /ws HTTP/1.2",
        "GET /ws HTTP/2.0",
        "GET /ws",
    ]
)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    said = [draw(FIRST), *draw(st.permutations(HANDSHAKE[1:]))]
    for odd in draw(st.lists(ODD, max_size=3)):
        at = draw(st.integers(1, len(said)))
        said[at : at + draw(st.integers(0, 1))] = [odd]
    data = bytearray(lines(*said))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 1))] = draw(st.binary(max_size=2))
    return bytes(data) + draw(st.sampled_from([b"", frame(TEXT, b"early"), b"GET /", b"\r\n"]))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@settings(max_examples=400, deadline=None)
@given(data=heads())
@example(data=lines(*HANDSHAKE))
@example(data=lines(*HANDSHAKE) + frame(TEXT, b"early"))
@example(data=lines("GET /a HTTP/1.1", "Host: here"))
def test_a_websocket_handshake_has_the_same_result_with_and_without_the_http_parser(implementation: str, data: bytes):
    short, long = ways(implementation, data)
    assert short == long


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_frames_sent_with_the_websocket_handshake_are_processed_with_and_without_the_http_parser(implementation: str):
    for sent, closed, asked in ways(implementation, lines(*HANDSHAKE) + frame(TEXT, b"early")):
        assert sent.startswith(b"HTTP/1.1 101 ")
        assert sent.endswith(b"\x81\x05early")
        assert not closed
        assert len(asked) == 1  # type: ignore[arg-type]


# Connections without bytes


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_connection_that_sent_no_bytes_is_closed_when_the_server_stops(implementation: str):
    with Server(implementation) as server:
        client = Client(server.port)
        server.call(lambda: None)
        with server.connect():
            pass  # by now the first one has been accepted, too
    with client:
        assert client.read(1) == b""


def test_a_connection_reset_before_it_sent_any_bytes_is_removed_from_the_open_connections():
    with Server("picows") as server:
        for _ in range(3):
            Client(server.port).reset()
        with server.connect() as client:
            client.send(frame(TEXT, b"hello"))
            client.read_text()
            assert not server.call(lambda: server.server_state.connections)
