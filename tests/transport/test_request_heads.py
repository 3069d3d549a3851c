"""The head of a request has a bound, wherever it is long, and so have the trailers behind a body."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes import Server as Process
from tests.transport.test_pipelining import answered, port_of, resident
from tests.transport.test_websocket_rig import HANDSHAKE, TEXT, Client, Server, frame, lines

MB = 1_000_000
MOST = 32_768
BEGIN = b"GET /a HTTP/1.1\r\nHost: here\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("picows") as server:
        yield server


def head_of(size: int) -> bytes:
    """A whole head of so many bytes."""
    return BEGIN + b"X: " + b"x" * (size - len(BEGIN) - 7) + b"\r\n\r\n"


@pytest.mark.parametrize("size", [100, 16_384, 16_385, MOST])
@pytest.mark.parametrize("piece", [1_000, 16_384, 100_000])
def test_http_request_headers_up_to_the_size_limit_are_read_in_pieces_of_any_size(
    server: Server, size: int, piece: int
) -> None:
    head = head_of(size)
    assert len(head) == size
    with Client(server.port) as client:
        for _ in range(2):  # the count begins anew with each request
            for at in range(0, size, piece):
                client.send(head[at : at + piece])
            assert client.read_answer()[1] == "/a"


ENDLESS = {
    "one value": BEGIN + b"X: " + b"x" * 2 * MOST,
    "one name": BEGIN + b"x" * 2 * MOST,
    "many lines": BEGIN + b"X: y\r\n" * MOST,
    "address": b"GET /" + b"a" * 2 * MOST,
    "empty lines": b"\r\n" * MOST,
    "a byte too many": head_of(MOST + 1),
    "trailers": b"POST /a HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * MOST,
    "one trailer": b"POST /a HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"y" * 4 * MOST,
    "chunk extension": b"POST /a HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"y" * 4 * MOST,
}


@pytest.mark.parametrize("sent", ENDLESS.values(), ids=list(ENDLESS))
@pytest.mark.parametrize("earlier", [0, 1])
def test_http_request_headers_over_the_size_limit_are_refused_with_431_and_the_connection_ends(
    server: Server, sent: bytes, earlier: int
) -> None:
    with Client(server.port) as client:
        for _ in range(earlier):
            client.send(BEGIN + b"\r\n")
            client.read_answer()
        client.send(sent)
        answer, body = client.read_answer()
        if answer.startswith("HTTP/1.1 200 "):  # the answer had begun when the trailers came
            assert b"POST" in sent
        else:
            assert answer.startswith("HTTP/1.1 431 ")
            assert "32768 bytes" in body
        assert client.read(1) == b""


def test_too_long_http_request_headers_do_not_corrupt_the_answer_before_them(server: Server) -> None:
    with Client(server.port) as client:
        client.send(BEGIN + b"\r\n" + ENDLESS["one value"])
        everything = client.read(100_000)
        assert everything.count(b"HTTP/1.1 ") == 1


def test_the_size_limit_of_http_request_headers_does_not_apply_to_the_body(server: Server) -> None:
    body = b"x" * 500_000
    with Client(server.port) as client:
        client.send(lines("POST /a HTTP/1.1", "Host: here", f"Content-Length: {len(body)}") + body)
        assert client.read_answer()[1] == "/a"
        chunks = b"".join(b"%x\r\n%b\r\n" % (size, b"x" * size) for size in (1, 100, 50_000, 1) * 5)
        client.send(lines("POST /b HTTP/1.1", "Host: here", "Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n")
        assert client.read_answer()[1] == "/b"
        client.send(head_of(MOST))
        assert client.read_answer()[1] == "/a"


def test_an_http_trailer_sent_after_the_body_does_not_count_as_a_header(server: Server) -> None:
    """A proxy in front has checked the headers, not what comes behind the body."""
    with Client(server.port) as client:
        request = lines("POST /headers HTTP/1.1", "Host: here", "Transfer-Encoding: chunked")
        client.send(request + b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
        assert client.read_answer()[1] == "host transfer-encoding"


def test_a_websocket_handshake_with_long_headers_is_opened_and_frames_sent_with_it_are_processed(
    server: Server,
) -> None:
    with Client(server.port) as client:
        early = b"".join(frame(TEXT, b"%d" % number * 5_000) for number in range(9))
        client.send(lines(*HANDSHAKE, "X: " + "x" * 20_000) + early)
        assert client.read_head().startswith("HTTP/1.1 101 ")
        for number in range(9):
            assert client.read_text() == b"%d" % number * 5_000


async def test_endless_http_request_headers_take_little_memory(tmp_path: Path) -> None:
    """Before the bound, 63 MB of header lines took 410 MB."""
    process = await Process(tmp_path, {"ledger": "sqlite://"}).start()
    try:
        before = resident(process.pid)
        with Client(port_of(process)) as client:
            with contextlib.suppress(OSError):
                client.send(BEGIN)
                for _ in range(40):
                    client.send(b"X-A: 1\r\n" * (MB // 8))
            answered(port_of(process))
            assert resident(process.pid) - before < 50 * MB
    finally:
        await process.stop()


REFUSED = {
    "two Authorization headers": (400, lines("GET /a HTTP/1.1", "Host: here", "Authorization: a", "authorization: b")),
    "two Origin headers": (400, lines("GET /a HTTP/1.1", "Host: here", "Origin: http://a", "Origin: http://b")),
    "two Host headers": (400, lines("GET /a HTTP/1.1", "Host: here", "HOST: here")),
    "two Host headers with HTTP/1.0": (400, lines("GET /a HTTP/1.0", "Host: here", "HOST: here")),
    "two with another Upgrade": (
        400,
        lines("GET /a HTTP/1.1", "Host: a", "Host: b", "Connection: upgrade", "Upgrade: h2c"),
    ),
    "no Host": (400, lines("GET /a HTTP/1.1", "Accept: */*")),
    "no version": (400, b"GET /a\r\n\r\n"),
    "HTTP/2.0": (505, lines("GET /a HTTP/2.0", "Host: here")),
}


@pytest.mark.parametrize(("status", "sent"), REFUSED.values(), ids=list(REFUSED))
@pytest.mark.parametrize("earlier", [0, 1])
def test_an_ambiguous_request_head_is_refused_and_the_connection_ends(
    server: Server, status: int, sent: bytes, earlier: int
) -> None:
    with Client(server.port) as client:
        for _ in range(earlier):
            client.send(BEGIN + b"\r\n")
            client.read_answer()
        client.send(sent)
        assert client.read_answer()[0].startswith(f"HTTP/1.1 {status} ")
        assert client.read(1) == b""


def test_a_request_of_http_1_0_needs_no_host(server: Server) -> None:
    with Client(server.port) as client:
        client.send(lines("GET /a HTTP/1.0"))
        assert client.read_answer()[1] == "/a"
