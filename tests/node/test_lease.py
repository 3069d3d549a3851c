"""Liveness of nodes: lease counters that increase, observed by other nodes without using clocks."""

import asyncio

import pytest
from tests.node.scenes import meet

from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


def rows(world):
    return {epoch: row.dead for epoch, row in world.store.leases.items()}


async def looks_on(world, user, there, here):
    """Connects `user` to `there`; returns bob, who watches them from `here`."""
    await world.befriend(user, "bob")
    bob = world.client("bob")
    await world.client(user).connect(there)
    await bob.connect(here)
    await bob.watch(user)
    return bob


async def test_a_killed_node_is_declared_dead_and_its_users_enter_the_reconnect_window(world):
    n1, n2, n3 = await world.start_all("n1", "n2", "n3")
    ana = world.client("ana")
    await ana.connect(n1)
    await world.sleep(1)
    epoch = n1.node.context.authority.epoch
    n1.kill()
    await world.sleep(8)
    assert rows(world)[epoch] is False
    await world.sleep(9)
    assert epoch not in rows(world)
    assert not any(epoch in shard.fences for shard in world.store.shards)
    [session] = world.stored("ana").sessions
    assert session.lost_at is not None


async def test_one_lost_renewal_does_not_end_the_lease_of_a_node(world):
    n1, ana, bob = await meet(world)
    await world.sleep(5)
    with world.faults.during(Rule(Fault.NOT_EXECUTED, calls=("renew",), times=1)):
        for _ in range(40):
            await world.sleep(0.25)
            assert n1.node.context.authority.holds_lease
    assert n1.node.context.metrics.epochs == 0


async def test_a_node_that_cannot_renew_its_lease_stops_changing_statuses_after_two_thirds_of_it(world):
    n1, ana, bob = await meet(world)
    await world.sleep(10)
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("renew",))):
        await world.sleep(3)
        assert n1.node.context.authority.holds_lease
        await world.sleep(4)
        assert not n1.node.context.authority.holds_lease
        ana.rest()
        await world.sleep(1)
        assert [(shown.status, shown.stale) for shown in bob.shown["ana"]] == [("online", False), ("online", True)]
    await world.sleep(4)
    assert n1.node.context.authority.holds_lease
    assert [(shown.status, shown.stale) for shown in bob.shown["ana"]][-1] == ("away", False)
    assert "offline" not in bob.saw("ana")


async def sleeps(world, seconds):
    """Ana's views as bob has them from a node that slept, and the epochs of that node before and after."""
    n1, n2 = await world.start_all("n1", "n2")
    bob = await looks_on(world, "ana", n2, n1)
    await world.sleep(1)
    before = n1.node.context.authority.epoch
    n1.freeze()
    await world.sleep(seconds)
    n1.thaw()
    await world.sleep(5)
    assert n1.node.context.authority.holds_lease
    return bob.shown["ana"], before, n1.node.context.authority.epoch


async def test_a10_a_node_that_slept_past_its_lease_and_renews_it_at_once_marks_no_status_stale(world):
    shown, before, after = await sleeps(world, 8)
    assert before == after
    assert not any(view.stale for view in shown)


async def test_a10_a_node_that_slept_until_it_was_declared_dead_shows_stale_statuses_until_it_reread_all(world):
    shown, before, after = await sleeps(world, 60)
    assert before != after
    assert [view.stale for view in shown][-2:] == [True, False]


async def test_e9_a_node_without_sessions_counts_failed_renewals_of_its_lease(world):
    n1 = await world.start("n1")
    await world.sleep(10)
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("renew",), times=2)):
        await world.sleep(7)
    assert n1.node.context.metrics.engine_errors == 2


async def test_e17_if_most_nodes_stop_renewing_their_leases_none_is_declared_dead_for_an_extra_lease(world):
    """No node could renew because the store refused writes; reads worked all the time."""
    nodes = await world.start_all("n1", "n2", "n3")
    ana = world.client("ana")
    await ana.connect(nodes[0])
    await world.sleep(5)
    epochs = [node.node.context.authority.epoch for node in nodes]
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("renew",))):
        await world.sleep(25)
    await world.sleep(20)
    assert [node.node.context.authority.epoch for node in nodes] == epochs
    assert world.stored("ana").live


async def test_e17_a_store_outage_longer_than_the_lease_declares_no_node_dead(world):
    nodes = await world.start_all("n1", "n2", "n3")
    bob = await looks_on(world, "ana", nodes[0], nodes[1])
    await world.sleep(5)
    with world.faults.during(Rule(Fault.FROZEN)):
        await world.sleep(60)
    await world.sleep(60)
    assert [node.node.context.metrics.epochs for node in nodes] == [0, 0, 0]
    assert bob.saw("ana") == ["online"]
    assert not bob.last("ana").stale


