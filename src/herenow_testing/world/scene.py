"""What a `Checker` must be able to see: who is there, what the store and the ledger hold, what each node says.

A `World` is such a scene, with nodes in this process and time that is moved; real processes on real stores are another.
Something else that is worth comparing would be a reason to change this module.
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
    """What a client was sent about somebody, and when."""

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
    """It came as an answer, so it may repeat what is known."""

    @property
    def value(self) -> Shown:
        """What it says, whenever it was said."""
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
    """What a node says of itself, and what is true of its sockets."""

    users: Counter[str]
    """By the word of the status others see; nobody offline, no zeros."""
    connections: int
    sockets: int


class Place(Protocol):
    """A node, as somebody sees it who asks from outside."""

    @property
    def name(self) -> str: ...

    @property
    def frozen(self) -> bool: ...

    @property
    def epochs(self) -> frozenset[str]:
        """Under one of these it holds its sessions."""

    def version(self, user: str) -> int:
        """Of what it knows of this user; 0 where that cannot be seen."""

    async def answers(self, viewer: str, users: Sequence[str]) -> list[Shown]: ...

    async def counts(self) -> Counts: ...


class Way(Protocol):
    """A socket."""

    @property
    def node(self) -> Place: ...

    @property
    def silent(self) -> bool:
        """Half-open: nothing gets through any more, and the node does not know."""


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
        """Of a node, in milliseconds."""

    @property
    def late(self) -> int:
        """Milliseconds from a change to everybody who looks, when nothing fails."""

    @property
    def now(self) -> int:
        """Epoch milliseconds, by the store's clock."""

    def lateness(self, begin: int, end: int) -> int:
        """How many of the milliseconds between the two the machine was busy with something else, as measured: what
        waited for a core is late by nobody's mistake."""

    @property
    def clients(self) -> Iterable[Device]: ...

    @property
    def nodes(self) -> Mapping[str, Place]: ...

    def everybody_stored(self) -> dict[str, Presence]:
        """Every record, as of a moment ago."""

    async def remembered(self, users: Sequence[str]) -> dict[str, Remembered]:
        """What the ledger says of them: when they were last seen, what they chose."""


class Witness:
    """Somebody who writes down what clients truly do and see. This one does not."""

    def opened(self, client: Device) -> None: ...

    def greeted(self, client: Device) -> None: ...

    def lived(self, client: Device) -> None: ...

    def ended(self, client: Device, how: str) -> None: ...

    def signs_out(self, user: str, device: str) -> None: ...

    def shown(self, client: Device, shown: Shown) -> None: ...

    def typing(self, client: Device, user: str) -> None: ...
