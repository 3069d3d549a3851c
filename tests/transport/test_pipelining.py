"""Requests that a client sends without waiting: one may wait behind another, and nothing of them outlives the connection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.processes import Server as Process
from tests.processes import token
from tests.transport.test_websocket_rig import PATIENCE, Client, Server, lines
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MB = 1_000_000


def get(path: str) -> bytes:
    return lines(f"GET {path} HTTP/1.1", "Host: here")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("picows") as server:
        yield server


def test_an_http_request_sent_before_the_previous_answer_is_answered_in_order(server: Server) -> None:
    with Client(server.port) as client:
        for _ in range(3):
            client.send(get("/a") + get("/b"))
            assert [client.read_answer()[1] for _ in range(2)] == ["/a", "/b"]


def test_of_twenty_http_requests_sent_at_once_two_are_answered_and_the_connection_is_closed(server: Server) -> None:
    with Client(server.port) as client:
        client.send(b"".join(get(f"/{number}") for number in range(20)))
        heads, bodies = zip(*(client.read_answer() for _ in range(2)), strict=True)
        assert bodies == ("/0", "/1")
        assert ["connection: close" in head for head in heads] == [False, True]
        assert client.read(1) == b""


def test_a_flood_of_http_requests_during_one_that_takes_long_ends_the_connection(server: Server) -> None:
    with Client(server.port) as client:
        client.send(get("/never"))
        with pytest.raises(OSError):
            for number in range(100_000):
                client.send(lines(f"GET /{number} HTTP/1.1", "Host: here", "X: " + "x" * 1_000))
                assert server.call(lambda: most_waiting(server)) <= 1


def most_waiting(server: Server) -> int:
    return max((len(getattr(each, "pipeline", ())) for each in server.server_state.connections), default=0)


def test_a_malformed_http_request_sent_during_an_answer_does_not_corrupt_the_answer(server: Server) -> None:
    with Client(server.port) as client:
        client.send(get("/a") + b"rubbish\r\n\r\n")
        assert client.read(9) == b"HTTP/1.1 "
        assert client.read(3) in (b"200", b"400")  # by how far the answer was; never one inside the other
        assert b"HTTP/1.1" not in client.read(10_000)


@pytest.mark.parametrize(
    "sent", [get("/never"), get("/never") + get("/b"), get("/never") + get("/b") + b"GET /", b"GET"]
)
def test_a_reset_http_connection_is_freed_without_the_garbage_collector(server: Server, sent: bytes) -> None:
    gc.collect()
    before = server.call(alive)
    server.call(gc.disable)
    try:
        for _ in range(10):
            with Client(server.port) as client:
                client.send(sent)
                time.sleep(0.01)
                client.reset()
        ends = time.monotonic() + PATIENCE
        while server.call(alive) > before and time.monotonic() < ends:
            time.sleep(0.01)
        assert server.call(alive) <= before
    finally:
        server.call(gc.enable)


def alive() -> int:
    return sum(isinstance(each, HttpToolsProtocol | RequestResponseCycle) for each in gc.get_objects())


# A whole server

ASKED = get("/healthz") * 4_000
BODY = b'{"text":"lunch"}'
WITH_A_BODY = (
    lines(
        "PUT /api/v1/users/ana/status HTTP/1.1",
        "Host: here",
        f"Authorization: Bearer {token('backend', 'service')}",
        "Content-Type: application/json",
        f"Content-Length: {len(BODY)}",
    )
    + BODY
)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    process = await Process(tmp_path, {"ledger": "sqlite://"}).start()
    yield process
    await process.stop()


async def test_a_flood_of_http_requests_whose_answers_nobody_reads_takes_little_memory(process: Process) -> None:
    """Before the bound, each MB of requests took 80 MB, which stayed after the peer had gone."""
    port = port_of(process)
    before = resident(process.pid)
    with Client(port) as client:
        client.tcp.settimeout(2)
        with contextlib.suppress(OSError):
            for _ in range(10 * MB // len(ASKED)):
                client.send(ASKED)
        answered(port)
        assert resident(process.pid) - before < 100 * MB


async def test_connections_reset_in_the_middle_of_http_requests_log_no_traceback(process: Process) -> None:
    port = port_of(process)
    for number in range(60):
        with Client(port) as client:
            with contextlib.suppress(OSError):
                client.send(WITH_A_BODY * (2, 50, 1_000)[number % 3])
            await asyncio.sleep(number % 4 * 0.005)
            client.reset()
    answered(port)
    assert "Traceback" not in process.told()


def port_of(process: Process) -> int:
    port = urlsplit(process.url).port
    assert port is not None
    return port


def answered(port: int) -> None:
    """The server has got around to a request that came after all others."""
    with Client(port) as client:
        client.tcp.settimeout(60)
        client.send(get("/healthz"))
        client.read_answer()


def resident(pid: int) -> int:
    """Bytes of memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