@pytest.mark.parametrize("phase", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.3])
async def test_e5_a_node_cut_off_shorter_than_lease_and_reconnect_window_never_shows_a_change(world, phase):
    """Even right before a renewal, when the last one seen by others is a third of a lease old."""
    nodes = await world.start_all("n1", "n2", "n3")
    bob = await looks_on(world, "ana", nodes[0], nodes[1])
    await world.sleep(10 + phase)
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep((world.lease + world.timings.grace) / 1000 - 1)
    await world.sleep(30)
    assert nodes[0].node.context.authority.holds_lease
    assert bob.saw("ana") == ["online"]


@pytest.mark.parametrize("phase", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
async def test_a_majority_of_nodes_that_died_together_is_declared_dead_after_an_extra_lease(world, phase):
    """Whichever of them renewed after the observer's last read: they stopped together."""
    nodes = [await world.start("n1")]
    for name in ("n2", "n3"):
        await world.sleep(1)
        nodes.append(await world.start(name))
    await world.sleep(5 + phase)
    dead = [node.node.context.authority.epoch for node in nodes[1:]]
    for node in nodes[1:]:
        node.kill()
    await world.sleep(16)
    assert set(dead) <= rows(world).keys()
    await world.sleep(14)
    assert not set(dead) & rows(world).keys()


async def test_a_node_that_was_frozen_itself_declares_no_other_node_dead(world):
    """All processes of a machine freeze for a minute and resume one after the other."""
    nodes = await world.start_all("n1", "n2", "n3")
    await world.sleep(5)
    for node in nodes:
        node.freeze()
    await world.sleep(60)
    nodes[0].thaw()
    await world.sleep(4)
    assert list(rows(world).values()) == [False] * 3
    nodes[1].thaw()
    nodes[2].thaw()
    await world.sleep(30)
    assert [node.node.context.metrics.epochs for node in nodes] == [0, 0, 0]


async def test_a10_a_node_frozen_past_its_lease_writes_its_sessions_again_before_it_shows_any_change(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(5)
    epoch = n1.node.context.authority.epoch
    n1.freeze()
    await world.sleep(60)
    assert far.saw("ana") == ["online", "offline"]
    n1.thaw()
    await world.sleep(10)
    assert n1.node.context.authority.epoch != epoch
    assert ana.connected
    assert far.saw("ana") == ["online", "offline", "online"]
    assert bob.saw("ana") == ["online"]  # viewers on her own node saw no change


async def test_a10_a_node_frozen_longer_than_the_dead_after_timeout_pings_sockets_before_it_ends_them(world):
    n1, ana, bob = await meet(world)
    await world.start("n2")
    await world.sleep(5)
    n1.freeze()
    await world.sleep(200)
    n1.thaw()
    await world.sleep(200)
    assert ana.connected
    assert bob.saw("ana")[0] == "online"
    assert "offline" not in bob.saw("ana")


async def test_sockets_that_died_while_their_node_was_frozen_are_found_lost_after_it_resumes(world):
    n1, ana, bob = await meet(world)
    await world.sleep(5)
    n1.freeze()
    ana.vanish()
    await world.sleep(200)
    n1.thaw()
    await world.sleep(125)
    assert bob.saw("ana")[-1] == "offline"


@pytest.mark.parametrize("fault", [Fault.EXECUTED, Fault.NOT_EXECUTED])
async def test_a_node_writes_its_sessions_again_even_if_its_new_lease_began_with_an_unknown_outcome(world, fault):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(5)
    n1.freeze()
    await world.sleep(20)
    with world.faults.during(Rule(fault, calls=("renew",), node="n1", times=2)):
        n1.thaw()
        await world.sleep(10)
    [session] = world.stored("ana").sessions
    assert (session.holder, session.live) == (n1.node.context.authority.epoch, True)
    await world.sleep(40)
    assert far.saw("ana") == ["online"]


@pytest.mark.parametrize("fault", [Fault.EXECUTED, Fault.NOT_EXECUTED])
async def test_users_of_a_dead_node_go_offline_even_if_declaring_it_dead_had_an_unknown_outcome(world, fault):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(5)
    n1.kill()
    with world.faults.during(Rule(fault, calls=("mark_dead",), times=1)):
        await world.sleep(17)
    await world.sleep(45)
    assert far.saw("ana") == ["online", "offline"]


async def test_users_of_a_dead_node_go_offline_even_if_the_node_that_declared_it_dead_dies(world):
    n1, ana, _ = await meet(world)
    n2, n3 = await world.start_all("n2", "n3")
    far = world.client("bob", "far")
    await far.connect(n3)
    await far.watch("ana")
    await world.sleep(5)

    async def dies(dead):
        n2.kill()
        await asyncio.Event().wait()

    n2.node.cluster.sweep.retire = dies
    n3.node.context.engine.mark_dead = never
    n1.kill()
    await world.sleep(20)
    assert not n2.alive
    assert True in rows(world).values()
    await world.sleep(60)
    assert far.saw("ana") == ["online", "offline"]


async def never(epoch, counter):
    return False


async def test_e3_a_node_that_restarts_at_once_counts_no_user_twice(world):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(5)
    n1.kill()
    again = await world.start("n1")
    await ana.connect(again)
    await world.sleep(60)
    assert far.saw("ana") == ["online"]
    [session] = world.stored("ana").sessions
    assert session.holder == again.node.context.authority.epoch
    assert len(world.store.leases) == 2
    assert n2.node.context.metrics.users[1] == 2


async def test_a_socket_closed_while_its_node_was_cut_off_from_the_store_is_lost_since_the_close(world):
    """The node returns before its sessions were swept, under a new epoch, and reports what it knows."""
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(5)
    old = n1.node.context.authority.epoch
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep(2)
        ana.close()
        closed = world.now
        await world.sleep(2)
        world.store.leases.pop(old)
    await world.sleep(5)
    [session] = world.stored("ana").sessions
    assert (session.holder, session.lost_at) == (old, pytest.approx(closed, abs=2))
    await world.until(closed + 31_000)
    assert far.saw("ana") == ["online", "offline"]
    assert far.last("ana").last_seen == pytest.approx(closed, abs=2)


async def test_users_of_a_node_whose_process_is_reported_dead_enter_the_reconnect_window_at_once(world):
    n1, ana, _ = await meet(world)
    n2, n3 = await world.start_all("n2", "n3")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(5)
    epoch = n1.node.context.authority.epoch
    n1.kill()
    killed = world.now
    for node in (n2, n3):  # both get the report; one of them acts on it
        await node.run(node.node.cluster.bury(["unheard of", epoch]))
    await world.sleep(0.5)
    assert epoch not in rows(world)
    [session] = world.stored("ana").sessions
    assert session.lost_at == pytest.approx(killed, abs=600)
    await world.until(killed + 31_000)
    assert far.saw("ana") == ["online", "offline"]
    assert killed - 3_400 <= far.last("ana").last_seen <= killed


async def test_a_node_reported_dead_during_a_store_outage_is_declared_dead_later_by_its_lease(world):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(5)
    epoch = n1.node.context.authority.epoch
    n1.kill()
    with world.faults.during(Rule(Fault.UNAVAILABLE)):
        await n2.run(n2.node.cluster.bury([epoch]))
    assert epoch in rows(world)
    await world.sleep(30)
    assert epoch not in rows(world)


async def test_a_node_ignores_a_report_of_its_own_death(world):
    n1 = await world.start("n1")
    await n1.run(n1.node.cluster.bury([n1.node.context.authority.epoch]))
    await world.sleep(5)
    assert rows(world) == {n1.node.context.authority.epoch: False}


async def test_a_node_announces_its_new_run_id_before_it_writes_anything_under_it(world):
    n1, ana, _ = await meet(world)
    await world.start("n2")
    told = []
    n1.node.cluster._on_epoch = lambda epoch: told.append((epoch, world.stored("ana").sessions[0].holder))
    await world.sleep(5)
    old = n1.node.context.authority.epoch
    n1.freeze()
    await world.sleep(20)
    n1.thaw()
    await world.sleep(5)
    assert told == [(n1.node.context.authority.epoch, old)]
    assert world.stored("ana").sessions[0].holder == n1.node.context.authority.epoch


async def test_e4_writes_refused_to_a_stopping_node_do_not_count_as_data_loss(world):
    """Its last commits and its lease are kept until it is gone, also between the shards it leaves."""
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(5)
    engine = n1.node.context.engine
    retire, drop_lease = engine.retire, engine.drop_lease

    async def retire_and_look(shard, epoch):
        await retire(shard, epoch)
        await n1.node.records.writer.verify_recent()

    async def drop_and_keep(epoch):
        await drop_lease(epoch)
        await n1.node.cluster.lease.keep()

    engine.retire, engine.drop_lease = retire_and_look, drop_and_keep
    await n1.stop()
    assert rows(world) == {n2.node.context.authority.epoch: False}
    await world.sleep(5)
    assert n1.node.context.metrics.shards_lost == n2.node.context.metrics.shards_lost == 0
    assert all(shard.settled for shard in world.store.shards)
