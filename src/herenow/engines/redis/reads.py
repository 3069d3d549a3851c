"""Many users' records at once: how are they asked for, and what do the answers say?

Of each shard its header, the values one by one, and its header again, all in one go: plain commands, because a script or a
transaction with the same ones costs the server twice as much or more. Others' commands may come in between, and absence is
evidence only where the shard was settled at that moment (P6). It was settled all the while if both headers say so and
name the same moment: one that was emptied or unsettled in between is settled of a later one.

What has a tail is read again, together with it, by a script.

A thousand users are an everyday question. So whatever can wait is done while the server is at work: a shard's commands are
made when it is their turn to be sent, and its answers are read as soon as they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from herenow.engines.redis.client import Pipeline, Reply, packed
from herenow.engines.redis.codec import LONGEST, field_of, has_tail, inline, record_of
from herenow.engines.redis.keys import ShardKeys
from herenow.ports import Loaded, LogPosition


class Header:
    """A shard's header as read; missing: emptied."""

    __slots__ = ("head", "next_at", "state")

    def __init__(self, raw: Reply) -> None:
        assert raw is None or isinstance(raw, bytes)
        self.state, head, following, *tag = (b"?", b"0", b"-") if raw is None else raw.split(b" ")
        self.head = LogPosition(int(head), tag[0].decode() if tag else "")
        self.next_at = None if following == b"-" else int(float(following))

    @property
    def settled(self) -> bool:
        return self.state.startswith(b"s")


class Wanted:
    """All who are asked for, in whatever shards, and what was found of them."""

    __slots__ = ("fields", "found", "hashes", "shortened")

    def __init__(self, fields: list[bytes]) -> None:
        self.fields = fields
        self.hashes = list(map(crc32, fields))
        self.found = [_UNREAD] * len(fields)
        self.shortened = False
        """Some fields are digests of ids."""

    def shorten(self, place: int, field: bytes) -> None:
        self.fields[place], self.hashes[place] = field, crc32(field)
        self.shortened = True


class ShardRead:
    """What is asked of one shard, and what it said."""

    __slots__ = ("_places", "_wanted", "_words", "bodies", "halves", "keys", "settled")

    def __init__(self, keys: ShardKeys, words: Words, wanted: Wanted, places: Sequence[int]) -> None:
        self.keys = keys
        self._words = words
        self._wanted = wanted
        self._places = places
        self.bodies: list[bytes] = []
        """By place; an empty one is no record."""
        self.halves: list[int] = []
        """Indices of those whose bodies are elsewhere."""
        self.settled = False

    @property
    def fields(self) -> list[bytes]:
        fields = self._wanted.fields
        return [fields[place] for place in self._places]

    def asked(self) -> Pipeline:
        return Pipeline(self.keys.slot, len(self._places) + 2, self._packed, self.take)

    def _packed(self) -> bytes:
        hashes = self._wanted.hashes
        return self._words.packed(self.keys, self.fields, [hashes[place] for place in self._places])

    def take(self, reply: Sequence[Any]) -> None:
        before, *values, after = reply
        header = Header(before)
        self.settled = header.settled and header.state == Header(after).state
        self.bodies = [b"" if value is None else inline(value) for value in values]
        if not all(self.bodies):
            self.halves = [i for i, value in enumerate(values) if value is not None and has_tail(value)]
        if not self.halves:
            self._answer()

    def complete(self, reply: Sequence[Any]) -> None:
        """With the halves' bodies, and whether the shard was settled when those were read."""
        settled, *bodies = reply
        self.settled = self.settled and settled == 1
        for index, body in zip(self.halves, bodies, strict=True):
            self.bodies[index] = body
        self._answer()

    def _answer(self) -> None:
        found, settled = self._wanted.found, self.settled
        records: Sequence[bytes | None] = self.bodies
        if self._wanted.shortened:
            records = [record_of(f, b) for f, b in zip(self.fields, self.bodies, strict=True)]
        for place, record in zip(self._places, records, strict=True):
            found[place] = Loaded(record or None, settled)


class Words:
    """The bytes that questions are made of: as `packed` would write them, for a third of the price."""

    __slots__ = ("_buckets", "_numbers", "_shards", "_widths")

    def __init__(self, shards: int, buckets: int) -> None:
        self._shards = shards
        self._buckets = buckets
        self._numbers = [b"%d\r\n$" % number for number in range(buckets)]
        """What stands between the beginning of a bucket's key and the length of the field."""
        self._widths = range(1, len(str(buckets)) + 1)

    def packed(self, keys: ShardKeys, fields: Sequence[bytes], hashes: Sequence[int]) -> bytes:
        shards, buckets, numbers = self._shards, self._buckets, self._numbers
        begin = keys.bucket_begins
        heads = {
            len(b"\r\n$") + width: b"*3\r\n$4\r\nHGET\r\n$%d\r\n%b" % (len(begin) + width, begin)
            for width in self._widths
        }
        header = packed(("GET", keys.header))
        words = [header]
        for field, hashed in zip(fields, hashes, strict=True):
            number = numbers[hashed // shards % buckets]  # as `bucket_of` has it
            words += (heads[len(number)], number, _LENGTHS[len(field)], field, b"\r\n")
        words.append(header)
        return b"".join(words)


def shard_reads(users: Sequence[str], shards: Sequence[ShardKeys], words: Words) -> tuple[list[ShardRead], Wanted]:
    """One for each shard that has somebody of them."""
    count = len(shards)
    wanted = Wanted([user.encode() for user in users])
    places: dict[int, list[int]] = {}
    for place, hashed in enumerate(wanted.hashes):
        shard = hashed % count  # as `shard_of` has it
        if shard in places:
            places[shard].append(place)
        else:
            places[shard] = [place]
    if max(map(len, wanted.fields), default=0) > LONGEST:
        for place, user in enumerate(users):
            if len(wanted.fields[place]) > LONGEST:
                wanted.shorten(place, field_of(user))
    return [ShardRead(shards[shard], words, wanted, some) for shard, some in places.items()], wanted


def read_of(fields: list[bytes], shard: ShardKeys, words: Words) -> ShardRead:
    """Of one shard."""
    return ShardRead(shard, words, Wanted(fields), range(len(fields)))


_LENGTHS = [b"%d\r\n" % length for length in range(LONGEST + 1)]
_UNREAD = Loaded(None, settled=False)
