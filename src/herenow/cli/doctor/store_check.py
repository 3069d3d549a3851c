"""Live store checks of `herenow doctor`, before a node fails on them.

They cover writes, memory, eviction, lost data, the clock, the leases of other nodes, and whether the store admits a node
with these settings (`terms_check`). They change nothing: the write test deletes a lease that does not exist.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herenow.cli.doctor.findings import Finding, advice, fine, problem
from herenow.cli.doctor.terms_check import agreement
from herenow.errors import ConfigurationError, HerenowError, Unavailable, UnknownOutcome
from herenow.settings import Settings
from herenow.settings.model import without_password

if TYPE_CHECKING:
    from herenow.engines.redis import ServerState
    from herenow.ports import Due, Engine, Lease

STORE_SLACK = 1.0
"""Seconds that the store's clock may differ from this machine's."""

ROOM = 0.9
"""Share of the store's maxmemory above which to give advice."""

LATE = 10_000
"""Milliseconds: a user due for longer than this is a sign that no reaper works."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of the reads, as of one time `now` of the store's clock (epoch ms)."""

    now: int
    refusal: str | None
    """The store's error for a write; None if it accepted the write."""
    leases: Sequence[Lease]
    dues: dict[int, Due]
    servers: Sequence[ServerState]
    terms: Mapping[str, str]
    """The settings that all nodes of the store share."""


def store(settings: Settings) -> Iterator[Finding]:
    place = without_password(settings.engine)
    try:
        seen = asyncio.run(_read_store(settings))
    except ConfigurationError as error:
        yield problem("live store", str(error))
    except HerenowError as error:
        yield problem("live store", f"{place} does not answer ({error}): is it running, and reachable?")
    else:
        yield from _engine(seen, place)
        yield from agreement(settings, seen.terms)
        if settings.engine != "memory://":
            yield from _nodes(seen, round(settings.node_lease * 1000))
    if settings.engine != "memory://" and settings.ledger_path is not None:
        yield advice(
            "live store",
            "All nodes on it must use the same database, and only processes on one machine can share an SQLite file.",
        )


async def _read_store(settings: Settings) -> Seen:
    from herenow.app import engine_of
    from herenow.engines.redis import RedisEngine

    engine = engine_of(settings)
    try:
        await engine.check()
        refusal = await _refusal(engine)
        leases = await engine.leases()
        now = await engine.store_time()  # read after the leases, so that no renewal is later than `now`
        dues = await engine.due(range(engine.shards), now - LATE, 1)
        if not isinstance(engine, RedisEngine):  # the memory engine has one process: no servers, no shared terms
            return Seen(now, refusal, leases, dues, (), {})
        return Seen(now, refusal, leases, dues, await engine.states(), await engine.terms())
    finally:
        await engine.close()


async def _refusal(engine: Engine) -> str | None:
    try:
        await engine.drop_lease(f"herenow-doctor-{secrets.token_hex(8)}")
    except (Unavailable, UnknownOutcome) as error:
        return str(error)
    return None


def _engine(seen: Seen, place: str) -> Iterator[Finding]:
    from herenow.api.ops.store_errors import explain_store_error

    if seen.refusal is None:
        yield fine("live store", f"{place} answers and takes writes.")
    else:
        detail, fix = explain_store_error(seen.refusal)
        yield problem("live store", f"{place} answers, but takes no writes. {detail} {fix}")
    for server in seen.servers:
        yield from _server(server)
    ahead = seen.now / 1000 - time.time()
    if abs(ahead) > STORE_SLACK:
        yield advice(
            "live store",
            f"Its clock differs by {ahead:+.1f} s from this machine's: all nodes follow it, so synchronise it with NTP.",
        )


def _server(server: ServerState) -> Iterator[Finding]:
    full = server.used_memory / server.maxmemory if server.maxmemory else 0.0
    if full >= 1:
        yield problem("live store", f"{server.address} is full and takes no new users: raise its maxmemory.")
    elif full >= ROOM:
        yield advice(
            "live store", f"{server.address} uses {full:.0%} of its memory: raise its maxmemory before it is full."
        )
    if server.evicted:
        yield problem(
            "live store",
            f"{server.address} has evicted {server.evicted} keys and lost users with them: set maxmemory-policy "
            "noeviction, then run CONFIG RESETSTAT to reset the count.",
        )
    if server.volatile:
        yield advice(
            "live store",
            f"{server.address} has maxmemory-policy {server.policy}: keys of herenow never expire, so set noeviction.",
        )
    if not server.saves:
        yield advice(
            "live store",
            f"{server.address} could not write its last snapshot: check its disk, or switch snapshots off; herenow "
            "needs none.",
        )
    if server.watched and not server.replicas:
        yield advice(
            "live store",
            f"{server.address} has no connected replica: if it fails now, no server can take over. Has it just failed "
            "over?",
        )


def _nodes(seen: Seen, lease: int) -> Iterator[Finding]:
    """Check that the nodes with a lease in the store renew it, and that none is ahead of the store's clock. `lease` is
    the duration of a lease in ms; ages are measured with the store's clock, as nodes do."""
    ages = {row.epoch: seen.now - row.renewed_at for row in seen.leases if not row.dead}
    living = [epoch for epoch, age in ages.items() if age <= lease * 2 / 3]
    not_renewed = {epoch: age for epoch, age in ages.items() if age > lease * 2 / 3}
    if not seen.leases:
        yield fine("nodes", "No node has a lease in the live store.")
    elif living:
        yield fine("nodes", f"{len(living)} of {len(seen.leases)} leases are being renewed.")
    for epoch, age in not_renewed.items():
        yield _not_renewed(epoch, age / 1000, lease / 1000, alone=not living)
    for row in seen.leases:
        if row.dead:
            yield advice(
                "nodes", f"The node {row.epoch} was declared dead; its sessions are put into the reconnect window."
            )
    for epoch, age in ages.items():
        if age < -STORE_SLACK * 1000:
            yield problem(
                "clock",
                f"The node {epoch} is {-age / 1000:.1f} s ahead of the live store's clock: was that clock set "
                "back? Nodes adjust slowly; synchronise it with NTP.",
            )
    if living:
        yield from _shards(seen)


def _not_renewed(epoch: str, seconds: float, lease: float, *, alone: bool) -> Finding:
    if alone:
        return advice(
            "nodes",
            f"The node {epoch} crashed, is frozen or cannot reach the live store: no renewal of its lease for "
            f"{seconds:.0f} s. No other node runs; the next one that starts takes over its users.",
        )
    soon = "other nodes are taking over its users" if seconds > lease else "other nodes take them over if this goes on"
    return problem(
        "nodes",
        f"The node {epoch} has not renewed its lease for {seconds:.0f} s: it crashed, is frozen, or cannot reach the "
        f"live store; {soon}. Check that process.",
    )


def _shards(seen: Seen) -> Iterator[Finding]:
    lost = sum(not due.settled for due in seen.dues.values())
    if lost:
        yield problem(
            "shards",
            f"{lost} of {len(seen.dues)} shards lost their data and are being restored: their users are shown as stale for "
            "some seconds. Was the live store emptied, restarted or failed over?",
        )
    waiting = [due.wakes[0] for due in seen.dues.values() if due.users and due.wakes]
    if waiting:
        yield problem(
            "shards",
            f"A timeout is overdue by {(seen.now - min(waiting)) / 1000:.0f} s and no process handles it: set reap = on "
            "for a node, or start herenow reap.",
        )
