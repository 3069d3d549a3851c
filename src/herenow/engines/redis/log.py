"""How a node waits for the logs: a blocking read that costs nothing at rest, and numbers that show every hole.

What a batch appended to a shard's log is one entry of the stream; its id is the number of the last. A read that waits
returns the first entry after the cursor. If that does not begin with the next number or does not follow the cursor's tag, or
if the wait was in vain and the header's head is not the cursor, then entries were lost, the log restarted, or the store is
another branch than the one we read (P5). So neither a trimmed stream, nor one that was rolled back, nor a connection gone
quiet passes for silence. A new connection may lead to another branch: the headers are compared before it is waited on.

One read waits for all shards of a server; in a Cluster, where a command may name one slot only, each shard has its own.
Reads go on in the background between two calls, each on a connection of its own, because a blocking read keeps it busy.
Shards that do not answer do not delay the others: they are tried again in the background, and listed in `unresponsive`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set

import hiredis

from herenow.engines.redis.client import DEADLINE, Command, Commands, Lost, RedisConnection, Reply, Server
from herenow.engines.redis.codec import record_of, user_of
from herenow.engines.redis.keys import ShardKeys
from herenow.engines.redis.scripts import script_request
from herenow.errors import Unavailable
from herenow.ports import Entry, LogPart, LogPosition, continues

AT_ONCE = 100
"""Batches per shard and read."""

EVERYTHING = 1_000_000
"""Batches when a hole is to be closed: the log itself is bounded."""

AGAIN = 0.2
"""Seconds after a read that failed until the next one is tried."""

Cursors = dict[int, int]
Heads = Callable[[Sequence[int]], Awaitable[Mapping[int, LogPosition]]]
"""Reads the head of each of these shards' logs."""


class Waiter:
    """Blocking reads of some shards that one command may name."""

    def __init__(self, commands: Commands, keys: Sequence[ShardKeys]) -> None:
        self._commands = commands
        self._keys = {each.shard: each for each in keys}
        self._by_key = {each.log: each.shard for each in keys}
        self._server: Server | None = None
        self._connection: RedisConnection | None = None
        self._read: asyncio.Task[list[LogPart] | None] | None = None
        self._cursors: Cursors = {}
        self._again_at = 0.0

    def begin(self, cursors: Cursors, wait: float) -> asyncio.Task[list[LogPart] | None]:
        """The read for these cursors: the one under way, or a new one. Its result: what came, None when there is a hole."""
        if self._read is not None and self._cursors != cursors:
            self._drop()
        if self._read is None:
            self._cursors = cursors
            self._read = asyncio.get_running_loop().create_task(self._wait(cursors, wait), name="log")
            self._read.add_done_callback(_seen)
        return self._read

    @property
    def shards(self) -> Set[int]:
        return self._keys.keys()

    def taken(self) -> None:
        """The result was seen: the next `begin` begins anew."""
        self._read = None

    def close(self) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._read is not None:
            self._read.cancel()
            self._read = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _wait(self, cursors: Cursors, wait: float) -> list[LogPart] | None:
        now = asyncio.get_running_loop().time
        if (pause := self._again_at - now()) > 0:
            await asyncio.sleep(pause)
        try:
            return await self._ask(cursors, wait)
        except Unavailable:
            self._again_at = now() + AGAIN
            raise

    async def _ask(self, cursors: Cursors, wait: float) -> list[LogPart] | None:
        server = await self._commands.servers.of(next(iter(self._keys.values())).slot)
        if self._connection is None or not self._connection.is_open or self._server is not server:
            if self._connection is not None:
                self._connection.close()
            self._server, self._connection = server, await self._dedicated(server)
            return None
        keys = [self._keys[shard].log for shard in cursors]
        after = [f"{cursor}-0" for cursor in cursors.values()]
        command: Command = ("XREAD", "COUNT", AT_ONCE, "BLOCK", max(1, round(wait * 1000)), "STREAMS", *keys, *after)
        try:
            [reply] = await self._connection.ask([command], wait + DEADLINE)
        except Lost as error:
            self._commands.servers.suspect(server)
            raise Unavailable(str(error)) from None
        if isinstance(reply, hiredis.ReplyError):
            self._connection.close()
            self._commands.servers.suspect(server)
            raise Unavailable(f"{server.address} refuses: {reply}")
        return self._parts(cursors, reply)

    async def _dedicated(self, server: Server) -> RedisConnection:
        try:
            return await server.dedicated()
        except Unavailable:
            self._commands.servers.suspect(server)
            raise

    def _parts(self, cursors: Cursors, reply: Reply) -> list[LogPart] | None:
        if not isinstance(reply, list):
            return []
        parts: list[LogPart] = []
        for key, raw in reply:
            shard = self._by_key[key]
            part = part_of(shard, raw, cursors[shard])
            if part is None or part.gap:
                return None
            parts.append(part)
        return parts


