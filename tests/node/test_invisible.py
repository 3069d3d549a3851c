"""G4 and G5: a hidden user looks offline, byte for byte, in every output of a node."""

import msgspec
import pytest
from tests.node.scenes import meet

from herenow.core.model import Custom, Mode, Platform

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def all_exits(node, viewer, target):
    """Every output a viewer can get, without `as_of`."""
    views = node.node.viewing.views
    [status] = await views.statuses(viewer, [target])
    board = await views.leaderboard(viewer, 10)
    return (_without_as_of(status), [_without_as_of(row) for row in board], await views.count(viewer))


def _without_as_of(status):
    return {key: value for key, value in msgspec.json.decode(status).items() if key != "as_of"}


async def test_g4_an_invisible_user_looks_exactly_like_one_who_signed_out_at_that_moment(world):
    node, ana, bob = await meet(world)
    phone = world.client("ana", "phone", Platform.MOBILE)
    await phone.connect(node)
    await node.node.sessions.set_custom("ana", Custom("here"))
    await world.sleep(1)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    hidden_at = world.now
    await world.sleep(0.1)
    shown = bob.last("ana")
    hidden = await all_exits(node, "bob", "ana")
    assert (shown.status, shown.custom, shown.platforms) == ("offline", None, ())
    assert shown.last_seen == shown.since == pytest.approx(hidden_at, abs=2)
    assert hidden[0] == {
        "user_id": "ana",
        "status": "offline",
        "since": shown.since,
        "last_seen": shown.last_seen,
        "custom_status": None,
        "platforms": [],
    }
    assert hidden[2] == {"online": 0, "busy": 0, "away": 0, "offline": 1}
    # Whatever she does now, the outputs stay the same.
    frames = len(bob.shown["ana"])
    ana.act()
    phone.rest()
    await node.node.sessions.set_custom("ana", Custom("hidden words"))
    await world.sleep(400)
    ana.act()
    await phone.bye()
    await world.sleep(10)
    ana.close()
    await world.sleep(60)
    assert len(bob.shown["ana"]) == frames
    assert await all_exits(node, "bob", "ana") == hidden


async def test_g5_a_hidden_user_becomes_visible_with_one_change_and_hidden_activity_is_never_shown(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(1)
    hidden = bob.last("ana")
    for _ in range(5):
        await world.sleep(20)
        ana.act()
    bob.forget()
    shown_at = world.now
    await node.node.sessions.set_mode("ana", Mode.AUTO, None)
    await world.sleep(1)
    assert [shown.status for shown in bob.shown["ana"]] == ["online"]
    assert bob.last("ana").since == pytest.approx(shown_at, abs=2)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    again = world.now
    await world.sleep(1)
    assert bob.last("ana").last_seen == pytest.approx(again, abs=2)
    assert bob.last("ana").last_seen > hidden.last_seen


async def test_g5_a_user_who_leaves_while_hidden_keeps_the_time_of_hiding_as_last_seen(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(1)
    hidden = bob.last("ana")
    await world.sleep(100)
    ana.close()
    await world.sleep(40)
    await node.node.sessions.set_mode("ana", Mode.AUTO, None)
    await world.sleep(1)
    assert bob.last("ana") == hidden
    remembered = world.ledger.people["ana"]
    assert remembered.last_seen == hidden.last_seen


async def test_an_invisible_user_who_connects_is_not_shown(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    ana.close()
    await world.sleep(200)
    bob.forget()
    await ana.connect(node)
    await world.sleep(10)
    assert bob.shown == {}
    assert ana.own()["status"] == "online"
    assert node.node.context.metrics.users[1] == 1  # bob
