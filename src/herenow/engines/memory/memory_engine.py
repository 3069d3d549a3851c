"""Hot state in this process: the engine of a single node, and the fault lab's stand-in for a Redis server.

`MemoryStore` is what would be the server; `MemoryEngine` is one node's handle on it, so several nodes in one process
share one store. Everything runs on one event loop: between two awaits an operation is alone, which is all the atomicity
there is. No operation but a waiting `tail` or `receive` ever suspends. What a shard consists of is in `shard`;
what a record means nobody here knows.

The store is empty when the process starts, and nobody can know anything older: so it is settled from the start. Only
the faults below can unsettle it by taking something away.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from herenow.core.shards import shard_of
from herenow.engines.memory.shard import Shard
from herenow.errors import ConfigurationError
from herenow.kit.notifier import Notifier
from herenow.ports import Batch, Committed, Due, Fenced, Lease, Loaded, LogPart, LogPosition, Offer, Page

LOG_LIMIT = 2_000
"""Entries kept per shard: with 16 shards at a busy 1 000 changes per second, half a minute to fall behind by."""

INBOX_LIMIT = 10_000
"""Direct messages kept for a handle that does not read; then the oldest are dropped, as they are best effort."""


def wall_clock() -> int:
    """Epoch milliseconds: what `store_time` reports unless told otherwise, and the only clock here (P7)."""
    return time.time_ns() // 1_000_000


class MemoryStore:
    """The state that nodes share, and the ways in which a real store loses it."""

    def __init__(self, shards: int = 16, *, clock: Callable[[], int] = wall_clock, log_limit: int = LOG_LIMIT) -> None:
        self.clock = clock
        self.log_limit = log_limit
        self.shards = [Shard(number, log_limit, settled=True) for number in range(shards)]
        self.leases: dict[str, Lease] = {}
        self.terms: dict[str, str] = {}
        self.news = Notifier()
        """Notified when some shard's log got longer, at most once per batch."""
        self.inboxes: list[Inbox] = []

    def handle(self) -> MemoryEngine:
        """For one more node."""
        return MemoryEngine(self)

    def records(self) -> dict[str, bytes]:
        return {user: record for shard in self.shards for user, record in shard.records.items()}

    # Faults. No reader is woken: a real store does not announce what it lost either

    def snapshot(self, shard: int | None = None) -> Snapshot:
        """What `restore` needs; None: the whole store with leases and terms."""
        if shard is None:
            copies = tuple(each.copy() for each in self.shards)
            return Snapshot(copies, self.leases.copy(), self.terms.copy())
        return Snapshot((self.shards[shard].copy(),), {}, {})

    def restore(self, shard: int | None, snapshot: object) -> None:
        """Roll back: everything acknowledged since is lost, fence rows too."""
        assert isinstance(snapshot, Snapshot)
        for copy in snapshot.shards:
            self._replace(copy.copy())
        if shard is None:
            self.leases = snapshot.leases.copy()
            self.terms = snapshot.terms.copy()

    def empty(self, shard: int | None = None) -> None:
        """Lose everything: records, log, fences and the knowledge of being settled; None: leases and terms as well."""
        for number in range(len(self.shards)) if shard is None else (shard,):
            self._replace(Shard(number, self.log_limit, settled=False))
        if shard is None:
            self.leases.clear()
            self.terms.clear()

    def trim_log(self, shard: int, keep: int) -> None:
        self.shards[shard].log.trim(keep)

    def _replace(self, shard: Shard) -> None:
        # A walk that is under way must not trust its position in another list of arrivals.
        shard.generation = self.shards[shard.number].generation + 1
        self.shards[shard.number] = shard


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of one shard or of all of them, to be given back as it is."""

    shards: tuple[Shard, ...]
    leases: dict[str, Lease]
    terms: dict[str, str]


class Inbox:
    """One handle's direct messages."""

    __slots__ = ("filled", "messages")

    def __init__(self, limit: int) -> None:
        self.messages: deque[bytes] = deque(maxlen=limit)
        self.filled = Notifier()

    def put(self, message: bytes) -> None:
        self.messages.append(message)
        self.filled.notify()

    def take(self) -> list[bytes]:
        taken = list(self.messages)
        self.messages.clear()
        return taken


