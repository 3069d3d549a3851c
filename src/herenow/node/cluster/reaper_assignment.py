"""Divides the shards among reapers: computes for each shard how long this node leaves due users to other reapers.

Each reaper announces itself every third of a lease, and is forgotten after a lease without a message. The reapers of a shard
have an order that each can compute: dedicated reapers first, then by rendezvous hashing, so that a reaper that comes or goes
moves only its own share. The first decides due users at once, the second those that are still due `LATE` later, the others
after twice that. So the work of a dead or slow reaper is done within a second.

This only saves double work. If messages are lost, two nodes may both be first: two reapers still cause one change (P4).
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

LATE = 400  # milliseconds that a reaper leaves due users to the one before it

NEVER = -1


class ReapsMessage(msgspec.Struct, frozen=True, tag="reaps"):
    origin: str
    shards: list[int]  # empty: the sender stops
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
        self._origin = context.authority.epoch  # id of this process: its first epoch, which is random
        self._others: dict[str, _Other] = {}
        self._received_at: dict[str, float] = {}
        self._delays: dict[int, tuple[int, ...]] | None = None
        self._unattended = 0
        """Shards that no known process reaps."""
        self._attended_at = context.clock.monotonic()
        """When all shards had a reaper for the last time, or the start."""

    # Other reapers

    async def tell(self) -> None:
        """Announce to the other nodes which shards this node reaps, if it holds its lease. Call every third of a
        lease."""
        if self._mine and self._context.authority.holds_lease:
            await self._send(self._mine)

    async def leave(self) -> None:
        """Announce to the other nodes that this node reaps no shards any more."""
        if self._mine:
            await self._send(())

    def receive(self, message: ReapsMessage) -> None:
        """Handle the announcement of another reaper. If that reaper is new, this node announces itself at once."""
        if self._learn(message):
            self._context.tasks.spawn(self.tell(), "shares")

    def _learn(self, message: ReapsMessage) -> bool:
        """Store the announcement of another reaper, or forget the reaper if it stops. Returns True if the reaper is
        new."""
        origin = message.origin
        if origin == self._origin:
            return False
        if not message.shards:
            self._forget([origin])
            return False
        known = self._others.get(origin)
        self._received_at[origin] = self._context.clock.monotonic()
        announced = _Other(frozenset(message.shards), message.first)
        if announced != known:
            self._others[origin] = announced
            self._delays = None
        return known is None

    # Order

    def delays(self) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Return pairs of a delay and shards: for how many milliseconds this node leaves due users of these shards to
        other reapers. `NEVER`: this node does not reap these shards."""
        now = self._context.clock.monotonic()
        oldest = now - self._context.settings.node_lease
        self._forget([origin for origin, received_at in self._received_at.items() if received_at < oldest])
        if self._delays is None:
            self._delays = dict(self._grouped())
            attended = self._mine.union(*(other.shards for other in self._others.values()))
            self._unattended = self._all - len(attended)
        if not self._unattended or not self._context.authority.holds_lease:  # without the store no announcement arrives
            self._attended_at = now
        return self._delays.items()

    @property
    def unattended(self) -> int:
        """Number of shards that no process reaps; 0 until some shard had no reaper for half a lease, since reapers
        announce themselves every third of a lease only."""
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
            self._received_at.pop(origin, None)
            if self._others.pop(origin, None) is not None:
                self._delays = None

    async def _send(self, shards: Iterable[int]) -> None:
        message = ReapsMessage(self._origin, sorted(shards), self._first)
        with suppress(Unavailable, UnknownOutcome):
            await self._messages.send(message)


def _place(shard: int, origin: str, *, first: bool) -> tuple[bool, bytes]:
    return not first, blake2b(f"{shard} {origin}".encode(), digest_size=8).digest()
