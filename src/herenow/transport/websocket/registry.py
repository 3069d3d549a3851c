"""Which sockets are open in this process, and how many may be? uvicorn loses sight of them at the upgrade."""

import resource
import sys
from collections.abc import Iterator

from herenow.transport.websocket.contract import Socket

SPARE = 64  # sockets beyond max_open that may be told, at the same moment, that there is no room


class Sockets:
    """Every open socket of this process, closing ones included; uvicorn loses sight of them at the upgrade.

    There are two bounds. At `max_open` the registry is `full`: the acceptor should answer with
    `CloseOnOpen(1013, "retry_after_ms=…")`, which a browser can read but which takes a descriptor for a moment. So many
    moments may overlap as there are `spare`; beyond them `UpgradeCheck` answers 503 without asking the acceptor.
    """

    __slots__ = ("_open", "max_open", "spare")

    def __init__(self, max_open: int, spare: int = SPARE) -> None:
        self.max_open = max_open
        self.spare = spare
        self._open: dict[Socket, None] = {}  # for ten thousand, half of a set's size

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        return len(self._open) >= self.max_open

    @property
    def exhausted(self) -> bool:
        return len(self._open) >= self.max_open + self.spare

    def __iter__(self) -> Iterator[Socket]:
        """A snapshot: sockets may come and go while it is walked."""
        return iter(tuple(self._open))

    def add(self, socket: Socket) -> None:
        self._open[socket] = None

    def discard(self, socket: Socket) -> None:
        self._open.pop(socket, None)

    def abort_all(self) -> None:
        for socket in self:
            socket.abort()


def sockets_within(descriptors: int) -> int:
    """The `max_open` for so many descriptors.

    Besides the spare ones, a tenth and at least 64 are left for HTTP, Redis, the ledger and the log.
    """
    return max(1, descriptors - max(64, descriptors // 10) - SPARE)


def connections_within(descriptors: int) -> int:
    """How many connections of any kind may be open: the others are for Redis, the ledger and the log.

    More than `sockets_within` and the spare ones, so that requests are answered beside as many sockets as there may be.
    """
    return max(1, descriptors - max(64, descriptors // 20))


def descriptors_allowed() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
