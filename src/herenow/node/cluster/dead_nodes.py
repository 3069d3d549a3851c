"""Finds the sessions of dead nodes by a walk over all records, and moves them into grace.

There is no index of sessions per node, because nodes die rarely: a walk over a million records takes five seconds, over five
million half a minute. One walk serves all epochs that are dead when it begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from herenow.core.edits import retire
from herenow.core.model import UNLEASED
from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.kit.deadline import read_within, write_within
from herenow.kit.lru import Lru
from herenow.node.context import Context
from herenow.node.records import Records, pages
from herenow.ports import Lease

REMEMBER = 1_000  # epochs in `_renewed`: many more than there are nodes
TOGETHER = 200  # users decided at a time: enough for a batch, few enough not to delay others

log = structlog.get_logger(__name__)


class DeadNodeSweep:
    def __init__(self, context: Context, records: Records) -> None:
        self._people = context.people
        self._engine = context.engine
        self._records = records
        self._swept: dict[str, set[int]] = {}  # epoch → shards that are done, while others are left
        self._renewed: Lru[str, int] = Lru(REMEMBER)
        """Epoch → its last known renewal, in case the store loses its lease row."""

    def saw(self, leases: Iterable[Lease]) -> None:
        """Remember when each of these leases was renewed, in case the store loses the lease row."""
        for lease in leases:
            self._renewed.put(lease.epoch, lease.renewed_at)

    async def retire(self, dead: Mapping[str, int]) -> None:
        """Retire dead nodes (epoch → last renewal of the lease): first delete their fences, so that they cannot commit,
        then move their sessions into grace. Raises `Unavailable` if shards did not answer, after the others are done;
        the next call does only what is left."""
        swept = self._swept = {epoch: self._swept.get(epoch, set()) for epoch in dead}
        left = {
            shard: {epoch: at for epoch, at in dead.items() if shard not in swept[epoch]}
            for shard in range(self._engine.shards)
        }
        failed: dict[int, HerenowError] = {}
        for step in (self._fence, self._walk):
            for shard, epochs in left.items():
                if epochs and shard not in failed:
                    try:
                        await step(shard, epochs)
                    except (Unavailable, UnknownOutcome) as error:
                        failed[shard] = error
        for shard in left.keys() - failed.keys():
            for done in swept.values():
                done.add(shard)
        if failed:
            raise Unavailable(
                f"{len(failed)} of {len(left)} shards are not processed yet: {next(iter(failed.values()))}"
            )
        self._swept = {}
        await self._records.close_retired_runs(dead)

    async def _fence(self, shard: int, dead: Mapping[str, int]) -> None:
        for epoch in dead:
            await write_within(self._engine.retire(shard, epoch))

    async def _walk(self, shard: int, dead: Mapping[str, int]) -> None:
        await self._lose(dead, [user async for user, holders in self._holders(shard) if holders & dead.keys()])

    async def orphans(self, shard: int) -> None:
        """Move the sessions of nodes without a live lease in this shard into grace, and bar their epochs from
        committing to it. Call after the shard lost data. Leases are read after the records, because a node has a lease
        before it commits. The sessions count as alive until the last renewal that this node saw."""
        found = [(user, holders) async for user, holders in self._holders(shard)]
        alive = {lease.epoch for lease in await read_within(self._engine.leases()) if not lease.dead}
        orphaned = {epoch: self._renewed.get(epoch, 0) for _, holders in found for epoch in sorted(holders - alive)}
        for epoch in orphaned:
            await write_within(self._engine.retire(shard, epoch))
        await self._lose(orphaned, [user for user, holders in found if holders & orphaned.keys()])

    async def own(self, shard: int, epoch: str) -> None:
        """Move into grace the sessions in this shard's records that are of this node's `epoch`, but not held by the
        node. Call after the shard lost data, since its records may be old."""
        users = [user async for user, holders in self._holders(shard, epoch) if epoch in holders]
        await self._all(self._records.wait_decided, [user for user in users if not self._holds_all(user, epoch)])

    def _holds_all(self, user: str, epoch: str) -> bool:
        person = self._people.find(user)
        if person is None:
            return False
        held = {session.device for session in person.held}
        return held.issuperset(s.device for s in person.record.presence.sessions if s.holder == epoch)

    async def _lose(self, dead: Mapping[str, int], users: Sequence[str]) -> None:
        edit = retire(dead)
        await self._all(lambda user: self._records.apply(user, edit), users)

    async def _all(self, decide: Callable[[str], Awaitable[object]], users: Sequence[str]) -> None:
        """Call `decide` with each user, also if some calls fail; then raise `Unavailable` if one did."""
        failed: Unavailable | None = None
        for start in range(0, len(users), TOGETHER):
            part = users[start : start + TOGETHER]
            for result in await asyncio.gather(*map(decide, part), return_exceptions=True):
                if isinstance(result, Unavailable | UnknownOutcome):
                    failed = Unavailable(str(result))
                elif isinstance(result, Exception):
                    log.warning("sweep.undecided", error=repr(result))  # the decider has logged the details
                    failed = Unavailable(f"a user could not be processed: {result!r}")
                elif isinstance(result, BaseException):
                    raise result
        if failed is not None:
            raise failed

    async def _holders(self, shard: int, epoch: str | None = None) -> AsyncIterator[tuple[str, set[str]]]:
        """Walk over the shard, and yield each user with live sessions and the epochs of these sessions, without REST
        sessions. With `epoch`, only records that may contain that epoch are decoded."""
        async for part in pages(self._engine, [shard], epoch):
            for user, presence in part:
                holders = {s.holder for s in presence.sessions if s.live and s.holder != UNLEASED}
                if holders:
                    yield user, holders
