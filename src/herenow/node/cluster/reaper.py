"""Decides and commits the next records of due users: those with a wake-up time that has passed.

A due user stays due until its record is committed: a reaper that dies loses nothing, and of two reapers one gets a
conflict. `reaper_assignment` says how long to leave a shard to others. The reaper sleeps until the next known wake-up, at
most `poll` seconds, since other nodes commit new ones. It reads all shards, also those of others: the answer shows which
shards lost data.
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
        while True:
            await self._sleep(await self.look())

    async def look(self) -> float:
        """Read the due users of all shards once (those with a wake-up time that has passed), and start a task per shard
        that decides and commits their next records. Returns the seconds until the next read."""
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
        """As `look`, for these shards and for users that have been due for at least `delay` ms."""
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
        """Decide and commit the next records of the due users of a shard, batch by batch, until no user is due. `due`:
        the first batch."""
        before: tuple[str, ...] = ()
        in_vain = 0
        try:
            while due.users and self._context.authority.may_decide(shard):
                in_vain = in_vain + 1 if due.users == before else 0
                if in_vain > 1:
                    await self._sleep(self._poll)  # decided twice and still due: retry later
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
        """Return the time (ms) up to which wake-ups count as due: `delay` ms ago; 0 for `NEVER`, so that no user is
        due."""
        return 0 if delay == NEVER else self._context.clock.now() - delay

    async def _decide_all(self, due: Due, *, afresh: bool) -> bool:
        """Decide and commit the next records of these due users; returns True if all succeeded. `afresh`: read the
        records again first, because the users are still due after a decision from the known records."""
        decided = await self._records.decide_all(due.users, afresh=afresh)
        now = self._context.clock.now()
        for wake in due.wakes:
            self._context.metrics.wake_seconds.observe(max(0, now - wake) / 1000)
        return decided
