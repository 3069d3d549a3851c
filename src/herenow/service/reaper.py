"""Who is due? The store's wake-ups come back as users to decide; the core finds out what for.

A due user stays due until somebody commits, so a reaper that dies or stalls loses nothing, and of two at once one finds
the record already changed. The reaper sleeps until the next wake-up it knows of, at most `POLL`: wake-ups committed by
others meanwhile are found then, so nobody is later than that. It asks for all shards at once, because at rest that is all a
node asks for; the answer also tells which shards have lost something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from herenow.errors import ProtocolError, Unavailable
from herenow.ports import Due, Engine
from herenow.service.calls import reading
from herenow.service.clock import Clock
from herenow.service.decide import Decider
from herenow.service.metrics import Metrics
from herenow.service.standing import Standing
from herenow.service.tasks import Tasks

POLL = 0.5
"""Seconds. Half of what may pass between an end and its announcement."""

SHORTEST = 0.02

BATCH = 25
"""Users of one shard at a time: unrelated changes get their turn between two batches."""


class Reaper:
    def __init__(
        self,
        *,
        engine: Engine,
        decider: Decider,
        standing: Standing,
        clock: Clock,
        tasks: Tasks,
        metrics: Metrics,
        on_loss: Callable[[int, int | None], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_loss(shard, row)`: a shard says itself that it lost something."""
        self._engine = engine
        self._decider = decider
        self._standing = standing
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        self._on_loss = on_loss
        self._sleep = sleep
        self._reaping: set[int] = set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._sleep(await self.look())

    async def look(self) -> float:
        """One question for all shards; answers how many seconds nobody else will be due. Whoever is due is decided shard
        by shard: one that is slow delays no other."""
        shards = [
            s for s in range(self._engine.shards) if s not in self._reaping and self._standing.may_decide(s)
        ]
        if not shards:
            return POLL
        now = self._clock.now()
        try:
            found = await reading(self._engine.due(shards, now, BATCH))
        except Unavailable:
            self._metrics.engine_errors += 1
            return POLL
        for shard, due in found.items():
            if not due.settled:
                self._on_loss(shard, None)
            elif due.users:
                self._reaping.add(shard)
                self._tasks.spawn(self._reap(shard, due), f"reap-{shard}")
        next_at = min(
            (due.next_at for due in found.values() if not due.users and due.next_at is not None), default=None
        )
        return POLL if next_at is None else min(POLL, max(SHORTEST, (next_at - now) / 1000))

    async def _reap(self, shard: int, due: Due) -> None:
        """Decide everybody who is due, in portions."""
        before: tuple[str, ...] = ()
        in_vain = 0
        try:
            while due.users and self._standing.may_decide(shard):
                in_vain = in_vain + 1 if due.users == before else 0
                if in_vain > 1:
                    await self._sleep(POLL)  # they stay due: look again, but not at once
                    break
                if not await self._decide_all(due, afresh=in_vain > 0):
                    await self._sleep(POLL)
                    break
                before = due.users
                await self._sleep(0)
                due = (await reading(self._engine.due([shard], self._clock.now(), BATCH)))[shard]
        except Unavailable:
            self._metrics.engine_errors += 1
        finally:
            self._reaping.discard(shard)

    async def _decide_all(self, due: Due, *, afresh: bool) -> bool:
        decided = await asyncio.gather(*(self._decide(user, afresh=afresh) for user in due.users))
        for wake in due.wakes:
            self._metrics.wake_seconds.observe(max(0, self._clock.now() - wake) / 1000)
        return all(decided)

    async def _decide(self, user: str, *, afresh: bool) -> bool:
        """`afresh`: the store says that something is due, and by what we know nothing is: read it again."""
        try:
            await self._decider.decided(user, afresh=afresh)
        except (Unavailable, ProtocolError):
            return False
        return True
