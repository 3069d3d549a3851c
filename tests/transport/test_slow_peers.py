"""Peers that take their time: half heads, half bodies, half TLS handshakes, answers that nobody reads."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Iterator

import pytest
from tests.certificates import write_certificate
from tests.transport.test_websocket_rig import HANDSHAKE, PATIENCE, TEXT, Client, Server, frame, lines

from herenow.transport.http.patience import Awaited, Patience
from herenow.transport.http.peer_limits import PeerLimits

SOON = PeerLimits(check_every=0.1, head_within=0.5, transfer_within=0.5, least_rate=1)
HALF = b"GET /a HTTP/1.1\r\nHost: here\r\nX-"
CHUNKED = lines("POST /body HTTP/1.1", "Host: here", "Transfer-Encoding: chunked")
LONG = lines("POST /body HTTP/1.1", "Host: here", "Content-Length: 1000")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("picows", peers=SOON, keep_alive=0.5) as server:
        yield server


@pytest.fixture
def cut(server: Server) -> Iterator[list[str]]:
    """What peers were late with during the test."""
    before = server.metrics.connections_cut.copy()
    reasons: list[str] = []
    yield reasons
    assert sorted(reasons) == sorted((server.metrics.connections_cut - before).elements())


def drip(client: Client, data: bytes) -> None:
    """Send the data again and again, until the server has ended the connection."""
    ends = time.monotonic() + PATIENCE
    client.tcp.settimeout(0.05)
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < ends:
            client.send(data)
            with contextlib.suppress(TimeoutError):
                received = client.tcp.recv(65536)
                if not received:
                    return
                client.received += received  # type: ignore[attr-defined]
        raise AssertionError("the connection is still open")


@pytest.mark.parametrize("first", [HALF, b"G", b"\r\n", lines(*HANDSHAKE)[:-2]])
@pytest.mark.parametrize("further", [b"x", b""])
@pytest.mark.parametrize("earlier", [0, 1])
def test_an_http_request_whose_headers_are_not_completed_in_time_is_refused_with_408(
    server: Server, cut: list[str], first: bytes, further: bytes, earlier: int
) -> None:
    with Client(server.port) as client:
        for _ in range(earlier):
            client.send(lines("GET /a HTTP/1.1", "Host: here"))
            client.read_answer()
        client.received = b""  # type: ignore[attr-defined]
        client.send(first)
        drip(client, b"\n" if first == b"\r\n" and further else further if first != b"G" else b"")
        assert client.received.startswith(b"HTTP/1.1 408 ")  # type: ignore[attr-defined]
    cut.append("head")


@pytest.mark.parametrize(
    "request_",
    [
        LONG,
        LONG + b"x" * 999,
        CHUNKED,
        CHUNKED + b"5\r\nab",
        CHUNKED + b"1\r\nx\r\n",
        CHUNKED + b"1\r\nx\r\n0\r\nX: y",
        lines("POST /body HTTP/1.1", "Host: here", "Content-Length: 9", "Expect: 100-continue"),
    ],
)
def test_an_http_request_whose_body_stops_arriving_is_refused_with_408(
    server: Server, cut: list[str], request_: bytes
) -> None:
    with Client(server.port) as client:
        client.send(request_)
        head = client.read_head()
        if b"100-continue" in request_:
            assert head.startswith("HTTP/1.1 100 ")
            head = client.read_head()
        assert head.startswith("HTTP/1.1 408 ")
    cut.append("body")


def test_a_long_http_request_body_that_arrives_fast_enough_is_read_completely(server: Server, cut: list[str]) -> None:
    """Each byte buys a second here: the whole takes more than the time that a body without a byte has."""
    with Client(server.port) as client:
        client.send(LONG)
        for _ in range(20):
            client.send(b"x" * 50)
            time.sleep(0.05)
        assert client.read_answer()[1] == "/body"
    assert cut == []


@pytest.mark.parametrize("further", [b"", b"x"])
def test_a_connection_whose_request_body_stops_after_the_answer_ends_without_a_second_answer(
    server: Server, further: bytes
) -> None:
    """The endpoint has answered without reading: no second answer may follow."""
    with Client(server.port) as client:
        client.send(lines("POST /a HTTP/1.1", "Host: here", "Transfer-Encoding: chunked") + b"fffff;")
        assert client.read_answer()[1] == "/a"
        client.received = b""  # type: ignore[attr-defined]
        drip(client, further)
        assert client.received == b""  # type: ignore[attr-defined]


def test_an_endless_request_body_that_continues_after_the_answer_ends_the_connection(server: Server) -> None:
    with Client(server.port) as client:
        client.send(lines("POST /a HTTP/1.1", "Host: here", "Transfer-Encoding: chunked"))
        assert client.read_answer()[1] == "/a"
        with pytest.raises(ConnectionError):
            for _ in range(1_000):
                client.send(b"ffff\r\n" + b"x" * 65_535 + b"\r\n")


def test_an_http_answer_that_the_client_does_not_read_is_aborted(server: Server, cut: list[str]) -> None:
    with Client(server.port, receive_buffer=4096) as client:
        client.send(lines("GET /big HTTP/1.1", "Host: here"))
        until(lambda: server.metrics.connections_cut["answer"])
        until(lambda: not server.call(lambda: server.admission.open))
        read = 0
        with contextlib.suppress(ConnectionError):
            while data := client.tcp.recv(65536):
                read += len(data)
        assert read < 20_000_000
    cut.append("answer")


def until(condition: object) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_client_that_waits_for_an_answer_or_has_a_websocket_is_not_disconnected_as_too_slow(
    server: Server, cut: list[str]
) -> None:
    with Client(server.port) as waiting, server.connect() as open_one:
        waiting.send(lines("GET /never HTTP/1.1", "Host: here"))
        time.sleep(1.5)
        open_one.send(frame(TEXT, b"hello"))
        assert open_one.read_text() == b"hello"
        assert server.call(lambda: server.admission.open) == 2
    assert cut == []


@pytest.mark.parametrize("said", [b"", lines("GET /a HTTP/1.1", "Host: here")])
def test_an_idle_http_connection_is_closed_and_not_counted_as_too_slow(
    server: Server, cut: list[str], said: bytes
) -> None:
    with Client(server.port) as client:
        if said:
            client.send(said)
            client.read_answer()
        assert client.read(1) == b""
    assert cut == []


# TLS


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    certificate = tmp_path_factory.mktemp("tls") / "localhost.pem"
    write_certificate(certificate)
    with Server("picows", peers=SOON, keep_alive=0.5, certificate=str(certificate)) as server:
        server.trust = ssl.create_default_context(cafile=str(certificate))
        server.trust.check_hostname = False
        yield server


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n"])
def test_an_incomplete_tls_handshake_is_given_up_and_its_connection_no_longer_counts(
    secure: Server, said: bytes
) -> None:
    with Client(secure.port) as client:
        client.send(said)
        client.read(10_000)  # an alert at most, then the end
    until(lambda: not secure.call(lambda: secure.admission.open))


@pytest.mark.parametrize("said", [b"", HALF])
def test_a_tls_connection_whose_http_headers_are_not_completed_in_time_is_closed(secure: Server, said: bytes) -> None:
    with Client(secure.port, tls=secure.trust) as client:
        client.send(said)
        assert client.read(10_000)[:13] in (b"", b"HTTP/1.1 408 ")
    until(lambda: not secure.call(lambda: secure.admission.open))


# The rule

LIMITS = PeerLimits()


@pytest.mark.parametrize(
    ("what", "passed", "seconds", "over"),
    [
        ("head", 0, 10, False),
        ("head", 1_000_000, 10.1, True),
        ("body", 0, 10, False),
        ("body", 0, 10.1, True),
        ("body", 102_400, 109.9, False),
        ("body", 102_400, 110.1, True),
        ("answer", 1_024, 10.9, False),
        ("answer", 1_024, 11.1, True),
        ("idle", 0, 5, False),
        ("idle", 0, 5.1, True),
    ],
)
def test_the_time_limit_grows_with_bytes_of_an_http_body_or_answer_but_not_with_bytes_of_headers(
    what, passed, seconds, over
) -> None:
    patience = Patience(Awaited(what, 1, 500), since=100.0)
    assert patience.is_over(Awaited(what, 1, 500 + passed), 100.0 + seconds, LIMITS, idle_within=5.0) is over
