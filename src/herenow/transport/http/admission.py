"""Limits open connections: in total by the descriptors of the process, and per address.

A connection of any kind counts from `accept` until its descriptor is closed. `AcceptedSocket` reports that: asyncio and
uvloop have no callback for a connection that ends before it has a protocol, such as an unfinished TLS handshake.
"""

from __future__ import annotations

import socket
from collections import Counter
from functools import lru_cache
from typing import Literal

from herenow.transport.http.peer_limits import PeerLimits, counted_address

REMEMBERED = 4096  # hosts in the cache of `counted_address`

Refused = Literal["descriptors", "address"]


class Admission:
    __slots__ = ("_by_address", "_counted_address", "_limits", "open")

    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self._counted_address = lru_cache(maxsize=REMEMBERED)(lambda host: counted_address(host, limits))
        self._by_address: Counter[str] = Counter()
        self.open = 0

    def refusal(self, host: str) -> Refused | None:
        """Return the limit that one more connection of this host would exceed, or None if it may be added."""
        if self.open >= self._limits.max_open:
            return "descriptors"
        address = self._counted_address(host)
        if address is not None and self._by_address[address] >= self._limits.max_per_address:
            return "address"
        return None

    def add(self, connection: AcceptedSocket, host: str) -> None:
        """Count a connection of this host until its file descriptor is closed."""
        address = self._counted_address(host)
        self.open += 1
        if address is not None:
            self._by_address[address] += 1
        connection.counted(self, address)

    def discard(self, address: str | None) -> None:
        self.open -= 1
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


class AcceptedSocket(socket.socket):
    """The socket of an accepted connection; stops counting when its descriptor is closed.

    uvloop calls `detach` when libuv closes the descriptor; asyncio calls `close`."""

    __slots__ = ("_address", "_admission")

    _admission: Admission | None
    _address: str | None

    def counted(self, admission: Admission, address: str | None) -> None:
        self._admission = admission
        self._address = address

    def detach(self) -> int:
        self._stop_counting()
        return super().detach()

    def close(self) -> None:
        self._stop_counting()
        super().close()

    def _stop_counting(self) -> None:
        admission = getattr(self, "_admission", None)
        if admission is not None:
            self._admission = None
            admission.discard(self._address)