class Logs:
    """All logs of a store, for one reader."""

    def __init__(self, commands: Commands, keys: Sequence[ShardKeys], heads: Heads) -> None:
        self._commands = commands
        self._keys = keys
        self._heads = heads
        groups = [list(keys)] if commands.servers.single_server else [[each] for each in keys]
        self._waiters = [Waiter(commands, group) for group in groups]
        self._group = {each.shard: index for index, group in enumerate(groups) for each in group}
        self.unresponsive: set[int] = set()

    def close(self) -> None:
        for waiter in self._waiters:
            waiter.close()

    async def tail(self, cursors: Mapping[int, int], wait: float) -> list[LogPart]:
        if not cursors:
            return []
        until = asyncio.get_running_loop().time() + wait
        while (left := until - asyncio.get_running_loop().time()) > 0:
            parts = await self.wait(cursors, left)
            if parts is None:
                parts = await self._look_at_answering(cursors)
            if parts:
                return parts
        return await self._look_at_answering(cursors)

    async def _look_at_answering(self, cursors: Mapping[int, int]) -> list[LogPart]:
        answering = {shard: cursor for shard, cursor in cursors.items() if shard not in self.unresponsive}
        return await self.look(answering or cursors)

    async def look(self, cursors: Mapping[int, int]) -> list[LogPart]:
        """Without waiting: what every shard's header and log say."""
        heads = await self._heads(list(cursors))
        behind = [
            shard for shard, head in heads.items() if head != cursors[shard] or not continues(cursors[shard], head.tag)
        ]
        requests = [
            script_request(
                self._keys[shard].slot,
                "log",
                [self._keys[shard].header, self._keys[shard].log],
                [int(cursors[shard]), EVERYTHING],
            )
            for shard in behind
        ]
        parts: list[LogPart] = []
        answered = set(heads)
        for shard, reply in zip(behind, await self._commands.each(requests), strict=True):
            if isinstance(reply, list):
                head = LogPosition(int(reply[0]), reply[1].decode())
                part = _looked(shard, cursors[shard], head, reply[2])
                parts += () if part is None else (part,)
            else:
                answered.discard(shard)
        self._heard(cursors, answered)
        return parts

    def _heard(self, asked: Iterable[int], answered: Set[int]) -> None:
        self.unresponsive.update(asked)
        self.unresponsive -= answered
        if asked and not answered:
            raise Unavailable("the logs do not answer")

    async def wait(self, cursors: Mapping[int, int], wait: float) -> list[LogPart] | None:
        """Until something comes (the parts), the time is over or somebody falls silent (nothing), or a hole shows (None)."""
        grouped: dict[int, Cursors] = {}
        for shard, cursor in cursors.items():
            grouped.setdefault(self._group[shard], {})[shard] = cursor
        reads = {self._waiters[g].begin(part, wait): self._waiters[g] for g, part in grouped.items()}
        done, _ = await asyncio.wait(reads, timeout=wait + DEADLINE, return_when=asyncio.FIRST_COMPLETED)
        parts: list[LogPart] = []
        hole = False
        for read in done:
            waiter = reads[read]
            waiter.taken()
            failure = _failure(read)
            if failure is None:
                found = read.result()
                hole = hole or found is None
                parts += found or ()
                self.unresponsive -= waiter.shards
            else:
                self.unresponsive |= waiter.shards
                if self.unresponsive.issuperset(cursors):
                    raise failure
        return None if hole else parts


def part_of(shard: int, raw: Sequence[tuple[bytes, list[bytes]]], cursor: int) -> LogPart | None:
    """Entries after the cursor, which may lie within a batch; None: there are none."""
    entries: list[Entry] = []
    follows = False
    tag = ""
    for name, (_, tags, *pairs) in raw:
        before, _, tag = tags.decode().partition(" ")
        last = int(name.partition(b"-")[0])
        number = last - len(pairs) // 2
        if not entries and last > cursor:
            follows = continues(cursor, before if number == cursor else tag) and number <= cursor
        for field, value in zip(pairs[::2], pairs[1::2], strict=True):
            number += 1
            if number > cursor:
                body = value[2 + (note := int.from_bytes(value[:2], "big")) :]
                entries.append(Entry(number, user_of(field, body), record_of(field, body), value[2 : 2 + note]))
    if not entries:
        return None
    return LogPart(shard, tuple(entries), LogPosition(entries[-1].number, tag), gap=not follows)


def _failure(read: asyncio.Task[list[LogPart] | None]) -> BaseException | None:
    return Unavailable("the reading of the logs was given up") if read.cancelled() else read.exception()


def _seen(read: asyncio.Task[list[LogPart] | None]) -> None:
    if not read.cancelled():
        read.exception()  # whoever waited for it may be gone


def _looked(shard: int, cursor: int, head: LogPosition, raw: Sequence[tuple[bytes, list[bytes]]]) -> LogPart | None:
    """The log may have moved since the header was read: what was read last counts."""
    if head == cursor and continues(cursor, head.tag):
        return None
    return (part_of(shard, raw, cursor) if head > cursor else None) or LogPart(shard, (), head, gap=True)
