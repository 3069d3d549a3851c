"""Free ports for servers that tests start, stop and start again.

The ports lie below the range that Linux gives to outgoing connections (32768 and above); otherwise a client could take
the port of a server that was killed. Each port and the one 10 000 above it are free, for the bus of a cluster.
"""

from __future__ import annotations

import socket
from contextlib import closing
from random import SystemRandom

FIRST, END, BUS = 10_000, 22_000, 10_000

_dice = SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """Never returns the same port twice."""
    while True:
        port = _dice.randrange(FIRST, END)
        if port not in _given and _is_free(port) and _is_free(port + BUS):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
