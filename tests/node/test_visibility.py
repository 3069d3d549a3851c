"""Situations G: privacy choices take effect at once, for all affected viewers and no others."""

import asyncio
from dataclasses import replace

import msgspec
import pytest
from tests.node.scenes import meet
from tests.node.test_invisible import all_exits
from tests.node.test_typing import heard, type_to

from herenow.core.model import Custom, Mode
from herenow.core.visibility import DAY, PreferencesEdit, Visibility
from herenow.errors import ProtocolError, Unavailable
from herenow.ports import RelationRow
from herenow_testing.world.settings import node_settings
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)

CONTACTS, EVERYONE, NOBODY = (PreferencesEdit(v) for v in (Visibility.CONTACTS, Visibility.EVERYONE, Visibility.NOBODY))
NO_TIMES = PreferencesEdit(share_last_seen=False)
TIMES = PreferencesEdit(share_last_seen=True)


async def decide(node, user, edit):
    return await node.node.viewing.change_preferences(user, edit)


async def see(node, viewer, target):
    """The REST answer without `as_of`."""
    [status] = await node.node.viewing.statuses(viewer, [target])
    return {key: value for key, value in msgspec.json.decode(status).items() if key != "as_of"}


def offline(user, last_seen):
    return {
        "user_id": user,
        "status": "offline",
        "since": last_seen,
        "last_seen": last_seen,
        "custom_status": None,
        "platforms": [],
    }


async def busy_life(world, node, client, seconds=100):
    """Everything a hidden user may do."""
    await node.node.sessions.set_mode(client.user, Mode.BUSY, None)
    await node.node.sessions.set_custom(client.user, Custom("secret"))
    second = world.client(client.user, "second")
    await second.connect(node)
    await world.sleep(seconds)
    client.act()
    await node.node.sessions.set_mode(client.user, Mode.AUTO, None)
    await node.node.sessions.set_custom(client.user, None)
    await second.bye()
    await world.sleep(1)


# --- Blocks


@pytest.mark.parametrize("blocker", ["ana", "bob"])
async def test_g1_a_block_shows_both_users_the_other_offline_once_and_nothing_afterwards(world, blocker):
    node, ana, bob = await meet(world)
    blocked = "bob" if blocker == "ana" else "ana"
    await ana.watch("bob")
    await world.sleep(1)
    for client in (ana, bob):
        client.forget()
    await node.node.viewing.block(blocker, blocked)
    at = world.now
    await world.sleep(0.1)
    for client, target in ((bob, "ana"), (ana, "bob")):
        assert [shown.status for shown in client.shown[target]] == ["offline"]
        assert client.last(target).last_seen == client.last(target).since == pytest.approx(at, abs=5)
    for client in (ana, bob):
        client.forget()
    await busy_life(world, node, ana)
    await busy_life(world, node, bob)
    assert bob.shown == ana.shown == {}
    await node.node.viewing.unblock(blocker, blocked)
    await world.sleep(0.1)
    assert bob.saw("ana") == ana.saw("bob") == ["online"]


async def test_a_blocked_viewer_gets_in_every_output_the_same_answers_as_after_a_sign_out(world):
    node, ana, bob = await meet(world)
    other = World(shards=4)
    try:
        there, ana2, bob2 = await meet(other)
        for each in (node, there):
            await each.node.sessions.set_custom("ana", Custom("here"))
        await world.sleep(7)
        await node.node.viewing.block("ana", "bob")
        await ana2.bye()
        await world.sleep(1)
        await busy_life(world, node, ana, 10)
        assert await all_exits(node, "bob", "ana") == await all_exits(there, "bob", "ana")
        assert bob.saw("ana") == bob2.saw("ana")
        assert bob.last("ana").value == bob2.last("ana").value
        assert len(bob.shown["ana"]) == len(bob2.shown["ana"])
    finally:
        await other.close()


