"""The load generator: counted bytes, several processes, generated contacts."""

import socket
from random import Random

from bench.city import MOST_CONTACTS, acquainted
from bench.crowds import Crowds
from bench.load import Http, token
from bench.losses import Losses, _note
from bench.machine import wire_bytes
from bench.server import herenow


def test_wire_bytes_counts_the_payload_and_the_tcp_headers_of_a_connection():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
        with client, server:
            before = wire_bytes(client)
            for _ in range(3):
                client.sendall(b"x" * 30)
                assert server.recv(30, socket.MSG_WAITALL) == b"x" * 30
                server.sendall(b"y" * 100)
                assert client.recv(100, socket.MSG_WAITALL) == b"y" * 100
            crossed = wire_bytes(client) - before
            payload = 3 * (30 + 100)
            assert crossed - payload >= 6 * 40, "each of six segments has its headers"
            assert (crossed - payload) % 4 == 0


def test_the_load_generator_may_be_spread_over_several_processes():
    with herenow(relations="open") as server, Crowds([server, server]) as crowds:
        crowds.join([(["a", "b"], [["c"], ["c"]]), (["c"], [[]])])
        crowds.join([(["d"], [[]]), ([], [])])
        with Http(server, token("bench", scope="service")) as http:
            _, body = http.fetch(http.request("GET", "/metrics"))
        assert b"herenow_connections 4.0" in body
        assert crowds.cpu_seconds > 0


def test_generated_contacts_of_the_benchmark_are_mutual_and_bounded_and_few_users_have_very_many():
    pairs = acquainted(2_000, 50, Random(1))
    degrees = [0] * 2_000
    for one, other in pairs:
        assert one < other
        degrees[one] += 1
        degrees[other] += 1
    assert len(set(pairs)) == len(pairs)
    assert abs(sum(degrees) / 2_000 - 50) < 1
    assert max(degrees) <= MOST_CONTACTS
    assert max(degrees) > 5 * sorted(degrees)[1_000], "a few know many more than most"


def test_the_benchmark_measures_the_delay_of_an_offline_status_to_its_first_arrival():
    seen = Losses(due={"a": 10.0, "b": 10.0})
    _note(b'{"type":"presence.status","user_id":"a","status":"offline"}', seen.announced)
    _note(b'{"type":"presence.statuses","statuses":[{"user_id":"b","status":"offline"}]}', seen.announced)
    first = dict(seen.announced)
    _note(b'{"type":"presence.status","user_id":"a","status":"offline"}', seen.announced)
    _note(b'{"type":"presence.status","user_id":"c","status":"online"}', seen.announced)
    assert seen.announced == first
    assert seen.at(1.0) == max(first.values()) - 10.0
