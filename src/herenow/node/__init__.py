"""A node: seven parts, each with one face. Imports and direct calls go down this list; `*Events` protocols call up.

admin      disconnect, revoke, delete and explain users; figures of the last minutes
viewing    subscriptions, reads, streams, typing; privacy rules and relations as users set them
access     who may see whom, from the ledger or the application
cluster    lease, log, shard recovery, due users, messages to other nodes
sessions   devices that are connected or send heartbeats; modes
records    reads, decides and writes the record of a user
delivery   brings changes to the connections that watch
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import structlog

from herenow.node import shutdown
from herenow.node.access import POLL, RelationCache
from herenow.node.admin import Admin
from herenow.node.cluster import Cluster
from herenow.node.context import Context, Reaping, make_context
from herenow.node.delivery import Delivery
from herenow.node.records import Records, restore_from_ledger
from herenow.node.sessions import TURN, Sessions
from herenow.node.viewing import Viewing
from herenow.ports import Relations, SourceHealth
from herenow.wire.codes import Close

__all__ = ["Node", "Reaping", "make_context"]

log = structlog.get_logger(__name__)


class Node:
    """One node, with all its parts. `relations`: the source of relations, if not the ledger. `on_epoch`: called with each
    new epoch before a write under it."""

    def __init__(
        self,
        context: Context,
        *,
        relations: Relations | None = None,
        relations_health: SourceHealth | None = None,
        on_epoch: Callable[[str], None] = lambda epoch: None,
    ) -> None:
        self.context = context
        self.relations_health = relations_health or SourceHealth()
        self.ready = False
        self.draining = False
        self.delivery = delivery = Delivery(context)
        self.records = records = Records(context, delivery)
        self.sessions = sessions = Sessions(context, records, delivery)
        self.cluster = cluster = Cluster(context, delivery, records, sessions, on_epoch)
        self.access = access = RelationCache(context, relations)
        self.viewing = viewing = Viewing(context, delivery, records, sessions, cluster, access)
        self.admin = Admin(context, delivery, records, sessions, cluster, access, viewing)

    async def start(self, terms: Mapping[str, str]) -> None:
        """Start the node: open the engine, restore an embedded store from the ledger, start all parts. The ledger must
        be open already. `terms`: settings that must be the same on all nodes of the store."""
        context = self.context
        await context.engine.open(terms)
        if context.settings.engine_in_memory:
            await restore_from_ledger(context.engine, context.ledger, context.clock, context.timings)
        await self.cluster.take_lease()
        await self.access.start()
        await self.records.late_choices.start()
        await self.admin.start()  # after `access` has its position in the change table: no change is missed
        await self.cluster.start()
        self._run()
        self.ready = True

    def _run(self) -> None:
        every = self.context.tasks.every
        self.cluster.run()
        self.admin.run()
        every(POLL, self.access.poll, "relations")
        every(TURN, self._turn, "wheel")
        every(1.0, self._tidy, "round")
        every(1.0, self.records.late_choices.check, "late-choices")
        self.context.tasks.spawn(self.records.run_ledger_writer(), "recorder")
        every(self.records.stamp_every, self.records.stamp_run, "run-stamp")

    async def _turn(self) -> None:
        self.delivery.look()
        self.sessions.turn()
        self.cluster.listen()

    async def _tidy(self) -> None:
        self.context.people.forget_old()
        self.delivery.new_day()
        await self.records.confirm_guesses()
        if self.access.in_doubt:
            self.context.tasks.spawn(self.access.resolve(), "doubts")  # the source may be slow
        await self.cluster.count_users()

    async def drain(self) -> None:
        """Ask all clients to reconnect to another node, and wait a few seconds until they have left. REST requests are
        still answered."""
        if self.draining:
            return
        self.draining = True
        self.ready = False
        self.sessions.end_all(Close.DRAINING, self.retry_after)
        self.viewing.end_streams(Close.DRAINING, self.retry_after)
        metrics = self.context.metrics
        if not await shutdown.within(shutdown.CLIENTS_LEAVE, lambda: not metrics.connections):
            log.warning("stop.clients_stay", connections=metrics.connections)

    def retry_after(self) -> str:
        """Return a close reason with the milliseconds after which to reconnect: random, at most a third of the grace."""
        spread = self.context.timings.grace // 3
        return f"retry_after_ms={random.randint(0, max(spread, 1))}"

    async def stop(self) -> None:
        """Stop the node: commit its sessions as lost, save to the ledger, give up the lease. The caller must not admit
        new connections or requests any more."""
        await self.drain()
        self.sessions.let_go_all()
        handed_over = await shutdown.hand_over(self.context, self.sessions)
        await shutdown.save(self.context, self.records)
        if handed_over:
            await shutdown.leave(self.cluster)
        self.delivery.close()
        self.records.close()
        await self.context.tasks.end()
        await self.context.engine.close()
