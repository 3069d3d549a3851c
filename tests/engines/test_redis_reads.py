"""Reading many users at once: when is absence evidence?"""

import pytest

from herenow.engines import make_engine
from herenow.engines.redis_keys import Keys, ShardKeys
from herenow.engines.redis_link import packed
from herenow.engines.redis_reads import HGET, Header, Question, questions
from herenow.testing.engine_contract import NOW, TERMS


@pytest.mark.parametrize(
    ("before", "after", "settled"),
    [
        (b"s5 7 -", b"s5 7 -", True),
        (b"s5 7 -", b"s5 9 1234", True),  # others wrote meanwhile
        (b"s5 7 -", b"u6 7 -", False),
        (b"s5 7 -", b"s6 7 -", False),  # it was unsettled, and is settled again
        (b"s5 7 -", None, False),  # emptied
        (None, b"s5 7 -", False),
        (b"u5 7 -", b"s5 7 -", False),
        (b"u5 7 -", b"u5 7 -", False),
        (b"? 7 -", b"? 7 -", False),
        (None, None, False),
    ],
)
def test_a_shard_counts_as_settled_only_if_it_was_all_the_while(before, after, settled):
    question = Question(ShardKeys("herenow", 0))
    question.take([before, after])
    assert question.settled is settled


async def test_a_shard_that_was_settled_again_can_be_told_from_one_that_always_was(valkey_server):
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


@pytest.mark.parametrize("users", [["ana"], ["ana", "böb", "x" * 64, "y" * 65, "ana"]])
def test_a_question_is_sent_as_the_library_would_pack_it(users):
    keys = Keys("herenow", 4)
    asked = questions(users, keys.shards, 1000)
    assert sorted(place for question in asked for place in question.places) == list(range(len(users)))
    for question in asked:
        header = ("GET", question.keys.header)
        reads = [
            ("HGET", question.keys.bucket(bucket), field)
            for bucket, field in zip(question.buckets, question.fields, strict=True)
        ]
        together = question.asked()
        assert together.packed() == b"".join(map(packed, [header, *reads, header]))
        assert together.count == len(reads) + 2
    assert packed(("HGET", "k", "f")) == HGET % (1, b"k", 1, b"f")
