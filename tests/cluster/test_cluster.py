"""Situations E on several nodes: viewers of other nodes do not see the trouble of one node."""

import pytest
from structlog.testing import capture_logs

from herenow.errors import ConfigurationError
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)


@pytest.fixture
async def world():
    with capture_logs() as logs:
        world = World()
        yield world
        await world.close()
    assert not [line for line in logs if line["event"] in ("task.died", "decide.failed") or line.get("exc_info")]


async def test_e2_only_users_of_a_killed_node_who_do_not_return_are_shown_offline(world):
    n1, n2 = await world.start_all("n1", "n2")
    users = [f"u{number}" for number in range(100)]
    await world.befriend("bob", *users[:10])
    crowd = [world.client(user) for user in users]
    for client in crowd:
        client.open(n1)
    bob = world.client("bob")
    await bob.connect(n2)
    await bob.watch(*users[:10])
    await world.sleep(20)
    changes = n2.node.context.metrics.changes
    n1.kill()
    killed = world.now
    await world.sleep(3)
    for client in crowd[1:]:
        client.open(n2)
    await world.sleep(60)
    assert n2.node.context.metrics.changes - changes == 1
    assert bob.saw("u0") == ["online", "offline"]
    assert killed - 3_400 <= bob.last("u0").last_seen <= killed
    assert bob.last("u0").at <= killed + (10 * 4 / 3 + 10 / 3 + 30 + 1) * 1000
    assert all(bob.saw(user) == ["online"] for user in users[1:10])


async def test_e5_a_node_cut_off_for_less_than_lease_and_reconnect_window_shows_no_change(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    ana, bob, far = world.client("ana"), world.client("bob"), world.client("bob", "far")
    await ana.connect(n1)
    await bob.connect(n1)
    await far.connect(n2)
    for viewer in (bob, far):
        await viewer.watch("ana")
    await world.sleep(5)
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep(35)
        assert bob.last("ana").stale
        assert not far.last("ana").stale
    await world.sleep(60)
    assert bob.saw("ana") == far.saw("ana") == ["online"]
    assert not bob.last("ana").stale
    assert ana.connected


async def test_e5_users_of_a_node_cut_off_for_long_are_shown_offline_once_and_online_after_it_returns(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    ana, bob, far = world.client("ana"), world.client("bob"), world.client("bob", "far")
    await ana.connect(n1)
    await bob.connect(n1)
    await far.connect(n2)
    for viewer in (bob, far):
        await viewer.watch("ana")
    await world.sleep(5)
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep(60)
        assert far.saw("ana") == ["online", "offline"]
    await world.sleep(10)
    assert far.saw("ana") == ["online", "offline", "online"]
    assert bob.saw("ana") == ["online"]
    assert bob.last("ana").status == "online"


async def test_e9_a_store_that_refuses_writes_disconnects_no_user(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n1)
    await bob.connect(n2)
    await bob.watch("ana")
    await world.sleep(5)
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("commit", "renew", "saved", "offer", "join", "jump"))):
        ana.rest()
        cy = world.client("cy")
        await cy.connect(n1)
        await world.sleep(60)
        assert ana.connected
        assert cy.connected
    assert n1.node.context.metrics.engine_errors > 0
    await world.sleep(20)
    assert bob.saw("ana") == ["online", "away"]
    assert cy.own()["status"] == "online"


async def test_e11_a_status_change_is_one_log_entry_for_any_number_of_viewers(world):
    n1, n2 = await world.start_all("n1", "n2")
    viewers = [world.client(f"v{number}") for number in range(50)]
    ana = world.client("ana")
    await ana.connect(n1)
    for number, viewer in enumerate(viewers):
        await world.befriend("ana", viewer.user)
        await viewer.connect((n1, n2)[number % 2])
        await viewer.watch("ana")
    await world.sleep(1)
    before = sum(shard.log.head for shard in world.store.shards)
    ana.rest()
    await world.sleep(1)
    assert sum(shard.log.head for shard in world.store.shards) == before + 1
    assert all(viewer.saw("ana") == ["online", "away"] for viewer in viewers)


async def test_e20_a_node_with_another_ledger_than_the_cluster_is_refused_with_an_explanation(world):
    await world.start("n1")
    world.ledger._id = "another"
    with pytest.raises(ConfigurationError, match="ledger"):
        await world.start("n2")
