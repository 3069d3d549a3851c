"""A node keeps no state longer than needed; and how a node stops."""

import pytest
from tests.node.scenes import meet

from herenow.core.model import Platform
from herenow.node.people import REMEMBER_RELEASED
from herenow.wire.codes import Close
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_a_node_frees_the_memory_of_users_some_minutes_after_they_left(world):
    node, ana, bob = await meet(world)
    tab = world.client("ana")
    await tab.connect(node)
    await node.node.sessions.beat_by_rest("cy", "phone", Platform.MOBILE, None)
    await bob.watch("ana", "bob")
    await node.node.viewing.statuses("bob", ["ana", "dee"])
    await node.node.viewing.type(ana.connection, "bob", None, typing=True)
    for client in (ana, tab, bob):
        client.close()
    await world.sleep(125)
    assert len(node.node.context.people) == 0
    assert node.node.context.people.remembered > 0
    await world.sleep(REMEMBER_RELEASED / 1000 + 2)
    assert node.node.context.people.remembered == 0
    metrics = node.node.context.metrics
    assert (metrics.connections, metrics.sessions) == (0, 0)
    assert sum(metrics.users.values()) == 0
    assert not node.node.delivery.hub._flush._cooling
    assert not node.node.delivery.hub.stuck(0)
    assert len(node.node.sessions.liveness._wheel) == 0
    assert world.everybody_stored() == {}


async def test_a_thousand_page_reloads_leave_one_session(world):
    node, ana, bob = await meet(world)
    for number in range(1_000):
        ana.close()
        await world.sleep(0.001 * (number % 3))
        ana.open(node)
    await world.sleep(2)
    person = node.node.context.people.find("ana")
    assert len(person.held) == len(person.watchers.outboxes) == len(world.stored("ana").sessions) == 1
    assert node.node.context.metrics.connections == node.node.context.metrics.sessions == 2
    await world.sleep(100)
    assert len(node.node.sessions.liveness._wheel) <= 4
    assert "offline" not in bob.saw("ana")


async def test_a_change_of_a_user_that_waits_for_an_unavailable_store_is_queued_once(world):
    node, ana, bob = await meet(world)
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("commit",))):
        ana.close()
        await world.sleep(40)
        person = node.node.context.people.find("ana")
        assert len(person.record.pending_edits) <= 1
    await world.sleep(5)
    assert bob.saw("ana") == ["online", "offline"]
    assert person.record.pending_edits == ()


async def test_e4_a_stopping_node_asks_clients_to_reconnect_and_starts_their_reconnect_windows(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    epoch = n1.node.context.authority.epoch
    stopping = world.now
    await n1.stop()
    assert world.now - stopping < 2_000
    assert {client.closed_with[0][1] for client in (ana, bob)} == {Close.DRAINING}
    assert ana.closed_with[0][2].startswith("retry_after_ms=")
    assert epoch not in world.store.leases
    assert not any(epoch in shard.fences for shard in world.store.shards)
    [session] = world.stored("ana").sessions
    assert session.lost_at is not None
    await ana.connect(n2)
    await world.sleep(60)
    assert far.saw("ana") == ["online"]


async def test_e4_a_rolling_restart_of_all_nodes_shows_viewers_no_change(world):
    names = ("n1", "n2", "n3")
    nodes = {name: await world.start(name) for name in names}
    await world.befriend("ana", "bob", "cy")
    clients = [world.client(user, device) for user in ("ana", "cy") for device in ("d1", "d2")]
    bob = world.client("bob")
    for number, client in enumerate(clients):
        await client.connect(nodes[names[number % 3]])
    await bob.connect(nodes["n3"])
    await bob.watch("ana", "cy")
    for name in names[:2]:
        await nodes[name].stop()
        nodes[name] = await world.start(name)
        await world.sleep(3)
        for client in clients:
            if not client.connected:
                await client.connect(nodes[world.rng.choice(names)])
        await world.sleep(20)
    assert bob.saw("ana") == bob.saw("cy") == ["online"]
    assert len(world.store.leases) == 3


async def test_a_stopping_node_that_cannot_write_its_sessions_is_later_declared_dead_by_others(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    epoch = n1.node.context.authority.epoch
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n1", calls=("commit",))):
        await n1.stop()
    assert epoch in world.store.leases
    await world.sleep(60)
    assert epoch not in world.store.leases
    assert far.saw("ana") == ["online", "offline"]


async def test_e4_an_unresponsive_client_does_not_delay_the_stop_of_its_node_and_is_shown_offline(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    ana.vanish()
    deaf = next(link for link in n1.links if link.client is ana)
    deaf.connection.end = lambda code, reason: None  # its socket receives nothing and does not close
    epoch = n1.node.context.authority.epoch
    stopping = world.now
    await n1.stop()
    assert world.now - stopping <= 6_000
    assert epoch not in world.store.leases
    [session] = world.stored("ana").sessions
    assert session.lost_at == pytest.approx(world.now, abs=1_000)
    await world.sleep(35)
    assert far.saw("ana") == ["online", "offline"]


async def test_e4_a_stopping_node_writes_rest_heartbeats_that_only_it_knew(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("bob", "cy")
    bob = world.client("bob")
    await bob.connect(n2)
    await n1.run(n1.node.sessions.beat_by_rest("cy", "phone", Platform.MOBILE, None))
    await bob.watch("cy")
    await world.sleep(25)
    await n1.run(n1.node.sessions.beat_by_rest("cy", "phone", Platform.MOBILE, None))
    last_beat = world.now
    [session] = world.stored("cy").sessions
    assert session.seen_at < last_beat - 20_000  # not worth a commit while n1 lives
    await n1.stop()
    [session] = world.stored("cy").sessions
    assert session.seen_at == last_beat
    await world.until(last_beat + 89_000)
    await n2.run(n2.node.sessions.beat_by_rest("cy", "phone", Platform.MOBILE, None))
    await world.sleep(60)
    assert bob.saw("cy") == ["online"]


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.SILENCE, Fault.FROZEN])
async def test_e4_a_node_stops_within_15_seconds_while_its_store_is_unreachable(world, fault):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await n1.run(n1.node.sessions.beat_by_rest("cy", "phone", Platform.MOBILE, None))
    await world.sleep(5)
    stopping = world.now
    with world.faults.during(Rule(fault, node="n1", limit=1e9)):
        await n1.stop()
        assert world.now - stopping <= 15_000
        assert {client.closed_with[0][1] for client in (ana, bob)} == {Close.DRAINING}
        await ana.connect(n2)
    await world.sleep(60)
    assert far.saw("ana") == ["online"]
    assert len(world.store.leases) == 1


async def test_a_stopped_node_leaves_no_running_task_and_makes_no_ledger_calls(world):
    n1, ana, bob = await meet(world)
    await n1.node.sessions.beat_by_rest("cy", "phone", Platform.MOBILE, None)
    stopping = world.now
    await n1.stop()
    assert world.now - stopping < 2_000  # a REST session does not end with its node
    calls = world.ledger.calls
    await world.sleep(60)
    assert world.ledger.calls == calls
    assert not n1.freezer._tasks
