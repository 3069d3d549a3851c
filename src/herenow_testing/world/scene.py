"""Protocols of the cluster that a `Checker` observes: its clients, nodes, store and ledger.

`World` implements them with nodes in this process and simulated time; real processes on real stores can too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from herenow.core.model import Presence
from herenow.core.settle import Timings
from herenow.ports import Remembered


@dataclass(frozen=True, slots=True)
class Shown:
    """A status that a client received, and the time (epoch ms)."""

    at: int
    user: str
    status: str
    since: int | None = None
    last_seen: int | None = None
    custom: str | None = None
    platforms: tuple[str, ...] = ()
    stale: bool = False
    bucket: str | None = None
    as_of: int = field(default=0, compare=False)
    answer: bool = field(default=False, compare=False)
    """It came as the response to a request, so it may repeat a known status."""

    @property
    def value(self) -> Shown:
        """The same status without the time at which it was received, for comparing."""
        return replace(self, at=0)

    @classmethod
    def of(cls, status: dict[str, Any], at: int, *, answer: bool = False) -> Shown:
        custom = status["custom_status"]
        return cls(
            at=at,
            user=status["user_id"],
            status=status["status"],
            since=status["since"],
            last_seen=status["last_seen"],
            custom=None if custom is None else custom["text"],
            platforms=tuple(status["platforms"]),
            stale=status.get("stale", False),
            bucket=status.get("last_seen_bucket"),
            as_of=status["as_of"],
            answer=answer,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts that a node reports, and the true number of its sockets."""

    users: Counter[str]
    """By visible status; without `offline` and without zeros."""
    connections: int
    sockets: int


class Place(Protocol):
    """A node, seen from outside."""

    @property
    def name(self) -> str: ...

    @property
    def frozen(self) -> bool: ...

    @property
    def epochs(self) -> frozenset[str]:
        """The epochs under which this node holds its sessions."""

    def version(self, user: str) -> int:
        """The version of the user's record that the node holds; 0 if it cannot be observed."""

    async def answers(self, viewer: str, users: Sequence[str]) -> list[Shown]: ...

    async def counts(self) -> Counts: ...


class Way(Protocol):
    """A socket."""

    @property
    def node(self) -> Place: ...

    @property
    def silent(self) -> bool:
        """True if the socket is half-open: nothing gets through, and the node does not know it."""


class Device(Protocol):
    """One device of one user: at most one socket at a time."""

    @property
    def user(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def link(self) -> Way | None: ...


class Scene(Protocol):
    @property
    def timings(self) -> Timings: ...

    @property
    def lease(self) -> int:
        """The duration of a node's lease in milliseconds."""

    @property
    def late(self) -> int:
        """Milliseconds from a change until all viewers have received it, when nothing fails."""

    @property
    def now(self) -> int:
        """The current time in epoch milliseconds, by the store's clock."""

    def lateness(self, begin: int, end: int) -> int:
        """Measured milliseconds between `begin` and `end` (epoch ms) in which the machine was busy with other work;
        delays of that length are excused."""

    @property
    def clients(self) -> Iterable[Device]: ...

    @property
    def nodes(self) -> Mapping[str, Place]: ...

    def everybody_stored(self) -> dict[str, Presence]:
        """Decode every record in the store, by user; a slightly old copy is allowed."""

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        """Read last seen, mode and custom status of these users from the ledger."""


class Witness:
    """Observer of what clients do and receive. This base class ignores everything."""

    def opened(self, client: Device) -> None: ...

    def greeted(self, client: Device) -> None: ...

    def lived(self, client: Device) -> None: ...

    def ended(self, client: Device, how: str) -> None: ...

    def signs_out(self, user: str, device: str) -> None: ...

    def shown(self, client: Device, shown: Shown) -> None: ...

    def typing(self, client: Device, user: str) -> None: ...
