"""Internals of picows that we depend on: its constructor, its logger, its buffers."""

import gc
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from picows import WSTransport
from tests.transport.test_websocket_rig import CONTINUATION, TEXT, Client, Server, close_frame, frame

from herenow.errors import ConfigurationError
from herenow.transport.http.first_bytes import ProtocolSniffer
from herenow.transport.http.uvicorn_patches import HttpProtocol
from herenow.transport.websocket import Refuse, SocketLimits, Sockets
from herenow.transport.websocket.framing import Drain
from herenow.transport.websocket.picows import picows_protocol, self_test
from herenow.transport.websocket.picows.self_test import run_self_test
from herenow.transport.websocket.picows.socket import (
    FrameListener,
    ParserErrorTap,
    PicowsProtocol,
    PicowsSocket,
    TransportGuard,
)

SMALL = 2048 - 256  # available bytes of the smallest read buffer of picows


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("picows") as server:
        yield server


def room_to_read(server: Server, client: Client) -> int:
    def look() -> int:
        socket = client.handler.socket
        assert isinstance(socket, PicowsSocket)
        protocol = socket._tcp.get_protocol()
        assert isinstance(protocol, PicowsProtocol)
        return len(protocol.get_buffer(-1))

    return server.call(look)


# Buffers


def test_a_websocket_starts_with_a_small_read_buffer(server: Server):
    with server.connect() as client:
        assert room_to_read(server, client) == SMALL


@pytest.mark.parametrize("size", [4097, 20_000, 65_536])
def test_the_read_buffer_of_a_websocket_shrinks_after_a_large_message(server: Server, size: int):
    with server.connect() as client:
        for _ in range(3):
            client.send(frame(TEXT, b"x" * size))
            assert client.read_text() == b"x" * size
            assert room_to_read(server, client) == SMALL


def test_the_read_buffer_of_a_websocket_shrinks_after_a_large_fragment_and_the_message_continues(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"x" * 20_000, fin=False))
        client.send(frame(CONTINUATION, b"y" * 20_000))
        assert client.read_text() == b"x" * 20_000 + b"y" * 20_000
        assert room_to_read(server, client) == SMALL


def test_websocket_frames_directly_after_a_large_frame_are_not_lost(server: Server):
    large, next_one = frame(TEXT, b"x" * 30_000), frame(TEXT, b"next")
    with server.connect() as client:
        for cut in range(len(next_one)):
            client.send(large + next_one[:cut])
            client.send(next_one[cut:])
            assert client.read_text() == b"x" * 30_000
            assert client.read_text() == b"next"


def test_a_websocket_client_that_reads_slowly_and_sends_much_gets_all_answers_in_order(server: Server):
    # Answers queue up in the transport while the protocol is replaced after each message.
    with server.connect(receive_buffer=4096) as client:
        sent = [bytes([65 + i]) * 60_000 for i in range(20)]
        for text in sent:
            client.send(frame(TEXT, text))
        assert [client.read_text() for _ in sent] == sent


def until_empty(server: Server) -> None:
    server.until_empty()
    server.call(lambda: None)  # by now the loop has left the last callback of the last connection


def alive() -> list[str]:
    kinds = (
        PicowsSocket,
        PicowsProtocol,
        FrameListener,
        TransportGuard,
        ParserErrorTap,
        WSTransport,
        ProtocolSniffer,
        HttpProtocol,
        Drain,
    )
    return sorted(type(thing).__name__ for thing in gc.get_objects() if type(thing) in kinds)


# Not a frame that picows itself refuses: after that, it keeps its transport for 10 ms.
@pytest.mark.parametrize("last", [b"", close_frame(1000), frame(TEXT, b"\xff")], ids=["fin", "close", "failure"])
def test_a_closed_websocket_leaves_no_reference_cycles(server: Server, last: bytes):
    until_empty(server)
    gc.collect()
    gc.disable()
    try:
        before = alive()
        for _ in range(3):
            with server.connect() as client:
                client.send(frame(TEXT, b"x" * 5_000))
                client.read_text()
                client.send(last)
                client.finish()
                client.handler.closed()
                del client.handler
        until_empty(server)
        assert alive() == before
    finally:
        gc.enable()


# The self-test


def test_the_self_test_of_the_websocket_library_passes_with_the_installed_picows():
    run_self_test()


async def test_the_self_test_of_the_websocket_library_can_run_inside_a_running_event_loop():
    run_self_test()


def test_another_version_of_the_websocket_library_picows_is_refused_with_an_explanation(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(self_test, "version", lambda _name: "3.0.1")
    with pytest.raises(
        ConfigurationError, match=r"^picows 3\.0\.1 does not work with .* install picows==2\.3\.\* or use"
    ):
        run_self_test()


def wrong_constructor(protocol: PicowsProtocol, socket: PicowsSocket, subprotocol: str | None) -> None:
    PicowsProtocol.__base__.__init__(protocol, host_port=None, ws_path=None, is_client_side=False)


def deaf(_tap: ParserErrorTap, _message: str, *_args: object) -> None:
    pass


def no_answer(_protocol: PicowsProtocol, _data: bytes) -> None:
    pass


@pytest.mark.parametrize(
    ("place", "name", "replacement", "words"),
    [
        (PicowsProtocol, "_construct", wrong_constructor, r"__init__\(\) "),
        (PicowsProtocol, "_feed", no_answer, "the handshake was not answered"),
        (ParserErrorTap, "error", deaf, "a malformed frame was not reported"),
        (PicowsSocket, "send_text", lambda _socket, _payload: None, "a text was not echoed"),
    ],
)
def test_a_failed_self_test_of_the_websocket_library_names_the_failing_check(
    monkeypatch: pytest.MonkeyPatch, place: type, name: str, replacement: Any, words: str
):
    monkeypatch.setattr(place, name, replacement)
    with pytest.raises(ConfigurationError, match=words):
        picows_protocol(lambda _upgrade: Refuse(404), SocketLimits(), Sockets(1))


def test_websocket_connections_have_tcp_nodelay(server: Server):
    # picows does not set socket options: the event loop sets this one for every connection.
    with server.connect() as client:
        tcp = client.handler.socket._tcp  # type: ignore[attr-defined]
        assert server.call(lambda: tcp.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
