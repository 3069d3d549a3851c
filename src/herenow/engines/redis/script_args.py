"""Packs rows about many users of one shard into one argument of a script.

The key of each bucket is passed once. All rows together are one argument, which the script unpacks, because each argument
costs Redis about a microsecond, more than its content. A row begins with the index of its bucket among the buckets of this
call and with its field; each script lists the other columns. Texts follow their length; numbers are big-endian.
"""

from __future__ import annotations

from herenow.engines.redis.client import Argument
from herenow.engines.redis.codec import Encoded
from herenow.engines.redis.keys import ShardKeys, bucket_of

KEPT, SET, CLEARED = b"\0", b"\1", b"\2"  # changes of the unsaved flag: keep it, set it, clear it

_NONE = b"\xff" * 6


class Rows:
    __slots__ = ("_bucket", "_buckets", "_fixed", "_indices", "_rows", "_shards", "keys")

    def __init__(self, keys: ShardKeys, fixed: list[Argument], shards: int, buckets: int) -> None:
        self._bucket = keys.bucket
        self._fixed = len(fixed)
        self._shards = shards
        self._buckets = buckets
        self._indices: dict[int, bytes] = {}
        self._rows: list[bytes] = []
        self.keys = fixed

    def add(self, field: bytes, *columns: bytes) -> None:
        bucket = bucket_of(field, self._shards, self._buckets)
        index = self._indices.get(bucket)
        if index is None:
            self.keys.append(self._bucket(bucket))
            index = self._indices[bucket] = (len(self.keys) - self._fixed).to_bytes(3, "big")
        self._rows += (index, len(field).to_bytes(1, "big"), field, *columns)

    def packed(self) -> bytes:
        return b"".join(self._rows)


def text(body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + body


def time(at: int | None) -> bytes:
    """Encode a time (ms) or a record's version in 6 bytes; None means that there is no wake-up."""
    return _NONE if at is None else at.to_bytes(6, "big")


def stored(encoded: Encoded) -> bytes:
    return text(encoded.value) + text(encoded.tail)
