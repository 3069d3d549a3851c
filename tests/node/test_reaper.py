"""Due users are processed even by a node with outdated or unreadable records."""

import pytest
from tests.node.scenes import meet

from herenow.core.model import Mode
from herenow.core.shards import shard_of
from herenow.errors import ProtocolError

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_a_reconnect_window_ends_even_if_the_only_remaining_node_has_an_outdated_record(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    person = n2.node.context.people.find("ana")
    known = person.record.stored, person.record.presence
    ana.close()
    await world.sleep(1)
    person.record.stored, person.record.presence = known  # n2 loses what the log reported
    n1.kill()
    await world.sleep(60)
    assert far.saw("ana") == ["online", "offline"]


async def test_an_unreadable_record_with_a_due_timer_causes_no_busy_loop_and_delays_no_other_users(world):
    n1, ana, bob = await meet(world)
    shard = world.store.shards[n1.node.context.people.find("ana").shard]
    await world.sleep(1)
    shard.records["eve"] = b"\x63\x00" + (1).to_bytes(6, "big")
    shard.wakes.set("eve", world.now - 10)
    due, calls = n1.node.context.engine.due, 0

    async def counted(*args):
        nonlocal calls
        calls += 1
        return await due(*args)

    n1.node.context.engine.due = counted
    await world.sleep(10)
    assert calls < 4 * 40
    ana.close()
    await world.sleep(31)
    assert bob.saw("ana") == ["online", "offline"]


async def test_a_record_of_a_newer_format_is_not_changed_and_does_not_affect_other_users(world):
    node, ana, bob = await meet(world)
    await world.befriend("bob", "eve")
    shard = shard_of("eve", 4)
    newer = b"\x63\x00" + (1).to_bytes(6, "big") + b"something new"
    world.store.shards[shard]._put("eve", newer, unsaved=False)
    await world.sleep(1.5)
    assert await bob.watch("eve", "ana") == []
    assert (bob.last("eve").status, bob.last("eve").stale) == ("offline", True)
    eve = world.client("eve")
    await eve.connect(node)
    await world.sleep(5)
    with pytest.raises(ProtocolError):
        await node.node.sessions.set_mode("eve", Mode.BUSY, None)
    assert world.store.shards[shard].records["eve"] == newer
    await node.node.sessions.set_mode("ana", Mode.BUSY, None)
    assert bob.last("ana").status == "busy"
