"""A Redis Cluster whose master with the lease rows is frozen: effects on users in shards of other masters.

Two processes on a real Cluster of three masters. The master is frozen for less time than the Cluster needs to declare
it dead, so that the others go on serving their slots, as they do for longer with `cluster-require-full-coverage` off.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count, islice

import pytest
from tests.processes import PATIENCE
from tests.redis_servers import ClusterGroup

from herenow.core.shards import shard_of
from herenow.engines.redis import slot_of

pytestmark = pytest.mark.xdist_group("cluster leases")

SHARDS = 16
CALM = {"relations": "open", "node_lease": 3, "beat_every": 30, "dead_after": 90, "grace": 90}
"""Timings so long that a busy machine loses no session."""


@pytest.fixture
def cluster():
    group = ClusterGroup()
    try:
        yield group.start()
    finally:
        group.close()


def master_of(cluster, tag):
    return cluster.masters[slot_of(tag) * 3 // 16_384]


def people_elsewhere(cluster, number):
    """Users whose shards are on other masters than the leases."""
    leases = master_of(cluster, "herenow")
    names = (f"person{each}" for each in count())
    elsewhere = (n for n in names if master_of(cluster, f"herenow.{shard_of(n, SHARDS)}") is not leases)
    return [*islice(elsewhere, number)]


async def troubles(server):
    return {trouble["what"] for trouble in (await server.rest("GET", "/stats"))["degraded"]}


async def until(server, wanted):
    async with asyncio.timeout(PATIENCE):
        while not wanted(await troubles(server)):
            await asyncio.sleep(0.1)


async def test_while_the_redis_master_with_the_node_leases_is_frozen_users_are_shown_as_stale_but_not_offline(
    cluster, start_server
):
    nodes = [await start_server(engine=cluster.url, **CALM) for _ in range(2)]
    here, comes = people_elsewhere(cluster, 2)
    for node in nodes:
        await until(node, lambda found: not found)
    async with nodes[0].client(here) as ana, nodes[1].client("bob") as bob, AsyncExitStack() as late:
        await bob.watch(here)
        await bob.sees(here, "online")
        await bob.watch(comes)
        master = master_of(cluster, "herenow")
        master.stop_the_clock()
        try:
            for node in nodes:
                await until(node, lambda found: "lease" in found)
            coming = asyncio.create_task(late.enter_async_context(nodes[0].client(comes)))
            for user in (here, comes):
                await bob.until(lambda frame, user=user: frame.get("user_id") == user and frame.get("stale"))
            await ana.send("presence.set", mode="busy", id="set")
            answer = await ana.until(lambda frame: frame.get("id") == "set")
            await bob.in_step()
            assert (answer["type"], answer["stale"]) == ("presence.ok", True)  # the database has it
            assert bob.shown(here)[-1] in ("online", "busy")
            assert set(bob.shown(comes)) == {"offline"}
            before = len(bob.frames)
        finally:
            master.go_on()
        await bob.until(lambda frame: frame.get("user_id") == here and "stale" not in frame, before)
        await coming
        await bob.sees(comes, "online")
        await bob.sees(here, "busy")
        assert "offline" not in bob.shown(here)[bob.shown(here).index("online") :]
