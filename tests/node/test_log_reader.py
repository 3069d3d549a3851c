"""The log reader notices gaps, restarts and silence of the log."""

import asyncio

import pytest
from tests.node.scenes import Stalled, Underway, slow_look

from herenow.core.model import Mode
from herenow.core.shards import shard_of
from herenow.errors import Unavailable
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def apart(world):
    """ana on n1; bob watches her from n2."""
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n1)
    await bob.connect(n2)
    await bob.watch("ana")
    await world.sleep(1)
    return n1, n2, ana, bob


async def test_e7_after_an_outage_a_node_reads_on_in_the_log_of_the_store_where_it_stopped(world):
    n1, n2, _, bob = await apart(world)
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n2", calls=("tail",))):
        await world.sleep(1)
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(1.5)
        assert bob.saw("ana") == ["online"]
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps == 0


async def test_e7_a_node_catches_up_on_changes_whose_log_entries_were_trimmed_during_an_outage(world):
    n1, n2, _, bob = await apart(world)
    tail = Stalled(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    world.faults.cut_log(n1.node.context.people.find("ana").shard)
    await tail.release()
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps == 1


async def test_a_sign_out_whose_log_entry_is_gone_is_noticed_even_if_the_record_was_dropped(world):
    n1, n2, ana, bob = await apart(world)
    tail, heads = Stalled(n2.node.context.engine, "tail"), Stalled(n2.node.context.engine, "heads")
    await world.sleep(1.1)
    await ana.bye()
    await world.sleep(5)
    assert world.stored("ana") is None
    world.faults.cut_log(n2.node.context.people.find("ana").shard)
    await tail.release()
    await heads.release()
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").last_seen is not None


async def test_a_node_notices_that_its_log_reader_receives_no_entries_although_there_is_no_error(world):
    n1, n2, _, bob = await apart(world)
    with world.faults.during(Rule(Fault.TAIL_SILENCE, node="n2")):
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(8)
        assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps > 0
    await n1.node.sessions.set_mode("ana", Mode.AWAY, None)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy", "away"]


async def test_e5_a_node_cut_off_from_the_store_marks_its_statuses_stale_once(world):
    n1, n2, _, bob = await apart(world)
    with world.faults.during(Rule(Fault.SILENCE, node="n2")):
        await world.sleep(7)
        assert [(shown.status, shown.stale) for shown in bob.shown["ana"]] == [("online", False), ("online", True)]
        [told] = await n2.node.viewing.statuses("bob", ["ana"])
        assert b'"stale":true' in told
    await world.sleep(2)
    assert [(shown.status, shown.stale) for shown in bob.shown["ana"]][2:] == [("online", False)]
    times = [shown.as_of for shown in bob.shown["ana"]]
    assert times == sorted(times)


async def test_a_silent_shard_of_the_store_does_not_make_statuses_of_other_shards_stale(world):
    n1, n2, _, bob = await apart(world)
    shard = n1.node.context.people.find("ana").shard
    near = next(
        name for name in map("u{}".format, range(1_000)) if shard_of(name, n1.node.context.engine.shards) != shard
    )
    await world.befriend("bob", near)
    await world.client(near).connect(n1)
    await bob.watch(near)
    await world.sleep(1)
    with world.faults.during(Rule(Fault.SHARD_SILENCE, node="n2", shard=shard)):
        await n1.node.sessions.set_mode(near, Mode.BUSY, None)
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(7)
        assert bob.last("ana").stale
        assert [(shown.status, shown.stale) for shown in bob.shown[near]][-1] == ("busy", False)
    await world.sleep(2)
    assert [(shown.status, shown.stale) for shown in bob.shown["ana"]][-1] == ("busy", False)
    assert not any(shown.stale for shown in bob.shown[near])


async def test_a_log_reader_that_receives_nothing_is_noticed_even_if_another_shard_does_not_answer(world):
    n1, n2, _, bob = await apart(world)
    away = next(shard for shard in range(4) if shard != n1.node.context.people.find("ana").shard)
    deaf, silent = Rule(Fault.TAIL_SILENCE, node="n2"), Rule(Fault.SHARD_SILENCE, node="n2", shard=away)
    with world.faults.during(deaf, silent):
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(8)
        assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps > 0


async def test_a_node_does_not_start_while_the_log_of_a_shard_cannot_be_read(world):
    with world.faults.during(Rule(Fault.SHARD_SILENCE, shard=2)):
        with pytest.raises(Unavailable, match="the logs of 1 shards cannot be read"):
            await world.start("n1")


async def test_a_shard_of_the_store_that_is_silent_for_two_seconds_makes_no_status_stale(world):
    n1, n2, _, bob = await apart(world)
    shard = n1.node.context.people.find("ana").shard
    for _ in range(4):
        with world.faults.during(Rule(Fault.SHARD_SILENCE, node="n2", shard=shard)):
            await world.sleep(2)
        await world.sleep(2)
    assert len(bob.shown["ana"]) == 1


async def test_a_store_outage_of_two_seconds_makes_no_status_stale(world):
    n1, n2, _, bob = await apart(world)
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n2")):
        await world.sleep(2)
    await world.sleep(5)
    assert len(bob.shown["ana"]) == 1


async def test_a_log_whose_entry_numbers_restart_is_treated_as_data_loss_of_its_shard(world):
    n1, n2, _, bob = await apart(world)
    shard = n1.node.context.people.find("ana").shard
    world.store.empty(shard)
    await world.sleep(2)
    assert shard in n2.node.context.authority.closed_shards
    assert bob.last("ana").stale
    await world.sleep(10)
    assert bob.saw("ana") == ["online"]
    assert not bob.last("ana").stale


async def test_a_change_that_a_read_finds_before_the_log_brings_it_is_sent_to_all_viewers(world):
    """bob and cy subscribe at once; bob's read finds no record, cy's finds ana, who connected meanwhile."""
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob", "cy")
    ana, bob, cy = world.client("ana"), world.client("bob"), world.client("cy")
    await bob.connect(n2)
    await cy.connect(n2)
    answer = await slow_look(world, n2, cy, "ana")
    await bob.watch("ana")
    log = Stalled(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    await ana.connect(n1)
    await answer()
    await world.sleep(0.1)
    assert cy.saw("ana") == ["online"]
    assert bob.saw("ana") == ["offline", "online"]
    await log.release()
    await world.sleep(1)
    assert cy.saw("ana") == ["online"]
    assert bob.saw("ana") == ["offline", "online"]


async def test_a_log_position_read_before_a_commit_and_answered_after_it_is_not_taken_for_data_loss(world):
    n1, n2, _, bob = await apart(world)
    heads = Underway(n2.node.context.engine, "heads")
    check = asyncio.create_task(n2.node.cluster.log_reader.check())
    await world.sleep(0.01)
    assert heads.waiting
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "busy"], "the log was read meanwhile"
    await heads.release()
    await check
    await world.sleep(1)
    assert n2.node.context.metrics.shards_lost == n2.node.context.metrics.log_gaps == 0
    assert not any(shown.stale for shown in bob.shown["ana"])


async def test_log_entries_reported_missing_after_a_check_has_read_them_are_not_taken_for_data_loss(world):
    n1, n2, _, bob = await apart(world)
    log = Underway(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    with world.faults.during(Rule(Fault.LOG_GAP)):
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(0.1)
    assert log.waiting
    await n1.node.sessions.set_mode("ana", Mode.AWAY, None)
    for _ in range(2):
        await n2.node.cluster.log_reader.check()
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "away"], "the check has read it"
    await log.release()
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "away", "busy"]
    assert n2.node.context.metrics.shards_lost == 0


