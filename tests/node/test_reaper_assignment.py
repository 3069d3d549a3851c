"""The assignment of shards to reapers: disjoint while all nodes live, no gap when one dies, never a duplicate change."""

import pytest
from tests.node.scenes import meet

from herenow.core.model import Mode
from herenow.node import Reaping
from herenow.node.cluster.reaper_assignment import LATE, NEVER
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)

CROWD = [f"u{number}" for number in range(40)]


def own(node):
    """Shards of which this node processes due users without delay."""
    return set(dict(node.node.cluster.assignment.delays()).get(0, ()))


def reaped(node):
    """Number of due users this node has processed."""
    return sum(node.node.context.metrics.wake_seconds.counts)


async def seated(world, node):
    """Several users on this node, and bob on it, who watches them."""
    await world.befriend("bob", *CROWD)
    crowd = [world.client(user) for user in CROWD]
    for client in crowd:
        client.open(node)
    bob = world.client("bob")
    await bob.connect(node)
    await bob.watch(*CROWD)
    await world.sleep(5)
    return crowd, bob


async def test_nodes_reap_disjoint_shares_that_cover_all_shards(world):
    nodes = await world.start_all("n1", "n2", "n3")
    await world.sleep(0.1)
    shares = [own(node) for node in nodes]
    assert sorted(shard for share in shares for shard in share) == [0, 1, 2, 3]


async def test_two_nodes_each_reap_their_own_shards_without_conflicts(world):
    n1, n2 = await world.start_all("n1", "n2")
    crowd, bob = await seated(world, n1)
    before = reaped(n1) + reaped(n2)
    changes = n1.node.context.metrics.changes + n2.node.context.metrics.changes
    for client in crowd:
        client.close()
    await world.sleep(40)
    assert [bob.saw(user) for user in CROWD] == [["online", "offline"]] * len(CROWD)
    assert reaped(n1) + reaped(n2) - before == len(CROWD)
    assert reaped(n1) > 0
    assert reaped(n2) > 0
    assert n1.node.context.metrics.changes + n2.node.context.metrics.changes - changes == len(CROWD)
    assert n1.node.context.metrics.conflicts + n2.node.context.metrics.conflicts == 0


async def test_a_dead_reaper_is_covered_within_a_second_and_replaced_within_a_lease(world):
    n1, n2 = await world.start_all("n1", "n2")
    crowd, bob = await seated(world, n1)
    share = own(n2)
    for client in crowd:
        client.close()
    await world.sleep(25)
    n2.kill()
    await world.sleep(6.4)
    late = [bob.last(user).at - bob.last(user).since - 30_000 for user in CROWD]
    assert {bob.last(user).status for user in CROWD} == {"offline"}
    assert max(late) < 1_000
    assert not share <= own(n1)  # its last message was less than a lease ago
    await world.sleep(3.6)
    assert share <= own(n1)


async def test_the_shards_of_a_node_that_stops_cleanly_are_taken_over_at_once(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.sleep(1)
    assert len(own(n1)) < 4
    await n2.stop()
    await world.sleep(0.1)
    assert len(own(n1)) == 4


async def test_nodes_without_messages_both_reap_all_shards_and_show_one_change(world):
    with world.faults.during(Rule(Fault.MESSAGE_LOST)):
        n1, n2 = await world.start_all("n1", "n2")
        crowd, bob = await seated(world, n1)
        assert own(n1) == own(n2) == {0, 1, 2, 3}
        for client in crowd:
            client.close()
        await world.sleep(40)
    assert [bob.saw(user) for user in CROWD] == [["online", "offline"]] * len(CROWD)


async def test_a_frozen_reaper_that_still_holds_its_lease_is_covered_by_others(world):
    n1, n2 = await world.start_all("n1", "n2")
    crowd, bob = await seated(world, n1)
    for client in crowd:
        client.close()
    await world.sleep(29)
    n2.freeze()
    await world.sleep(3)
    assert {bob.last(user).status for user in CROWD} == {"offline"}
    n2.thaw()
    await world.sleep(20)
    assert [bob.saw(user) for user in CROWD] == [["online", "offline"]] * len(CROWD)


async def test_a_node_configured_not_to_reap_leaves_all_shards_to_others(world):
    idle = await world.start("idle", reaping=Reaping(shards=frozenset()))
    n2 = await world.start("n2")
    crowd, bob = await seated(world, idle)
    assert own(n2) == {0, 1, 2, 3}
    assert dict(idle.node.cluster.assignment.delays()) == {NEVER: (0, 1, 2, 3)}
    for client in crowd:
        client.close()
    await world.sleep(40)
    assert reaped(idle) == 0
    assert [bob.saw(user) for user in CROWD] == [["online", "offline"]] * len(CROWD)


async def test_a_node_configured_not_to_reap_notices_data_loss_as_soon_as_others(world):
    idle = await world.start("idle", reaping=Reaping(shards=frozenset()))
    await world.sleep(4)
    world.store.empty(2)
    await world.sleep(0.6)
    assert idle.node.context.metrics.shards_lost == 1


async def test_dedicated_reapers_take_precedence_over_serving_nodes(world):
    n1 = await world.start("n1")
    await world.start("low", reaping=Reaping(shards=frozenset({0, 1}), first=True))
    high = await world.start("high", reaping=Reaping(shards=frozenset({2, 3, 99}), first=True))
    await world.sleep(0.1)
    assert dict(n1.node.cluster.assignment.delays()) == {LATE: (0, 1, 2, 3)}
    assert dict(high.node.cluster.assignment.delays()) == {NEVER: (0, 1), 0: (2, 3)}


async def test_d4_modes_end_on_time_after_the_node_that_accepted_and_should_end_them_died(world):
    n1, n2 = await world.start_all("n1", "n2")
    crowd, bob = await seated(world, n2)
    until = world.now + 60_000
    for user in CROWD:
        await n1.run(n1.node.sessions.set_mode(user, Mode.BUSY, until))
    await world.until(until - 2_000)
    assert own(n1)
    n1.kill()
    await world.until(until + 1_000)
    assert [bob.saw(user) for user in CROWD] == [["online", "busy", "online"]] * len(CROWD)
    assert {bob.last(user).since for user in CROWD} == {until}


async def test_d4_timers_that_expired_without_any_node_are_processed_at_the_start(world):
    n1, ana, _ = await meet(world)
    until = world.now + 60_000
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, until))
    ana.close()
    await world.sleep(1)
    n1.kill()
    await world.sleep(300)
    assert world.stored("ana").mode is Mode.BUSY
    await world.start("n2")
    await world.sleep(1)
    assert world.stored("ana") is None or world.stored("ana").mode is Mode.AUTO


