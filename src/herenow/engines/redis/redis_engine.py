"""The live store in Redis or Valkey (one server, Sentinel or Cluster), for any number of nodes.

Records are opaque bytes here. Each promise of `herenow.ports.Engine` about a shard is kept by one script that uses the keys
of that shard only (`lua/`), so it is atomic. Other modules:

    keys          the whole keyspace                       client/     our Redis client
    codec         the format of a record in a bucket       scripts     the Lua files
    script_args   many users in one script argument        reads       records of many users at once
    wakeups       shard headers and due users              log         waiting for the shard logs
    checks        servers that are refused at startup      pubsub      direct messages between nodes

A store that was never used is unsettled: it cannot be distinguished from one that has just lost everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set

from herenow.engines.redis.checks import ServerState, check, states, unusable
from herenow.engines.redis.client import Argument, Commands, RedisTarget, Reply, Request, servers_of
from herenow.engines.redis.codec import body_of, encoded, field_of, record_of, user_of
from herenow.engines.redis.keys import Keys, ShardKeys, buckets_for
from herenow.engines.redis.log import Logs
from herenow.engines.redis.pubsub import PubSub
from herenow.engines.redis.reads import CommandBuilder, ShardRead, read_of, shard_reads
from herenow.engines.redis.replies import bytes_of, list_of
from herenow.engines.redis.script_args import CLEARED, KEPT, SET, Rows, stored, text, time
from herenow.engines.redis.scripts import script_request
from herenow.engines.redis.wakeups import Wakeups
from herenow.errors import ConfigurationError, Unavailable, UnknownOutcome
from herenow.ports import (
    LOG_BYTES,
    Batch,
    Committed,
    Conflict,
    Due,
    Fenced,
    Lease,
    Loaded,
    LogPart,
    LogPosition,
    Offer,
    Page,
    Write,
    Written,
    disagreement,
)

LOG_LIMIT = 2_000
"""Log entries kept per shard. A node that is further behind gets a gap and must re-read every user that it watches."""

RETIRED = 500  # retired epochs remembered per shard: more than can be retired while one call is under way
WALK_BUCKETS = 200  # maximum of buckets per page: many are empty in a store with fewer users than its capacity

_WRITTEN = Written()
_NOTHING = text(b"")


class RedisEngine:
    """One node's handle on a store. `herenow.ports.Engine` documents the methods."""

    def __init__(
        self, target: RedisTarget, *, namespace: str = "herenow", shards: int = 16, capacity: int = 1_000_000
    ) -> None:
        self._target = target
        self._namespace = namespace
        self._keys = Keys(namespace, shards)
        self._buckets = buckets_for(capacity, shards)
        self._builder = CommandBuilder(shards, self._buckets)
        self._servers = servers_of(target)
        self._commands = Commands(self._servers)
        self._wakeups = Wakeups(self._commands, self._keys)
        self._logs = Logs(self._commands, self._keys.shards, self._heads_of)
        self._pubsub = PubSub(self._servers, self._keys.slot, self._keys.mail)
        self._terms: dict[str, str] = {}

    @property
    def shards(self) -> int:
        return len(self._keys.shards)

    async def check(self) -> None:
        await check(self._servers, self._target, self._keys.slots)

    async def states(self) -> list[ServerState]:
        """Return memory, eviction and replication figures of each Redis master, for `herenow doctor`; call after
        `check`."""
        return await states(self._servers, self._target)

    async def terms(self) -> dict[str, str]:
        """Return the settings that all nodes of this store agreed on, for `herenow doctor`; empty if no node has used
        the store yet."""
        reply = list_of(await self._commands.one(Request(self._keys.slot, ("HGETALL", self._keys.terms)), writes=False))
        return {bytes_of(n).decode(): bytes_of(v).decode() for n, v in zip(reply[::2], reply[1::2], strict=True)}

    async def open(self, terms: Mapping[str, str]) -> None:
        try:
            await self.check()
            await self.agree(terms)
            await self._pubsub.open()
        except (Unavailable, UnknownOutcome) as error:  # for the operator who starts a node: name the setting
            raise type(error)(unusable(self._target, str(error))) from None

    async def close(self) -> None:
        self._logs.close()
        self._pubsub.close()
        await self._servers.close()
        await asyncio.sleep(0)  # connections close in the next loop iteration

    async def store_time(self) -> int:
        reply = await self._commands.one(Request(self._keys.slot, ("TIME",)), writes=False)
        assert isinstance(reply, list)
        return int(reply[0]) * 1000 + int(reply[1]) // 1000

    async def agree(self, terms: Mapping[str, str]) -> None:
        pairs = [part for term in sorted(terms.items()) for part in term]
        reply = await self._run_unsharded("agree", self._keys.terms, self._buckets, *pairs)
        assert isinstance(reply, list)
        if len(reply) == 2:
            term, found = (part.decode() for part in reply)
            raise ConfigurationError(disagreement(term, terms[term], found, self._namespace))
        buckets = int(reply[0])
        if self._terms and buckets != self._buckets:
            raise ConfigurationError(
                f"the store has {buckets} buckets per shard now and had {self._buckets} before: restart this node."
            )
        self._buckets = buckets
        self._builder = CommandBuilder(self.shards, buckets)
        self._terms |= terms

    # Records

    async def load(self, users: Sequence[str]) -> list[Loaded]:
        asked, lookups = shard_reads(users, self._keys.shards, self._builder)
        await self._read(asked)
        return lookups.found

    async def _read(self, asked: Sequence[ShardRead]) -> None:
        await self._commands.all([read.asked() for read in asked])
        with_tail = [read for read in asked if read.with_tail]
        tails = await self._commands.all([self._tails_request(read) for read in with_tail])
        for read, reply in zip(with_tail, tails, strict=True):
            read.complete(list_of(reply))

    def _tails_request(self, read: ShardRead) -> Request:
        keys = read.keys
        rows = self._rows(keys, [keys.header, keys.tails])
        fields = read.fields
        for index in read.with_tail:
            rows.add(fields[index])
        return script_request(keys.slot, "load", rows.keys, [rows.packed()])

    async def commit(self, batch: Batch) -> Committed | Fenced:
        keys = self._keys.shards[batch.shard]
        rows = self._rows(keys, [keys.header, keys.fences, keys.log, keys.wakes, keys.tails, keys.marks])
        fields = [_add_write(rows, write) for write in batch.writes]
        arguments: list[Argument] = [batch.epoch, batch.last, batch.next, LOG_LIMIT, LOG_BYTES, rows.packed()]
        reply = await self._run(batch.shard, "commit", rows.keys, arguments, writes=True)
        first, *rest = list_of(reply)
        if first == -1:
            return Fenced(None if rest[0] is None else int(rest[0]))
        results: list[Written | Conflict] = [_WRITTEN] * len(fields)
        for at in range(0, len(rest), 2):
            index = int(rest[at])
            results[index] = Conflict(record_of(fields[index], rest[at + 1]))
        return Committed(tuple(results), first == 1)

    async def offer(self, shard: int, offers: Sequence[Offer], since: int = 0) -> None:
        keys = self._keys.shards[shard]
        rows = self._rows(keys, [keys.header, keys.wakes, keys.tails, keys.marks])
        for each in offers:
            field = field_of(each.user)
            where = encoded(field, each.record, body_of(each.user, field, each.record), each.wake_at)
            mark = SET if each.unsaved else KEPT
            rows.add(field, time(each.version), stored(where), time(each.wake_at), mark)
        if offers:
            await self._run(shard, "offer", rows.keys, [since, rows.packed()], writes=True)

    async def walk(self, shard: int, cursor: str | None, limit: int) -> Page:
        at = 0 if cursor is None else int(cursor)
        if at < 0:
            raise ValueError(cursor)
        keys = self._keys.shards[shard]
        buckets = [keys.bucket(number) for number in range(at, min(at + WALK_BUCKETS, self._buckets))]
        reply = await self._run(shard, "walk", [keys.tails, *buckets], [limit], writes=False)
        read, *rest = list_of(reply)
        at += read
        return Page(tuple(_records(rest)), str(at) if at < self._buckets else None)

    async def due(self, shards: Sequence[int], now: int, limit: int) -> dict[int, Due]:
        return await self._wakeups.due(shards, now, limit)

    # Shard logs

    async def heads(self) -> dict[int, LogPosition]:
        return await self._heads_of(range(self.shards))

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        return await self._logs.tail(cursors, wait)

    @property
    def unresponsive(self) -> Set[int]:
        return self._logs.unresponsive

    async def _heads_of(self, shards: Sequence[int]) -> dict[int, LogPosition]:
        return {shard: header.head for shard, header in (await self._wakeups.headers(shards)).items()}

    # Fences

    async def join(self, shard: int, epoch: str, number: int) -> bool:
        keys = self._keys.shards[shard]
        joined = await self._run(shard, "join", [keys.fences, keys.retired], [epoch, number], writes=True)
        return joined == 1

    async def jump(self, shard: int, epoch: str, number: int) -> int | None:
        row = await self._run(shard, "jump", [self._keys.shards[shard].fences], [epoch, number], writes=True)
        return None if row is None else int(bytes_of(row))

    async def retire(self, shard: int, epoch: str) -> None:
        keys = self._keys.shards[shard]
        await self._run(shard, "retire", [keys.fences, keys.retired], [epoch, RETIRED], writes=True)

    # Settledness

    async def unsettle(self, shard: int, now: int) -> None:
        keys = self._keys.shards[shard]
        await self._run(shard, "unsettle", [keys.header, keys.log, keys.wakes], [now], writes=True)

    async def settle(self, shard: int, now: int, after: int) -> bool:
        keys = self._keys.shards[shard]
        return await self._run(shard, "settle", [keys.header, keys.log, keys.wakes], [now, after], writes=True) == 1

    # Leases

    async def renew(self, lease: Lease, *, begins: bool = False) -> bool:
        granted = await self._run_unsharded(
            "renew", self._keys.leases, lease.epoch, lease.counter, lease.renewed_at, int(begins)
        )
        if granted == 0:
            await self._write_terms_again()
        return granted == 1

    async def _write_terms_again(self) -> None:
        """Write the settings that all nodes must agree on into the store again, for nodes that start later: our lease
        is gone, so perhaps the store was emptied. Raises `Unavailable` if it now has other settings."""
        try:
            await self.agree(self._terms)
        except ConfigurationError as error:
            raise Unavailable(f"the store was emptied and is used by nodes with other settings: {error}") from None

    async def leases(self) -> list[Lease]:
        reply = list_of(
            await self._commands.one(Request(self._keys.slot, ("HGETALL", self._keys.leases)), writes=False)
        )
        return [_lease(epoch, row) for epoch, row in zip(reply[::2], reply[1::2], strict=True)]

    async def mark_dead(self, epoch: str, counter: int) -> bool:
        return await self._run_unsharded("mark_dead", self._keys.leases, epoch, counter) == 1

    async def drop_lease(self, epoch: str) -> None:
        await self._commands.one(Request(self._keys.slot, ("HDEL", self._keys.leases, epoch)), writes=True)

    # Records not yet saved in the ledger

    async def unsaved(self, shard: int, limit: int) -> list[tuple[str, bytes]]:
        keys = self._keys.shards[shard]
        request = Request(keys.slot, ("SRANDMEMBER", keys.marks, limit))
        fields = list_of(await self._commands.one(request, writes=False))
        if not fields:
            return []
        read = read_of(fields, keys, self._builder)
        await self._read([read])
        return list(_records(part for pair in zip(fields, read.bodies, strict=True) for part in pair))

    async def saved(self, shard: int, rows: Sequence[tuple[str, bytes, bool]]) -> None:
        keys = self._keys.shards[shard]
        packed_rows = self._rows(keys, [keys.header, keys.wakes, keys.tails, keys.marks])
        for user, record, drop in rows:
            field = field_of(user)
            packed_rows.add(field, text(body_of(user, field, record)), drop.to_bytes(1, "big"))
        if rows:
            await self._run(shard, "saved", packed_rows.keys, [packed_rows.packed()], writes=True)

    # Direct messages

    async def send(self, message: bytes) -> None:
        await self._commands.one(Request(self._keys.slot, ("PUBLISH", self._keys.mail, message)), writes=True)

    async def receive(self, wait: float) -> list[bytes]:
        return await self._pubsub.receive(wait)

    # Calls of scripts

    async def _run(
        self, shard: int, name: str, keys: list[Argument], arguments: list[Argument], *, writes: bool
    ) -> Reply:
        return await self._commands.one(
            script_request(self._keys.shards[shard].slot, name, keys, arguments), writes=writes
        )

    async def _run_unsharded(self, name: str, key: str, *arguments: Argument) -> Reply:
        return await self._commands.one(script_request(self._keys.slot, name, [key], list(arguments)), writes=True)

    def _rows(self, keys: ShardKeys, fixed: list[Argument]) -> Rows:
        return Rows(keys, fixed, self.shards, self._buckets)


def _add_write(rows: Rows, write: Write) -> bytes:
    user, record, note = write.user, write.record or b"", write.note
    field = field_of(user)
    body = body_of(user, field, record)
    rows.add(
        field,
        _NOTHING if write.expected is None else text(body_of(user, field, write.expected)),
        stored(encoded(field, record, body, write.wake_at)),
        time(write.wake_at),
        CLEARED if not record else SET if write.unsaved else KEPT,
        _NOTHING if note is None else text(len(note).to_bytes(2, "big") + note + body),
    )
    return field


def _records(flat: Iterable[bytes]) -> Iterable[tuple[str, bytes]]:
    pairs = iter(flat)
    for field, body in zip(pairs, pairs, strict=True):
        record = record_of(field, body)
        if record is not None:
            yield user_of(field, body), record


def _lease(epoch: bytes, row: bytes) -> Lease:
    counter, renewed_at, state = row.split(b" ")
    return Lease(epoch.decode(), int(counter), int(renewed_at), dead=state == b"dead")
