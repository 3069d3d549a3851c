"""Accepted and refused handshakes, and HTTP on the same port."""

import resource

import pytest
from tests.transport import test_websocket_rig as rig
from tests.transport.test_websocket_rig import CLOSE, HANDSHAKE, TEXT, Client, Server, frame, lines

from herenow.transport.websocket import (
    Accept,
    Acceptor,
    CloseOnOpen,
    Refuse,
    Upgrade,
    descriptors_allowed,
    sockets_within,
)
from herenow.transport.websocket.handshake import read_upgrade

running, server = rig.running, rig.server

ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # for the key of HANDSHAKE; RFC 6455, 1.3


def changed(name: str, *values: str) -> tuple[str, ...]:
    """The handshake with other values for one header: none, one, several."""
    kept = tuple(line for line in HANDSHAKE if not line.startswith(f"{name}:"))
    return (*kept, *(f"{name}: {value}" for value in values))


# Valid handshakes


def test_the_answer_to_a_websocket_handshake_has_the_accept_key_and_no_extension(server: Server):
    with Client(server.port) as client:
        client.send(lines(*HANDSHAKE, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"))
        head = client.read_head().lower()
    assert head.startswith("http/1.1 101 ")
    assert f"sec-websocket-accept: {ACCEPT}".lower() in head
    assert "connection: upgrade" in head
    assert "upgrade: websocket" in head
    assert "extensions" not in head
    assert "protocol:" not in head


@pytest.mark.parametrize(
    "said",
    [
        changed("Connection", "keep-alive, Upgrade"),  # Firefox
        changed("Connection", "upgrade"),
        changed("Upgrade", "WebSocket"),
        tuple(line.lower() if line.startswith(("Sec-WebSocket-V", "Host")) else line for line in HANDSHAKE),
        (*HANDSHAKE, "Content-Length: 0"),
        (*HANDSHAKE, "Origin: https://example.org"),
        (*HANDSHAKE, "Cookie: a=1", "Cookie: b=2"),
        (*HANDSHAKE, "X-Long: " + "x" * 16000),
    ],
)
def test_a_valid_websocket_handshake_is_accepted(server: Server, said: tuple[str, ...]):
    with Client(server.port) as client:
        client.send(lines(*said))
        assert client.read_head().startswith("HTTP/1.1 101 ")
        client.send(frame(TEXT, b"hello"))
        assert client.read_text() == b"hello"


def test_the_function_that_accepts_websockets_gets_path_headers_and_subprotocols(server: Server):
    seen: list[Upgrade] = []

    def acceptor(upgrade: Upgrade) -> Accept:
        seen.append(upgrade)
        return Accept(CloseOnOpen(1000))

    server.acceptor = acceptor
    with Client(server.port) as client:
        said = ("GET /ws/pr%20es?device_id=d%2F1&token=t HTTP/1.1", *HANDSHAKE[1:])
        more = ("Origin: https://example.org", "Sec-WebSocket-Protocol: herenow.v1, herenow.token.abc", "X-A: Ä")
        client.send(lines(*said, *more))
        client.read_head()
        peer = client.tcp.getsockname()
    [upgrade] = seen
    assert (upgrade.path, upgrade.query) == ("/ws/pr%20es", "device_id=d%2F1&token=t")
    assert (upgrade.host, upgrade.origin) == ("here", "https://example.org")
    assert upgrade.subprotocols == ("herenow.v1", "herenow.token.abc")
    assert (upgrade.peer, upgrade.secure) == (peer, False)
    assert upgrade.header("x-a") == "Ä"
    assert upgrade.header("x-b") is None
    assert "token" not in repr(upgrade)


def test_a_websocket_handshake_without_an_origin_header_has_the_origin_none(server: Server):
    upgrade = read_upgrade(lines(*HANDSHAKE), peer=None, secure=True)
    assert isinstance(upgrade, Upgrade)
    assert (upgrade.origin, upgrade.subprotocols, upgrade.secure) == (None, (), True)


def test_of_a_header_repeated_in_a_websocket_handshake_the_first_counts_and_lists_are_joined():
    said = (*changed("Connection", "keep-alive", "Upgrade"), "X-A: 1", "x-a: 2")
    upgrade = read_upgrade(lines(*said), peer=None, secure=False)
    assert isinstance(upgrade, Upgrade)
    assert upgrade.header("x-a") == "1"


@pytest.mark.parametrize("value", ["", "1", "here"])
def test_a_websocket_handshake_that_repeats_a_single_value_header_is_refused(value: str):
    for name in ("Host", "Origin", "Authorization", "Content-Length"):
        refuse = read_upgrade(lines(*HANDSHAKE, f"{name}: {value}", f"{name}: {value}"), peer=None, secure=False)
        assert refuse == Refuse(400, "a header that may occur once is repeated")


def test_the_answer_to_a_websocket_handshake_has_the_chosen_subprotocol(server: Server):
    server.acceptor = lambda _upgrade: Accept(CloseOnOpen(4401, "no token"), "herenow.v1")
    with Client(server.port) as client:
        client.send(lines(*HANDSHAKE, "Sec-WebSocket-Protocol: herenow.token.x", "Sec-WebSocket-Protocol: herenow.v1"))
        assert "sec-websocket-protocol: herenow.v1\r\n" in client.read_head().lower()
        assert client.read_frame() == (CLOSE, (4401).to_bytes(2, "big") + b"no token")


# Invalid handshakes


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (changed("Sec-WebSocket-Key"), 400),
        (changed("Sec-WebSocket-Key", ""), 400),
        (changed("Sec-WebSocket-Key", "c2hvcnQ="), 400),
        (changed("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ"), 400),
        (changed("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=="), 400),
        (changed("Sec-WebSocket-Key", "ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ=="), 400),
        (changed("Sec-WebSocket-Version"), 426),
        (changed("Sec-WebSocket-Version", "8"), 426),
        (changed("Sec-WebSocket-Version", "14"), 426),
        (changed("Sec-WebSocket-Version", "13", "13"), 400),
        (changed("Host"), 400),
        (changed("Host", "here", "there"), 400),
        ((*HANDSHAKE, "Origin: https://a.example", "Origin: https://b.example"), 400),
        ((*HANDSHAKE, "Origin: https://a.example", "origin: https://a.example"), 400),
        ((*HANDSHAKE, "Authorization: Bearer a", "Authorization: Bearer b"), 400),
        (("POST /ws HTTP/1.1", *HANDSHAKE[1:]), 400),
        (("GET /ws HTTP/1.0", *HANDSHAKE[1:]), 400),
        (("GET http://here/ws HTTP/1.1", *HANDSHAKE[1:]), 400),
        ((*HANDSHAKE, "Transfer-Encoding: chunked"), 400),
    ],
)
def test_an_invalid_websocket_handshake_is_refused_and_the_connection_closed(
    server: Server, said: tuple[str, ...], status: int
):
    with Client(server.port) as client:
        client.send(lines(*said))
        head, body = client.read_answer()
        assert head.startswith(f"HTTP/1.1 {status} ")
        assert "connection: close" in head
        assert body
        assert client.read(1) == b""


