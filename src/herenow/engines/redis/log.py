"""Reading the shard logs: blocking reads that cost nothing while idle, and entry numbers that reveal every gap.

A batch is one stream entry, whose id is the number of the batch's last log entry. Entries were lost, the log restarted or
the store is another branch (P5) if the first entry read does not have the number after the cursor or does not follow its
tag, or if a read times out and the head in the shard's header is not the cursor. So a trimmed or rolled-back stream,
a failover that lost writes or a dead connection is never mistaken for an idle log. A new connection may lead to another
branch: the headers are compared before a read waits on it.

On a single server one read waits for all shards. In a Cluster a command may name one slot only, so each shard has its own
read. Reads continue in the background between two calls, each on its own connection, which a blocking read occupies.
Shards that do not answer do not delay the others: they are retried in the background and listed in `unresponsive`.
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

READ_LIMIT = 100  # maximum of batches per shard and blocking read
ALL_BATCHES = 1_000_000  # maximum of batches per shard after a gap; in effect no limit, as the log is bounded
RETRY_AFTER = 0.2  # seconds from a failed read to the next attempt

Cursors = dict[int, int]
RawEntries = Sequence[tuple[bytes, list[bytes]]]  # id and alternating fields and values of each stream entry
Heads = Callable[[Sequence[int]], Awaitable[Mapping[int, LogPosition]]]  # log heads of the given shards that answer


class Waiter:
    """Blocking reads of the logs of shards that one command may name together, one read at a time."""

    def __init__(self, commands: Commands, keys: Sequence[ShardKeys]) -> None:
        self._commands = commands
        self._keys = {each.shard: each for each in keys}
        self._by_key = {each.log: each.shard for each in keys}
        self._server: Server | None = None
        self._connection: RedisConnection | None = None
        self._read: asyncio.Task[list[LogPart] | None] | None = None
        self._cursors: Cursors = {}
        self._retry_at = 0.0

    def begin(self, cursors: Cursors, wait: float) -> asyncio.Task[list[LogPart] | None]:
        """Start to wait, up to `wait` seconds, for log entries after these cursors, or return the running task if it
        has the same cursors. The task's result: the new entries by shard; None if entries may be missing."""
        if self._read is not None and self._cursors != cursors:
            self.close()
        if self._read is None:
            self._cursors = cursors
            self._read = asyncio.get_running_loop().create_task(self._wait(cursors, wait), name="log")
            self._read.add_done_callback(_retrieve_error)
        return self._read

    @property
    def shards(self) -> Set[int]:
        return self._keys.keys()

    def taken(self) -> None:
        """Forget the finished task of `begin` after its result was used, so that the next `begin` starts a new one."""
        self._read = None

    def close(self) -> None:
        if self._read is not None:
            self._read.cancel()
            self._read = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _wait(self, cursors: Cursors, wait: float) -> list[LogPart] | None:
        now = asyncio.get_running_loop().time
        if (pause := self._retry_at - now()) > 0:
            await asyncio.sleep(pause)
        try:
            return await self._ask(cursors, wait)
        except Unavailable:
            self._retry_at = now() + RETRY_AFTER
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
        command: Command = ("XREAD", "COUNT", READ_LIMIT, "BLOCK", max(1, round(wait * 1000)), "STREAMS", *keys, *after)
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
                parts = await self._read_answering(cursors)
            if parts:
                return parts
        return await self._read_answering(cursors)

    async def _read_answering(self, cursors: Mapping[int, int]) -> list[LogPart]:
        answering = {shard: cursor for shard, cursor in cursors.items() if shard not in self.unresponsive}
        return await self.read_now(answering or cursors)

    async def read_now(self, cursors: Mapping[int, int]) -> list[LogPart]:
        """Return the log entries after the cursors, by shard, without waiting for new ones. Only logs whose newest
        entry is not the cursor are read."""
        heads = await self._heads(list(cursors))
        behind = [s for s, head in heads.items() if head != cursors[s] or not continues(cursors[s], head.tag)]
        requests = [
            script_request(
                self._keys[shard].slot,
                "log",
                [self._keys[shard].header, self._keys[shard].log],
                [int(cursors[shard]), ALL_BATCHES],
            )
            for shard in behind
        ]
        parts: list[LogPart] = []
        answered = set(heads)
        for shard, reply in zip(behind, await self._commands.each(requests), strict=True):
            if isinstance(reply, list):
                part = _read_part(shard, cursors[shard], LogPosition(int(reply[0]), reply[1].decode()), reply[2])
                parts += () if part is None else (part,)
            else:
                answered.discard(shard)
        self._update_unresponsive(cursors, answered)
        return parts

    def _update_unresponsive(self, asked: Iterable[int], answered: Set[int]) -> None:
        self.unresponsive.update(asked)
        self.unresponsive -= answered
        if asked and not answered:
            raise Unavailable("the logs of the live store do not answer")

    async def wait(self, cursors: Mapping[int, int], wait: float) -> list[LogPart] | None:
        """Wait up to `wait` seconds until some shards have log entries after their cursors, and return these by shard.
        Returns an empty list after a time-out or a failed read, None if entries may be missing. Raises the failure when
        no shard answers any more."""
        grouped: dict[int, Cursors] = {}
        for shard, cursor in cursors.items():
            grouped.setdefault(self._group[shard], {})[shard] = cursor
        reads = {self._waiters[g].begin(part, wait): self._waiters[g] for g, part in grouped.items()}
        done, _ = await asyncio.wait(reads, timeout=wait + DEADLINE, return_when=asyncio.FIRST_COMPLETED)
        parts: list[LogPart] = []
        gap = False
        for read in done:
            waiter = reads[read]
            waiter.taken()
            failure = _failure(read)
            if failure is None:
                found = read.result()
                gap = gap or found is None
                parts += found or ()
                self.unresponsive -= waiter.shards
            else:
                self.unresponsive |= waiter.shards
                if self.unresponsive.issuperset(cursors):
                    raise failure
        return None if gap else parts


def part_of(shard: int, raw: RawEntries, cursor: int) -> LogPart | None:
    """Decode the stream entries of a shard's log and return the log entries after `cursor`, which may be in the middle
    of a batch; None if there are none."""
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
    return Unavailable("reading the logs was cancelled") if read.cancelled() else read.exception()


def _retrieve_error(read: asyncio.Task[list[LogPart] | None]) -> None:
    if not read.cancelled():
        read.exception()  # marks it as retrieved: perhaps no caller is left


def _read_part(shard: int, cursor: int, head: LogPosition, raw: RawEntries) -> LogPart | None:
    """Return the log entries after `cursor`, or the report that some are missing; None if `cursor` is the newest entry.
    `head`: number and tag of the newest entry, read together with the stream entries `raw`."""
    if head == cursor and continues(cursor, head.tag):
        return None
    return (part_of(shard, raw, cursor) if head > cursor else None) or LogPart(shard, (), head, gap=True)
