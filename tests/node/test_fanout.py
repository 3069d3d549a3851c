"""A user with too many viewers for immediate delivery, on a whole node: events during paced delivery.

Here four viewers are many, and a paced round takes two seconds; active viewers are served in its first half.
"""

import pytest
from structlog.testing import capture_logs

from herenow.core.limits import FanoutLimits
from herenow.core.model import Mode
from herenow.core.visibility import PreferencesEdit, Visibility
from herenow_testing.world.settings import node_settings
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)

VIEWERS = ("bob", "cem", "dan", "eve")
WAVE = 2.0
TURN = 0.05
"""Seconds between two parts of a paced round."""


@pytest.fixture
async def world():
    with capture_logs() as logs:
        world = World(settings=node_settings(embedded=False, crowds=FanoutLimits(pace_above=2, push_ceiling=5)))
        yield world
        await world.close()
    assert not [line for line in logs if line["event"] in ("task.died", "decide.failed") or line.get("exc_info")]


async def audience(world, *, idle=VIEWERS):
    """ana is connected and all viewers watch her."""
    node = await world.start("n1")
    await world.befriend("ana", *VIEWERS, "fay", "gil")
    ana = world.client("ana")
    await ana.connect(node)
    viewers = {user: world.client(user) for user in VIEWERS}
    for user, viewer in viewers.items():
        await viewer.connect(node)
        await viewer.watch("ana")
        if user in idle:
            viewer.rest()
    await world.sleep(2 * WAVE)
    for viewer in viewers.values():
        viewer.forget()
    return node, ana, viewers


def heard(viewers):
    return {user for user, viewer in viewers.items() if viewer.saw("ana")}


async def until_some_have_heard(world, viewers):
    while not heard(viewers):
        await world.sleep(TURN)
    assert heard(viewers) != viewers.keys()
    return heard(viewers)


async def test_in_paced_delivery_active_viewers_get_a_change_first_and_every_frame_is_marked_paced(world):
    node, ana, viewers = await audience(world, idle=("bob", "cem"))
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(WAVE / 2 + TURN)
    assert heard(viewers) == {"dan", "eve"}
    await world.sleep(WAVE / 2)
    assert heard(viewers) == viewers.keys()
    for viewer in viewers.values():
        [frame] = viewer.of_type("presence.status")
        assert frame["delivery"] == "paced"


async def test_a_viewer_who_becomes_active_during_paced_delivery_gets_the_change_like_active_viewers(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(TURN)
    viewers["eve"].act()
    await world.sleep(WAVE / 2)
    assert heard(viewers) == {"eve"}


async def test_g11_a_change_in_paced_delivery_is_not_sent_to_a_viewer_blocked_meanwhile(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    first = await until_some_have_heard(world, viewers)
    for user in viewers.keys() - first:
        await node.node.viewing.block("ana", user)
    await world.sleep(WAVE)
    for user, viewer in viewers.items():
        assert viewer.saw("ana") == (["busy"] if user in first else ["offline"])


async def test_viewers_still_waiting_in_paced_delivery_see_a_user_who_becomes_invisible_as_offline(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    first = await until_some_have_heard(world, viewers)
    hidden_at = world.now
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(3 * WAVE)
    for user, viewer in viewers.items():
        assert viewer.saw("ana") == (["busy", "offline"] if user in first else ["offline"])
        assert viewer.last("ana").last_seen == hidden_at


async def test_viewers_still_waiting_in_paced_delivery_see_a_user_who_chooses_visibility_nobody_as_offline(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    first = await until_some_have_heard(world, viewers)
    await node.node.viewing.change_preferences("ana", PreferencesEdit(visibility=Visibility.NOBODY))
    await world.sleep(3 * WAVE)
    for user, viewer in viewers.items():
        assert viewer.saw("ana") == (["busy", "offline"] if user in first else ["offline"])


async def test_a_viewer_who_subscribes_again_during_paced_delivery_gets_the_change_once(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await viewers["eve"].watch("ana")
    await world.sleep(2 * WAVE)
    assert [shown.answer for shown in viewers["eve"].shown["ana"]] == [True]


async def test_a_viewer_who_unsubscribes_during_paced_delivery_does_not_get_the_change(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    node.node.viewing.unsubscribe(viewers["eve"].connection.outbox, ["ana"])
    await world.sleep(2 * WAVE)
    assert heard(viewers) == viewers.keys() - {"eve"}


async def test_when_few_viewers_remain_during_paced_delivery_they_get_the_change_at_once(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    for user in ("bob", "cem", "dan"):
        viewers[user].close()
    await world.sleep(TURN)
    assert heard({"eve": viewers["eve"]}) == {"eve"}
    await node.node.sessions.set_mode("ana", Mode.AUTO, None)
    await world.sleep(TURN)
    assert viewers["eve"].saw("ana") == ["busy", "online"]
    assert "delivery" not in viewers["eve"].of_type("presence.status")[-1]


async def test_own_devices_and_services_get_a_change_at_once_while_viewers_wait_in_paced_delivery(world):
    node, ana, viewers = await audience(world)
    other = world.client("ana", "d2")
    await other.connect(node)
    await other.watch("ana")
    other.forget()
    came = []
    stream = node.node.viewing.open_stream(
        None, bearer="ops", issued_at=0, send=came.append, end=lambda *_: None, abort=lambda: None
    )
    await node.node.viewing.streams.look(stream, ["ana"])
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    assert other.saw("ana") == ["busy"]
    assert b'"busy"' in came[-1]
    assert b"delivery" not in came[-1]
    assert not heard(viewers)
    node.node.viewing.close_stream(stream)


async def test_a_user_with_too_many_viewers_is_not_pushed_but_read_with_an_approximate_last_seen(world):
    node, ana, viewers = await audience(world)
    for user in ("fay", "gil"):
        viewers[user] = world.client(user)
        await viewers[user].connect(node)
        await viewers[user].watch("ana")
    await world.sleep(2 * WAVE)
    for user in VIEWERS:
        [frame] = viewers[user].of_type("presence.status")
        assert frame["delivery"] == "poll"
    for viewer in viewers.values():
        viewer.forget()
    await node.node.viewing.block("ana", "bob")
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(3 * WAVE)
    assert not heard(viewers)
    await viewers["cem"].watch("ana")
    shown = viewers["cem"].last("ana")
    assert (shown.status, shown.last_seen, shown.since, shown.bucket) == ("offline", None, None, "recently")
    [of_cem] = await node.node.viewing.statuses("cem", ["ana"])
    assert b'"last_seen":null' in of_cem
    assert b'"last_seen_bucket":"recently"' in of_cem
    assert b"delivery" not in of_cem
    [truth] = await node.node.viewing.statuses(None, ["ana"])
    assert b"last_seen_bucket" not in truth


async def test_a_node_stopped_during_paced_delivery_closes_all_connections_and_drops_waiting_changes(world):
    node, ana, viewers = await audience(world)
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await until_some_have_heard(world, viewers)
    await node.stop()
    assert {viewer.closed_with[-1][1] for viewer in viewers.values()} == {1012}
    await world.sleep(WAVE)
    assert not node.node.delivery.paced_waiting


async def test_in_paced_delivery_all_devices_of_a_viewer_get_a_change_at_the_same_moment(world):
    node, ana, viewers = await audience(world)
    second = world.client("bob", "d2")
    await second.connect(node)
    await second.watch("ana")
    second.forget()
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(2 * WAVE)
    assert second.shown["ana"] == viewers["bob"].shown["ana"]