def test_a_wrong_websocket_version_is_answered_with_the_supported_one(server: Server):
    with Client(server.port) as client:
        client.send(lines(*changed("Sec-WebSocket-Version", "8")))
        assert "sec-websocket-version: 13\r\n" in client.read_head()


def test_a_refused_websocket_handshake_gets_an_http_response_and_frames_sent_with_it_are_ignored(server: Server):
    server.acceptor = lambda _upgrade: Refuse(403, "not from there", (("x-why", "origin"),))
    with Client(server.port) as client:
        client.send(lines(*HANDSHAKE) + frame(TEXT, b"early"))
        head, body = client.read_answer()
        assert head.startswith("HTTP/1.1 403 Forbidden\r\n")
        assert "x-why: origin\r\n" in head
        assert body == "not from there"
        assert client.read(1) == b""


def offers_what_was_not_asked(_upgrade: Upgrade) -> Accept:
    return Accept(CloseOnOpen(1000), "never.offered")


def raises(_upgrade: Upgrade) -> Accept:
    raise KeyError("a defect of the acceptor")


@pytest.mark.parametrize("acceptor", [offers_what_was_not_asked, raises])
def test_an_error_in_the_function_that_accepts_websockets_returns_500_and_is_logged(
    server: Server, acceptor: Acceptor, caplog
):
    server.acceptor = acceptor
    with Client(server.port) as client:
        client.send(lines(*HANDSHAKE))
        head, body = client.read_answer()
    assert head.startswith("HTTP/1.1 500 ")
    assert body == "internal error"
    assert "the acceptor failed on /ws" in caplog.text


