"""Which shards are ours to reap, and how long do we leave those of others to them?

Whoever reaps says so to all, every third of a lease; whoever has not been heard for a lease is forgotten. For each shard
those who reap it stand in an order that all of them can compute (rendezvous hashing: nobody's coming or going moves more
than its own share; dedicated reapers stand before nodes that also serve). The first takes what is due at once. The second
takes what is due and still there `LATE` later, the others after twice that: so a reaper that died, hangs or cannot keep up
is helped long before anybody knows that it is dead, and a mode still ends within a second of its time.

All of this only spares the store double work. Messages may be lost, and two nodes may both believe to be first: whoever is
due stays due until somebody commits, and two reapers yield one change (P4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from herenow.errors import Unavailable, UnknownOutcome
from herenow.node.cluster.node_messages import NodeMessages
from herenow.node.context import Context

LATE = 400
"""Milliseconds that the next in order leaves to the one before, so that a dead reaper's work is done within the second."""

NEVER = -1


class ReapsMessage(msgspec.Struct, frozen=True, tag="reaps"):
    """Between nodes."""

    origin: str
    shards: list[int]
    """Empty: none any more."""
    first: bool


@dataclass(frozen=True, slots=True)
class _Other:
    shards: frozenset[int]
    first: bool


class ReaperAssignment:
    def __init__(self, context: Context, messages: NodeMessages) -> None:
        reaping, shards = context.reaping, context.engine.shards
        wanted = range(shards) if reaping.shards is None else reaping.shards
        self._all = shards
        self._mine = frozenset(wanted) & frozenset(range(shards))
        self._first = reaping.first
        self._context = context
        self._messages = messages
        messages.handle(ReapsMessage, self.receive)
        self._origin = context.authority.epoch
        """The first epoch, which is random, names this process for good."""
        self._others: dict[str, _Other] = {}
        self._heard: dict[str, float] = {}
        self._delays: dict[int, tuple[int, ...]] | None = None
        self._unattended = 0
        """Shards that no known process reaps."""
        self._attended_at = context.clock.monotonic()
        """When all shards had a reaper for the last time, or the start."""

    # Who else is there

    async def tell(self) -> None:
        """Every third of a lease, while we may decide anything."""
        if self._mine and self._context.authority.holds_lease:
            await self._say(self._mine)

    async def leave(self) -> None:
        """The others need not wait for us."""
        if self._mine:
            await self._say(())

    def receive(self, message: ReapsMessage) -> None:
        """From another process. A new one is told at once what this one does."""
        if self._learn(message):
            self._context.tasks.spawn(self.tell(), "shares")

    def _learn(self, message: ReapsMessage) -> bool:
        """True if the sender was not known."""
        origin = message.origin
        if origin == self._origin:
            return False
        if not message.shards:
            self._forget([origin])
            return False
        known = self._others.get(origin)
        self._heard[origin] = self._context.clock.monotonic()
        told = _Other(frozenset(message.shards), message.first)
        if told != known:
            self._others[origin] = told
            self._delays = None
        return known is None

    # What follows

    def delays(self) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Every shard, by how many milliseconds we leave what is due there to others; `NEVER`: it is not for us."""
        now = self._context.clock.monotonic()
        oldest = now - self._context.settings.node_lease
        self._forget([origin for origin, heard in self._heard.items() if heard < oldest])
        if self._delays is None:
            self._delays = dict(self._grouped())
            attended = self._mine.union(*(other.shards for other in self._others.values()))
            self._unattended = self._all - len(attended)
        if not self._unattended or not self._context.authority.holds_lease:  # without the store nobody is heard
            self._attended_at = now
        return self._delays.items()

    @property
    def unattended(self) -> int:
        """Shards that no process has reaped for half a lease. Reapers report themselves every third of one."""
        patience = self._context.settings.node_lease / 2
        return self._unattended if self._context.clock.monotonic() - self._attended_at >= patience else 0

    def _grouped(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        delays = [self._delay(shard) for shard in range(self._all)]
        for delay in sorted(set(delays)):
            yield delay, tuple(shard for shard in range(self._all) if delays[shard] == delay)

    def _delay(self, shard: int) -> int:
        if shard not in self._mine:
            return NEVER
        mine = _place(shard, self._origin, first=self._first)
        others = (
            _place(shard, origin, first=other.first) for origin, other in self._others.items() if shard in other.shards
        )
        return min(sum(other < mine for other in others), 2) * LATE

    def _forget(self, origins: Iterable[str]) -> None:
        for origin in origins:
            self._heard.pop(origin, None)
            if self._others.pop(origin, None) is not None:
                self._delays = None

    async def _say(self, shards: Iterable[int]) -> None:
        message = ReapsMessage(self._origin, sorted(shards), self._first)
        with suppress(Unavailable, UnknownOutcome):
            await self._messages.send(message)


def _place(shard: int, origin: str, *, first: bool) -> tuple[bool, bytes]:
    return not first, blake2b(f"{shard} {origin}".encode(), digest_size=8).digest()
