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


async def test_each_shard_is_assigned_to_exactly_one_node_that_handles_its_due_timers(world):
    nodes = await world.start_all("n1", "n2", "n3")
    await world.sleep(0.1)
    shares = [own(node) for node in nodes]
    assert sorted(shard for share in shares for shard in share) == [0, 1, 2, 3]


async def test_two_nodes_handle_the_due_timers_of_their_own_shards_without_conflicting_writes(world):
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


async def test_timers_of_a_dead_node_are_handled_within_a_second_and_taken_over_within_a_lease(world):
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


async def test_the_timers_that_a_cleanly_stopped_node_handled_are_taken_over_by_another_node_at_once(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.sleep(1)
    assert len(own(n1)) < 4
    await n2.stop()
    await world.sleep(0.1)
    assert len(own(n1)) == 4


async def test_two_nodes_that_receive_no_messages_both_handle_due_timers_but_show_one_change(world):
    with world.faults.during(Rule(Fault.MESSAGE_LOST)):
        n1, n2 = await world.start_all("n1", "n2")
        crowd, bob = await seated(world, n1)
        assert own(n1) == own(n2) == {0, 1, 2, 3}
        for client in crowd:
            client.close()
        await world.sleep(40)
    assert [bob.saw(user) for user in CROWD] == [["online", "offline"]] * len(CROWD)


async def test_due_timers_of_a_frozen_node_are_handled_by_another_node_before_its_lease_ends(world):
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


async def test_a_node_with_the_setting_reap_off_leaves_due_timers_to_other_nodes(world):
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


async def test_a_node_with_the_setting_reap_off_notices_data_loss_of_the_store_as_soon_as_others(world):
    idle = await world.start("idle", reaping=Reaping(shards=frozenset()))
    await world.sleep(4)
    world.store.empty(2)
    await world.sleep(0.6)
    assert idle.node.context.metrics.shards_lost == 1


async def test_dedicated_session_reapers_handle_timers_before_nodes_that_serve_clients(world):
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


async def test_d4_modes_that_ended_while_no_node_ran_are_cleared_when_a_node_starts(world):
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


async def test_a_new_node_takes_over_timers_of_some_shards_and_moves_none_between_the_other_nodes():
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


async def test_j10_without_any_session_reaper_a_node_counts_all_shards_as_unattended_within_a_lease(world):
    n1 = await world.start("n1", reaping=OFF)
    n2 = await world.start("n2", reaping=OFF)
    await world.sleep(world.settings.node_lease)
    assert [node.node.cluster.unattended_shards for node in (n1, n2)] == [4, 4]
    n3 = await world.start("n3")
    await world.sleep(1)
    assert [node.node.cluster.unattended_shards for node in (n1, n2, n3)] == [0, 0, 0]


async def test_j10_shards_of_a_dead_session_reaper_are_counted_as_unattended_within_two_leases(world):
    node = await world.start("n1", reaping=OFF)
    reaper = await world.start("r1", reaping=Reaping(first=True))
    await world.sleep(2 * world.settings.node_lease)
    assert node.node.cluster.unattended_shards == 0
    reaper.kill()
    await world.sleep(2 * world.settings.node_lease)
    assert node.node.cluster.unattended_shards == 4


async def test_j10_shards_that_no_session_reaper_selects_are_counted_as_unattended(world):
    node = await world.start("n1", reaping=OFF)
    await world.start("r1", reaping=Reaping(frozenset({0, 1, 2}), first=True))
    await world.sleep(world.settings.node_lease)
    assert node.node.cluster.unattended_shards == 1


async def test_j10_while_the_only_session_reaper_restarts_no_shard_is_counted_as_unattended(world):
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


async def test_j10_an_unreachable_store_is_not_reported_as_a_missing_session_reaper(world):
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