class MemoryEngine:
    """One node's handle on a store; see `herenow.ports.Engine` for what each method promises."""

    def __init__(self, store: MemoryStore, *, inbox_limit: int = INBOX_LIMIT) -> None:
        self._store = store
        self._inbox = Inbox(inbox_limit)

    @property
    def shards(self) -> int:
        return len(self._store.shards)

    async def check(self) -> None:
        return

    async def open(self, terms: Mapping[str, str]) -> None:
        for term, value in terms.items():
            found = self._store.terms.get(term, value)
            if found != value:
                raise ConfigurationError(
                    f"{term} is {value!r} here but {found!r} in the store: nodes that share a store must agree on it."
                )
        self._store.terms.update(terms)
        if self._inbox not in self._store.inboxes:
            self._store.inboxes.append(self._inbox)

    async def close(self) -> None:
        if self._inbox in self._store.inboxes:
            self._store.inboxes.remove(self._inbox)

    async def store_time(self) -> int:
        return self._store.clock()

    # Records

    async def load(self, users: Sequence[str]) -> list[Loaded]:
        return [self._load(user) for user in users]

    def _load(self, user: str) -> Loaded:
        shards = self._store.shards
        shard = shards[shard_of(user, len(shards))]
        return Loaded(shard.records.get(user), shard.settled)

    async def commit(self, batch: Batch) -> Committed | Fenced:
        shard = self._store.shards[batch.shard]
        head = shard.log.head
        answer = shard.commit(batch)
        if shard.log.head != head:
            self._store.news.notify()
        return answer

    async def offer(self, shard: int, offers: Sequence[Offer], since: int = 0) -> None:
        for offer in offers:
            self._store.shards[shard].offer(offer)
        self._store.shards[shard].stay_unsettled(since)

    async def due(self, shards: Sequence[int], now: int, limit: int) -> dict[int, Due]:
        asked = [self._store.shards[shard] for shard in shards]
        return {shard.number: shard.wakes.due(now, limit, settled=shard.settled) for shard in asked}

    async def walk(self, shard: int, cursor: str | None, limit: int) -> Page:
        return self._store.shards[shard].walk(cursor, limit)

    # Shard logs

    async def heads(self) -> dict[int, LogPosition]:
        return {shard.number: shard.log.position for shard in self._store.shards}

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        until = asyncio.get_running_loop().time() + wait
        parts = self._news(cursors)
        while not parts and wait > 0 and await self._store.news.wait(until):
            parts = self._news(cursors)
        return parts

    @property
    def unresponsive(self) -> Set[int]:
        return frozenset()

    def _news(self, cursors: Mapping[int, int]) -> list[LogPart]:
        shards = self._store.shards
        behind = [shards[number].log.after(at) for number, at in cursors.items()]
        return [part for part in behind if part is not None]

    # Fences

    async def join(self, shard: int, epoch: str, number: int) -> bool:
        return self._store.shards[shard].join(epoch, number)

    async def jump(self, shard: int, epoch: str, number: int) -> int | None:
        return self._store.shards[shard].jump(epoch, number)

    async def retire(self, shard: int, epoch: str) -> None:
        self._store.shards[shard].retire(epoch)

    # Settledness

    async def unsettle(self, shard: int, now: int) -> None:
        self._unsettle(shard, now)

    async def settle(self, shard: int, now: int, after: int) -> bool:
        found = self._store.shards[shard]
        if found.settled or found.unsettled_at is not None:
            return found.settle(now, after)
        self._unsettle(shard, now)
        return False

    def _unsettle(self, shard: int, now: int) -> None:
        if self._store.shards[shard].unsettle(now):
            self._store.news.notify()

    # Leases

    async def renew(self, lease: Lease, *, begins: bool = False) -> bool:
        row = self._store.leases.get(lease.epoch)
        if (row is None and not begins) or (row is not None and row.dead):
            return False
        if row is None or row.counter < lease.counter:
            self._store.leases[lease.epoch] = lease
        return True

    async def leases(self) -> list[Lease]:
        return list(self._store.leases.values())

    async def mark_dead(self, epoch: str, counter: int) -> bool:
        row = self._store.leases.get(epoch)
        if row is None or row.dead or row.counter != counter:
            return False
        self._store.leases[epoch] = replace(row, dead=True)
        return True

    async def drop_lease(self, epoch: str) -> None:
        self._store.leases.pop(epoch, None)

    # What the ledger does not have yet

    async def unsaved(self, shard: int, limit: int) -> list[tuple[str, bytes]]:
        return self._store.shards[shard].unsaved(limit)

    async def saved(self, shard: int, rows: Sequence[tuple[str, bytes, bool]]) -> None:
        self._store.shards[shard].saved(rows)

    # Direct messages

    async def send(self, message: bytes) -> None:
        for inbox in self._store.inboxes:
            inbox.put(message)

    async def receive(self, wait: float) -> list[bytes]:
        if not self._inbox.messages and wait > 0:
            await self._inbox.filled.wait(asyncio.get_running_loop().time() + wait)
        return self._inbox.take()
