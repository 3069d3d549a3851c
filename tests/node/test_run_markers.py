"""Last seen of users who are here when the store and all nodes are lost, and of visits that the store never heard of."""

import pytest
from tests.node.scenes import meet

from herenow.core.model import Mode, Platform
from herenow.core.visibility import PreferencesEdit, Visibility
from herenow.errors import Unavailable
from herenow.node.records.last_seen import run_markers
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.settings import node_settings
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)

PROMISED = 30_000  # milliseconds before the loss at most
AWAY = Rule(Fault.UNAVAILABLE)


def lose_everything(world):
    """Store and nodes are lost in the same instant; the ledger stays."""
    for node in list(world.nodes.values()):
        node.kill()
    world.store.empty()
    return world.now


async def last_seen(world, user):
    known = await world.ledger.remembered([user])
    return known[user].last_seen if user in known else None


async def shown_to(world, node, viewer, user):
    await world.befriend(viewer, user)
    watching = world.client(viewer, "later")
    await watching.connect(node)
    await world.sleep(2)
    await watching.watch(user)
    return watching.last(user)


@pytest.mark.parametrize("seconds", [3, 400])
async def test_last_seen_after_the_loss_of_everything_but_the_ledger_is_at_most_thirty_seconds_before_it(
    world, seconds
):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    cy = world.client("cy")
    await cy.connect(n2)
    await world.sleep(seconds)
    lost = lose_everything(world)
    await world.sleep(2)
    again = await world.start("n3")
    await world.sleep(7)
    for user in ("ana", "bob", "cy"):
        shown = await shown_to(world, again, "dee", user)
        assert shown.status == "offline"
        assert lost - PROMISED <= shown.last_seen <= lost
    await world.sleep(120)
    assert world.ledger.runs.keys() == {again.node.context.authority.epoch}
    assert all(lost - PROMISED <= world.ledger.people[user].last_seen <= lost for user in ("ana", "bob", "cy"))


async def test_with_the_setting_last_seen_marks_off_no_last_seen_survives_the_loss_of_store_and_nodes(world):
    world.settings = node_settings(world.settings, last_seen_marks="off")
    await meet(world)
    await world.sleep(20)
    lose_everything(world)
    assert await last_seen(world, "ana") is None
    assert world.ledger.runs == {}


async def test_last_seen_of_users_whom_no_user_watches_survives_the_loss_of_their_node_and_the_store(world):
    n1, n2 = await world.start_all("n1", "n2")
    ana = world.client("ana")
    await ana.connect(n1)
    await world.sleep(100)
    n1.kill()
    world.store.empty()
    lost = world.now
    await world.sleep(120)
    shown = await shown_to(world, n2, "bob", "ana")
    assert lost - PROMISED <= shown.last_seen <= lost


async def test_last_seen_of_users_connected_during_a_long_store_outage_is_at_most_30_seconds_old(world):
    await meet(world)
    with world.faults.during(AWAY):
        await world.sleep(600)
        lost = lose_everything(world)
    assert lost - PROMISED <= await last_seen(world, "ana") <= lost


async def test_last_seen_of_users_who_hid_before_the_loss_of_store_and_nodes_is_not_after_the_hiding(world):
    """cy hides through another node than the one with the session, dee from all users, eve by leaving."""
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    clients = {name: world.client(name) for name in ("cy", "dee", "eve")}
    for client in clients.values():
        await client.connect(n1)
    await world.sleep(20.3)
    hid = world.now
    await n2.node.sessions.set_mode("cy", Mode.INVISIBLE, None)
    await n2.node.viewing.privacy.change("dee", PreferencesEdit(Visibility.NOBODY))
    clients["eve"].close()
    for seconds in (0.05, 2, 4, 30):
        await world.sleep(seconds)
        known = await world.ledger.remembered(["cy", "dee", "eve"])
        assert all((facts.last_seen or 0) <= hid + 1 for facts in known.values()), seconds
    lost = lose_everything(world)
    await world.sleep(2)
    again = await world.start("n3")
    await world.sleep(7)
    for user in clients:
        shown = await shown_to(world, again, "zoe", user)
        assert (shown.last_seen or 0) <= hid + 1
    assert await last_seen(world, "ana") >= lost - PROMISED


async def test_last_seen_of_a_user_made_visible_through_another_node_survives_the_loss_of_store_and_nodes(world):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    await n2.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(10)
    await n2.node.sessions.set_mode("ana", Mode.AUTO, None)
    shown_at = world.now
    await world.sleep(1.5)
    lose_everything(world)
    assert shown_at <= await last_seen(world, "ana") <= world.now


async def test_ledger_and_viewers_have_the_same_last_seen_of_users_of_a_killed_node(world):
    """The run of the dead node is closed by the node that retires it, and never says more than its last renewal."""
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(50)
    n1.kill()
    await world.sleep(60)
    assert world.ledger.runs.keys() == {n2.node.context.authority.epoch}
    assert await last_seen(world, "ana") == far.last("ana").last_seen


async def test_a_node_cut_off_and_declared_dead_does_not_advance_last_seen_in_the_ledger(world):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(20)
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep(100)
        assert await last_seen(world, "ana") == far.last("ana").last_seen
        assert world.ledger.runs.keys() == {n2.node.context.authority.epoch}
    await world.sleep(20)
    lost = lose_everything(world)
    assert lost - PROMISED <= await last_seen(world, "ana") <= lost


