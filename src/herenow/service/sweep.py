"""A walk over all records, for sessions whose holder is no more.

No index per node is paid for: nodes die rarely, and a walk over a million records takes about a second. One walk serves
all dead epochs. What it finds is decided through the one door, so a user who came back meanwhile is left alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from herenow.core.machine import retire
from herenow.core.model import UNLEASED
from herenow.ports import Engine
from herenow.service.calls import reading, writing
from herenow.service.decide import Decider
from herenow.service.walk import pages


class Sweep:
    def __init__(self, engine: Engine, decider: Decider) -> None:
        self._engine = engine
        self._decider = decider

    async def retire(self, dead: Mapping[str, int]) -> None:
        """Epoch → its last renewal. The fence first: afterwards nothing of it can be committed any more."""
        for shard in range(self._engine.shards):
            for epoch in dead:
                await writing(self._engine.retire(shard, epoch))
        for shard in range(self._engine.shards):
            await self._walk(shard, dead)

    async def orphans(self, shard: int) -> None:
        """After a shard lost its memory: sessions in it whose holder has no living row."""
        alive = {lease.epoch for lease in await reading(self._engine.leases()) if not lease.dead}
        orphaned: dict[str, int] = {}
        async for _, holders in self._holders(shard):
            orphaned |= dict.fromkeys(holders - alive, 0)
        if orphaned:
            for epoch in orphaned:
                await writing(self._engine.retire(shard, epoch))
            await self._walk(shard, orphaned)

    async def _walk(self, shard: int, dead: Mapping[str, int]) -> None:
        edit = retire(dead)
        async for user, holders in self._holders(shard):
            if not holders.isdisjoint(dead):
                await self._decider.ask(user, edit)

    async def _holders(self, shard: int) -> AsyncIterator[tuple[str, set[str]]]:
        async for part in pages(self._engine, [shard]):
            for user, presence in part:
                holders = {s.holder for s in presence.sessions if s.live and s.holder != UNLEASED}
                if holders:
                    yield user, holders
