"""A node that measures that it is overloaded, and what its viewers get."""

from itertools import pairwise

import pytest
from tests.node.scenes import meet

from herenow.core.limits import Shed
from herenow.core.model import Mode
from herenow.node.sessions import TURN

pytestmark = pytest.mark.looptime(noop_cycles=0)


def level_of(node):
    return node.node.delivery.overload.level


async def overloaded(world, node, seconds=1.2):
    """Makes the node measure a blocked loop; tests/scenarios has a really overloaded node."""
    node.node.delivery.overload._looked_at -= seconds
    await world.sleep(TURN)


async def test_a_node_without_load_delays_and_drops_no_updates(world):
    node, _, _ = await meet(world)
    await world.sleep(5)
    assert level_of(node) is Shed.NOTHING
    assert node.node.delivery.overload.late < 0.01


async def test_an_overloaded_node_drops_typing_first_and_delivers_it_again_when_load_falls(world):
    node, ana, bob = await meet(world)
    await overloaded(world, node, 0.3)
    assert level_of(node) is Shed.TYPING
    await node.node.viewing.type(ana.connection, "bob", None, typing=True)
    await world.sleep(0.1)
    assert not bob.of_type("presence.typing")
    assert node.node.context.metrics.given_up["typing"] == 1
    await world.sleep(3)
    assert level_of(node) is Shed.NOTHING
    await node.node.viewing.type(ana.connection, "bob", None, typing=True)
    await world.sleep(0.1)
    assert bob.of_type("presence.typing")


async def test_changes_to_away_wait_while_a_node_is_overloaded_and_are_sent_afterwards(world):
    node, ana, bob = await meet(world)
    await overloaded(world, node, 0.8)
    ana.rest()
    await world.sleep(0.2)
    assert bob.saw("ana") == ["online"]
    await world.sleep(3)
    assert bob.saw("ana") == ["online", "away"]


async def test_an_overloaded_node_never_delays_changes_to_online_offline_busy_or_invisible(world):
    node, ana, bob = await meet(world)
    await overloaded(world, node, 2.0)
    assert level_of(node) is Shed.TEXT
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(0.1)
    assert bob.last("ana").status == "busy"
    await overloaded(world, node, 2.0)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(0.1)
    assert bob.last("ana").status == "offline"
    await overloaded(world, node, 2.0)
    await node.node.sessions.set_mode("ana", Mode.AUTO, None)
    await world.sleep(0.1)
    assert bob.last("ana").status == "online"


async def test_a_status_read_from_an_overloaded_node_is_current(world):
    node, ana, bob = await meet(world)
    await overloaded(world, node, 2.0)
    ana.rest()
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online"]
    [body] = await node.node.viewing.statuses("bob", ["ana"])
    assert b'"away"' in body


async def test_changes_delayed_by_overload_are_sent_gradually_afterwards(world, monkeypatch):
    """Sending everything at once would overload the node again."""
    node, ana, bob = await meet(world)
    await world.befriend("bob", "cem", "dan")
    others = [world.client("cem"), world.client("dan")]
    for other in others:
        await other.connect(node)
        await bob.watch(other.user)
    await overloaded(world, node, 2.0)
    for each in (ana, *others):
        each.rest()
    await world.sleep(0.1)
    monkeypatch.setattr("herenow.node.delivery.hub.CATCH_UP", -1.0)  # nothing takes time here: one change per iteration
    came = []
    for _ in range(16):
        await world.sleep(TURN)
        came.append(sum(bob.saw(user) == ["online", "away"] for user in ("ana", "cem", "dan")))
    assert came[0] == 0
    assert came[-1] == 3
    assert max(after - before for before, after in pairwise(came)) < 3
    assert node.node.context.metrics.given_up["change"] == 3
