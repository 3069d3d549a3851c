"""Situations I: typing is delivered and never stored."""

import pytest
from tests.node.scenes import meet

from herenow.core.model import Mode
from herenow.errors import ProtocolError
from herenow.ports import RelationRow
from herenow.wire.inputs import Activity
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def type_to(client, *, to=None, room=None, typing=True):
    """As the transport does: typing is also activity."""
    client.act()
    node = client.node
    await node.run(node.node.viewing.type(client.connection, to, room, typing=typing))


def heard(client):
    return [
        (frame["user_id"], frame.get("to") or frame.get("room"), frame["expires_in"])
        for frame in client.of_type("presence.typing")
    ]


async def test_i1_a_typing_frame_has_a_duration_so_that_no_frame_is_needed_when_typing_stops(world):
    node, ana, bob = await meet(world)
    await type_to(ana, to="bob")
    ana.vanish()
    await world.sleep(10)
    assert heard(bob) == [("ana", "bob", 6)]


async def test_an_early_end_of_typing_is_sent_once(world):
    _, ana, bob = await meet(world)
    await type_to(ana, to="bob")
    await type_to(ana, to="bob", typing=False)
    await type_to(ana, to="bob", typing=False)
    assert heard(bob) == [("ana", "bob", 6), ("ana", "bob", 0)]


async def test_i2_typing_of_an_invisible_user_is_not_delivered(world):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await type_to(ana, to="bob")
    assert heard(bob) == []


async def test_i2_room_members_who_may_not_see_the_typist_receive_no_typing(world):
    node, ana, bob = await meet(world)
    await world.ledger.apply([RelationRow("room", "r1", user) for user in ("ana", "bob", "eve")])
    eve = world.client("eve")
    await eve.connect(node)
    for client in (bob, eve):
        await node.node.viewing.open_room(client.connection, "r1")
    await type_to(ana, room="r1")
    assert heard(bob) == [("ana", "r1", 6)]
    assert heard(eve) == []


async def test_i3_typing_to_a_user_reaches_only_their_sockets_that_watch_the_typist(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    watching, blind = world.client("bob", "watching"), world.client("bob", "blind")
    await watching.connect(n2)
    await watching.watch("ana")
    await blind.connect(n2)
    cy = world.client("cy")
    await cy.connect(n2)
    await type_to(ana, to="bob")
    await world.sleep(0.1)
    assert heard(bob) == heard(watching) == [("ana", "bob", 6)]
    assert heard(blind) == heard(cy) == []


async def test_i4_typing_faster_than_every_two_seconds_is_coalesced_without_a_penalty(world):
    _, ana, bob = await meet(world)
    for _ in range(50):
        await type_to(ana, to="bob")
        await world.sleep(0.1)
    assert len(heard(bob)) == 3
    assert ana.connected


async def test_i5_typing_in_a_room_by_a_non_member_is_refused(world):
    node, ana, bob = await meet(world)
    with pytest.raises(ProtocolError) as refusal:
        await node.node.viewing.type(ana.connection, None, "r1", typing=True)
    assert refusal.value.code == "not_a_member"
    with pytest.raises(ProtocolError) as refusal:
        await node.node.viewing.open_room(ana.connection, "r1")
    assert refusal.value.code == "not_a_member"
    with pytest.raises(ProtocolError) as refusal:
        await node.node.viewing.type(ana.connection, "stranger", None, typing=True)
    assert refusal.value.code == "not_mutual_followers"


async def test_a_user_removed_from_a_room_gets_no_more_typing_of_the_room(world):
    node, ana, bob = await meet(world)
    await node.node.viewing.apply_relations([RelationRow("room", "r1", user) for user in ("ana", "bob")])
    await node.node.viewing.open_room(bob.connection, "r1")
    await node.node.viewing.apply_relations([RelationRow("room", "r1", "bob", remove=True)])
    await world.sleep(0.1)
    await type_to(ana, room="r1")
    assert heard(bob) == []


async def test_i6_typing_counts_as_activity(world):
    node, ana, bob = await meet(world)
    await world.sleep(305)
    assert bob.last("ana").status == "away"
    await type_to(ana, to="bob")
    await world.sleep(0.1)
    assert bob.last("ana").status == "online"


async def test_i6_typing_after_a_sign_out_does_not_revive_the_session(world):
    node, ana, bob = await meet(world)
    connection = ana.connection
    await ana.bye()
    node.node.sessions.act(connection.session, Activity.ACTIVE)
    await node.node.viewing.type(connection, "bob", None, typing=True)
    await world.sleep(40)
    assert bob.saw("ana") == ["online", "offline"]
    assert world.stored("ana") is None


async def test_i7_typing_is_not_stored(world):
    node, ana, bob = await meet(world)
    await world.sleep(1)
    before = world.store.snapshot()
    calls = world.ledger.people.copy()
    for _ in range(3):
        await type_to(ana, to="bob")
        await world.sleep(2)
    after = world.store.snapshot()
    assert [shard.records for shard in after.shards] == [shard.records for shard in before.shards]
    assert [shard.log.head for shard in after.shards] == [shard.log.head for shard in before.shards]
    assert world.ledger.people == calls


async def test_a_lost_message_between_nodes_loses_only_one_typing_frame(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    with world.faults.during(Rule(Fault.MESSAGE_LOST)):
        await type_to(ana, to="bob")
        await world.sleep(1)
    assert heard(bob) == [("ana", "bob", 6)]
    assert heard(far) == []
    await world.sleep(2)
    await type_to(ana, to="bob")
    await world.sleep(0.1)
    assert len(heard(far)) == 1


async def test_a_viewer_who_unsubscribes_from_the_typist_during_delivery_gets_no_typing(world):
    node, ana, bob = await meet(world)
    look = node.node.records.read

    async def slow_look(users):
        found = await look(users)
        node.node.viewing.unsubscribe(bob.connection.outbox, ["ana"])
        return found

    node.node.records.read = slow_look
    await type_to(ana, to="bob")
    assert heard(bob) == []


async def test_a_viewer_whose_room_membership_cannot_be_verified_gets_no_typing(world):
    node, ana, bob = await meet(world)
    await node.node.viewing.apply_relations([RelationRow("room", "r1", user) for user in ("ana", "bob")])
    await node.node.viewing.open_room(bob.connection, "r1")
    await type_to(ana, room="r1")
    assert heard(bob) == [("ana", "r1", 6)]
    bob.forget()
    await node.node.viewing.apply_relations([RelationRow("room", "r1", "bob", remove=True)])
    world.ledger.away = True
    await world.sleep(3)
    await type_to(ana, room="r1")
    assert heard(bob) == []
