"""The whole keyspace. No other module builds a key.

Every key begins with the namespace. All keys of a shard share one hash tag, so they are in one slot and one script may use
them together. Keys do not expire, are not found by SCAN, and are not built inside Lua.

    {herenow.3}:h        string   the shard's header: "state head next tag span"
                                    state  u<ms>: unsettled since then · s<ms>: settled, last unsettled at that time ·
                                           ?: data was lost at an unknown time
                                    head   number of the newest log entry
                                    next   earliest wake-up in the shard; "-": none
                                    tag    "epoch.number" of the batch that wrote the newest log entry
                                    span   "from,since,bytes": the log keeps entries after `from`, and so many bytes were
                                           appended after `since`; older versions leave it out
                                  missing: the shard was emptied, so the absence of a record is no evidence (P6)
    {herenow.3}:b:17     hash     a bucket, the records of about 48 users: field → wake-up and body (see `codec`); small
                                  enough for the compact encoding, so that a user costs about 60 bytes
    {herenow.3}:t        hash     tails: field → body, if the body or the id is too long for the compact encoding
    {herenow.3}:w        zset     bucket → earliest wake-up of its users; an entry per user would cost twice the record
    {herenow.3}:l        stream   the log: one stream entry per batch, with fields and values alternating; its id is the
                                  number of its last log entry, so XREAD can wait for it and gaps show in the numbers. The
                                  first field is empty; its value is the tag of the batch before and that of this batch
    {herenow.3}:f        hash     fences: epoch → number of its last batch
    {herenow.3}:r        zset     the last few hundred retired epochs: `join` refuses them
    {herenow.3}:u        set      fields whose record is not yet saved in the ledger
    {herenow}:leases     hash     epoch → "counter renewed_at state", state alive or dead
    {herenow}:terms      hash     the settings that all nodes must agree on, and the number of buckets per shard
    {herenow}:mail       channel  direct messages between nodes
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import cached_property
from zlib import crc32

USERS_PER_BUCKET = 48
"""Measured against 24: 57 instead of 60 bytes per user, and with 5 million users 19.2 instead of 23.8 µs per commit."""

SLOTS = 16_384


class ShardKeys:
    def __init__(self, namespace: str, shard: int) -> None:
        tag = f"{namespace}.{shard}"
        self.shard = shard
        self.slot = slot_of(tag)
        self._tag = f"{{{tag}}}".encode()
        self.header = self._tag + b":h"
        self.tails = self._tag + b":t"
        self.wakes = self._tag + b":w"
        self.log = self._tag + b":l"
        self.fences = self._tag + b":f"
        self.retired = self._tag + b":r"
        self.marks = self._tag + b":u"
        self.bucket_begins = self._tag + b":b:"

    def bucket(self, number: int) -> bytes:
        return b"%b%d" % (self.bucket_begins, number)


class Keys:
    def __init__(self, namespace: str, shards: int) -> None:
        tag = f"{{{namespace}}}"
        self.slot = slot_of(namespace)
        self.leases = f"{tag}:leases"
        self.terms = f"{tag}:terms"
        self.mail = f"{tag}:mail"
        self.shards = [ShardKeys(namespace, shard) for shard in range(shards)]

    @cached_property
    def slots(self) -> list[int]:
        return [self.slot, *(keys.slot for keys in self.shards)]


def buckets_for(capacity: int, shards: int) -> int:
    """Return how many buckets (Redis hashes of about 48 records) a shard needs if the store has `capacity` users in
    all."""
    return max(1, round(capacity / shards / USERS_PER_BUCKET))


def bucket_of(field: bytes, shards: int, buckets: int) -> int:
    """Return the number of the bucket, a Redis hash of its shard, that has the record with this field (a user's id as
    stored). The remainder of the field's checksum chooses the shard, the quotient the bucket."""
    return crc32(field) // shards % buckets


def slot_of(tag: str) -> int:
    """Return the Redis Cluster slot of all keys with this hash tag, by CRC-16/XMODEM."""
    return crc_hqx(tag.encode(), 0) % SLOTS