async def test_the_assignment_of_shards_does_not_depend_on_the_order_of_starts():
    for seed in range(5):
        world = World(seed=seed, shards=16)
        nodes = await world.start_all("n1", "n2", "n3")
        await world.sleep(0.1)
        shares = [own(node) for node in nodes]
        assert sorted(shard for share in shares for shard in share) == list(range(16))
        newcomer = await world.start("n4")
        await world.sleep(0.1)
        kept = [own(node) for node in nodes]
        assert all(now <= before for now, before in zip(kept, shares, strict=True))
        assert own(newcomer) == set(range(16)) - set().union(*kept)
        await world.close()


# --- Shards without a reaper

OFF = Reaping(frozenset())


async def test_j10_without_any_reaper_a_node_counts_all_shards_as_unattended_within_a_lease(world):
    n1 = await world.start("n1", reaping=OFF)
    n2 = await world.start("n2", reaping=OFF)
    await world.sleep(world.settings.node_lease)
    assert [node.node.cluster.unattended_shards for node in (n1, n2)] == [4, 4]
    n3 = await world.start("n3")
    await world.sleep(1)
    assert [node.node.cluster.unattended_shards for node in (n1, n2, n3)] == [0, 0, 0]


async def test_j10_shards_of_a_dead_reaper_are_unattended_within_two_leases(world):
    node = await world.start("n1", reaping=OFF)
    reaper = await world.start("r1", reaping=Reaping(first=True))
    await world.sleep(2 * world.settings.node_lease)
    assert node.node.cluster.unattended_shards == 0
    reaper.kill()
    await world.sleep(2 * world.settings.node_lease)
    assert node.node.cluster.unattended_shards == 4


async def test_j10_shards_that_no_reaper_selects_are_unattended(world):
    node = await world.start("n1", reaping=OFF)
    await world.start("r1", reaping=Reaping(frozenset({0, 1, 2}), first=True))
    await world.sleep(world.settings.node_lease)
    assert node.node.cluster.unattended_shards == 1


async def test_j10_a_restart_of_the_only_reaper_leaves_no_shard_unattended(world):
    node = await world.start("n1", reaping=OFF)
    counts = set()
    for _ in range(3):
        reaper = await world.start("r1", reaping=Reaping(first=True))
        for _ in range(50):
            await world.sleep(0.2)
            counts.add(node.node.cluster.unattended_shards)
        await reaper.stop()
        await world.sleep(1)
    assert counts == {0}


async def test_j10_an_unreachable_store_is_not_reported_as_a_missing_reaper(world):
    node = await world.start("n1", reaping=OFF)
    await world.start("r1", reaping=Reaping(first=True))
    await world.sleep(20)
    counts = set()
    with world.faults.during(Rule(Fault.UNAVAILABLE)):
        for _ in range(60):
            await world.sleep(1)
            counts.add(node.node.cluster.unattended_shards)
    for _ in range(20):
        await world.sleep(1)
        counts.add(node.node.cluster.unattended_shards)
    assert counts == {0}
