"""Node check of `herenow doctor`: reads the stats of the node that runs here.

The node reports its problems with their remedies (`api.ops.degraded`); this module passes them on. If no node runs, that is
not a problem: doctor is also used before the first start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx2

from herenow.cli.doctor.findings import Finding, advice, fine, problem
from herenow.cli.node_client import NoAnswer, NodeAnswer, ask_node, own_certificate, own_url, tokens
from herenow.settings import Settings

if TYPE_CHECKING:
    from herenow.api.ops.stats import Stats

CONFLICTS = 10.0
"""Write conflicts per second above which to give advice; fewer are normal with several nodes."""

SLOW = 1.0
"""Seconds from a change to its delivery (99th percentile) above which to give advice."""


def node(settings: Settings) -> Iterator[Finding]:
    if settings.port == 0:
        return  # the operating system chooses the port, so it is unknown here
    asked = asyncio.run(_read_stats(settings))
    if asked.stats is not None:
        yield from said(asked.url, asked.stats)
    elif asked.why is NoAnswer.REFUSED:
        yield advice("node", f"Its state cannot be read: {asked.sentence}")
    elif "cannot be reached" in asked.sentence:
        yield fine("node", f"No node runs here with these settings: nothing listens on {asked.url}.")
    else:
        yield problem("node", asked.sentence)


def said(url: str, stats: Stats) -> Iterator[Finding]:
    """Yield the findings that follow from the statistics of the node at `url`."""
    for trouble in stats.degraded:
        yield problem("node", f"{trouble.detail} {trouble.fix}".rstrip())
    if stats.draining:
        yield advice("node", f"{url} is draining: its clients are asked to reconnect to other nodes.")
    elif not stats.ready:
        yield problem("node", f"{url} is not ready: it has not reached the live store and the database yet.")
    if stats.per_second.conflicts > max(CONFLICTS, stats.per_second.changes / 2):
        yield advice(
            "node",
            f"{stats.per_second.conflicts:.0f} writes a second conflict with a write of another node: do several nodes "
            "get heartbeats of the same users? A gateway should send all heartbeats of a user to one node.",
        )
    if stats.delivery.p99 is not None and stats.delivery.p99 > SLOW:
        yield advice(
            "node",
            f"Changes take {stats.delivery.p99:.1f} s to reach sockets (99th percentile): is the machine busy with "
            "something else?",
        )
    if not stats.degraded and stats.ready:
        yield fine("node", f"{url} answers, has {stats.connections} connections and reports no problem.")


async def _read_stats(settings: Settings) -> NodeAnswer:
    verify = own_certificate(settings)
    async with httpx2.AsyncClient(verify=verify, trust_env=False) as client:
        return await ask_node(client, own_url(settings), tokens(settings, None))
