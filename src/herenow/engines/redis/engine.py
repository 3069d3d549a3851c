"""Hot state in Redis or Valkey: one server, Sentinel or Cluster, for any number of nodes.

Stores and compares; what a record means nobody here knows. Each promise of `herenow.ports.Engine` about a shard is kept by
one script that touches that shard alone (`lua/`), so it is as atomic as Redis is. The rest has its own modules:

    redis_url       which Redis a URL means               redis_keys      the whole keyspace
    redis_link      one connection, and what was sent     redis_codec     how a record lies in a bucket
    redis_servers   which server holds a slot now         redis_scripts   the Lua files
    redis_rows      many users in one argument            redis_reads     many users' records at once
    redis_calls     what a refusal or silence means (P8)  redis_log       waiting for the logs
    redis_checks    what is refused at the start          redis_mail      direct messages

A store that was never used is not settled: nobody can tell it from one that has just lost everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set

from herenow.engines.redis.checks import ServerState, check, states, unusable
from herenow.engines.redis.client.commands import Calls, Request
from herenow.engines.redis.client.connection import Argument, Reply
from herenow.engines.redis.client.servers import servers_of
from herenow.engines.redis.client.url import Target
from herenow.engines.redis.codec import body_of, field_of, laid, record_of, user_of
from herenow.engines.redis.keys import Keys, ShardKeys, buckets_for
from herenow.engines.redis.log import Logs
from herenow.engines.redis.pubsub import Mail
from herenow.engines.redis.reads import Header, Question, Words, question_for, questions
from herenow.engines.redis.script_args import KEPT, SET, TAKEN, Rows, stored, text, time
from herenow.errors import ConfigurationError, HerenowError, Unavailable, UnknownOutcome
from herenow.ports import (
    Batch,
    Committed,
    Conflict,
    Due,
    Fenced,
    Lease,
    Loaded,
    LogPart,
    Offer,
    Page,
    Write,
    Written,
)

LOG_LIMIT = 2_000
"""Entries kept per shard: with 16 shards, what a node may fall behind by before it has to read again whom it knows."""

RETIRED = 500
"""Retired epochs remembered per shard: more than can end while one call is under way."""

WALK_BUCKETS = 200
"""Buckets per page at most: most of them are empty in a store that is larger than its users."""

_WRITTEN = Written()
_NOTHING = text(b"")


class RedisEngine:
    """One node's handle; see `herenow.ports.Engine` for what each method promises."""

    def __init__(
        self, target: Target, *, namespace: str = "herenow", shards: int = 16, capacity: int = 1_000_000
    ) -> None:
        self._target = target
        self._keys = Keys(namespace, shards)
        self._buckets = buckets_for(capacity, shards)
        self._words = Words(shards, self._buckets)
        self._servers = servers_of(target)
        self._calls = Calls(self._servers)
        self._logs = Logs(self._calls, self._keys.shards, self._heads_of)
        self._mail = Mail(self._servers, self._keys.slot, self._keys.mail)
        self._terms: dict[str, str] = {}

    @property
    def shards(self) -> int:
        return len(self._keys.shards)

    async def check(self) -> None:
        await check(self._servers, self._target, self._keys.slots)

    async def states(self) -> list[ServerState]:
        """For `herenow doctor`, after `check`."""
        return await states(self._servers, self._target)

    async def terms(self) -> dict[str, str]:
        """For `herenow doctor`: what the nodes of this store agree on, as the first of them wrote it; empty: nobody did."""
        reply = _list(
            await self._calls.one(Request(self._keys.slot, ("HGETALL", self._keys.terms)), writes=False)
        )
        return {_bytes(n).decode(): _bytes(v).decode() for n, v in zip(reply[::2], reply[1::2], strict=True)}

    async def open(self, terms: Mapping[str, str]) -> None:
        try:
            await self.check()
            await self._agree(terms)
            await self._mail.open()
        except (Unavailable, UnknownOutcome) as error:  # what an operator reads who has just started a node
            raise type(error)(unusable(self._target, str(error))) from None

    async def close(self) -> None:
        self._logs.close()
        self._mail.close()
        await self._servers.close()
        await asyncio.sleep(0)  # connections end in the loop's next turn

    async def store_time(self) -> int:
        reply = await self._calls.one(Request(self._keys.slot, ("TIME",)), writes=False)
        assert isinstance(reply, list)
        return int(reply[0]) * 1000 + int(reply[1]) // 1000

    async def _agree(self, terms: Mapping[str, str]) -> None:
        pairs = [part for term in sorted(terms.items()) for part in term]
        reply = await self._on_nodes("agree", self._keys.terms, self._buckets, *pairs)
        assert isinstance(reply, list)
        if len(reply) == 2:
            term, found = (part.decode() for part in reply)
            raise ConfigurationError(
                f"{term} is {terms[term]!r} here but {found!r} in the store: nodes that share a store must agree on it."
            )
        buckets = int(reply[0])
        if self._terms and buckets != self._buckets:
            raise ConfigurationError(
                f"the store is laid out with {buckets} buckets per shard and was with {self._buckets}: restart this node."
            )
        self._buckets = buckets
        self._words = Words(self.shards, buckets)
        self._terms |= terms

    # Records

    async def load(self, users: Sequence[str]) -> list[Loaded]:
        asked, wanted = questions(users, self._keys.shards, self._words)
        await self._read(asked)
        return wanted.found

    async def _read(self, asked: Sequence[Question]) -> None:
        await self._calls.all([question.asked() for question in asked])
        halves = [question for question in asked if question.halves]
        wholes = await self._calls.all([self._wholes(question) for question in halves])
        for question, reply in zip(halves, wholes, strict=True):
            question.complete(_list(reply))

    def _wholes(self, question: Question) -> Request:
        keys = question.keys
        rows = self._rows(keys, [keys.header, keys.tails])
        fields = question.fields
        for index in question.halves:
            rows.add(fields[index])
        return self._calls.run(keys.slot, "load", rows.keys, [rows.packed()])

    async def commit(self, batch: Batch) -> Committed | Fenced:
        keys = self._keys.shards[batch.shard]
        rows = self._rows(keys, [keys.header, keys.fences, keys.log, keys.wakes, keys.tails, keys.marks])
        fields = [_add_write(rows, write) for write in batch.writes]
        arguments: list[Argument] = [batch.epoch, batch.last, batch.next, LOG_LIMIT, rows.packed()]
        reply = await self._run(batch.shard, "commit", rows.keys, arguments, writes=True)
        first, *rest = _list(reply)
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
            where = laid(field, each.record, body_of(each.user, field, each.record), each.wake_at)
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
        read, *rest = _list(reply)
        at += read
        return Page(tuple(_records(rest)), str(at) if at < self._buckets else None)

    # Wake-ups

    async def due(self, shards: Sequence[int], now: int, limit: int) -> dict[int, Due]:
        headers = await self._headers(shards)
        busy = [
            shard for shard, header in headers.items() if header.next_at is not None and header.next_at <= now
        ]
        dues = await asyncio.gather(*(self._due(shard, now, limit) for shard in busy), return_exceptions=True)
        found = {
            shard: Due((), header.next_at, settled=header.settled)
            for shard, header in headers.items()
            if shard not in busy
        }
        for shard, due in zip(busy, dues, strict=True):
            match due:
                case (users, next_at):
                    found[shard] = Due(
                        tuple(user for _, user in users),
                        next_at,
                        tuple(at for at, _ in users),
                        settled=headers[shard].settled,
                    )
                case HerenowError() if len(busy) > 1:
                    continue
                case BaseException():
                    raise due
        return found

    async def _due(self, shard: int, now: int, limit: int) -> tuple[list[tuple[int, str]], int | None]:
        """Each bucket among the earliest `limit` has somebody who is due, so the earliest `limit` users are in them."""
        keys = self._keys.shards[shard]
        reply = _list(
            await self._calls.one(
                Request(keys.slot, ("ZRANGE", keys.wakes, 0, limit, "WITHSCORES")), writes=False
            )
        )
        first = [(int(name), int(float(at))) for name, at in zip(reply[::2], reply[1::2], strict=True)]
        early = [name for name, at in first[:limit] if at <= now]
        others = [at for _, at in first[len(early) :]]
        if not early:
            return [], min(others, default=None)
        reply = _list(
            await self._run(shard, "due", [keys.tails, *map(keys.bucket, early)], [now], writes=False)
        )
        if reply[0]:
            others.append(int(reply[0]))
        users = sorted(
            (int(at), user_of(field, body))
            for field, body, at in zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
        )
        others += [at for at, _ in users[limit:]]
        return users[:limit], min(others, default=None)

    # Shard logs

    async def heads(self) -> dict[int, int]:
        return await self._heads_of(range(self.shards))

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        return await self._logs.tail(cursors, wait)

    @property
    def unresponsive(self) -> Set[int]:
        return self._logs.unresponsive

    async def _heads_of(self, shards: Sequence[int]) -> dict[int, int]:
        return {shard: header.head for shard, header in (await self._headers(shards)).items()}

    async def _headers(self, shards: Sequence[int]) -> dict[int, Header]:
        """Of those that answer; `Unavailable` when none does."""
        if not shards:
            return {}
        keys = [self._keys.shards[shard] for shard in shards]
        if self._servers.one_for_all:
            request = Request(self._keys.slot, ("MGET", *(each.header for each in keys)))
            return dict(
                zip(shards, map(Header, _list(await self._calls.one(request, writes=False))), strict=True)
            )
        replies = await self._calls.each([Request(each.slot, ("GET", each.header)) for each in keys])
        found = {
            shard: Header(reply)
            for shard, reply in zip(shards, replies, strict=True)
            if not isinstance(reply, HerenowError)
        }
        if not found:
            assert isinstance(replies[0], HerenowError)
            raise replies[0]
        return found

    # Fences

    async def join(self, shard: int, epoch: str, number: int) -> bool:
        keys = self._keys.shards[shard]
        joined = await self._run(shard, "join", [keys.fences, keys.retired], [epoch, number], writes=True)
        return joined == 1

    async def jump(self, shard: int, epoch: str, number: int) -> int | None:
        row = await self._run(shard, "jump", [self._keys.shards[shard].fences], [epoch, number], writes=True)
        return None if row is None else int(_bytes(row))

    async def retire(self, shard: int, epoch: str) -> None:
        keys = self._keys.shards[shard]
        await self._run(shard, "retire", [keys.fences, keys.retired], [epoch, RETIRED], writes=True)

    # Settledness

    async def unsettle(self, shard: int, now: int) -> None:
        keys = self._keys.shards[shard]
        await self._run(shard, "unsettle", [keys.header, keys.log, keys.wakes], [now], writes=True)

    async def settle(self, shard: int, now: int, after: int) -> bool:
        keys = self._keys.shards[shard]
        return (
            await self._run(shard, "settle", [keys.header, keys.log, keys.wakes], [now, after], writes=True)
            == 1
        )

    # Leases

    async def renew(self, lease: Lease, *, begins: bool = False) -> bool:
        granted = await self._on_nodes(
            "renew", self._keys.leases, lease.epoch, lease.counter, lease.renewed_at, int(begins)
        )
        if granted == 0:
            await self._say_terms_again()
        return granted == 1

    async def _say_terms_again(self) -> None:
        """Our row is gone: perhaps everything is, and the next node must find what it has to agree with."""
        try:
            await self._agree(self._terms)
        except ConfigurationError as error:
            raise Unavailable(f"the store was emptied and is used by others now: {error}") from None

    async def leases(self) -> list[Lease]:
        reply = _list(
            await self._calls.one(Request(self._keys.slot, ("HGETALL", self._keys.leases)), writes=False)
        )
        return [_lease(epoch, row) for epoch, row in zip(reply[::2], reply[1::2], strict=True)]

    async def mark_dead(self, epoch: str, counter: int) -> bool:
        return await self._on_nodes("mark_dead", self._keys.leases, epoch, counter) == 1

    async def drop_lease(self, epoch: str) -> None:
        await self._calls.one(Request(self._keys.slot, ("HDEL", self._keys.leases, epoch)), writes=True)

    # What the ledger does not have yet

    async def unsaved(self, shard: int, limit: int) -> list[tuple[str, bytes]]:
        keys = self._keys.shards[shard]
        request = Request(keys.slot, ("SRANDMEMBER", keys.marks, limit))
        fields = _list(await self._calls.one(request, writes=False))
        if not fields:
            return []
        question = question_for(fields, keys, self._words)
        await self._read([question])
        return list(_records(part for pair in zip(fields, question.bodies, strict=True) for part in pair))

    async def saved(self, shard: int, rows: Sequence[tuple[str, bytes, bool]]) -> None:
        keys = self._keys.shards[shard]
        told = self._rows(keys, [keys.header, keys.wakes, keys.tails, keys.marks])
        for user, record, drop in rows:
            field = field_of(user)
            told.add(field, text(body_of(user, field, record)), drop.to_bytes(1, "big"))
        if rows:
            await self._run(shard, "saved", told.keys, [told.packed()], writes=True)

    # Direct messages

    async def send(self, message: bytes) -> None:
        await self._calls.one(Request(self._keys.slot, ("PUBLISH", self._keys.mail, message)), writes=True)

    async def receive(self, wait: float) -> list[bytes]:
        return await self._mail.receive(wait)

    # How

    async def _run(
        self, shard: int, name: str, keys: list[Argument], arguments: list[Argument], *, writes: bool
    ) -> Reply:
        return await self._calls.one(
            self._calls.run(self._keys.shards[shard].slot, name, keys, arguments), writes=writes
        )

    async def _on_nodes(self, name: str, key: str, *arguments: Argument) -> Reply:
        return await self._calls.one(
            self._calls.run(self._keys.slot, name, [key], list(arguments)), writes=True
        )

    def _rows(self, keys: ShardKeys, fixed: list[Argument]) -> Rows:
        return Rows(keys, fixed, self.shards, self._buckets)


def _add_write(rows: Rows, write: Write) -> bytes:
    user, record, note = write.user, write.record or b"", write.note
    field = field_of(user)
    body = body_of(user, field, record)
    rows.add(
        field,
        _NOTHING if write.expected is None else text(body_of(user, field, write.expected)),
        stored(laid(field, record, body, write.wake_at)),
        time(write.wake_at),
        TAKEN if not record else SET if write.unsaved else KEPT,
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


def _list(reply: Reply) -> list:  # type: ignore[type-arg] # what stands in it depends on the command
    assert isinstance(reply, list), reply
    return reply


def _bytes(reply: Reply) -> bytes:
    assert isinstance(reply, bytes), reply
    return reply
