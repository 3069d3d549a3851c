"""Cluster: this node among the others on the same store.

`lease` shows that this node is alive and finds dead ones, `log_reader` follows the commits of others, `shard_recovery` gives
records back to a shard that lost data, `reaper` decides due users, `node_messages` has direct messages. `Cluster` is the
face of this package.
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
from herenow.node.cluster.staleness import Staleness, StaleReason
from herenow.node.cluster.user_counts import UserCounts
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.records import Records
from herenow.node.sessions import Sessions

__all__ = ["Cluster", "NodeMessages"]

RENEW_AGAIN = 0.5  # seconds until a failed renewal is retried: several times before the lease expires
READ_AGAIN = 0.2  # seconds until the logs are read again after an error
PROBE = 0.5  # seconds between two attempts to write to a shard that could not be written

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
        """`on_epoch` is called with each new epoch of this node, before any record is written under it."""
        self._context = context
        self._records = records
        self._sessions = sessions
        self._on_epoch = on_epoch
        self._staleness = staleness = Staleness(delivery, context.engine.shards)
        self.messages = NodeMessages(context.engine)
        self.counts = UserCounts(context)
        self.log_reader = LogReader(context, records, delivery, self.counts, staleness)
        self.sweep = DeadNodeSweep(context, records)
        self.recovery = ShardRecovery(context, records, staleness, self.log_reader, self.sweep)
        self.lease = LeaseKeeper(context, self.sweep, staleness, self._begin_epoch)
        self.assignment = ReaperAssignment(context, self.messages)
        self.reaper = Reaper(context, records, self.assignment)
        self.take_lease = self.lease.start
        self.end_lease = self.lease.end
        self.bury = self.lease.bury
        self.leave = self.assignment.leave
        self.listen = self.log_reader.listen

        # Calls of `records`
        self.on_loss = self.recovery.report_loss
        self.on_writable = records.assert_held
        self.on_remote_change = self.log_reader.on_remote_change
        records.subscribe_store(self)

    async def start(self) -> None:
        """Begin to read the logs, count the users of the store, and join the recovery of shards that lost data."""
        await self.log_reader.start()
        await self.count_users()
        await self.recovery.start()

    def run(self) -> None:
        every, third = self._context.tasks.every, self._context.settings.node_lease / 3
        every(third, self.lease.keep, "lease", after_failure=RENEW_AGAIN)
        every(third, self._check_store, "check")
        every(PROBE, self._probe_failing, "probe")
        every(0, self._follow_log, "tail")
        every(self._context.reaping.poll, self.reaper.run, "reaper")
        every(third, self.assignment.tell, "shares")
        every(0, self.messages.receive, "mail")

    async def count_users(self) -> None:
        await self.counts.keep(self.log_reader.cursors)

    @property
    def others(self) -> list[Other]:
        return self.lease.others

    @property
    def unattended_shards(self) -> int:
        """Number of shards in which no process ends reconnect windows, modes and custom statuses."""
        return self.assignment.unattended

    @property
    def unverified_shards(self) -> int:
        """Shards whose records this node must verify against the store before their views count as fresh."""
        return sum(map(self.must_verify, range(self._context.engine.shards)))

    def must_verify(self, shard: int) -> bool:
        """True while this node must verify the shard's records: their views are stale until then."""
        return self._staleness.has(shard, StaleReason.UNVERIFIED)

    @property
    def lease_trouble(self) -> str | None:
        """Error of the last attempt to renew this node's lease; None: it succeeded."""
        return self.lease.trouble

    @property
    def log_trouble(self) -> str | None:
        """Error of the last read of the shard logs; None: it succeeded."""
        return self.log_reader.trouble

    @property
    def log_behind(self) -> int:
        """Number of log entries, in all shards, that this node had not read at the last check."""
        return self.log_reader.behind

    @property
    def log_heard_ago(self) -> float:
        """Seconds since the logs of all shards last answered."""
        return self.log_reader.heard_ago

    def _begin_epoch(self) -> None:
        self._on_epoch(self._context.authority.epoch)
        self._sessions.assert_again()
        self._records.retry_waiting()
        self._context.tasks.spawn(self.log_reader.verify_all(), "verify")

    async def _check_store(self) -> None:
        """Find failures that cause no error: log entries that do not arrive, and shards that lost writes of this
        node."""
        try:
            await self.log_reader.check()
        except Unavailable as error:
            self._context.metrics.engine_errors += 1
            log.warning("check.failed", error=str(error))
        await self._records.verify_recent()

    async def _probe_failing(self) -> None:
        """Write an empty batch to each shard that failed, to find out whether it can be written again; to all shards
        after a failed renewal of the lease. While none fails, nothing is sent."""
        shards = self._context.authority.outages.to_probe(self._context.engine.shards)
        await asyncio.gather(*map(self._records.probe, shards), return_exceptions=True)

    async def _follow_log(self) -> None:
        try:
            await self.log_reader.follow()
        except Unavailable:
            await asyncio.sleep(READ_AGAIN)
