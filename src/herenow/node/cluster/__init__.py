"""Cluster: this node among the others on the same store.

`lease` proves that this node lives and finds dead ones, `log_reader` follows what others commit, `shard_recovery` gives
back what a shard lost, `reaper` decides due users, `node_messages` carries direct messages. `Cluster` is the face of this
package; its attributes are the verbs that other parts use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from herenow.errors import Unavailable
from herenow.node.cluster.dead_nodes import DeadNodeSweep
from herenow.node.cluster.lease import LeaseKeeper, Other
from herenow.node.cluster.log_reader import LogReader
from herenow.node.cluster.node_messages import NodeMessages
from herenow.node.cluster.reaper import Reaper
from herenow.node.cluster.reaper_assignment import ReaperAssignment
from herenow.node.cluster.shard_recovery import ShardRecovery
from herenow.node.cluster.staleness import Staleness
from herenow.node.cluster.user_counts import UserCounts
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.people import Person
from herenow.node.records import Records
from herenow.node.sessions import Sessions

__all__ = ["Cluster", "NodeMessages"]

RENEW_AGAIN = 0.5
"""Seconds after which a renewal that failed is tried again: several times before the lease is in doubt."""

READ_AGAIN = 0.2
"""Seconds after which a log that could not be read is tried again."""

log = structlog.get_logger(__name__)


class Cluster:
    def __init__(
        self,
        context: Context,
        delivery: Delivery,
        records: Records,
        sessions: Sessions,
        on_epoch: Callable[[str], None],
    ) -> None:
        """`on_epoch`: called with each new epoch before anything is written under it."""
        self._context = context
        self._records = records
        self._sessions = sessions
        self._on_epoch = on_epoch
        staleness = Staleness(delivery, context.engine.shards)
        self.messages = NodeMessages(context.engine)
        self.counts = UserCounts(context)
        self.log_reader = LogReader(context, records, delivery, self.counts, staleness)
        self.sweep = DeadNodeSweep(context, records)
        self.recovery = ShardRecovery(context, records, staleness, self.log_reader, self.sweep)
        self.lease = LeaseKeeper(context, self.sweep, staleness, self._begin_epoch)
        self.assignment = ReaperAssignment(context, self.messages)
        self.reaper = Reaper(context, records, self.assignment)
        records.subscribe_store(self)
        self.bury = self.lease.bury
        self.listen = self.log_reader.listen

    # Calls of `records`

    def on_loss(self, shard: int, row: int | None, asked: float | None = None) -> None:
        self.recovery.report_loss(shard, row, asked)

    def on_remote_change(self, person: Person) -> None:
        self.log_reader.on_remote_change(person)

    # Life

    async def take_lease(self) -> None:
        await self.lease.start()

    async def start(self) -> None:
        """Follow the log from now on, count users, recover shards that are not whole."""
        await self.log_reader.start()
        await self.count_users()
        await self.recovery.start()

    def run(self) -> None:
        """Start the periodic tasks."""
        every, third = self._context.tasks.every, self._context.settings.node_lease / 3
        every(third, self.lease.keep, "lease", after_failure=RENEW_AGAIN)
        every(third, self._check_store, "check")
        every(0, self._follow_log, "tail")
        every(self._context.reaping.poll, self.reaper.run, "reaper")
        every(third, self.assignment.tell, "shares")
        every(0, self.messages.receive, "mail")

    async def leave(self) -> None:
        """The other nodes need not wait for this one."""
        await self.assignment.leave()

    async def end_lease(self) -> None:
        """Call when everything is committed; this node may not decide any more."""
        await self.lease.end()

    async def count_users(self) -> None:
        """Call about once a second."""
        await self.counts.keep(self.log_reader.cursors)

    @property
    def others(self) -> list[Other]:
        """The other nodes on this store, as last seen."""
        return self.lease.others

    @property
    def unattended_shards(self) -> int:
        """Shards in which no process expires due users."""
        return self.assignment.unattended

    @property
    def lease_trouble(self) -> str | None:
        """What the store said instead of renewing the lease; None: it renewed."""
        return self.lease.trouble

    @property
    def log_trouble(self) -> str | None:
        """What the last read of the logs said instead of an answer; None: it answered."""
        return self.log_reader.trouble

    @property
    def log_behind(self) -> int:
        """Entries of all logs that had not been read at the last check."""
        return self.log_reader.behind

    @property
    def log_heard_ago(self) -> float:
        """Seconds since all logs last answered."""
        return self.log_reader.heard_ago

    def _begin_epoch(self) -> None:
        self._on_epoch(self._context.authority.epoch)
        self._sessions.assert_again()
        self._records.retry_waiting()

    async def _check_store(self) -> None:
        """Find what goes wrong without an error: a log that is silent though it grows, a shard that lost writes. The second
        is checked also where the first cannot be."""
        try:
            await self.log_reader.check()
        except Unavailable as error:
            self._context.metrics.engine_errors += 1
            log.warning("check.failed", error=str(error))
        await self._records.verify_recent()

    async def _follow_log(self) -> None:
        try:
            await self.log_reader.follow()
        except Unavailable:
            await asyncio.sleep(READ_AGAIN)