async def test_a_block_by_an_offline_user_does_not_change_the_last_seen_that_the_blocked_viewer_sees(world):
    node, ana, bob = await meet(world)
    await ana.bye()
    left = world.now
    await world.sleep(100)
    before = await see(node, "bob", "ana")
    bob.forget()
    await node.node.viewing.block("ana", "bob")
    await ana.connect(node)
    await world.sleep(5)
    assert bob.shown == {}
    assert await see(node, "bob", "ana") == before == offline("ana", pytest.approx(left, abs=5))


async def test_a_blocked_stranger_gets_the_same_answers_as_any_other_stranger(world):
    node, ana, bob = await meet(world)
    eve, may = world.client("eve"), world.client("may")
    for client in (eve, may):
        await client.connect(node)
    await node.node.viewing.block("ana", "eve")
    await node.node.viewing.block("nobody-at-all", "eve")
    assert await eve.watch("ana", "nobody-at-all") == await may.watch("ana", "nobody-at-all")
    assert await see(node, "eve", "ana") == await see(node, "may", "ana") == offline("ana", None)
    assert len(eve.frames) == len(may.frames)


async def test_a_block_between_strangers_stays_in_force_when_they_become_friends(world):
    node, ana, bob = await meet(world)
    eve = world.client("eve")
    await eve.connect(node)
    await node.node.viewing.block("ana", "eve")
    at = world.now
    await world.sleep(50)
    await world.befriend("ana", "eve")
    await world.sleep(2)
    assert await eve.watch("ana") == []
    assert eve.last("ana").last_seen == pytest.approx(at, abs=5)
    assert eve.saw("ana") == ["offline"]


async def test_g2_a_blocked_viewer_whose_relation_is_removed_sees_no_last_seen_any_more(world):
    node, ana, bob = await meet(world)
    await node.node.viewing.block("ana", "bob")
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
    await world.sleep(0.1)
    assert (bob.last("ana").last_seen, bob.last("ana").since) == (None, None)
    assert await see(node, "bob", "ana") == offline("ana", None)


async def test_two_users_who_block_each_other_stay_hidden_until_both_blocks_are_lifted(world):
    """The later block began during the other: it keeps the last seen that the other froze."""
    node, ana, bob = await meet(world)
    await node.node.viewing.block("ana", "bob")
    hidden = await see(node, "bob", "ana")
    await world.sleep(50)
    await node.node.viewing.block("bob", "ana")
    bob.forget()
    await world.sleep(50)
    await node.node.viewing.unblock("ana", "bob")
    await world.sleep(1)
    assert await see(node, "bob", "ana") == hidden
    assert bob.shown == {}
    await node.node.viewing.unblock("bob", "ana")
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online"]


async def test_blocking_twice_and_unblocking_an_unblocked_user_change_nothing(world):
    node, ana, bob = await meet(world)
    await node.node.viewing.unblock("ana", "bob")
    await node.node.viewing.block("ana", "bob")
    hidden = await see(node, "bob", "ana")
    await world.sleep(20)
    bob.forget()
    await node.node.viewing.block("ana", "bob")
    await node.node.viewing.unblock("bob", "ana")
    await world.sleep(1)
    assert await see(node, "bob", "ana") == hidden
    assert bob.shown == {}


async def test_a_contact_who_blocks_the_viewer_stays_in_the_contact_list_of_the_viewer_as_offline(world):
    node, ana, bob = await meet(world)
    await bob.watch_contacts()
    await node.node.viewing.block("ana", "bob")
    assert await node.node.viewing.count("bob") == {"online": 0, "busy": 0, "away": 0, "offline": 1}
    assert len(await node.node.viewing.leaderboard("bob", 10)) == 1
    newcomer = world.client("bob", "new")
    await newcomer.connect(node)
    await newcomer.watch_contacts()
    assert newcomer.last("ana").value == bob.last("ana").value


# --- Visibility


