"""Reading the records of many users at once.

One pipeline per shard reads the header, the values one by one, and the header again. These are plain commands, because a
script or a transaction costs the server at least twice as much. Commands of others may run in between, but the absence of
a record is evidence only if the shard was settled at that moment (P6). It was settled throughout if both headers are
settled with the same time stamp: a shard that was unsettled in between gets a later one. Records with a tail are read
again, together with the tail, by a script.

Reads of a thousand users are common, so work overlaps with that of the server: the commands of a shard are built just
before they are sent, and its replies are decoded as soon as they arrive.
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
    """A decoded shard header. A missing one (None) means that the shard was emptied."""

    __slots__ = ("head", "next_at", "state")

    def __init__(self, raw: Reply) -> None:
        assert raw is None or isinstance(raw, bytes)
        self.state, head, following, *tag = (b"?", b"0", b"-") if raw is None else raw.split(b" ")
        self.head = LogPosition(int(head), tag[0].decode() if tag else "")
        self.next_at = None if following == b"-" else int(float(following))

    @property
    def settled(self) -> bool:
        return self.state.startswith(b"s")


class Lookups:
    """The users of one read over all shards, and their records as they are found. A place is an index in these lists."""

    __slots__ = ("fields", "found", "hashes", "shortened")

    def __init__(self, fields: list[bytes]) -> None:
        self.fields = fields
        self.hashes = list(map(crc32, fields))
        self.found = [_UNREAD] * len(fields)
        self.shortened = False
        """True if any field is the digest of an id."""

    def shorten(self, place: int, field: bytes) -> None:
        self.fields[place], self.hashes[place] = field, crc32(field)
        self.shortened = True


class ShardRead:
    """The read of one shard: its commands and its result."""

    __slots__ = ("_builder", "_lookups", "_places", "bodies", "keys", "settled", "with_tail")

    def __init__(self, keys: ShardKeys, builder: CommandBuilder, lookups: Lookups, places: Sequence[int]) -> None:
        self.keys = keys
        self._builder = builder
        self._lookups = lookups
        self._places = places
        self.bodies: list[bytes] = []
        """The stored records in the order of `fields`; an empty one: no record."""
        self.with_tail: list[int] = []
        """Indices in `bodies` of records whose body is in the tails."""
        self.settled = False

    @property
    def fields(self) -> list[bytes]:
        fields = self._lookups.fields
        return [fields[place] for place in self._places]

    def asked(self) -> Pipeline:
        return Pipeline(self.keys.slot, len(self._places) + 2, self._packed, self.take)

    def _packed(self) -> bytes:
        hashes = self._lookups.hashes
        return self._builder.packed(self.keys, self.fields, [hashes[place] for place in self._places])

    def take(self, reply: Sequence[Any]) -> None:
        before, *values, after = reply
        header = Header(before)
        self.settled = header.settled and header.state == Header(after).state
        self.bodies = [b"" if value is None else inline(value) for value in values]
        if not all(self.bodies):
            self.with_tail = [i for i, value in enumerate(values) if value is not None and has_tail(value)]
        if not self.with_tail:
            self._answer()

    def complete(self, reply: Sequence[Any]) -> None:
        """Add the records that are stored separately because they are long, and put all records of this shard into the
        result. `reply`: 1 if the shard has lost no data (is settled), otherwise 0; then these records as stored."""
        settled, *bodies = reply
        self.settled = self.settled and settled == 1
        for index, body in zip(self.with_tail, bodies, strict=True):
            self.bodies[index] = body
        self._answer()

    def _answer(self) -> None:
        found, settled = self._lookups.found, self.settled
        records: Sequence[bytes | None] = self.bodies
        if self._lookups.shortened:
            records = [record_of(f, b) for f, b in zip(self.fields, self.bodies, strict=True)]
        for place, record in zip(self._places, records, strict=True):
            found[place] = Loaded(record or None, settled)


class CommandBuilder:
    """Builds the bytes of a shard's commands: the same bytes as `packed`, in a third of the time."""

    __slots__ = ("_buckets", "_numbers", "_shards", "_widths")

    def __init__(self, shards: int, buckets: int) -> None:
        self._shards = shards
        self._buckets = buckets
        self._numbers = [b"%d\r\n$" % number for number in range(buckets)]
        """By bucket: the bytes from the bucket's number at the end of its key up to the length of the field."""
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
            number = numbers[hashed // shards % buckets]  # same as `bucket_of`
            words += (heads[len(number)], number, _LENGTHS[len(field)], field, b"\r\n")
        words.append(header)
        return b"".join(words)


def shard_reads(
    users: Sequence[str], shards: Sequence[ShardKeys], builder: CommandBuilder
) -> tuple[list[ShardRead], Lookups]:
    """Prepare to read the records of these users: return one read for each shard that has any of them, and the object
    that collects all their records."""
    count = len(shards)
    lookups = Lookups([user.encode() for user in users])
    places: dict[int, list[int]] = {}
    for place, hashed in enumerate(lookups.hashes):
        shard = hashed % count  # same as `shard_of`
        if shard in places:
            places[shard].append(place)
        else:
            places[shard] = [place]
    if max(map(len, lookups.fields), default=0) > LONGEST:
        for place, user in enumerate(users):
            if len(lookups.fields[place]) > LONGEST:
                lookups.shorten(place, field_of(user))
    return [ShardRead(shards[shard], builder, lookups, some) for shard, some in places.items()], lookups


def read_of(fields: list[bytes], shard: ShardKeys, builder: CommandBuilder) -> ShardRead:
    """Prepare to read records of one shard. `fields`: their users' ids, as stored in Redis."""
    return ShardRead(shard, builder, Lookups(fields), range(len(fields)))


_LENGTHS = [b"%d\r\n" % length for length in range(LONGEST + 1)]
_UNREAD = Loaded(None, settled=False)
