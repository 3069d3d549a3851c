"""Who is due? The store's wake-ups come back as users to decide; the core finds out what for.

A due user stays due until somebody commits, so a reaper that dies or stalls loses nothing, and of two at once one finds
the record already changed. Which shards are ours first is said by `shares`. The reaper sleeps until the next wake-up it
knows of, at most `poll`: wake-ups committed by others meanwhile are found then, so nobody is later than that. It asks for
many shards at once, also for those that are not ours: the answer also tells which shards have lost something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from herenow.errors import Unavailable
from herenow.kit.deadline import read_within
from herenow.node.cluster.reaper_assignment import NEVER, ReaperAssignment
from herenow.node.context import Context
from herenow.node.records import Records
from herenow.ports import Due

SHORTEST = 0.02


class Reaper:
    def __init__(
        self,
        context: Context,
        records: Records,
        assignment: ReaperAssignment,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._context = context
        self._batch = context.reaping.batch
        self._poll = context.reaping.poll
        self._records = records
        self._assignment = assignment
        self._sleep = sleep
        self._reaping: set[int] = set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._sleep(await self.look())

    async def look(self) -> float:
        """Look at all shards once; answers how many seconds nobody else will be due. Whoever is due is decided shard by
        shard: one that is slow delays no other."""
        rest = self._poll
        try:
            for delay, shards in self._assignment.delays():
                whole = [s for s in shards if s not in self._reaping and self._context.authority.may_decide(s)]
                if whole:
                    rest = min(rest, await self._look_at(whole, delay))
        except Unavailable:
            self._context.metrics.engine_errors += 1
        return rest

    async def _look_at(self, shards: list[int], delay: int) -> float:
        """Those of which the same is ours: what is due since `delay` milliseconds."""
        now, asked = self._until(delay), self._context.clock.monotonic()
        found = await read_within(self._context.engine.due(shards, now, self._batch))
        for shard, due in found.items():
            if not due.settled:
                self._records.report_loss(shard, None, asked)
            elif due.users:
                self._reaping.add(shard)
                self._context.tasks.spawn(self._reap(shard, due, delay), f"reap-{shard}")
        if delay == NEVER:
            return self._poll
        coming = [due.next_at for due in found.values() if not due.users and due.next_at is not None]
        return max(SHORTEST, (min(coming) - now) / 1000) if coming else self._poll

    async def _reap(self, shard: int, due: Due, delay: int) -> None:
        """Decide everybody who is due, in portions."""
        before: tuple[str, ...] = ()
        in_vain = 0
        try:
            while due.users and self._context.authority.may_decide(shard):
                in_vain = in_vain + 1 if due.users == before else 0
                if in_vain > 1:
                    await self._sleep(self._poll)  # they stay due: look again, but not at once
                    break
                if not await self._decide_all(due, afresh=in_vain > 0):
                    await self._sleep(self._poll)
                    break
                before = due.users
                await self._sleep(0)
                due = (await read_within(self._context.engine.due([shard], self._until(delay), self._batch)))[shard]
        except Unavailable:
            self._context.metrics.engine_errors += 1
        finally:
            self._reaping.discard(shard)

    def _until(self, delay: int) -> int:
        """Nobody is due at the beginning of time."""
        return 0 if delay == NEVER else self._context.clock.now() - delay

    async def _decide_all(self, due: Due, *, afresh: bool) -> bool:
        """`afresh`: the store says that something is due, and by what we know nothing is: read it again."""
        decided = await self._records.decide_all(due.users, afresh=afresh)
        now = self._context.clock.now()
        for wake in due.wakes:
            self._context.metrics.wake_seconds.observe(max(0, now - wake) / 1000)
        return decided
