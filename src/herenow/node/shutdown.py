"""The steps of a stopping node, each with a deadline: hand over sessions, save, leave the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from herenow.errors import HerenowError
from herenow.node.cluster import Cluster
from herenow.node.context import Context
from herenow.node.records import Records
from herenow.node.sessions import Sessions

CLIENTS_LEAVE = 5.0  # seconds for clients to leave, and again for the last commits
LAST_CALLS = 5.0  # seconds for the ledger, and again for the lease; other nodes finish what is left

log = structlog.get_logger(__name__)


async def hand_over(context: Context, sessions: Sessions) -> bool:
    """Commit waiting REST heartbeats, and wait at most `CLIENTS_LEAVE` seconds until all other sessions of this
    stopping node are committed as lost. Returns False if some are not: then keep the node's lease row, so that other
    nodes find the node dead and take over its sessions."""
    people = context.people
    stamps = context.tasks.spawn(sessions.hand_over(), "hand-over")
    if await within(CLIENTS_LEAVE, lambda: stamps.done() and not any(p.unfinished for p in people)):
        return True
    log.warning("stop.unfinished", users=sum(p.unfinished for p in people))
    return not any(p.unfinished for p in people)


async def save(context: Context, records: Records) -> None:
    """Write all unsaved last seens, modes and custom statuses to the ledger. With an embedded store there is no time
    limit; another store keeps the unsaved flags, so this stops after `LAST_CALLS` seconds."""
    try:
        async with asyncio.timeout(None if context.settings.engine_in_memory else LAST_CALLS):
            await records.finish()
    except TimeoutError:
        log.warning("ledger.unavailable", backlog=records.backlog)


async def leave(cluster: Cluster) -> None:
    await cluster.leave()
    try:
        async with asyncio.timeout(LAST_CALLS):
            await cluster.end_lease()
    except (HerenowError, TimeoutError) as error:
        log.warning("lease.left", error=str(error))


async def within(seconds: float, done: Callable[[], bool]) -> bool:
    """Wait until `done()` is true, and return True; after `seconds` return False."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if done():
                    return True
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False
