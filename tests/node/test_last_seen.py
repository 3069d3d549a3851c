"""Situations H, and last seen after a kill of an embedded node."""

import pytest
from tests.node.scenes import Stalled, meet

from herenow.core.model import Custom, Mode
from herenow.core.shards import shard_of
from herenow.errors import Unavailable, UnknownOutcome
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.settings import node_settings
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_h1_last_seen_after_a_clean_close_of_a_connection_is_the_time_of_the_close(world):
    _, ana, bob = await meet(world)
    await world.sleep(12)
    closed = world.now
    ana.close()
    await world.sleep(31)
    assert bob.last("ana").last_seen == pytest.approx(closed, abs=1)
    await world.sleep(2)
    assert world.ledger.people["ana"].last_seen == bob.last("ana").last_seen


async def test_h1_last_seen_of_a_lost_socket_is_its_last_sign_of_life(world):
    _, ana, bob = await meet(world)
    await world.sleep(12)
    ana.beat()
    evidence = world.now
    ana.vanish()
    await world.sleep(125)
    assert bob.last("ana").last_seen == pytest.approx(evidence, abs=1)


async def test_h1_last_seen_of_users_of_a_killed_node_is_the_last_lease_renewal_of_the_node(world):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(23.7)
    n1.kill()
    killed = world.now
    await world.sleep(60)
    assert far.saw("ana") == ["online", "offline"]
    assert killed - 3_400 <= far.last("ana").last_seen <= killed


async def test_h1_last_seen_after_the_loss_of_node_and_store_is_the_last_lease_renewal_of_the_node(world):
    """The lease is lost with the store; other nodes had read it."""
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(223.7)
    n1.kill()
    world.store.empty()
    killed = world.now
    await world.sleep(90)
    assert far.saw("ana") == ["online", "offline"]
    assert killed - 3_400 <= far.last("ana").last_seen <= killed
    assert world.ledger.people["ana"].last_seen == far.last("ana").last_seen


async def test_h1_last_seen_is_null_unless_the_user_is_offline(world):
    node, ana, bob = await meet(world)
    ana.close()
    await world.sleep(31)
    await ana.connect(node)
    await world.sleep(1)
    assert bob.last("ana").status == "online"
    assert bob.last("ana").last_seen is None


async def test_h2_a_user_who_never_connected_has_no_last_seen(world):
    node, _, bob = await meet(world)
    await world.befriend("bob", "ghost")
    await world.sleep(1.5)
    await bob.watch("ghost")
    assert (bob.last("ghost").last_seen, bob.last("ghost").since) == (None, None)


async def test_h3_last_seen_survives_the_loss_of_the_store(world):
    node, ana, bob = await meet(world)
    closed = world.now
    ana.close()
    await world.sleep(200)
    world.store.empty()
    await world.sleep(20)
    far = world.client("bob", "far")
    await far.connect(node)
    await world.sleep(1)
    await far.watch("ana")
    assert far.last("ana").last_seen == pytest.approx(closed, abs=1)


async def meet_twice(world):
    """bob watches ana, who is on n1, from n1 and from n2; n3 knows no user."""
    n1, ana, bob = await meet(world)
    n2, n3 = await world.start_all("n2", "n3")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(40)
    return n1, n2, n3, ana, bob, far


def is_known_everywhere(world, at, *viewers):
    shown = [world.ledger.people["ana"], *(viewer.last("ana") for viewer in viewers)]
    return all(each.last_seen == pytest.approx(at, abs=2) for each in shown)


@pytest.mark.parametrize("seconds", [5, 25, 60], ids=["not yet taken for dead", "in grace", "gone"])
async def test_last_seen_of_a_user_who_left_a_node_cut_off_from_the_store_is_the_time_of_leaving(world, seconds):
    n1, _, _, ana, bob, far = await meet_twice(world)
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep(2)
        left = world.now
        ana.close()
        await world.sleep(seconds)
    await world.sleep(60)
    assert far.saw("ana") == bob.saw("ana") == ["online", "offline"]
    assert is_known_everywhere(world, left, bob, far)


@pytest.mark.parametrize("phone", [True, False], ids=["signed out elsewhere since", "nothing since"])
@pytest.mark.parametrize("seconds", [5, 12, 25, 60, 300])
async def test_last_seen_of_a_user_who_left_a_frozen_node_is_not_after_the_time_of_leaving(world, seconds, phone):
    """The node finds a closed socket without knowing the time: the last thing it read before the freeze counts."""
    n1, _, n3, ana, _, far = await meet_twice(world)
    other = world.client("ana", "phone")
    if phone:
        await other.connect(n3)
    n1.freeze()
    await world.sleep(2)
    left = world.now
    ana.pong()
    ana.close()
    await world.sleep(seconds / 2)
    if phone:
        await other.bye()
        left = world.now
    await world.sleep(seconds / 2)
    n1.thaw()
    await world.sleep(60)
    assert far.saw("ana") == ["online", "offline"]
    assert left - 3_400 <= far.last("ana").last_seen <= left
    assert world.ledger.people["ana"].last_seen == far.last("ana").last_seen


