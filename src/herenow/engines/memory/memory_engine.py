"""A live store inside this process: the engine of a single node, and a substitute for a Redis server in fault tests.

`MemoryStore` plays the server; `MemoryEngine` is one node's handle, so several nodes in one process can share a store.
Everything runs on one event loop, and only a waiting `tail` or `receive` suspends: every other operation is atomic.
`shard` has the data of one shard. Records are opaque bytes here.

A new store is settled: it starts empty with the process, so no data can be missing. Data is lost only by the fault
methods of `MemoryStore`.
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
from herenow.ports import (
    Batch,
    Committed,
    Due,
    Fenced,
    Lease,
    Loaded,
    LogPart,
    LogPosition,
    Offer,
    Page,
    agree,
    disagreement,
)

LOG_LIMIT = 2_000
"""Log entries kept per shard: with 16 shards and 1 000 changes per second, a reader may be about 30 s behind."""

INBOX_LIMIT = 10_000
"""Messages kept for a node that does not read; beyond that the oldest are dropped (delivery is best effort)."""


def wall_clock() -> int:
    """Return the system time in epoch milliseconds: the default clock of a memory store. Only `store_time` reads it
    (P7)."""
    return time.time_ns() // 1_000_000


class MemoryStore:
    """The state that nodes share, and faults by which a real store loses data."""

    def __init__(self, shards: int = 16, *, clock: Callable[[], int] = wall_clock, log_limit: int = LOG_LIMIT) -> None:
        self.clock = clock
        self.log_limit = log_limit
        self.shards = [Shard(number, log_limit, settled=True) for number in range(shards)]
        self.leases: dict[str, Lease] = {}
        self.terms: dict[str, str] = {}
        """Settings that all nodes of the store must agree on (`Engine.open`)."""
        self.news = Notifier()
        """Notified when the log of any shard has grown or was restarted, at most once per batch."""
        self.inboxes: list[Inbox] = []

    def handle(self) -> MemoryEngine:
        return MemoryEngine(self)

    def records(self) -> dict[str, bytes]:
        return {user: record for shard in self.shards for user, record in shard.records.items()}

    # Faults. Readers are not notified, because a real store does not announce a loss either

    def snapshot(self, shard: int | None = None) -> Snapshot:
        """Copy one shard, for `restore`. With None, copy the whole store, including leases and the settings that all
        nodes agreed on (`terms`)."""
        if shard is None:
            copies = tuple(each.copy() for each in self.shards)
            return Snapshot(copies, self.leases.copy(), self.terms.copy())
        return Snapshot((self.shards[shard].copy(),), {}, {})

    def restore(self, shard: int | None, snapshot: object) -> None:
        """Replace one shard (None: the whole store) by its copy in `snapshot`. All later writes are lost, also the
        numbers of the last batches (fences)."""
        assert isinstance(snapshot, Snapshot)
        for copy in snapshot.shards:
            self._replace(copy.copy())
        if shard is None:
            self.leases = snapshot.leases.copy()
            self.terms = snapshot.terms.copy()

    def empty(self, shard: int | None = None) -> None:
        """Delete all data of one shard, as if the store had lost it: the shard is in recovery afterwards. With None,
        delete all shards, leases and agreed settings (`terms`)."""
        for number in range(len(self.shards)) if shard is None else (shard,):
            self._replace(Shard(number, self.log_limit, settled=False))
        if shard is None:
            self.leases.clear()
            self.terms.clear()

    def trim_log(self, shard: int, keep: int) -> None:
        self.shards[shard].log.trim(keep)

    def _replace(self, shard: Shard) -> None:
        # Invalidates the cursors of walks: they are positions in the old shard's `arrivals`.
        shard.generation = self.shards[shard.number].generation + 1
        self.shards[shard.number] = shard


@dataclass(frozen=True, slots=True)
class Snapshot:
    shards: tuple[Shard, ...]
    leases: dict[str, Lease]
    terms: dict[str, str]


class Inbox:
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
    """One node's handle on a store. `herenow.ports.Engine` documents the methods."""

    def __init__(self, store: MemoryStore, *, inbox_limit: int = INBOX_LIMIT) -> None:
        self._store = store
        self._inbox = Inbox(inbox_limit)

    @property
    def shards(self) -> int:
        return len(self._store.shards)

    async def check(self) -> None:
        return

    async def open(self, terms: Mapping[str, str]) -> None:
        await self.agree(terms)
        if self._inbox not in self._store.inboxes:
            self._store.inboxes.append(self._inbox)

    async def agree(self, terms: Mapping[str, str]) -> None:
        for term, value in terms.items():
            found = self._store.terms.get(term, value)
            if not agree(value, found):
                raise ConfigurationError(disagreement(term, value, found, "herenow"))
        self._store.terms.update(terms)

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
        parts = self._new_parts(cursors)
        while not parts and wait > 0 and await self._store.news.wait(until):
            parts = self._new_parts(cursors)
        return parts

    @property
    def unresponsive(self) -> Set[int]:
        return frozenset()

    def _new_parts(self, cursors: Mapping[int, int]) -> list[LogPart]:
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

    # Records not yet saved in the ledger

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