async def test_g3_changing_visibility_from_everyone_to_contacts_hides_the_user_only_from_strangers(world):
    node, ana, bob = await meet(world)
    eve = world.client("eve")
    await eve.connect(node)
    assert await eve.watch("ana") == ["ana"]
    await decide(node, "ana", EVERYONE)
    assert await eve.watch("ana") == []
    assert eve.saw("ana") == ["online"]
    bob.forget()
    await decide(node, "ana", CONTACTS)
    await world.sleep(1)
    assert eve.saw("ana") == ["online", "offline"]
    assert (eve.last("ana").last_seen, eve.last("ana").since) == (None, None)
    assert bob.frames == []
    await decide(node, "ana", EVERYONE)
    await world.sleep(0.1)
    assert eve.saw("ana") == ["online", "offline", "online"]  # already granted: remembered
    assert bob.frames == []


async def test_a_blocked_stranger_sees_a_user_of_visibility_everyone_as_signed_out(world):
    node, ana, bob = await meet(world)
    eve = world.client("eve")
    await eve.connect(node)
    await decide(node, "ana", EVERYONE)
    await eve.watch("ana")
    await node.node.viewing.block("ana", "eve")
    at = world.now
    await world.sleep(0.1)
    assert eve.last("ana").last_seen == pytest.approx(at, abs=5)
    again = world.client("eve", "again")
    await again.connect(node)
    assert await again.watch("ana") == []
    assert again.last("ana").value == eve.last("ana").value


async def test_visibility_nobody_looks_like_a_sign_out_and_its_end_shows_the_current_status(world):
    node, ana, bob = await meet(world)
    await world.sleep(5)
    await decide(node, "ana", NOBODY)
    at = world.now
    await world.sleep(0.1)
    hidden = await see(node, "bob", "ana")
    assert hidden == offline("ana", pytest.approx(at, abs=5))
    assert bob.saw("ana") == ["online", "offline"]
    bob.forget()
    await busy_life(world, node, ana)
    await decide(node, "ana", NOBODY)
    await world.sleep(1)
    assert bob.shown == {}
    assert await see(node, "bob", "ana") == hidden
    assert await ana.watch("ana") == []
    assert ana.saw("ana") == ["online"]
    await decide(node, "ana", CONTACTS)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online"]


async def test_a_viewer_blocked_while_a_user_is_visible_to_nobody_keeps_seeing_the_earlier_last_seen(world):
    node, ana, bob = await meet(world)
    await decide(node, "ana", NOBODY)
    hidden = await see(node, "bob", "ana")
    await world.sleep(50)
    await node.node.viewing.block("ana", "bob")
    bob.forget()
    await world.sleep(50)
    await decide(node, "ana", CONTACTS)
    await world.sleep(1)
    assert await see(node, "bob", "ana") == hidden
    assert bob.shown == {}


async def test_a_viewer_unblocked_while_a_user_is_visible_to_nobody_keeps_seeing_the_earlier_last_seen(world):
    node, ana, bob = await meet(world)
    await world.befriend("ana", "cy")
    await node.node.viewing.block("ana", "bob")
    hidden = await see(node, "bob", "ana")
    await world.sleep(50)
    await decide(node, "ana", NOBODY)
    later = await see(node, "cy", "ana")
    await world.sleep(50)
    bob.forget()
    await node.node.viewing.unblock("ana", "bob")
    await world.sleep(3)
    assert await see(node, "bob", "ana") == hidden != later
    assert bob.shown == {}
    await decide(node, "ana", CONTACTS)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online"]
    await decide(node, "ana", NOBODY)
    assert await see(node, "bob", "ana") == await see(node, "cy", "ana") != hidden


