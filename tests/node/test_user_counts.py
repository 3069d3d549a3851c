"""J6: the gauges equal a full count of the store."""

from collections import Counter

import pytest
from tests.node.scenes import Stalled

from herenow.core.model import Mode, Status, public
from herenow.core.shards import shard_of
from herenow.node.cluster.user_counts import UserCounts
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


def counted(world, whom=lambda user: True):
    stored = world.everybody_stored().items()
    statuses = Counter(int(public(record).status) for user, record in stored if whom(user))
    del statuses[Status.OFFLINE]
    return +statuses


def said(node):
    return Counter({int(status): count for status, count in node.node.context.metrics.users.items() if count})


async def crowd(world, node, count=40):
    clients = [world.client(f"u{number}") for number in range(count)]
    for number, client in enumerate(clients):
        client.open(node)
        if number % 4 == 0:
            await node.node.sessions.set_mode(client.user, Mode.BUSY, None)
        if number % 5 == 0:
            await node.node.sessions.set_mode(client.user, Mode.INVISIBLE, None)
        if number % 7 == 0:
            client.rest()
    await world.sleep(1)
    return clients


async def test_j6_the_user_counts_in_the_metrics_of_a_node_equal_a_full_count_of_the_store(world):
    n1 = await world.start("n1")
    clients = await crowd(world, n1)
    n2 = await world.start("n2")
    for client in clients[::3]:
        client.close()
    for _ in range(8):
        await world.sleep(5)
        assert said(n1) == said(n2) == counted(world)
    assert n1.node.context.metrics.sessions == sum(client.connected for client in clients)
    assert sum(said(n1).values()) > 10


async def test_j6_a_node_that_starts_during_changes_counts_no_user_twice(world):
    n1 = await world.start("n1")
    clients = await crowd(world, n1)
    moved = iter(clients)
    n2 = await world.start("n2")
    walk = n2.node.context.engine.walk

    async def slow_walk(shard, cursor, limit):
        """A user changes while every page is read."""
        for client in (next(moved, None), next(moved, None)):
            if client is not None:
                client.rest()
        await world.sleep(0.1)
        return await walk(shard, cursor, 2)

    n2.node.context.engine.walk = slow_walk
    for shard in range(4):
        n2.node.cluster.counts.recount(shard)
    await world.sleep(20)
    assert said(n1) == said(n2) == counted(world)


async def test_j6_users_are_recounted_after_a_node_missed_log_entries(world):
    n1, n2 = await world.start_all("n1", "n2")
    tail = Stalled(n2.node.context.engine, "tail")
    clients = await crowd(world, n1)
    for shard in range(4):
        world.faults.cut_log(shard)
    await tail.release()
    await world.sleep(3)
    assert said(n2) == said(n1) == counted(world)
    assert clients


async def test_j6_log_entries_missed_during_a_recount_of_users_cause_another_recount(world):
    n1, n2 = await world.start_all("n1", "n2")
    walk = Stalled(n2.node.context.engine, "walk")
    n2.node.cluster.counts.recount(0)
    await world.sleep(1.5)
    assert walk.waiting == 1
    with world.faults.during(Rule(Fault.LOG_GAP)):
        await crowd(world, n1)
    await walk.release()
    await world.sleep(3)
    assert said(n2) == counted(world)


@pytest.mark.parametrize("silent", [True, False], ids=["its log is silent, too", "only it cannot be walked"])
async def test_j6_an_unavailable_shard_does_not_stop_the_count_of_users_in_other_shards(world, silent):
    n1, n2 = await world.start_all("n1", "n2")
    await crowd(world, n1)
    away = [Rule(Fault.UNAVAILABLE, node="n2", calls=("walk",), shard=0)]
    away += [Rule(Fault.SHARD_SILENCE, node="n2", shard=0)] if silent else []
    n2.node.context.metrics.users.clear()
    n2.node.cluster.counts = n2.node.cluster.log_reader._counts = UserCounts(n2.node.context)
    with world.faults.during(*away):
        await world.sleep(10)
        others = counted(world, lambda user: shard_of(user, 4) != 0)
        assert said(n2) == others != counted(world)
    await world.sleep(3)
    assert said(n2) == said(n1) == counted(world)


async def test_j6_users_are_recounted_after_the_store_was_emptied(world):
    n1, n2 = await world.start_all("n1", "n2")
    await crowd(world, n1)
    world.store.empty()
    await world.sleep(30)
    assert said(n1) == said(n2) == counted(world)
    assert sum(said(n1).values()) > 10
