"""The open sockets of this process and their limits; uvicorn does not track them after the upgrade."""

import resource
import sys
from collections.abc import Iterator
from typing import Protocol

SPARE = 64  # sockets beyond max_open that may be open for a moment to receive close code 1013


class Connected(Protocol):
    """A WebSocket or an event stream."""

    def close(self, code: int, reason: str = "") -> None:
        """End the connection in an orderly way."""

    def abort(self) -> None:
        """End the connection now and drop unsent data."""


class Sockets:
    """All open and closing sockets, with two limits.

    At `max_open` the registry is `full`: the acceptor should answer with `CloseOnOpen(1013, "retry_after_ms=…")`, which
    browsers can read but which takes a descriptor for a moment. With `spare` more it is `exhausted`: `UpgradeCheck` answers
    503 without calling the acceptor."""

    __slots__ = ("_open", "max_open", "spare")

    def __init__(self, max_open: int, spare: int = SPARE) -> None:
        self.max_open = max_open
        self.spare = spare
        self._open: dict[Connected, None] = {}  # with ten thousand sockets, half the memory of a set

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        return len(self._open) >= self.max_open

    @property
    def exhausted(self) -> bool:
        return len(self._open) >= self.max_open + self.spare

    def __iter__(self) -> Iterator[Connected]:
        """Iterate over a snapshot of the open sockets: some may be added and removed meanwhile."""
        return iter(tuple(self._open))

    def add(self, socket: Connected) -> None:
        self._open[socket] = None

    def discard(self, socket: Connected) -> None:
        self._open.pop(socket, None)

    def abort_all(self) -> None:
        for socket in self:
            socket.abort()


def sockets_within(descriptors: int) -> int:
    """Return how many sockets may be open (`max_open`) with this number of file descriptors. A tenth (at least 64) and
    `SPARE` are reserved for HTTP, Redis, the ledger and the log."""
    return max(1, descriptors - max(64, descriptors // 10) - SPARE)


def connections_within(descriptors: int) -> int:
    """Return how many connections of any kind may be open with this number of file descriptors; a twentieth (at least
    64) is reserved for Redis, the ledger and the log. With many descriptors this is more than `sockets_within` +
    `SPARE`, so that HTTP requests have room, too."""
    return max(1, descriptors - max(64, descriptors // 20))


def descriptors_allowed() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
