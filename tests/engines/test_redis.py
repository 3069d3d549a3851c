"""The Redis engine keeps the promises of the port on real servers: Valkey alone, Debian's Redis, Sentinel, Cluster."""

import itertools
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.redis_servers import RedisProcess, trim

from herenow.engines import make_engine
from herenow.engines.redis import ShardKeys
from herenow_testing.contracts.engine import TERMS, EngineContract

NAMES = (f"t{number}" for number in itertools.count())


class OnRedis(EngineContract):
    """Every test has its own namespace on a shared server."""

    shards = 16
    url: str
    servers: list[RedisProcess]
    client_of: Callable[[int], Any]
    """A separate client of the server that has this shard."""

    @pytest.fixture(autouse=True)
    def place(self):
        self.namespace = next(NAMES)

    @pytest.fixture
    async def engine(self, place):
        engine = self.handle()
        await engine.open(TERMS)
        yield engine
        await engine.close()

    @pytest.fixture
    async def second(self, engine):
        second = self.handle()
        await second.open(TERMS)
        yield second
        await second.close()

    def handle(self):
        return make_engine(self.url, shards=self.shards, namespace=self.namespace, capacity=20_000)

    def keys_of(self, shard):
        return self.client_of(shard).keys(f"{{{self.namespace}.{shard}}}:*")

    async def empty(self, shard):
        for key in self.keys_of(shard):
            self.client_of(shard).delete(key)

    async def snapshot(self, shard):
        return {key: self.client_of(shard).dump(key) for key in self.keys_of(shard)}

    async def roll_back(self, shard, snapshot):
        await self.empty(shard)
        for key, dumped in snapshot.items():
            self.client_of(shard).restore(key, 0, dumped)

    async def trim_log(self, shard, keep):
        trim(self.client_of(shard), ShardKeys(self.namespace, shard).log, keep)

    @asynccontextmanager
    async def cut_off(self):
        """Every connection is cut, and new ones are refused. `test_redis_in_trouble` has frozen servers."""
        for server in self.servers:
            server.client.config_set("requirepass", "changed")
            server.client.client_kill_filter(_type="normal", skipme=True)
        try:
            yield
        finally:
            for server in self.servers:
                server.client.config_set("requirepass", "")


class TestValkey(OnRedis):
    @pytest.fixture(autouse=True)
    def server(self, valkey_server):
        self.url = valkey_server.url
        self.client_of = lambda shard: valkey_server.client
        self.servers = [valkey_server]


class TestValkeyWithOneShard(TestValkey):
    shards = 1


class TestDebiansRedis(OnRedis):
    @pytest.fixture(autouse=True)
    def server(self, debian_redis):
        self.url = debian_redis.url
        self.client_of = lambda shard: debian_redis.client
        self.servers = [debian_redis]


class TestSentinel(OnRedis):
    @pytest.fixture(autouse=True)
    def server(self, sentinel_group):
        self.url = sentinel_group.url
        self.client_of = lambda shard: sentinel_group.master.client
        self.servers = [sentinel_group.master]


class TestCluster(OnRedis):
    @pytest.fixture(autouse=True)
    def server(self, cluster_group):
        self.url = cluster_group.url
        masters = cluster_group.masters
        bounds = (5461, 10923, 16384)

        def client_of(shard):
            slot = ShardKeys(self.namespace, shard).slot
            return next(m.client for m, bound in zip(masters, bounds, strict=True) if slot < bound)

        self.client_of = client_of
        self.servers = masters
