"""Does a node run here, and what does it say of itself? For `herenow doctor`.

Every trouble that a node knows of comes with its remedy (`api.ops.degraded`); here it is only passed on. No node is no
problem: the doctor is also run before the first start.
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
"""Writes a second that found another record than expected: fewer are everyday life among several nodes."""

SLOW = 1.0
"""Seconds from a change to a socket that are worth a word."""


def node(settings: Settings) -> Iterator[Finding]:
    if settings.port == 0:
        return  # nobody knows where it would be
    asked = asyncio.run(_asked(settings))
    if asked.stats is not None:
        yield from said(asked.url, asked.stats)
    elif asked.why is NoAnswer.REFUSED:
        yield advice("node", f"It cannot be asked how it is: {asked.sentence}")
    elif "cannot be reached" in asked.sentence:
        yield fine("node", f"None runs here with these settings: nothing listens on {asked.url}.")
    else:
        yield problem("node", asked.sentence)


def said(url: str, stats: Stats) -> Iterator[Finding]:
    """What follows from its numbers."""
    for trouble in stats.degraded:
        yield problem("node", f"{trouble.detail} {trouble.fix}".rstrip())
    if stats.draining:
        yield advice("node", f"{url} is draining: its clients are sent elsewhere.")
    elif not stats.ready:
        yield problem("node", f"{url} is not ready: it has not reached its store and its ledger yet.")
    if stats.per_second.conflicts > max(CONFLICTS, stats.per_second.changes / 2):
        yield advice(
            "node",
            f"{stats.per_second.conflicts:.0f} writes a second find another record than expected: do several nodes get the "
            "same users' beats? A gateway should send each user to one of them.",
        )
    if stats.delivery.p99 is not None and stats.delivery.p99 > SLOW:
        yield advice(
            "node",
            f"Changes take {stats.delivery.p99:.1f} s to reach sockets (99 of 100): is the machine busy with something "
            "else?",
        )
    if not stats.degraded and stats.ready:
        yield fine("node", f"{url} answers, has {stats.connections} connections and knows of no trouble.")


async def _asked(settings: Settings) -> NodeAnswer:
    verify = own_certificate(settings)
    async with httpx2.AsyncClient(verify=verify, trust_env=False) as client:
        return await ask_node(client, own_url(settings), tokens(settings, None))
