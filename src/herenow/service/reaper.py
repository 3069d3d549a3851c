"""Who is due? The store's wake-ups come back as users to decide; the core finds out what for.

A due user stays due until somebody commits, so a reaper that dies or stalls loses nothing, and of two at once one finds
the record already changed. The reaper sleeps until the next wake-up it knows of, at most `POLL`: wake-ups committed by
others meanwhile are found then, so nobody is later than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from herenow.errors import ProtocolError, Unavailable
from herenow.ports import Engine
from herenow.service.calls import reading
from herenow.service.clock import Clock
from herenow.service.decide import Decider
from herenow.service.metrics import Metrics
from herenow.service.standing import Standing

POLL = 0.5
"""Seconds. Half of what may pass between an end and its announcement."""

SHORTEST = 0.02

BATCH = 25
"""Users of one shard at a time: unrelated changes get their turn between two batches."""


class Reaper:
    def __init__(
        self,
        engine: Engine,
        decider: Decider,
        standing: Standing,
        clock: Clock,
        metrics: Metrics,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._decider = decider
        self._standing = standing
        self._clock = clock
        self._metrics = metrics
        self._sleep = sleep

    async def run(self, shard: int) -> None:
        """For ever. Each shard for itself: one that does not answer delays nobody else."""
        while True:
            await self._sleep(await self.reap(shard))

    async def reap(self, shard: int) -> float:
        """Decide everybody who is due; answers how many seconds nobody else will be."""
        before: tuple[str, ...] = ()
        in_vain = 0
        while self._standing.may_decide(shard):
            now = self._clock.now()
            try:
                due = await reading(self._engine.due(shard, now, BATCH))
            except Unavailable:
                self._metrics.engine_errors += 1
                break
            if not due.users:
                return POLL if due.next_at is None else min(POLL, max(SHORTEST, (due.next_at - now) / 1000))
            in_vain = in_vain + 1 if due.users == before else 0
            if in_vain > 1:
                break  # they stay due: look again, but not at once
            decided = await asyncio.gather(*(self._decide(user, afresh=in_vain > 0) for user in due.users))
            for wake in due.wakes:
                self._metrics.wake_seconds.observe(max(0, self._clock.now() - wake) / 1000)
            if not all(decided):
                break
            before = due.users
            await self._sleep(0)
        return POLL

    async def _decide(self, user: str, *, afresh: bool) -> bool:
        """`afresh`: the store says that something is due, and by what we know nothing is: read it again."""
        try:
            await self._decider.decided(user, afresh=afresh)
        except (Unavailable, ProtocolError):
            return False
        return True
