"""Data that must outlive the store is written to the ledger, even if nodes die meanwhile."""

import pytest
from structlog.testing import capture_logs
from tests.node.scenes import meet

from herenow.core.model import Mode
from herenow.core.shards import shard_of
from herenow.node.records import ledger_writer
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.settings import node_settings

pytestmark = pytest.mark.looptime(noop_cycles=0)


def marks(world):
    return sorted(user for shard in world.store.shards for user in shard.marks)


async def test_h4_last_seen_of_a_thousand_users_who_leave_during_a_ledger_outage_is_saved_afterwards(world):
    node = await world.start("n1")
    crowd = [world.client(f"u{number}") for number in range(1_000)]
    for client in crowd:
        client.open(node)
    await world.sleep(2)
    world.ledger.away = True
    for client in crowd:
        client.close()
    left = world.now
    await world.sleep(60)
    assert world.ledger.people == {}
    assert node.node.records.backlog == 1_000
    assert len(marks(world)) == 1_000
    world.ledger.away = False
    await world.sleep(5)
    assert len(world.ledger.people) == 1_000
    assert all(abs((known.last_seen or 0) - left) <= 2 for known in world.ledger.people.values())
    assert marks(world) == []
    assert world.everybody_stored() == {}


async def test_last_seen_is_saved_when_a_connection_is_lost_and_not_only_when_offline_is_shown(world):
    _, ana, bob = await meet(world)
    ana.close()
    await world.sleep(3)
    assert bob.saw("ana") == ["online"]
    assert world.ledger.people["ana"].last_seen is not None


async def test_a_record_not_yet_saved_to_the_ledger_is_saved_by_another_node_after_its_node_died(world):
    world.settings = node_settings(world.settings, ledger_flush=30.0)
    n1, ana, _ = await meet(world)
    await n1.node.sessions.set_mode("bob", Mode.AWAY, None)
    world.settings = node_settings(world.settings, ledger_flush=1.0)
    ana.close()
    await world.sleep(1)
    n1.kill()
    assert "ana" in marks(world)
    n2 = await world.start("n2")
    await world.sleep(60)
    assert world.ledger.people["ana"].last_seen is not None
    assert marks(world) == []
    assert n2.node.records.backlog == 0


async def test_a_record_counts_as_unsaved_until_the_ledger_has_confirmed_the_write(world):
    _, ana, _ = await meet(world)
    world.ledger.delay = 5.0
    ana.close()
    await world.sleep(4)
    assert "ana" in marks(world)
    await world.sleep(8)
    assert "ana" not in marks(world)
    assert "ana" in world.ledger.people


async def test_a_slow_ledger_does_not_delay_status_changes_to_viewers(world):
    node, ana, bob = await meet(world)
    world.ledger.delay = 9.0
    ana.rest()
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "away"]


@pytest.mark.parametrize("fault", [Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE])
async def test_no_user_is_lost_if_the_removal_of_a_saved_record_from_the_store_has_an_unknown_outcome(world, fault):
    node, ana, bob = await meet(world)
    with world.faults.during(Rule(fault, calls=("saved",), probability=0.7)):
        ana.close()
        await world.sleep(40)
        await ana.connect(node)
        await world.sleep(1)
        ana.close()
        await world.sleep(40)
    await world.sleep(20)
    assert bob.saw("ana") == ["online", "offline", "online", "offline"]
    assert world.stored("ana") is None
    assert world.ledger.people["ana"].last_seen == bob.last("ana").last_seen


async def test_activity_of_an_invisible_user_is_never_saved_to_the_ledger(world):
    node, ana, _ = await meet(world)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    hidden = world.now
    await world.sleep(50)
    ana.act()
    ana.close()
    await world.sleep(60)
    assert world.ledger.people["ana"].last_seen == pytest.approx(hidden, abs=2)


async def test_after_missing_log_entries_saved_records_stay_in_the_store_for_about_a_minute(world):
    """Other nodes may be about to offer an older record, which would replace the dropped one."""
    node, ana, _ = await meet(world)
    ana.close()
    await world.sleep(20)
    shard = node.node.context.people.find("ana").shard
    neighbour = next(user for user in (f"cy{n}" for n in range(100)) if shard_of(user, 4) == shard)
    with world.faults.during(Rule(Fault.LOG_GAP)):
        await world.client(neighbour).connect(node)
    assert node.node.context.metrics.log_gaps > 0
    await world.sleep(12)
    assert world.stored("ana") is not None
    assert world.ledger.people["ana"].last_seen is not None
    await world.sleep(70)
    assert world.stored("ana") is None


