"""REST heartbeats: sessions that no node leases."""

import pytest
from tests.node.scenes import Stalled, meet, with_timings

from herenow.core.model import Custom, Platform
from herenow.core.shards import shard_of
from herenow.errors import ProtocolError
from herenow.wire.inputs import Activity
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def watched(world, *names):
    """Nodes, and bob on the first of them, who watches ana."""
    nodes = await world.start_all(*names)
    await world.befriend("ana", "bob")
    bob = world.client("bob")
    await bob.connect(nodes[0])
    await bob.watch("ana")
    return *nodes, bob


async def beat(node, activity=None, device="phone"):
    return await node.node.sessions.beat_by_rest("ana", device, Platform.MOBILE, activity)


async def test_a_rest_heartbeat_opens_a_session_that_is_lost_after_the_dead_after_timeout(world):
    n1, bob = await watched(world, "n1")
    assert await beat(n1)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["offline", "online"]
    await world.sleep(60)
    await beat(n1)
    last = world.now
    await world.until(last + 119_900)
    assert bob.saw("ana") == ["offline", "online"]
    await world.sleep(1.1)
    assert bob.saw("ana") == ["offline", "online", "offline"]
    assert bob.last("ana").last_seen == pytest.approx(last, abs=2)


async def test_frequent_rest_heartbeats_are_written_at_most_every_third_of_the_dead_after_timeout(world):
    n1, bob = await watched(world, "n1")
    await beat(n1)
    await world.sleep(1)
    before = n1.node.context.metrics.commits
    for _ in range(45):
        await world.sleep(6)
        await beat(n1)
    assert n1.node.context.metrics.commits - before <= 270 // 30
    assert bob.saw("ana") == ["offline", "online"]


async def test_rest_heartbeats_spread_over_several_nodes_keep_one_session_alive(world):
    n1, n2, n3, bob = await watched(world, "n1", "n2", "n3")
    for number in range(12):
        await beat((n1, n2, n3)[number % 3])
        await world.sleep(25)
    last = world.now - 25_000
    assert len(world.stored("ana").sessions) == 1
    assert "offline" not in bob.saw("ana")[1:]
    await world.until(last + 119_900)
    assert bob.last("ana").status != "offline"
    await world.sleep(1.1)
    assert bob.last("ana").status == "offline"
    assert bob.last("ana").last_seen == pytest.approx(last, abs=2)


async def test_a_rest_heartbeat_that_comes_too_soon_to_be_written_still_prolongs_the_session(world):
    """Heartbeats at 0 and 29 s: the second was not committed at once, but still moves the end."""
    n1, bob = await watched(world, "n1")
    await beat(n1)
    await world.sleep(29)
    await beat(n1)
    last = world.now
    await world.until(last + 119_900)
    assert bob.saw("ana") == ["offline", "online"]
    await world.sleep(1.1)
    assert bob.saw("ana") == ["offline", "online", "offline"]
    assert bob.last("ana").last_seen == pytest.approx(last, abs=2)


async def test_a_rest_heartbeat_in_the_reconnect_window_restores_the_session_and_shows_no_change(world):
    n1, bob = await watched(world, "n1")
    await beat(n1)
    await world.sleep(100)
    assert not world.stored("ana").live
    await beat(n1)
    assert world.stored("ana").live
    await world.sleep(60)
    assert bob.saw("ana") == ["offline", "online"]


