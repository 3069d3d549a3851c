"""The shard of a user: one rule for all engines and nodes. It must never change for a store that has data. The number of
shards is one of the terms that `Engine.open` compares."""

from __future__ import annotations

from zlib import crc32


def shard_of(user: str, shards: int) -> int:
    return crc32(user.encode()) % shards
