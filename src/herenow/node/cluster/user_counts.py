"""Counts the users of the whole store by public status; hidden users count as offline.

A walk counts each shard once; then log entries, which have the public status before and after, update the count. After a gap
in the log the shard is counted again. For users that change during the walk the log is right: when it has been read up to
its head at the end of the walk, the last entry of a user replaces what the walk found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from herenow.core.model import Status
from herenow.core.visibility import status_in_public
from herenow.errors import Unavailable
from herenow.kit.deadline import read_within
from herenow.node.context import Context
from herenow.node.records import pages
from herenow.ports import Entry

_OFFLINE = int(Status.OFFLINE)


@dataclass(slots=True)
class _Walk:
    walked: dict[str, int] = field(default_factory=dict)  # user → status by the walk
    logged: dict[str, int] = field(default_factory=dict)  # user → status by the log since the walk began
    head: int | None = None  # head of the log at the end of the walk; None: not known yet


class UserCounts:
    def __init__(self, context: Context) -> None:
        self._engine = context.engine
        self._metrics = context.metrics
        shards = range(context.engine.shards)
        self._counts: list[Counter[int]] = [Counter() for _ in shards]
        self._wanted = dict.fromkeys(shards)
        self._walks: dict[int, _Walk] = {}

    def count(self, shard: int, entry: Entry) -> None:
        """Update the counts of the shard by a log entry, which has the public status before and after
        (`Entry.note`)."""
        before, after = entry.note[0] >> 4, entry.note[0] & 15
        walk = self._walks.get(shard)
        if walk is not None:
            walk.logged[entry.user] = after
        if before != after:
            self._add(shard, {before: -1, after: 1})

    def recount(self, shard: int) -> None:
        """Request that the shard is counted again at the next `keep`, because log entries were missed."""
        self._walks.pop(shard, None)
        self._wanted[shard] = None

    async def keep(self, cursors: Mapping[int, int]) -> None:
        """Count the shards that are not counted yet or must be counted again, if they answer. Call once a second.
        `cursors`: shard → last log entry that was read. Raises `Unavailable`."""
        failed: Unavailable | None = None
        try:
            while (shard := self._next()) is not None:
                await self._walk(shard)
        except Unavailable as error:
            failed = error
        await self._conclude_all(cursors)
        if failed is not None:
            raise failed

    def _next(self) -> int | None:
        unresponsive = self._engine.unresponsive
        return next((shard for shard in self._wanted if shard not in unresponsive), None)

    async def _conclude_all(self, cursors: Mapping[int, int]) -> None:
        """Finish the count of each shard when its log has been read far enough: up to the entry that was the newest at
        the end of the walk over its records."""
        if any(walk.head is None for walk in self._walks.values()):
            heads = await read_within(self._engine.heads())
            for shard, walk in self._walks.items():
                walk.head = heads.get(shard) if walk.head is None else walk.head
        for shard, walk in list(self._walks.items()):
            if walk.head is not None and cursors[shard] >= walk.head:
                self._conclude(shard, walk)

    async def _walk(self, shard: int) -> None:
        """Count the users of one shard by a walk over its records. A `recount` during the walk discards the result."""
        del self._wanted[shard]
        walk = self._walks[shard] = _Walk()
        try:
            async for part in pages(self._engine, [shard]):
                for user, presence in part:
                    walk.walked[user] = status_in_public(presence)
        except Unavailable:
            self.recount(shard)
            raise

    def _conclude(self, shard: int, walk: _Walk) -> None:
        del self._walks[shard]
        counts = Counter((walk.walked | walk.logged).values())
        counts.subtract(self._counts[shard])
        self._add(shard, counts)

    def _add(self, shard: int, counts: Mapping[int, int]) -> None:
        for status, count in counts.items():
            if status != _OFFLINE:
                self._counts[shard][status] += count
                self._metrics.users[status] += count
