"""The whole keyspace, and nothing else that knows a key.

Everything begins with the namespace. All keys of a shard share one hash tag, so that they lie in one slot and one script
may touch them together. Nothing expires, nothing is scanned for, no key is built inside Lua.

    {herenow.3}:h        string   the shard's header: "state head next tag"
                                    state  u<ms>: unsettled since · s<ms>: settled, after it was unsettled then ·
                                           ?: lost something, nobody said since when
                                    head   number of the newest log entry
                                    next   earliest wake-up of the shard, "-": none
                                    tag    the batch that wrote the newest log entry, "epoch.number"
                                  missing: the shard was emptied, and absence in it says nothing (P6)
    {herenow.3}:b:17     hash     records of about 48 users: field → wake-up and body (see `codec`); small enough for
                                  the compact encoding, so that a user costs about 60 bytes
    {herenow.3}:t        hash     field → body, where body or id are too long for the compact encoding of a bucket
    {herenow.3}:w        zset     bucket → earliest wake-up among its users; an entry per user would cost twice the record
    {herenow.3}:l        stream   the log: what one batch appended is one entry, field and value by turns, and its id is the
                                  number of the last; so XREAD waits for it, and a hole shows in the numbers. The first field
                                  is empty: its value is the tag of the batch before and that of this batch
    {herenow.3}:f        hash     fences: epoch → number of its last batch
    {herenow.3}:r        zset     retired epochs, the last few hundred: their rows are not made again
    {herenow.3}:u        set      fields whose record the ledger does not have yet
    {herenow}:leases     hash     epoch → "counter renewed_at state", state alive or dead
    {herenow}:terms      hash     what all nodes must agree on, and how many buckets a shard has
    {herenow}:mail       channel  direct messages between nodes
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import cached_property
from zlib import crc32

USERS_PER_BUCKET = 48
"""Measured: half as many take 3 bytes more of 57, and a change among five million 23.8 µs of the store, not 19.2."""

SLOTS = 16_384


class ShardKeys:
    """Keys of one shard, as bytes."""

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
    """All keys of a namespace."""

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
    """Per shard."""
    return max(1, round(capacity / shards / USERS_PER_BUCKET))


def bucket_of(field: bytes, shards: int, buckets: int) -> int:
    """The part of the hash that the shard has left over."""
    return crc32(field) // shards % buckets


def slot_of(tag: str) -> int:
    """Of a hash tag, as a Cluster has it: CRC-16/XMODEM."""
    return crc_hqx(tag.encode(), 0) % SLOTS
