"""Many users' records at once: how are they asked for, and what do the answers say?

Of each shard its header, the values one by one, and its header again, all in one go: plain commands, because a script or a
transaction with the same ones costs the server twice as much or more. Others' commands may come in between, and absence is
evidence only where the shard was settled at that moment (P6). It was settled all the while if both headers say so and
name the same moment: one that was emptied or unsettled in between is settled of a later one.

What has a tail is read again, together with it, by a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from herenow.engines.redis_calls import Together
from herenow.engines.redis_codec import LONGEST, field_of, has_tail, inline, record_of
from herenow.engines.redis_keys import ShardKeys, bucket_of
from herenow.engines.redis_link import Reply, packed
from herenow.ports import Loaded

HGET = b"*3\r\n$4\r\nHGET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
"""As `packed` would write it, for half of the price: it was a third of what reading a thousand users costs here."""


class Header:
    """A shard's header as read; missing: emptied."""

    __slots__ = ("head", "next_at", "state")

    def __init__(self, raw: Reply) -> None:
        assert raw is None or isinstance(raw, bytes)
        self.state, head, following = (b"?", b"0", b"-") if raw is None else raw.split(b" ")
        self.head = int(head)
        self.next_at = None if following == b"-" else int(float(following))

    @property
    def settled(self) -> bool:
        return self.state.startswith(b"s")


class Question:
    """What is asked of one shard, and what it said."""

    __slots__ = ("bodies", "buckets", "fields", "halves", "keys", "places", "settled")

    def __init__(self, keys: ShardKeys) -> None:
        self.keys = keys
        self.places: list[int] = []
        """Of those who are asked for, among all of them."""
        self.fields: list[bytes] = []
        self.buckets: list[int] = []
        self.bodies: list[bytes] = []
        """By field; an empty one is no record."""
        self.halves: list[int] = []
        """Indices of fields whose bodies are elsewhere."""
        self.settled = False

    def asked(self) -> Together:
        return Together(self.keys.slot, len(self.fields) + 2, self._packed)

    def _packed(self) -> bytes:
        header, bucket = packed(("GET", self.keys.header)), self.keys.bucket
        keys = [bucket(number) for number in self.buckets]
        asked = [HGET % (len(k), k, len(f), f) for k, f in zip(keys, self.fields, strict=True)]
        return b"".join((header, *asked, header))

    def take(self, reply: Sequence[Any]) -> None:
        before, *values, after = reply
        header = Header(before)
        self.settled = header.settled and header.state == Header(after).state
        self.bodies = [b"" if value is None else inline(value) for value in values]
        if not all(self.bodies):
            self.halves = [i for i, value in enumerate(values) if value is not None and has_tail(value)]

    def complete(self, reply: Sequence[Any]) -> None:
        """With the halves' bodies, and whether the shard was settled when those were read."""
        settled, *bodies = reply
        self.settled = self.settled and settled == 1
        for index, body in zip(self.halves, bodies, strict=True):
            self.bodies[index] = body


def questions(users: Iterable[str], shards: Sequence[ShardKeys], buckets: int) -> list[Question]:
    """One for each shard that has somebody of them."""
    count = len(shards)
    found: dict[int, Question] = {}
    for place, user in enumerate(users):
        field = user.encode()
        hashed = crc32(field)  # once, for the shard (as `shard_of` has it) and for the bucket
        shard = hashed % count
        question = found.get(shard)
        if question is None:
            question = found[shard] = Question(shards[shard])
        if len(field) > LONGEST:
            field = field_of(user)
            hashed = crc32(field)
        question.places.append(place)
        question.fields.append(field)
        question.buckets.append(hashed // count % buckets)
    return list(found.values())


def question_for(fields: Iterable[bytes], shard: ShardKeys, shards: int, buckets: int) -> Question:
    """Of one shard."""
    question = Question(shard)
    question.fields = list(fields)
    question.buckets = [bucket_of(field, shards, buckets) for field in question.fields]
    return question


def answers(asked: Sequence[Question], count: int) -> list[Loaded]:
    """In the order of the users."""
    found = [_UNREAD] * count
    for question in asked:
        settled = question.settled
        for place, field, body in zip(question.places, question.fields, question.bodies, strict=True):
            found[place] = Loaded(record_of(field, body), settled)
    return found


_UNREAD = Loaded(None, settled=False)
