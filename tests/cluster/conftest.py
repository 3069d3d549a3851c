"""A real Valkey as the store of nodes under simulated time."""

from zlib import crc32

import pytest
from tests.cluster.redis_world import RedisStore, watch_links
from tests.cluster.schedule import SHARDS


@pytest.fixture
def store(request, valkey_server, monkeypatch):
    watch_links(monkeypatch)
    store = RedisStore(valkey_server, f"world{crc32(request.node.name.encode())}", SHARDS)
    yield store
    store.empty()
