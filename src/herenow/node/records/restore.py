"""Fills an embedded store, which is empty when its node starts, with the modes and custom statuses from the ledger. Also
closes the last run: users that still have its run marker were last seen at its last stamp."""

from __future__ import annotations

import structlog

from herenow.core.record import encode
from herenow.core.settle import Timings, wake_at
from herenow.core.shards import shard_of
from herenow.core.values import replace
from herenow.kit.clock import Clock
from herenow.node.records.cold_cache import from_ledger
from herenow.ports import Choice, Engine, Ledger, Offer

AT_A_TIME = 1_000

log = structlog.get_logger(__name__)


async def restore_from_ledger(engine: Engine, ledger: Ledger, clock: Clock, timings: Timings) -> None:
    left = await ledger.close_runs()
    if left:
        log.info("run.closed", users=left)
    shards = range(engine.shards)
    for shard in shards:  # in recovery: until all is restored, a missing record means nothing
        await engine.unsettle(shard, clock.now())
    after = ""
    while choices := await ledger.chosen(after, AT_A_TIME):
        after = choices[-1].user
        await _restore(engine, ledger, choices, timings)
    for shard in shards:
        await engine.settle(shard, clock.now(), 0)


async def _restore(engine: Engine, ledger: Ledger, choices: list[Choice], timings: Timings) -> None:
    remembered = await ledger.remembered([choice.user for choice in choices])
    for user, known in remembered.items():
        presence = from_ledger(known)
        presence = replace(presence, version=presence.chosen)
        wake = wake_at(presence, timings)
        offer = Offer(user, presence.version, encode(presence), wake, unsaved=False)
        await engine.offer(shard_of(user, engine.shards), [offer])
