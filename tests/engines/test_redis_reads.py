"""Reads of many users at once: when a missing record counts as absent."""

import pytest

from herenow.core.shards import shard_of
from herenow.engines import make_engine
from herenow.engines.redis.client import packed
from herenow.engines.redis.codec import field_of
from herenow.engines.redis.keys import Keys, ShardKeys, bucket_of
from herenow.engines.redis.reads import CommandBuilder, Header, read_of, shard_reads
from herenow_testing.contracts.engine import NOW, TERMS


@pytest.mark.parametrize(
    ("before", "after", "settled"),
    [
        (b"s5 7 -", b"s5 7 -", True),
        (b"s5 7 -", b"s5 9 1234", True),  # other nodes wrote meanwhile
        (b"s5 7 -", b"u6 7 -", False),
        (b"s5 7 -", b"s6 7 -", False),  # it was unsettled, and settled again
        (b"s5 7 -", None, False),  # emptied
        (None, b"s5 7 -", False),
        (b"u5 7 -", b"s5 7 -", False),
        (b"u5 7 -", b"u5 7 -", False),
        (b"? 7 -", b"? 7 -", False),
        (None, None, False),
    ],
)
def test_a_redis_read_counts_a_shard_as_recovered_only_if_it_was_before_and_after_the_read(before, after, settled):
    question = read_of([], ShardKeys("herenow", 0), CommandBuilder(1, 10))
    question.take([before, after])
    assert question.settled is settled


async def test_redis_shows_whether_a_recovered_shard_has_gone_through_another_recovery(valkey_server):
    engine = make_engine(valkey_server.url, shards=1, namespace="again")
    await engine.open(TERMS)
    try:
        found = []
        for now in (NOW, NOW + 1):
            await engine.unsettle(0, now)
            assert await engine.settle(0, now, 0)
            found.append(Header(valkey_server.client.get(ShardKeys("again", 0).header)))
        assert [header.settled for header in found] == [True, True]
        assert found[0].state != found[1].state
    finally:
        await engine.close()


@pytest.mark.parametrize("users", [[], ["ana"], ["ana", "böb", "x" * 64, "y" * 65, "ana", *map(str, range(300))]])
@pytest.mark.parametrize("namespace", ["herenow", "100%d"])
@pytest.mark.parametrize("buckets", [1, 10, 11, 1000])
def test_reading_many_users_sends_the_same_bytes_as_separate_redis_commands(users, namespace, buckets):
    shards = Keys(namespace, 4).shards
    asked, wanted = shard_reads(users, shards, CommandBuilder(4, buckets))
    assert len(asked) == len({shard_of(user, 4) for user in users})
    assert wanted.fields == [field_of(user) for user in users]
    for question in asked:
        keys = question.keys
        fields = [field_of(user) for user in users if shards[shard_of(user, 4)] is keys]
        reads = [("HGET", keys.bucket(bucket_of(field, 4, buckets)), field) for field in fields]
        header = ("GET", keys.header)
        together = question.asked()
        assert together.packed() == b"".join(map(packed, [header, *reads, header]))
        assert together.count == len(reads) + 2
