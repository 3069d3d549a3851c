"""Which connections are let in? As many as there are descriptors for, and of one address as many as its share.

A connection counts from the moment it is accepted until its descriptor is closed, whatever is spoken over it: TLS
handshakes, requests, WebSockets, event streams. `AcceptedSocket` tells when the descriptor is closed; asyncio and uvloop
have no callback for one that never got as far as a protocol.
"""

from __future__ import annotations

import socket
from collections import Counter
from functools import lru_cache
from typing import Literal

from herenow.transport.http.peer_limits import PeerLimits, counted_address

REMEMBERED = 4096  # hosts whose counted address need not be computed again

Refused = Literal["descriptors", "address"]


class Admission:
    """Counts the open connections of one process."""

    __slots__ = ("_by_address", "_counted_address", "_limits", "open")

    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self._counted_address = lru_cache(maxsize=REMEMBERED)(lambda host: counted_address(host, limits))
        self._by_address: Counter[str] = Counter()
        self.open = 0

    def refusal(self, host: str) -> Refused | None:
        """Why a connection of this host may not be added; None: it may."""
        if self.open >= self._limits.max_open:
            return "descriptors"
        address = self._counted_address(host)
        if address is not None and self._by_address[address] >= self._limits.max_per_address:
            return "address"
        return None

    def add(self, connection: AcceptedSocket, host: str) -> None:
        """Count the connection until its descriptor is closed."""
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
    """The socket of an accepted connection: tells the admission when its descriptor is closed.

    uvloop detaches it when libuv closes the descriptor, asyncio closes it.
    """

    __slots__ = ("_address", "_admission")

    _admission: Admission | None
    _address: str | None

    def counted(self, admission: Admission, address: str | None) -> None:
        self._admission = admission
        self._address = address

    def detach(self) -> int:
        self._tell()
        return super().detach()

    def close(self) -> None:
        self._tell()
        super().close()

    def _tell(self) -> None:
        admission = getattr(self, "_admission", None)
        if admission is not None:
            self._admission = None
            admission.discard(self._address)