async def test_an_error_while_saving_to_the_ledger_does_not_end_the_background_writer(world):
    node, ana, bob = await meet(world)
    save = world.ledger.save_last_seen
    fails = 2

    async def broken(rows):
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise RuntimeError("a mistake")
        await save(rows)

    world.ledger.save_last_seen = broken
    with capture_logs() as logs:
        ana.close()
        await world.sleep(1.5)
        assert node.node.records.save_late
        await world.sleep(5)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["ledger.failed"] * 2
    assert not node.node.records.save_late
    assert world.ledger.people["ana"].last_seen is not None


async def test_mode_changes_during_a_ledger_outage_leave_no_waiting_callers_in_memory(world):
    node, ana, _ = await meet(world)
    world.ledger.away = True
    for number in range(20):
        await node.node.sessions.set_mode("ana", Mode.BUSY if number % 2 else Mode.AWAY, None)
    assert node.node.records.ledger_writer._waiting == []


async def crowd(world, *users):
    [node] = await world.start_all("n1")
    clients = [world.client(user) for user in users]
    for client in clients:
        await client.connect(node)
    await world.sleep(2)
    return node, clients


async def test_a_store_shard_that_cannot_drop_saved_records_does_not_block_other_shards(world, monkeypatch):
    """More users than fit into one write, and they come first."""
    monkeypatch.setattr(ledger_writer, "PART", 4)
    users = [f"u{number}" for number in range(60)]
    stuck = [user for user in users if shard_of(user, 4) == 0][:6]
    others = [user for user in users if shard_of(user, 4) != 0][:10]
    node, clients = await crowd(world, *stuck, *others)
    with world.faults.during(Rule(Fault.UNAVAILABLE, shard=0, calls=("saved", "unsaved"))):
        for client in clients:
            await client.bye()
        await world.sleep(60)
        assert world.ledger.people.keys() == {*stuck, *others}
        assert all(known.last_seen for known in world.ledger.people.values())
        assert node.node.records.backlog == 0
        assert marks(world) == sorted(stuck)
    await world.sleep(20)
    assert marks(world) == []
    assert world.everybody_stored() == {}


async def test_an_unresponsive_store_shard_does_not_block_the_saving_of_records_of_other_shards(world):
    world.settings = node_settings(world.settings, ledger_flush=300.0)
    other = next(user for user in map("u{}".format, range(60)) if shard_of(user, 4) == 3)
    node, [client] = await crowd(world, other)
    client.close()
    await world.sleep(1)
    node.kill()
    assert marks(world) == [other]
    world.settings = node_settings(world.settings, ledger_flush=1.0)
    with world.faults.during(Rule(Fault.UNAVAILABLE, shard=0, calls=("unsaved",))):
        await world.start("n2")
        await world.sleep(20)
        assert world.ledger.people[other].last_seen is not None


async def test_a_store_outage_is_not_reported_as_a_ledger_outage(world):
    node, ana, _ = await meet(world)
    await world.sleep(5)
    errors = node.node.context.metrics.engine_errors
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("saved", "unsaved"))):
        ana.close()
        await world.sleep(20)
        assert node.node.records.save_trouble is not None
        assert not node.node.records.save_late
        assert node.node.context.metrics.ledger_errors == 0
        assert node.node.context.metrics.engine_errors > errors
    await world.sleep(20)
    assert node.node.records.save_trouble is None


async def test_the_ledger_backlog_in_memory_is_bounded_and_users_beyond_it_are_saved_later(world, monkeypatch):
    monkeypatch.setattr(ledger_writer, "BACKLOG", 5)
    node, clients = await crowd(world, *map("u{}".format, range(20)))
    world.ledger.away = True
    for client in clients:
        await client.bye()
    await world.sleep(20)
    assert node.node.records.backlog == 5
    assert len(marks(world)) == 20
    world.ledger.away = False
    await world.sleep(20)
    assert len(world.ledger.people) == 20
    assert marks(world) == []
