"""E13 at the level of outboxes: a viewer that stops reading."""

import pytest
from tests.node.scenes import meet

from herenow.core.model import Mode
from herenow.ports import RelationRow

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_e13_a_viewer_that_stops_reading_gets_the_latest_values_when_it_resumes(world):
    node, ana, bob = await meet(world)
    other = world.client("bob", "other")
    await other.connect(node)
    await other.watch("ana")
    await world.sleep(1)
    outbox = bob.connection.outbox
    node.node.delivery.pause(outbox)
    bob.forget()
    for mode in (Mode.BUSY, Mode.AWAY, Mode.BUSY) * 30:
        await node.node.sessions.set_mode("ana", mode, None)
        await world.sleep(0.05)
        assert len(outbox.dirty or ()) <= 1
    assert bob.frames == []
    assert other.last("ana").status == "busy"
    node.node.delivery.resume(outbox)
    await world.sleep(0.1)
    assert [shown.status for shown in bob.shown["ana"]] == ["busy"]


async def test_e13_a_change_made_while_a_viewer_did_not_read_is_sent_once_when_it_resumes(world):
    node, ana, bob = await meet(world)
    await world.sleep(1)
    node.node.delivery.pause(bob.connection.outbox)
    bob.forget()
    await node.node.sessions.set_custom("ana", None)
    ana.rest()
    await world.sleep(1)
    node.node.delivery.resume(bob.connection.outbox)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["away"]


async def test_e13_the_connection_of_a_viewer_that_does_not_read_is_closed_without_delaying_others(world):
    node, ana, bob = await meet(world)
    other = world.client("bob", "other")
    await other.connect(node)
    await other.watch("ana")
    node.node.delivery.pause(bob.connection.outbox)
    await world.sleep(9)
    assert bob.connected
    await world.sleep(2)
    assert not bob.connected
    assert other.connected
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(0.1)
    assert other.last("ana").status == "busy"


async def test_g11_a_change_waiting_for_a_viewer_is_not_sent_after_their_relation_was_removed(world):
    node, ana, bob = await meet(world)
    await world.sleep(1)
    node.node.delivery.pause(bob.connection.outbox)
    bob.forget()
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    await node.node.viewing.apply_relations([RelationRow("follow", "ana", "bob", remove=True)])
    node.node.delivery.resume(bob.connection.outbox)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["offline"]