@pytest.mark.parametrize("where", ["n1", "n2"])
async def test_last_seen_after_a_sign_out_that_could_not_be_written_is_the_time_of_the_closed_socket(world, where):
    """The record still has the time of connecting: forty seconds ago here, hours ago in production."""
    _, _, _, ana, bob, far = await meet_twice(world)
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("commit",))):
        asked = world.now
        with pytest.raises((Unavailable, UnknownOutcome)):
            await world.nodes[where].node.admin.disconnect("ana", "d1")
        assert not ana.connected
    await world.sleep(60)
    assert far.saw("ana") == bob.saw("ana") == ["online", "offline"]
    assert is_known_everywhere(world, asked, bob, far)


@pytest.mark.parametrize("watched", [True, False])
async def test_a_last_seen_lost_by_a_rollback_of_the_store_is_restored_even_if_its_record_was_overwritten(
    world, watched
):
    """n3 knows no user and commits over the old record before the loss is noticed: its version is the newest."""
    n1, n2, n3, ana, bob, far = await meet_twice(world)
    shard = shard_of("ana", 4)
    if not watched:
        bob.close()
        far.close()
        await world.sleep(31)
    world.faults.remember(shard)
    left = world.now
    ana.close()
    await world.sleep(0.01)
    tails = [Stalled(node.node.context.engine, "tail") for node in (n1, n2)]
    await world.sleep(1.1)
    world.faults.roll_back(shard)
    await n3.node.sessions.set_custom("ana", Custom("tea"))
    assert world.stored("ana").live
    for tail in tails:
        await tail.release()
    await world.sleep(60)
    if not watched:
        await bob.connect(n1)
        await far.connect(n2)
        await bob.watch("ana")
        await far.watch("ana")
    assert is_known_everywhere(world, left, bob, far)
    assert world.stored("ana").custom.text == "tea"


async def test_a_last_seen_that_the_store_lost_is_not_restored_for_a_deleted_user(world):
    n1, n2, _, ana, _, _ = await meet_twice(world)
    ana.close()
    await world.sleep(40)
    person = n1.node.context.people.find("ana")
    person.record.store_lacks = person.record.presence
    assert person.record.store_lacks.last_seen is not None
    await n2.node.admin.delete("ana")
    await world.sleep(3)
    assert "ana" not in world.ledger.people
    assert world.stored("ana").last_seen is None


def embedded(ledger=None):
    world = World(ledger=ledger)
    world.settings = node_settings(world.settings, embedded=True)
    return world


async def test_last_seen_of_users_of_a_killed_embedded_node_is_at_most_a_second_before_the_kill():
    first = embedded()
    node, ana, bob = await meet(first)
    cy, dee = first.client("cy"), first.client("dee")
    await cy.connect(node)
    await dee.connect(node)
    await node.node.sessions.set_mode("cy", Mode.INVISIBLE, None)
    hidden = first.now
    await node.node.sessions.set_both("bob", Mode.BUSY, None, Custom("on a train"))
    await first.sleep(5)
    left = first.now
    dee.close()
    await first.sleep(40.5)
    killed = first.now
    node.kill()
    await first.sleep(100)
    second = embedded(first.ledger)
    again = await second.start("n1")
    remembered = second.ledger.people
    assert killed - 1_001 <= remembered["ana"].last_seen <= killed
    assert killed - 1_001 <= remembered["bob"].last_seen <= killed
    assert remembered["cy"].last_seen == pytest.approx(hidden, abs=5)
    assert remembered["dee"].last_seen == pytest.approx(left, abs=5)
    assert second.ledger.runs.keys() <= {again.node.records.markers.run}
    bob = second.client("bob")
    await bob.connect(again)
    await second.sleep(1)
    assert (bob.own()["status"], bob.own()["custom_status"]["text"]) == ("busy", "on a train")
    await first.close()
    await second.close()


async def test_an_embedded_node_that_stops_cleanly_saves_the_exact_last_seen_of_its_users():
    first = embedded()
    node, ana, bob = await meet(first)
    await first.sleep(10)
    ana.beat()
    stopped = first.now
    await node.stop()
    assert first.ledger.runs == {}
    assert first.ledger.people["ana"].last_seen == pytest.approx(stopped, abs=100)
    second = embedded(first.ledger)
    await second.start("n1")
    assert second.ledger.people["ana"].last_seen == pytest.approx(stopped, abs=100)
    await first.close()
    await second.close()


async def test_a_mode_that_ended_while_the_server_was_down_is_over_when_it_starts():
    first = embedded()
    node, ana, bob = await meet(first)
    await node.node.sessions.set_mode("ana", Mode.BUSY, first.now + 60_000)
    await first.sleep(2)
    node.kill()
    await first.sleep(100)
    second = embedded(first.ledger)
    again = await second.start("n1")
    await second.sleep(2)
    assert second.ledger.people["ana"].choice.mode is Mode.AUTO
    ana = second.client("ana")
    await ana.connect(again)
    await second.sleep(1)
    assert ana.own()["mode"] == "auto"
    await first.close()
    await second.close()