async def test_a_node_that_was_frozen_does_not_advance_last_seen_of_users_who_left_meanwhile(world):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    await world.sleep(20)
    n1.freeze()
    phone = world.client("ana", "phone")
    await phone.connect(n2)
    await world.sleep(20)
    left = world.now
    await phone.bye()
    await world.sleep(300)
    n1.thaw()
    for _ in range(20):
        await world.sleep(0.5)
        assert await last_seen(world, "ana") <= left or ana.connected


async def test_last_seen_of_a_user_on_two_nodes_survives_the_stop_of_one_and_the_loss_of_the_other(world):
    n1, ana, _ = await meet(world)
    n2 = await world.start("n2")
    phone = world.client("ana", "phone")
    await phone.connect(n2)
    await world.sleep(10)
    await n1.stop()
    assert world.ledger.runs.keys() == {n2.node.context.authority.epoch}
    await world.sleep(100)
    lost = lose_everything(world)
    assert lost - PROMISED <= await last_seen(world, "ana") <= lost


async def test_last_seen_in_the_ledger_follows_rest_heartbeats_and_stops_at_the_last_one(world):
    node = await world.start("n1")
    last_beat = world.now
    for _ in range(4):
        await node.node.sessions.beat_by_rest("ana", "d1", Platform.WEB, None)
        last_beat = world.now
        await world.sleep(30)
    assert world.now - PROMISED <= await last_seen(world, "ana") <= world.now
    await world.sleep(200)
    assert await last_seen(world, "ana") == last_beat
    assert not any(run.open for run in world.ledger.runs.values())


async def test_a_node_whose_entry_in_the_ledger_was_closed_by_mistake_writes_it_again(world):
    n1, ana, _ = await meet(world)
    await world.sleep(10)
    await world.ledger.close_run(n1.node.context.authority.epoch)
    await world.sleep(12)
    lost = lose_everything(world)
    assert lost - PROMISED <= await last_seen(world, "ana") <= lost


async def test_last_seen_is_right_for_users_who_came_or_left_in_a_ledger_outage_before_the_loss_of_the_store(world):
    n1, ana, _ = await meet(world)
    cy = world.client("cy")
    await cy.connect(n1)
    await world.sleep(10)
    world.ledger.away = True
    cy.close()
    left = world.now
    dee = world.client("dee")
    await dee.connect(n1)
    await world.sleep(100)
    world.ledger.away = False
    await world.sleep(20)
    lost = lose_everything(world)
    assert await last_seen(world, "cy") == pytest.approx(left, abs=2)
    for user in ("ana", "dee"):
        assert lost - PROMISED <= await last_seen(world, user) <= lost


async def test_heartbeats_of_a_user_cause_no_ledger_writes_about_that_user(world):
    n1, ana, bob = await meet(world)
    await world.sleep(20)
    written = []
    for name in ("open_marks", "save_last_seen", "save_choices"):
        setattr(world.ledger, name, lambda *_, name=name: written.append(name))
    for _ in range(50):
        ana.beat()
        await world.sleep(1)
    assert written == []


# Visits that the store never heard of


@pytest.mark.parametrize("end", ["close", "bye"])
async def test_last_seen_of_a_visit_during_a_store_outage_is_saved_and_shown_afterwards(world, end):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    bob = world.client("bob")
    await bob.connect(n2)
    await bob.watch("ana")
    await world.sleep(10)
    ana = world.client("ana")
    with world.faults.during(AWAY):
        await world.sleep(10)
        ana.open(n1)
        await world.sleep(20)
        left = world.now
        if end == "close":
            ana.close()
        else:
            with pytest.raises(Unavailable):
                await n1.node.sessions.sign_out("ana", "d1")
        await world.sleep(2 * n1.node.context.settings.ledger_flush + 0.1)
        assert await last_seen(world, "ana") == pytest.approx(left, abs=2)
        await world.sleep(10)
    await world.sleep(20)
    assert bob.last("ana").last_seen == pytest.approx(left, abs=2)
    assert world.ledger.people["ana"].last_seen == bob.last("ana").last_seen


async def test_last_seen_of_a_visit_in_the_first_seconds_of_an_empty_store_is_saved():
    world = World()
    world.store.empty()
    n1 = await world.start("n1")
    ana = world.client("ana")
    ana.open(n1)
    await world.sleep(1)
    left = world.now
    ana.close()
    await world.sleep(1.2)
    assert await last_seen(world, "ana") == pytest.approx(left, abs=2)
    await world.sleep(60)
    assert await last_seen(world, "ana") == pytest.approx(left, abs=2)
    await world.close()


async def test_a_visit_of_an_invisible_user_during_a_store_outage_does_not_change_last_seen(world):
    n1, ana, _ = await meet(world)
    await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    hid = world.now
    ana.close()
    await world.sleep(300)
    with world.faults.during(AWAY):
        await world.sleep(10)
        again = world.client("ana")
        again.open(n1)
        await world.sleep(20)
        again.close()
        await world.sleep(20)
    await world.sleep(60)
    assert await last_seen(world, "ana") == pytest.approx(hid, abs=2)


async def test_the_entry_of_a_node_in_the_ledger_is_not_closed_by_others_while_the_node_updates_it(world):
    n1, ana, _ = await meet(world)
    await world.ledger.stamp_run("elsewhere", world.now)
    for _ in range(40):
        await world.sleep(run_markers.STAMP_EVERY)
        assert await world.ledger.stamp_run("elsewhere", world.now)
    await world.sleep(run_markers.UNMOVED + 4 * run_markers.STAMP_EVERY * 2)
    assert "elsewhere" not in world.ledger.runs
