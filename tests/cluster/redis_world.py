"""The world of the schedules on a real Valkey, under simulated time.

Time passes only while no request is in flight, so that a millisecond of the real server is not a minute of simulated
time. The store's clock is the loop's clock. A blocking read would block in real time, so it is replaced by polling.
"""

import asyncio
from collections import Counter
from weakref import WeakSet

from tests.redis_servers import trim

from herenow.engines.redis import RedisEngine, ShardKeys
from herenow.engines.redis.client import RedisConnection, parse_url
from herenow.engines.redis.codec import record_of, user_of
from herenow_testing.world.manual_clock import LoopClock

LOOK_EVERY = 0.1

MOMENT = 1e-6
"""Seconds too short to wait for: asyncio fires timers within its clock resolution at once, and then the simulated time
would not advance.
"""


class PatientLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer when there is nothing else to do and no answer of a server is pending."""

    def __init__(self):
        super().__init__()
        self.links = WeakSet()
        self._now = 0.0
        self._really_select = self._selector.select  # type: ignore[attr-defined]
        self._selector.select = self._select  # type: ignore[attr-defined]

    def time(self):
        return self._now

    def _select(self, timeout):
        events = self._really_select(0)
        while not events and timeout != 0 and any(link.is_open and link.asked for link in self.links):
            events = self._really_select(0.1)
        if not events and timeout is None:
            return self._really_select(None)
        if not events and timeout > 0:
            self._now += timeout
        return events


def watch_links(monkeypatch):
    """Register every new connection with its loop."""
    made = RedisConnection.connection_made

    def known(link, transport):
        asyncio.get_running_loop().links.add(link)  # type: ignore[attr-defined]
        made(link, transport)

    monkeypatch.setattr(RedisConnection, "connection_made", known)


class RedisStore:
    """The store shared by the nodes of a schedule, with methods that lose its data."""

    def __init__(self, server, namespace, shards):
        self._server = server
        self._namespace = namespace
        self._shards = shards
        self._handles = []

    def handle(self):
        options = {"namespace": self._namespace, "shards": self._shards, "capacity": 100}
        self._handles.append(Handle(parse_url(self._server.url), **options))
        return self._handles[-1]

    async def begin(self):
        """Settle all shards, like a store that was used before."""
        handle = self.handle()
        for shard in range(self._shards):
            await handle.settle(shard, 0, 0)
            assert await handle.settle(shard, 0, 0)

    async def close(self):
        """Close all handles, also those of killed nodes."""
        for handle in self._handles:
            await handle.close()

    def records(self):
        client, found = self._server.client, {}
        for shard in range(self._shards):
            keys = ShardKeys(self._namespace, shard)
            tails = client.hgetall(keys.tails)
            for field, value in client.hgetall(keys.bucket(0)).items():
                body = tails.get(field, b"") if value[0] >= 128 else value[value[0] + 1 :]
                record = record_of(field, body)
                if record is not None:
                    found[user_of(field, body)] = record
        return found

    async def entries(self):
        """Number of log entries ever written, over all shards."""
        return sum((await self._handles[0].heads()).values())

    def calls(self):
        """Number of calls per Redis command, including calls from scripts."""
        stats = self._server.client.info("commandstats")
        return Counter({name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()})

    def snapshot(self, shard):
        keys = self._keys(shard)
        pipeline = self._server.client.pipeline(transaction=False)
        for key in keys:
            pipeline.dump(key)
        return dict(zip(keys, pipeline.execute(), strict=True))

    def restore(self, shard, snapshot):
        pipeline = self._server.client.pipeline(transaction=True)  # a replica takes over at once, or not at all
        pipeline.delete(*self._keys(shard), "nothing")
        for key, dumped in snapshot.items():
            pipeline.restore(key, 0, dumped)
        pipeline.execute()

    def empty(self, shard=None):
        keys = self._keys(shard)
        if keys:
            self._server.client.delete(*keys)

    def trim_log(self, shard, keep):
        trim(self._server.client, ShardKeys(self._namespace, shard).log, keep)

    def _keys(self, shard):
        return self._server.client.keys(f"{{{self._namespace}{'' if shard is None else f'.{shard}'}*")


class Handle(RedisEngine):
    """An engine whose store time is the loop's clock."""

    async def store_time(self):
        return LoopClock().now()

    async def tail(self, cursors, wait):
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while not (parts := await self._logs.read_now(cursors)) and (left := until - loop.time()) > MOMENT:
            await asyncio.sleep(min(LOOK_EVERY, left))
        return parts