# HTTP on the same port


def test_a_connection_used_for_http_requests_can_be_upgraded_to_a_websocket_afterwards(server: Server):
    with Client(server.port) as client:
        for path in ("/a", "/b"):
            client.send(lines(f"GET {path} HTTP/1.1", "Host: here"))
            head, body = client.read_answer()
            assert head.startswith("HTTP/1.1 200 ")
            assert body == path
        client.send(lines(*HANDSHAKE) + frame(TEXT, b"early"))
        assert client.read_head().startswith("HTTP/1.1 101 ")
        assert client.read_text() == b"early"
        client.send(frame(TEXT, b"later"))
        assert client.read_text() == b"later"


def test_a_websocket_upgrade_while_an_http_request_is_being_answered_is_refused(server: Server):
    with Client(server.port) as client:
        client.send(lines("GET /never HTTP/1.1", "Host: here") + lines(*HANDSHAKE))
        assert client.read_head().startswith("HTTP/1.1 400 ")


def test_a_websocket_handshake_sent_byte_by_byte_is_accepted(server: Server):
    with Client(server.port) as client:
        for byte in lines(*HANDSHAKE):
            client.send(bytes([byte]))
        assert client.read_head().startswith("HTTP/1.1 101 ")


@pytest.mark.parametrize("implementation", rig.IMPLEMENTATIONS)
def test_an_idle_tcp_connection_is_closed_and_an_open_websocket_stays(implementation: str):
    with Server(implementation, keep_alive=0.4) as server, server.connect() as open_one, Client(server.port) as client:
        assert client.read(1) == b""
        open_one.send(frame(TEXT, b"still here"))
        assert open_one.read_text() == b"still here"


# Limits


@pytest.mark.parametrize("implementation", rig.IMPLEMENTATIONS)
def test_a_full_server_closes_a_new_websocket_with_1013_and_refuses_further_ones_with_503(implementation: str):
    with Server(implementation, max_open=2, spare=1) as server:
        take = server.acceptor

        def acceptor(upgrade: Upgrade) -> Accept | Refuse:
            return Accept(CloseOnOpen(1013, "retry_after_ms=500")) if server.registry.full else take(upgrade)

        server.acceptor = acceptor
        with server.connect() as first, server.connect(), Client(server.port) as third, Client(server.port) as fourth:
            third.send(lines(*HANDSHAKE))
            assert third.read_head().startswith("HTTP/1.1 101 ")
            assert third.read_frame() == (CLOSE, (1013).to_bytes(2, "big") + b"retry_after_ms=500")
            # The third has not answered the CLOSE: it still uses the spare place.
            fourth.send(lines(*HANDSHAKE))
            head, _body = fourth.read_answer()
            assert head.startswith("HTTP/1.1 503 ")
            assert "retry-after: 10\r\n" in head
            assert server.call(lambda: server.registry.count) == 3
            first.reset()
            first.handler.closed()
            assert server.call(lambda: server.registry.count) == 2


@pytest.mark.parametrize(
    ("descriptors", "sockets"), [(1, 1), (64, 1), (256, 128), (640, 512), (1024, 858), (20_000, 17_936)]
)
def test_the_websocket_limit_reserves_some_file_descriptors_for_other_uses(descriptors: int, sockets: int):
    assert sockets_within(descriptors) == sockets


def test_descriptors_allowed_is_the_file_descriptor_limit_of_the_process():
    assert descriptors_allowed() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