async def test_rest_heartbeats_of_a_device_with_a_websocket_neither_replace_nor_prolong_its_session(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    await beat(n2, device="d1")
    await beat(n1, device="d1")
    [session] = world.stored("ana").sessions
    assert session.holder == n1.node.context.authority.epoch
    await world.sleep(10)
    ana.close()
    await world.sleep(31)
    assert bob.saw("ana") == ["online", "offline"]
    assert n2.node.context.people.find("ana") is None


async def test_activity_by_rest_makes_a_device_active_whose_websocket_is_on_another_node(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    ana.rest()
    await world.sleep(1)
    await beat(n2, Activity.ACTIVE, device="d1")
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "away", "online"]
    ana.rest()
    await world.sleep(1)
    assert bob.saw("ana")[-1] == "away"
    await beat(n2, Activity.ACTIVE, device="d1")
    await beat(n2, Activity.IDLE, device="d1")
    await world.sleep(1)
    assert bob.saw("ana")[-1] == "away"


async def test_a_sign_out_through_another_node_ends_a_rest_session_until_a_later_heartbeat(world):
    n1, n2, bob = await watched(world, "n1", "n2")
    await beat(n1)
    await world.sleep(10)
    await beat(n1)  # not committed: n1 knows a later time than the record
    assert await n2.node.sessions.sign_out("ana", "phone")
    await world.sleep(80)
    assert bob.saw("ana") == ["offline", "online", "offline"]
    await beat(n1)
    await world.sleep(1)
    assert bob.saw("ana")[-1] == "online"


async def test_a_device_reported_gone_by_rest_is_shown_offline_after_the_reconnect_window(world):
    n1, n2, bob = await watched(world, "n1", "n2")
    await beat(n1)
    await world.sleep(10)
    gone = world.now
    await n2.node.sessions.lose_by_rest("ana", "phone")
    await world.sleep(29)
    assert bob.saw("ana") == ["offline", "online"]
    await world.sleep(2)
    assert bob.saw("ana") == ["offline", "online", "offline"]
    assert bob.last("ana").last_seen == pytest.approx(gone, abs=2)


async def test_a_rest_heartbeat_that_would_open_a_session_over_the_limit_is_refused(world):
    with_timings(world, max_sessions=2)
    n1, _ = await watched(world, "n1")
    await beat(n1, device="a")
    await beat(n1, device="b")
    with pytest.raises(ProtocolError) as refusal:
        await beat(n1, device="c")
    assert refusal.value.code == "too_many_sessions"
    assert await beat(n1, device="a") in (True, False)


async def test_rest_heartbeats_without_a_device_count_as_activity_and_never_open_a_session(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    assert not await n2.node.sessions.act_by_rest("nobody")
    assert world.stored("nobody") is None
    await world.sleep(310)
    assert bob.last("ana").status == "away"
    assert await n2.node.sessions.act_by_rest("ana")
    await world.sleep(1)
    assert bob.last("ana").status == "online"
    commits = n1.node.context.metrics.commits
    for _ in range(5):
        assert await n1.node.sessions.act_by_rest("ana")
        await world.sleep(1)
    assert n1.node.context.metrics.commits == commits  # activity of its own session causes no write


async def test_a_session_by_rest_heartbeats_survives_the_death_of_the_node_that_received_them(world):
    n1, n2, bob = await watched(world, "n1", "n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    await beat(n1)
    await world.sleep(5)
    n1.kill()
    await world.sleep(30)
    await beat(n2)
    await world.sleep(100)
    assert far.saw("ana")[-1] != "offline"


async def test_a_rest_heartbeat_that_could_not_be_written_is_kept_and_written_later(world):
    n1, bob = await watched(world, "n1")
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        assert await beat(n1)
        assert n1.node.records.unwritable("ana")
    await world.sleep(3)
    assert bob.last("ana").status == "online"


async def test_a_rest_session_signed_out_while_a_node_could_not_read_the_log_is_not_taken_for_data_loss(world):
    n1, n2, _ = await watched(world, "n1", "n2")
    await beat(n2)
    await world.sleep(1)
    with world.faults.during(Rule(Fault.SILENCE, node="n2", calls=("tail", "heads", "due"))):
        await n1.node.sessions.sign_out("ana", "phone")
        await world.sleep(8)
        assert world.stored("ana") is None
        world.faults.cut_log(n2.node.context.people.find("ana").shard)
    await world.sleep(5)
    assert n1.node.context.metrics.shards_lost == n2.node.context.metrics.shards_lost == 0


async def test_a_rest_heartbeat_lost_by_a_rollback_of_the_store_counts_even_if_it_was_overwritten(world, monkeypatch):
    """n3 knows no user and commits over the old record before the loss is noticed. n1 reads its users again one by one,
    so that ana is decided while others are still being read.
    """
    monkeypatch.setattr("herenow.node.cluster.log_reader.PART", 1)
    n1, n2, n3, bob = await watched(world, "n1", "n2", "n3")
    shard = shard_of("ana", 4)
    others = [user for user in (f"cy{n}" for n in range(40)) if shard_of(user, 4) == shard]
    await world.befriend("bob", *others)
    await world.sleep(2)
    await bob.watch(*others)
    world.faults.remember(shard)
    await beat(n1)
    last = world.now
    await world.sleep(1)
    tails = [Stalled(node.node.context.engine, "tail") for node in (n1, n2)]
    await world.sleep(1.1)
    world.faults.roll_back(shard)
    await n3.node.sessions.set_custom("ana", Custom("tea"))
    assert not world.stored("ana").sessions
    with world.faults.during(Rule(Fault.DELAY, calls=("load",), limit=0.05)):
        for tail in tails:
            await tail.release()
        await world.sleep(30)
    assert world.stored("ana").live
    assert bob.saw("ana") == ["offline", "online"], "what we hold is decided before it is shown"
    await world.sleep(120)
    assert bob.last("ana").last_seen == pytest.approx(last, abs=2)
    assert world.ledger.people["ana"].last_seen == pytest.approx(last, abs=2)


async def test_a_rest_heartbeat_that_the_store_lost_before_other_nodes_read_it_is_restored(world):
    """Until then other nodes show what they know: that ana never connected."""
    n1, n2, _ = await watched(world, "n1", "n2")
    far = world.client("bob", "far")
    await far.connect(n2)
    await far.watch("ana")
    shard = shard_of("ana", 4)
    world.faults.remember(shard)
    tail = Stalled(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    await beat(n1)
    last = world.now
    assert world.stored("ana").live
    world.faults.roll_back(shard)
    with world.faults.during(Rule(Fault.SILENCE, node="n1", calls=("unsettle", "offer", "commit"))):
        await tail.release()
        await n2.node.context.engine.unsettle(shard, world.now)
        await world.sleep(8)
        assert (far.last("ana").status, far.last("ana").last_seen) == ("offline", None)
        assert not far.last("ana").stale
    await world.sleep(15)
    assert far.saw("ana") == ["offline", "online"]
    await world.sleep(130)
    assert far.last("ana").last_seen == pytest.approx(last, abs=2)
    assert world.ledger.people["ana"].last_seen == pytest.approx(last, abs=2)


async def test_a_revoked_token_ends_the_rest_session_of_its_heartbeats_on_every_node(world):
    n1, n2, bob = await watched(world, "n1", "n2")
    issued_at = world.now
    await n2.node.sessions.beat_by_rest("ana", "phone", Platform.MOBILE, None, issued_at=issued_at)
    await world.sleep(1)
    assert bob.saw("ana") == ["offline", "online"]
    await n1.run(n1.node.admin.revoke("ana", world.now))
    await world.sleep(33)  # the reconnect window, and the two seconds in which all nodes know
    assert bob.saw("ana") == ["offline", "online", "offline"]


async def test_heartbeats_with_a_new_token_go_on_after_a_revocation(world):
    n1, bob = await watched(world, "n1")
    await n1.node.sessions.beat_by_rest("ana", "phone", Platform.MOBILE, None, issued_at=world.now)
    await world.sleep(1)
    await n1.run(n1.node.admin.revoke("ana", world.now))
    await world.sleep(1)
    await n1.node.sessions.beat_by_rest("ana", "phone", Platform.MOBILE, None, issued_at=world.now)
    await world.sleep(60)
    assert bob.saw("ana") == ["offline", "online"]
