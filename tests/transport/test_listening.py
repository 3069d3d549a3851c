"""The kernel detects a vanished peer on every connection, by keep-alive options."""

import socket

import pytest

from herenow.settings import Settings
from herenow.transport.http import Listener

SECRET = "a secret of at least 32 bytes, for tests"


@pytest.mark.parametrize(("dead_after", "idle", "timeout"), [(90.0, 45, 90_000), (2.0, 1, 2_000)])
def test_accepted_connections_have_tcp_keep_alive_times_that_follow_from_dead_after(dead_after, idle, timeout):
    settings = Settings(secret=SECRET, port=0, dead_after=dead_after, beat_every=dead_after / 2)
    with Listener(settings) as listener:
        listener._socket.setblocking(True)
        host, port = listener._socket.getsockname()
        with socket.create_connection((host, port)), listener._socket.accept()[0] as accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == idle
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == timeout
