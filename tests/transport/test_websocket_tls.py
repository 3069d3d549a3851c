"""WebSockets over TLS: there the transport cannot be half closed, and frames do not go directly to the descriptor."""

import ssl
import struct
from collections.abc import Iterator

import pytest
from tests.certificates import write_certificate
from tests.transport import test_websocket_rig as rig
from tests.transport.test_websocket_rig import CLOSE, PING, PONG, TEXT, Client, Server, close_frame, frame, lines

from herenow.transport.websocket import SocketLimits


@pytest.fixture(scope="module", params=rig.IMPLEMENTATIONS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    certificate = tmp_path_factory.mktemp("tls") / "localhost.pem"
    write_certificate(certificate)
    limits = SocketLimits(close_timeout=rig.PATIENCE, linger=0.1)
    with Server(request.param, limits=limits, certificate=str(certificate)) as server:
        server.trust = ssl.create_default_context(cafile=str(certificate))
        server.trust.check_hostname = False
        yield server


@pytest.mark.parametrize("size", [5, 5_000, 65_536])
def test_websocket_messages_pass_over_tls(server: Server, size: int):
    with server.connect(with_it=frame(TEXT, b"early")) as client:
        assert client.read_text() == b"early"
        for _ in range(3):
            client.send(frame(TEXT, b"x" * size) + frame(PING, b"p"))
            assert client.read_text() == b"x" * size
            assert client.read_frame() == (PONG, b"p")


def test_http_responses_pass_over_tls(server: Server):
    with Client(server.port, tls=server.trust) as client:
        for path in ("/a", "/b"):
            client.send(lines(f"GET {path} HTTP/1.1", "Host: here"))
            assert client.read_answer()[1] == path


def test_a_websocket_close_is_answered_over_tls(server: Server):
    with server.connect() as client:
        client.send(close_frame(1000))
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", 1000))]


@pytest.mark.parametrize("bad", [frame(3), frame(TEXT, b"\xff"), frame(TEXT, b"x" * 1_000_000)])
def test_a_client_that_breaks_the_websocket_protocol_over_tls_gets_the_close_code(server: Server, bad: bytes):
    with server.connect() as client:
        client.send(bad)
        [(opcode, payload)] = client.read_to_end()
        assert opcode == CLOSE
        assert (int.from_bytes(payload[:2], "big"), payload[2:].decode()) == client.handler.closed()


def test_all_websockets_over_tls_can_be_aborted(server: Server):
    with server.connect() as client:
        server.call(server.registry.abort_all)
        assert client.handler.closed() == (None, "")
