"""Binding of ports by one process or several workers."""

import socket

import pytest

from herenow.errors import ConfigurationError
from herenow.transport.address import held, joined, listening, url_of

HOST = "127.0.0.1"


def port_of(bound):
    return bound.getsockname()[1]


def test_worker_processes_share_one_port_and_connections_are_spread_over_them():
    with held(HOST, 0) as address, joined(HOST, port_of(address)) as one, joined(HOST, port_of(address)) as two:
        assert port_of(one) == port_of(two) == port_of(address) > 0
        one.listen(100)
        two.listen(100)
        clients = [socket.create_connection((HOST, port_of(address))) for _ in range(40)]
        taken = [taken_by(one), taken_by(two)]
        assert sum(map(len, taken)) == len(clients)
        assert all(taken)
        for each in (*clients, *taken[0], *taken[1]):
            each.close()


def taken_by(bound):
    found = []
    while True:
        try:
            found.append(bound.accept()[0])
        except BlockingIOError:
            return found


def test_a_port_in_use_by_worker_processes_is_refused_to_another_server():
    with held(HOST, 0) as address, joined(HOST, port_of(address)) as worker:
        worker.listen(1)
        for take in (held, listening):
            with pytest.raises(ConfigurationError, match=f"port {port_of(address)} on {HOST} is in use"):
                take(HOST, port_of(address))
    with listening(HOST, 0) as alone, pytest.raises(ConfigurationError, match="is in use"):
        held(HOST, port_of(alone))


def test_listening_on_an_address_of_another_machine_is_refused_with_advice():
    with pytest.raises(ConfigurationError, match=r"cannot be listened on .*: choose others with --host, --port"):
        held("192.0.2.1", 0)


def test_the_url_of_a_listening_socket_names_scheme_host_and_port():
    with listening(HOST, 0) as bound:
        assert url_of(bound, secure=False) == f"http://127.0.0.1:{port_of(bound)}"
        assert url_of(bound, secure=True) == f"https://127.0.0.1:{port_of(bound)}"
