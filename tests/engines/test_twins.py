"""Memory and Redis get the same random calls and must give the same answers."""

from dataclasses import replace
from itertools import count, islice
from random import Random

import pytest

from herenow.engines import make_engine
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.ports import Batch, Committed, Fenced, Offer, Write
from herenow_testing.contracts.engine import NOW, TERMS, record, users_of

NAMES = (f"twins{number}" for number in count())
EPOCHS = ("AAAAAAAA", "BBBBBBBB")
STEPS = 150


class Twins:
    """Two engines, and a method that calls both."""

    def __init__(self, seed, memory, redis):
        self.rng = Random(f"twins {seed}")
        self.both = memory, redis
        self.users = [*islice(users_of(memory, 0), 12), *islice(users_of(memory, 0, "long" * 20), 3)]
        self.known = dict.fromkeys(self.users)
        self.rows = dict.fromkeys(EPOCHS)
        self.version = 100
        self.now = NOW

    async def ask(self, call):
        memory, redis = [await call(engine) for engine in self.both]
        assert memory == redis
        return memory

    def some_record(self):
        self.version += self.rng.randint(1, 5)
        return record(self.version, bytes(self.rng.choice((0, 20, 49, 50, 300))))

    def some_wake(self):
        return self.rng.choice((None, None, self.rng.randint(1, 60), self.now + self.rng.randint(0, 99), 2**47))

    def write(self):
        user = self.rng.choice(self.users)
        return Write(
            user,
            expected=self.known[user] if self.rng.random() < 0.9 else self.some_record(),
            record=None if self.rng.random() < 0.2 else self.some_record(),
            wake_at=self.some_wake(),
            note=self.rng.choice((None, b"", b"note")),
            unsaved=self.rng.random() < 0.3,
        )

    async def commit(self):
        epoch = self.rng.choice(EPOCHS)
        last = self.rows[epoch] or 0
        if self.rng.random() < 0.1:
            last += self.rng.randint(-1, 1)
        writes = tuple(self.write() for _ in range(self.rng.randint(0, 6)))
        batch = Batch(0, epoch, last, last + self.rng.randint(1, 3), writes)
        answer = await self.ask(lambda engine: engine.commit(batch))
        if isinstance(answer, Committed):
            self.rows[epoch] = batch.next
        else:
            assert isinstance(answer, Fenced)
            self.rows[epoch] = answer.row

    async def offer(self):
        offers = []
        for user in self.rng.sample(self.users, 3):
            offered = self.some_record()
            version = int.from_bytes(offered[2:8], "big") - self.rng.choice((0, 0, 50))
            offered = offered[:2] + version.to_bytes(6, "big") + offered[8:]
            offers.append(Offer(user, version, offered, self.some_wake(), unsaved=self.rng.random() < 0.5))
        await self.ask(lambda engine: engine.offer(0, offers))

    async def saved(self):
        rows = [
            (user, found, self.rng.random() < 0.5)
            for user, found in self.known.items()
            if found is not None and self.rng.random() < 0.3
        ]
        await self.ask(lambda engine: engine.saved(0, rows))

    async def fence(self):
        epoch, number = self.rng.choice(EPOCHS), self.rng.randint(0, 30)
        what = self.rng.choice(("join", "join", "jump"))
        await self.ask(lambda engine: getattr(engine, what)(0, epoch, number))
        self.rows[epoch] = await self.ask(lambda engine: engine.jump(0, epoch, 0))

    async def retire(self):
        epoch = self.rng.choice(EPOCHS)
        if self.rng.random() < 0.1:
            await self.ask(lambda engine: engine.retire(0, epoch))
            self.rows[epoch] = None

    async def unsettle(self):
        if self.rng.random() < 0.4:
            self.now += 1_000
            await self.ask(lambda engine: engine.unsettle(0, self.now))

    async def settle(self):
        after = self.rng.choice((0, 500))
        await self.ask(lambda engine: engine.settle(0, self.now, after))

    async def compare(self):
        loaded = await self.ask(lambda engine: engine.load(self.users))
        self.known = dict(zip(self.users, (each.record for each in loaded), strict=True))
        for now in (0, 30, self.now + 50, 2**48):
            for limit in (1, 4, 100):
                memory, redis = [(await engine.due([0], now, limit))[0] for engine in self.both]
                assert (memory, memory.wakes, memory.settled) == (redis, redis.wakes, redis.settled)
        heads = await self.ask(lambda engine: engine.heads())
        for behind in (0, 1, 3, 10):
            await self.ask(lambda engine, behind=behind: engine.tail({0: heads[0] - behind}, 0))
        unsaved = [sorted(await engine.unsaved(0, 100)) for engine in self.both]
        assert unsaved[0] == unsaved[1]
        walked = [dict((await engine.walk(0, None, 10_000)).records) for engine in self.both]
        assert walked[0] == walked[1]

    async def step(self):
        moves = (self.commit,) * 8 + (self.offer, self.saved, self.fence, self.retire, self.unsettle, self.settle)
        await self.rng.choice(moves)()
        await self.compare()


@pytest.mark.parametrize("seed", range(4))
async def test_memory_and_redis_stores_give_the_same_answers_to_the_same_random_calls(seed, valkey_server):
    memory = MemoryEngine(MemoryStore(2))
    redis = make_engine(valkey_server.url, shards=2, namespace=next(NAMES), capacity=1)
    await redis.open(TERMS)
    try:
        twins = Twins(seed, memory, redis)
        for shard in range(2):  # Redis begins unsettled, memory does not
            await twins.ask(lambda engine, shard=shard: engine.unsettle(shard, NOW))
            assert await twins.ask(lambda engine, shard=shard: engine.settle(shard, NOW, 0))
        for epoch in EPOCHS:
            await twins.ask(lambda engine, epoch=epoch: engine.join(0, epoch, 0))
        for _ in range(STEPS):
            await twins.step()
        assert max(twins.version, 0) > 200
    finally:
        await redis.close()


def test_the_comparison_of_memory_and_redis_stores_notices_a_different_answer():
    """The comparison can fail: a due answer that differs in `settled` is a different answer."""
    from herenow.ports import Due

    due = Due(("ana",), None, (1,), settled=True)
    assert (due, due.settled) != (due, replace(due, settled=False).settled)
