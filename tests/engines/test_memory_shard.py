"""A shard with lazy cleaning answers like a simple model without it."""

from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from herenow.engines.memory import shard
from herenow.engines.memory.shard import Shard
from herenow.ports import Batch, Write
from herenow_testing.contracts.engine import record

USERS = [f"u{number}" for number in range(6)]
TIMES = [0, 1, 2, 3, 5, 8]

writes = st.lists(
    st.tuples(
        st.sampled_from(USERS),
        st.sampled_from(["put", "remove", "save", "drop"]),
        st.sampled_from([None, *TIMES]),
        st.booleans(),
    ),
    max_size=60,
)
questions = st.lists(st.tuples(st.sampled_from(TIMES), st.integers(0, 7)), min_size=1, max_size=6)


class PlainShard:
    """The simplest implementation of the same promises."""

    def __init__(self):
        self.records = {}
        self.wakes = {}
        self.marks = set()

    def act(self, version, user, act, wake_at, unsaved):
        if act == "put":
            self.records[user] = record(version)
            self.wakes[user] = wake_at
            self.marks |= {user} if unsaved else set()
        elif act == "remove" or (act == "drop" and user in self.records):
            self.records.pop(user, None)
            self.wakes[user] = wake_at if act == "remove" else None
            self.marks.discard(user)
        elif act == "save":
            self.marks.discard(user)

    def due(self, now, limit):
        waiting = sorted((at, user) for user, at in self.wakes.items() if at is not None)
        taken = [(at, user) for at, user in waiting if at <= now][:limit]
        rest = waiting[len(taken) :]
        return tuple(user for _, user in taken), rest[0][0] if rest else None


@contextmanager
def eager_cleaning():
    usual, shard.WASTE = shard.WASTE, 2
    try:
        yield
    finally:
        shard.WASTE = usual


def act_on(shard, version, user, act, wake_at, unsaved):
    current = shard.records.get(user)
    if act in ("put", "remove"):
        new = record(version) if act == "put" else None
        row = shard.fences["e"]
        shard.commit(Batch(0, "e", row, row + 1, (Write(user, current, new, wake_at, None, unsaved),)))
    elif current is not None:
        shard.saved([(user, current, act == "drop")])


@given(writes, questions)
@settings(max_examples=100, deadline=None)
def test_a_memory_shard_that_cleans_up_lazily_gives_the_answers_of_a_simple_model(acts, asked):
    with eager_cleaning():
        shard, plain = Shard(0, 10, settled=True), PlainShard()
        shard.join("e", 0)
        for version, act in enumerate(acts, 1):
            act_on(shard, version, *act)
            plain.act(version, *act)
            for now, limit in asked:
                due = shard.wakes.due(now, limit, settled=True)
                assert (due.users, due.next_at) == plain.due(now, limit)
            assert shard.records == plain.records
            assert {user for user, _ in shard.unsaved(100)} == plain.marks
            assert dict(shard.walk(None, 1000).records) == plain.records


@given(writes, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_listing_a_memory_shard_during_changes_returns_every_user_who_is_never_removed(acts, limit):
    with eager_cleaning():
        shard = Shard(0, 10, settled=True)
        shard.join("e", 0)
        for user in USERS:
            act_on(shard, 1, user, "put", None, False)
        stayed, seen, cursor, acts = set(USERS), set(), None, [*enumerate(acts, 2)]
        while True:
            page = shard.walk(cursor, limit)
            seen |= {user for user, _ in page.records}
            cursor = page.cursor
            if cursor is None:
                break
            for version, act in acts[:3]:
                act_on(shard, version, *act)
                stayed &= set(shard.records)
            del acts[:3]
        assert seen >= stayed
