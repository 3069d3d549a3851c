"""Who reaps what: disjoint shares while all live, no gap when one dies, and never two changes out of one."""

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
    """The shards of which it takes what is due at once."""
    return set(dict(node.node.cluster.assignment.delays()).get(0, ()))


def reaped(node):
    """How many due users it has decided."""
    return sum(node.node.context.metrics.wake_seconds.counts)


async def seated(world, node):
    """A crowd on this node, and somebody on it who watches them."""
    await world.befriend("bob", *CROWD)
    crowd = [world.client(user) for user in CROWD]
    for client in crowd:
        client.open(node)
    bob = world.client("bob")
    await bob.connect(node)
    await bob.watch(*CROWD)
    await world.sleep(5)
    return crowd, bob


async def test_nodes_reap_disjoint_shares_that_are_all_there_is(world):
    nodes = await world.start_all("n1", "n2", "n3")
    await world.sleep(0.1)
    shares = [own(node) for node in nodes]
    assert sorted(shard for share in shares for shard in share) == [0, 1, 2, 3]


async def test_of_two_living_nodes_each_decides_its_own_and_none_is_decided_twice(world):
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


async def test_a_reaper_that_died_is_stood_in_for_within_the_second_and_replaced_within_a_lease(world):
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
    assert not share <= own(n1)  # its last word was less than a lease ago
    await world.sleep(3.6)
    assert share <= own(n1)


async def test_who_leaves_in_order_leaves_nothing_to_wait_for(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.sleep(1)
    assert len(own(n1)) < 4
    await n2.stop()
    await world.sleep(0.1)
    assert len(own(n1)) == 4


async def test_nodes_that_cannot_hear_each_other_both_reap_and_show_one_change(world):
    with world.faults.during(Rule(Fault.MESSAGE_LOST)):
        n1, n2 = await world.start_all("n1", "n2")
        crowd, bob = await seated(world, n1)
        assert own(n1) == own(n2) == {0, 1, 2, 3}
        for client in crowd:
            client.close()
        await world.sleep(40)
    assert [bob.saw(user) for user in CROWD] == [["online", "offline"]] * len(CROWD)


async def test_a_reaper_that_stands_still_with_its_lease_is_stood_in_for(world):
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


async def test_a_node_told_not_to_reap_leaves_everything_to_others(world):
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


async def test_a_node_told_not_to_reap_notices_a_loss_as_soon_as_any_other(world):
    idle = await world.start("idle", reaping=Reaping(shards=frozenset()))
    await world.sleep(4)
    world.store.empty(2)
    await world.sleep(0.6)
    assert idle.node.context.metrics.shards_lost == 1


async def test_dedicated_reapers_stand_before_nodes_that_also_serve(world):
    n1 = await world.start("n1")
    await world.start("low", reaping=Reaping(shards=frozenset({0, 1}), first=True))
    high = await world.start("high", reaping=Reaping(shards=frozenset({2, 3, 99}), first=True))
    await world.sleep(0.1)
    assert dict(n1.node.cluster.assignment.delays()) == {LATE: (0, 1, 2, 3)}
    assert dict(high.node.cluster.assignment.delays()) == {NEVER: (0, 1), 0: (2, 3)}


async def test_d4_modes_end_on_time_though_the_node_that_took_them_and_was_to_end_some_is_dead(world):
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


async def test_d4_what_fell_due_while_nobody_was_there_is_done_at_the_start(world):
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


async def test_shares_do_not_depend_on_who_came_first():
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
