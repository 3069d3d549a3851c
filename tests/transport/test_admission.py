"""How many connections are let in: as many as there are descriptors for, and of one address its share."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from ipaddress import ip_network
from pathlib import Path

import httpx2
import pytest
from tests.processes import Server as Process
from tests.transport.test_pipelining import answered, port_of
from tests.transport.test_websocket_rig import PATIENCE, TEXT, Client, Server, frame, lines

from herenow.settings import Settings
from herenow.transport.http.peer_limits import PeerLimits, counted_address, peer_limits
from herenow.transport.websocket import Refuse, connections_within, sockets_within
from herenow.transport.websocket.registry import SPARE

PROXIES = PeerLimits(trusted=(ip_network("10.0.0.0/8"), ip_network("2001:db8:ffff::/48")))


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", None),
        ("127.1.2.3", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("10.1.2.3", None),
        ("::ffff:10.1.2.3", None),
        ("2001:db8:ffff:1::1", None),
        ("", None),
    ],
)
def test_connections_are_counted_per_ipv4_address_or_ipv6_network_and_trusted_proxies_not_at_all(
    host: str, counted: str | None
) -> None:
    assert counted_address(host, PROXIES) == counted


@pytest.mark.parametrize("descriptors", [130, 256, 1024, 65_536, 1_048_576])
def test_the_connection_limit_leaves_room_for_http_requests_beside_all_websockets(descriptors: int) -> None:
    assert sockets_within(descriptors) + SPARE <= connections_within(descriptors) <= descriptors - 64


def test_connections_per_address_are_limited_to_a_quarter_of_the_descriptors_or_the_setting() -> None:
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert peer_limits(Settings()).max_per_address == descriptors // 4
    chosen = Settings(max_connections_per_address=7, trusted_proxies=("10.0.0.0/8",))
    assert peer_limits(chosen).max_per_address == 7
    assert peer_limits(chosen).trusted == (ip_network("10.0.0.0/8"),)


# By address

EACH = PeerLimits(max_per_address=3, exempt_loopback=False, check_every=0.1)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("picows", peers=EACH) as server:
        yield server


def silent(server: Server) -> Client:
    return Client(server.port)


def half_a_head(server: Server) -> Client:
    client = Client(server.port)
    client.send(b"GET / HT")
    return client


def used(server: Server) -> Client:
    client = Client(server.port)
    client.send(lines("GET /a HTTP/1.1", "Host: here"))
    client.read_answer()
    return client


def websocket(server: Server) -> Client:
    return server.connect()


KINDS: list[Callable[[Server], Client]] = [silent, half_a_head, used, websocket]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [Client.__exit__, Client.reset])
def test_a_connection_over_the_limit_per_address_is_refused_with_503_until_another_one_ends(
    server: Server, kind: Callable[[Server], Client], end: Callable[[Client], None]
) -> None:
    there = [kind(server) for _ in range(3)]
    with Client(server.port) as fourth:
        assert fourth.read_head().startswith("HTTP/1.1 503 ")
    assert server.metrics.connections_refused == {"address": 1}
    end(there.pop())
    until(lambda: server.call(lambda: server.admission.open) == 2)
    with used(server):
        pass
    for client in there:
        client.reset()
    until(lambda: server.call(lambda: server.admission.open) == 0)


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_connections_from_the_own_machine_have_no_limit_per_address() -> None:
    with Server("picows", peers=PeerLimits(max_per_address=1)) as server, contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(used(server))


# By descriptors


def test_connections_over_the_total_limit_are_refused_with_503_and_open_ones_stay() -> None:
    with Server("picows", peers=PeerLimits(max_open=4)) as server, contextlib.ExitStack() as stack:
        there = stack.enter_context(server.connect())
        for kind in (silent, half_a_head, used):
            stack.enter_context(kind(server))
        for _ in range(3):
            with Client(server.port) as client:
                assert client.read_head().startswith("HTTP/1.1 503 ")
        assert server.metrics.connections_refused == {"descriptors": 3}
        there.send(frame(TEXT, b"hello"))
        assert there.read_text() == b"hello"


@pytest.mark.parametrize("implementation", ["picows", "websockets"])
def test_a_connection_that_ended_in_any_way_no_longer_counts_against_the_limit(implementation: str) -> None:
    with Server(implementation) as server:
        server.acceptor = lambda _upgrade: Refuse(403, "no")
        for said in (b"", b"GET", b"rubbish\r\n\r\n", lines("GET /a HTTP/1.1", "Host: here", "Connection: close")):
            for end in (Client.finish, Client.reset):
                client = Client(server.port)
                client.send(said)
                end(client)
                client.tcp.close()
        with pytest.raises(AssertionError), server.connect():
            pass
        until(lambda: server.call(lambda: server.admission.open) == 0)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    process = await Process(tmp_path, {"ledger": "sqlite://"}).start()
    yield process
    await process.stop()


async def test_many_connections_with_half_a_request_leave_free_file_descriptors_for_the_server(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        process = await Process(tmp_path, {"ledger": "sqlite://"}).start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        there = [half_a_head_at(port_of(process)) for _ in range(300)]
        assert refused(there[-1])
        assert "connection.refused" in process.told()
        assert len(descriptors_of(process)) < 256 - 20  # for the ledger, Redis, the log
        for client in there:
            client.close()
        answered(port_of(process))
    finally:
        await process.stop()


def descriptors_of(process: Process) -> list[int]:
    return [int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir()]


def half_a_head_at(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    with contextlib.suppress(ConnectionError):
        client.send(b"GET / HTTP/1.1\r\nX-")
    return client


def refused(client: socket.socket) -> bool:
    try:
        return client.recv(100).startswith(b"HTTP/1.1 503 ")
    except ConnectionError:
        return True


async def test_a_server_out_of_file_descriptors_logs_it_counts_it_and_recovers(process: Process) -> None:
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    taken = max(descriptors_of(process)) + 1
    holes = taken - len(descriptors_of(process))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (taken, before[1]))
    clients = [socket.create_connection(("127.0.0.1", port_of(process)), timeout=PATIENCE) for _ in range(holes + 3)]
    until(lambda: "accept.failed" in process.told())
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
    clients[-1].send(lines("GET /healthz HTTP/1.1", "Host: here"))
    assert clients[-1].recv(100).startswith(b"HTTP/1.1 200 ")  # it has waited in the queue
    assert process.told().count("accept.failed") == 1
    for client in clients:
        client.close()
    async with httpx2.AsyncClient() as http:
        text = (await http.get(process.url + "/metrics")).text
    [count] = [line.split()[1] for line in text.splitlines() if line.startswith("herenow_accept_errors_total ")]
    assert float(count) >= 1
