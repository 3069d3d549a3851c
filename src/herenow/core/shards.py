"""Which shard does a user belong to?

One rule for every engine and every node, because a user written by one and read by another must be found. It does not
know what a shard is kept in. It can never change for a store that holds something: the number of shards is one of the
terms that `Engine.open` compares.
"""

from __future__ import annotations

from zlib import crc32


def shard_of(user: str, shards: int) -> int:
    return crc32(user.encode()) % shards