async def test_a_shard_with_store_writes_of_unknown_outcome_does_not_delay_changes_of_other_shards(world):
    """The shard refuses writes, so that n2 cannot resolve its last commit; and its log has a gap."""
    n1, n2, _, bob = await apart(world)
    shard = shard_of("ana", 4)
    names = list(map("u{}".format, range(100)))
    here = next(name for name in names if shard_of(name, 4) == shard)
    far = next(name for name in names if shard_of(name, 4) != shard)
    await world.befriend("bob", far)
    await world.client(far).connect(n1)
    await world.client(here).connect(n2)
    await bob.watch(far)
    await world.sleep(1)
    refused = Rule(Fault.UNAVAILABLE, node="n2", shard=shard, calls=("jump",))
    with world.faults.during(refused, Rule(Fault.NOT_EXECUTED, node="n2", shard=shard, calls=("commit",))):
        changing = asyncio.create_task(n2.node.sessions.set_mode(here, Mode.BUSY, None))
        await world.sleep(1)
        with world.faults.during(Rule(Fault.LOG_GAP, shard=shard)):
            await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(10)
        await n1.node.sessions.set_mode(far, Mode.AWAY, None)
        await world.sleep(1)
        assert bob.saw("ana") == ["online", "busy"]
        assert bob.saw(far) == ["online", "away"]
    await asyncio.gather(changing, return_exceptions=True)
    assert n2.node.context.metrics.shards_lost == 0