async def test_a_viewer_blocked_by_an_invisible_user_keeps_seeing_the_earlier_last_seen(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    hidden = await see(node, "bob", "ana")
    await world.sleep(50)
    await node.node.viewing.block("ana", "bob")
    bob.forget()
    await world.sleep(50)
    await node.node.sessions.set_mode("ana", Mode.AUTO, None)
    await world.sleep(1)
    assert await see(node, "bob", "ana") == hidden
    assert bob.shown == {}


async def test_members_of_the_same_room_see_each_other_only_if_configured(world):
    node, ana, bob = await meet(world)
    open_house = World(shards=4, settings=node_settings(world.settings, shares_room="on"))
    eve = open_house.client("eve")
    try:
        there = await open_house.start("n1")
        for each, somewhere in ((world, node), (open_house, there)):
            looks = eve if each is open_house else each.client("eve")
            may = each.client("may")
            await looks.connect(somewhere)
            await may.connect(somewhere)
            rows = [RelationRow("room", "r1", user) for user in ("eve", "may")]
            await somewhere.node.viewing.apply_relations(rows)
            denied = await looks.watch("may")
            assert denied == (["may"] if each is world else [])
        assert eve.saw("may") == ["online"]
        await there.node.viewing.apply_relations([RelationRow("room", "r1", "may", remove=True)])
        await open_house.sleep(0.1)
        assert eve.saw("may") == ["online", "offline"]
        assert eve.last("may").last_seen is None
        await there.node.viewing.apply_relations([RelationRow("room", "r1", "may")])
        await open_house.sleep(0.1)
        assert eve.saw("may") == ["online", "offline", "online"]
    finally:
        await open_house.close()


# --- How a viewer could tell


@pytest.mark.parametrize("hiding", ["block", "nobody", "bye"])
async def test_g14_a_viewer_who_lifts_their_own_block_sees_the_time_at_which_the_user_hid(world, hiding):
    node, ana, bob = await meet(world)
    await node.node.viewing.block("bob", "ana")
    await world.sleep(5)
    at = world.now
    if hiding == "block":
        await node.node.viewing.block("ana", "bob")
    elif hiding == "nobody":
        await decide(node, "ana", NOBODY)
    else:
        await ana.bye()
    await world.sleep(5)
    bob.forget()
    await node.node.viewing.unblock("bob", "ana")
    await world.sleep(0.1)
    assert [(shown.status, shown.last_seen) for shown in bob.shown["ana"]] == [("offline", at)]
    assert await see(node, "bob", "ana") == offline("ana", at)


@pytest.mark.parametrize("hiding", ["block", "nobody"])
async def test_g16_viewers_see_a_user_hide_before_the_slow_database_has_it(world, hiding):
    node, _, bob = await meet(world)
    world.ledger.privacy_delay = 0.4
    at = world.now
    hide = node.node.viewing.block("ana", "bob") if hiding == "block" else decide(node, "ana", NOBODY)
    hidden = asyncio.ensure_future(hide)
    await world.sleep(0.1)
    assert not hidden.done()
    assert bob.last("ana").value == replace(bob.last("ana").value, status="offline", since=at, last_seen=at)
    assert bob.last("ana").as_of == at
    assert await see(node, "bob", "ana") == offline("ana", at)
    await hidden
    await world.sleep(1)
    assert await see(node, "bob", "ana") == offline("ana", at)


async def test_a_block_that_cannot_be_written_is_undone_when_the_database_answers_again(world):
    node, _, bob = await meet(world)
    world.ledger.away = True
    with pytest.raises(Unavailable):
        await node.node.viewing.block("ana", "bob")
    world.ledger.away = False
    await world.sleep(3)
    assert bob.last("ana").status == "online"


# --- Last seen


async def test_g9_a_viewer_who_hides_their_last_seen_sees_only_an_approximate_last_seen_of_others(world):
    node, ana, bob = await meet(world)
    await ana.bye()
    await world.sleep(5)
    exact = bob.last("ana")
    assert exact.last_seen is not None
    await decide(node, "bob", NO_TIMES)
    await world.sleep(0.1)
    shown = bob.last("ana")
    assert (shown.status, shown.last_seen, shown.since, shown.bucket) == ("offline", None, None, "recently")
    assert await see(node, "bob", "ana") == offline("ana", None) | {"last_seen_bucket": "recently"}
    await decide(node, "bob", TIMES)
    await world.sleep(59)
    assert bob.last("ana").value == shown.value  # sharing for a moment, to read, is not enough
    assert await see(node, "bob", "ana") == offline("ana", None) | {"last_seen_bucket": "recently"}
    await world.sleep(3)
    assert bob.last("ana").value == exact.value


async def test_a_user_who_hides_last_seen_is_shown_without_times(world):
    node, ana, bob = await meet(world)
    await decide(node, "ana", NO_TIMES)
    await world.sleep(0.1)
    assert (bob.last("ana").status, bob.last("ana").since, bob.last("ana").bucket) == ("online", None, None)
    await ana.bye()
    await world.sleep(1)
    assert (bob.last("ana").status, bob.last("ana").last_seen, bob.last("ana").bucket) == ("offline", None, "recently")


async def test_a_blocked_viewer_of_a_user_who_hides_last_seen_sees_only_an_approximate_last_seen(world):
    node, ana, bob = await meet(world)
    await decide(node, "ana", NO_TIMES)
    await node.node.viewing.block("ana", "bob")
    assert await see(node, "bob", "ana") == offline("ana", None) | {"last_seen_bucket": "recently"}
    await busy_life(world, node, ana, 10)
    assert await see(node, "bob", "ana") == offline("ana", None) | {"last_seen_bucket": "recently"}


async def test_the_approximate_last_seen_of_a_hidden_user_ages_like_that_of_an_offline_user():
    """At midnight, both at once; activity of the hidden user has no effect."""
    world = World(start=20_000 * DAY - 60_000)
    try:
        node = await world.start("n1")
        await world.befriend("bob", "ana", "cy")
        long_ago = world.now - 3 * DAY
        await world.ledger.save_last_seen({"ana": long_ago, "cy": long_ago - 5_000})
        for user in ("ana", "cy"):
            await decide(node, user, NO_TIMES)
        await node.node.viewing.block("ana", "bob")
        ana, bob = world.client("ana"), world.client("bob")
        await ana.connect(node)
        await bob.connect(node)
        await bob.watch("ana", "cy")
        assert bob.last("ana").bucket == bob.last("cy").bucket == "recently"
        bob.forget()
        for _ in range(12):
            await world.sleep(10)
            ana.act()
            await node.node.sessions.set_custom("ana", Custom(f"at {world.now}"))
        [shown], [gone] = bob.shown["ana"], bob.shown["cy"]
        assert shown.value == replace(gone.value, user="ana")
        assert shown.bucket == "within_week"
        assert shown.at % DAY < 1_100
        assert (await see(node, "bob", "ana"))["last_seen_bucket"] == "within_week"
    finally:
        await world.close()


async def test_the_leaderboard_is_ordered_only_by_what_the_viewer_sees(world):
    node = await world.start("n1")
    friends = [f"f{number}" for number in range(6)]
    await world.ledger.apply([RelationRow("contact", "bob", friend) for friend in friends])
    now = world.now
    await world.ledger.save_last_seen({"f0": now - 5_000, "f1": now - 4_000, "f3": now - 10 * DAY, "f5": now})
    for friend in ("f1", "f2", "f3", "f5"):
        await decide(node, friend, NO_TIMES)
    board = [msgspec.json.decode(row)["user_id"] for row in await node.node.viewing.leaderboard("bob", 10)]
    assert board == ["f0", "f1", "f5", "f3", "f2", "f4"]


# --- All nodes and outputs


@pytest.mark.parametrize("hiding", ["block", "nobody", "unfollow", "no times", "everyone"])
async def test_g8_websocket_and_rest_show_the_same_view_on_every_node(world, hiding):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far, fresh = world.client("bob", "far"), world.client("bob", "fresh")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(3)
    match hiding:
        case "block":
            await n1.node.viewing.block("ana", "bob")
        case "unfollow":
            await n1.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
        case _:
            edits = {"nobody": NOBODY, "no times": NO_TIMES, "everyone": EVERYONE}
            await decide(n1, "ana", edits[hiding])
    await world.sleep(0.5)
    await fresh.connect(n2)
    denied = await fresh.watch("ana")
    assert denied == (["ana"] if hiding == "unfollow" else [])
    views = {client.last("ana").value for client in (bob, far, fresh) if "ana" in client.shown}
    assert len(views) == 1
    here, there = await see(n1, "bob", "ana"), await see(n2, "bob", "ana")
    assert here == there
    [view] = views
    assert (view.status, view.since, view.last_seen, view.bucket) == (
        here["status"],
        here["since"],
        here["last_seen"],
        here.get("last_seen_bucket"),
    )


CHANGES = ("block", "nobody", "unfollow", "to contacts")


@pytest.mark.parametrize("change", CHANGES)
async def test_g10_a_block_whose_message_between_nodes_is_lost_takes_effect_within_two_seconds(world, change):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    viewer = "eve" if change == "to contacts" else "bob"
    far = world.client(viewer, "far")
    await far.connect(n2)
    await decide(n1, "ana", EVERYONE)
    await world.sleep(3)
    await far.watch("ana")
    n1.node.context.engine.send = lost
    match change:
        case "block":
            await n1.node.viewing.block("ana", "bob")
        case "unfollow":
            await decide(n1, "ana", CONTACTS)
            await n1.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
        case _:
            await decide(n1, "ana", NOBODY if change == "nobody" else CONTACTS)
    await world.sleep(2)
    assert far.saw("ana") == ["online", "offline"]
    far.forget()
    await busy_life(world, n1, ana, 10)
    assert far.shown == {}


async def lost(_message):
    """A message that is lost."""


async def test_a_block_placed_through_one_node_takes_effect_on_another_node_at_once(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await world.sleep(5.3)
    await n1.node.viewing.block("ana", "bob")
    await world.sleep(0.1)
    assert far.saw("ana") == ["online", "offline"]
    await n1.node.viewing.unblock("ana", "bob")
    await world.sleep(0.1)
    assert far.saw("ana") == ["online", "offline", "online"]


async def test_g7_a_change_published_before_a_block_is_not_delivered_after_it(world):
    node, ana, bob = await meet(world)
    await world.sleep(1)
    bob.forget()
    # The first is sent at once, the second waits for the end of the tick.
    await node.node.sessions.set_mode("ana", Mode.AWAY, None, saved=False)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None, saved=False)
    await node.node.viewing.block("ana", "bob")
    await world.sleep(1)
    assert bob.saw("ana") == ["away", "offline"]


async def test_g11_a_change_waiting_for_a_slow_reader_is_not_sent_after_a_block(world):
    node, ana, bob = await meet(world)
    await world.sleep(1)
    bob.forget()
    outbox = bob.connection.outbox
    node.node.delivery.pause(outbox)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await node.node.sessions.set_custom("ana", Custom("secret"))
    await world.sleep(2)
    await node.node.viewing.block("ana", "bob")
    node.node.delivery.resume(outbox)
    await world.sleep(1)
    assert bob.saw("ana") == ["offline"]
    assert "secret" not in repr(bob.frames)


async def test_a_block_or_changed_preference_sends_nothing_to_unaffected_viewers(world):
    node, ana, bob = await meet(world)
    await world.befriend("ana", "cy")
    cy = world.client("cy")
    await cy.connect(node)
    await cy.watch("ana")
    await world.sleep(1)
    cy.forget()
    await node.node.viewing.block("ana", "bob")
    await node.node.viewing.unblock("ana", "bob")
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
    await decide(node, "bob", NO_TIMES)
    await decide(node, "ana", EVERYONE)
    await decide(node, "ana", PreferencesEdit(public=True))
    await world.sleep(3)
    assert cy.frames == []


async def test_f6_users_see_their_own_true_status_however_they_hide(world):
    node, ana, bob = await meet(world)
    await decide(node, "ana", NOBODY)
    await decide(node, "ana", NO_TIMES)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    assert await ana.watch("ana") == []
    assert ana.saw("ana") == ["online"]
    assert ana.last("ana").since is not None


async def test_f9_a_subscription_to_all_contacts_includes_a_new_contact_who_blocks_the_viewer(world):
    """The new contact appears offline, as a blocking user looks."""
    node, ana, bob = await meet(world)
    await bob.watch_contacts()
    cy = world.client("cy")
    await cy.connect(node)
    await node.node.viewing.block("cy", "bob")
    await node.node.viewing.apply_relations([RelationRow("contact", "bob", "cy")])
    await world.sleep(0.1)
    assert bob.saw("cy") == ["offline"]
    await node.node.viewing.unblock("cy", "bob")
    await world.sleep(0.1)
    assert bob.saw("cy") == ["offline", "online"]


# --- Typing


@pytest.mark.parametrize("hiding", ["ana blocks", "bob blocks", "nobody", "no times"])
async def test_i2_typing_of_a_hidden_user_is_not_delivered_and_the_typist_gets_no_error(world, hiding):
    node, ana, bob = await meet(world)
    await node.node.viewing.apply_relations([RelationRow("room", "r1", user) for user in ("ana", "bob")])
    await node.node.viewing.open_room(bob.connection, "r1")
    match hiding:
        case "ana blocks":
            await node.node.viewing.block("ana", "bob")
        case "bob blocks":
            await node.node.viewing.block("bob", "ana")
        case _:
            await decide(node, "ana", NOBODY if hiding == "nobody" else NO_TIMES)
    await type_to(ana, to="bob")
    await type_to(ana, room="r1")
    assert heard(bob) == ([] if hiding != "no times" else [("ana", "bob", 6), ("ana", "r1", 6)])


async def test_typing_to_a_stranger_who_blocks_the_typist_is_refused_as_to_any_stranger(world):
    node, ana, bob = await meet(world)
    await node.node.viewing.block("eve", "ana")
    sentences = []
    for stranger in ("eve", "may"):
        with pytest.raises(ProtocolError) as refusal:
            await type_to(ana, to=stranger)
        sentences.append(str(refusal.value).replace(stranger, "…"))
    assert sentences[0] == sentences[1]


# --- Ledger outages


async def test_during_a_ledger_outage_blocks_stay_in_force_and_cannot_be_changed(world):
    node, ana, bob = await meet(world)
    await node.node.viewing.block("ana", "bob")
    bob.forget()
    world.ledger.away = True
    with pytest.raises(Unavailable):
        await node.node.viewing.unblock("ana", "bob")
    with pytest.raises(Unavailable):
        await node.node.viewing.block("ana", "cy")
    with pytest.raises(Unavailable):
        await decide(node, "ana", EVERYONE)
    await world.sleep(10)
    assert "online" not in bob.saw("ana")
    world.ledger.away = False
    await world.sleep(3)
    assert "online" not in bob.saw("ana")
    assert await see(node, "cy", "ana") == offline("ana", None)


async def test_a_user_whose_changed_preferences_cannot_be_read_looks_offline_until_they_can(world):
    """The node knows that a preference changed, but not how: it hides the user until the next read succeeds."""
    node, ana, bob = await meet(world)
    preferences = world.ledger.preferences
    away = True

    async def flaky(users):
        if away:
            raise Unavailable("The ledger is away.")
        return await preferences(users)

    world.ledger.preferences = flaky
    await world.ledger.set_idle_after("ana", 60_000)
    await world.sleep(1.1)
    assert bob.saw("ana") == ["online", "offline"]
    away = False
    await world.sleep(2.1)
    assert bob.saw("ana") == ["online", "offline", "online"]
