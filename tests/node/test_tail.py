"""The log is the inbox: gaps, restarts and silence are noticed."""

import asyncio

import pytest
from tests.node.scenes import Stalled, Underway, slow_look

from herenow.core.model import Mode
from herenow.core.shards import shard_of
from herenow.errors import Unavailable
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def apart(world):
    """ana on n1; bob looks on from n2."""
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n1)
    await bob.connect(n2)
    await bob.watch("ana")
    await world.sleep(1)
    return n1, n2, ana, bob


async def test_e7_a_tail_that_was_away_reads_on_where_it_stood(world):
    n1, n2, _, bob = await apart(world)
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n2", calls=("tail",))):
        await world.sleep(1)
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(1.5)
        assert bob.saw("ana") == ["online"]
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps == 0


async def test_e7_a_log_that_was_trimmed_meanwhile_is_a_gap_and_is_closed(world):
    n1, n2, _, bob = await apart(world)
    tail = Stalled(n2.node.context.engine, "tail")
    await world.sleep(1.1)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    world.faults.cut_log(n1.node.context.people.find("ana").shard)
    await tail.release()
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps == 1


async def test_a_departure_that_fell_into_a_gap_is_noticed_though_the_record_has_left_the_store(world):
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


async def test_a_tail_that_hears_nothing_without_an_error_is_found_out(world):
    n1, n2, _, bob = await apart(world)
    with world.faults.during(Rule(Fault.TAIL_SILENCE, node="n2")):
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(8)
        assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps > 0
    await n1.node.sessions.set_mode("ana", Mode.AWAY, None)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "busy", "away"]


async def test_e5_what_is_shown_without_hearing_anything_is_called_stale_once(world):
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


async def test_where_one_shard_is_silent_the_others_are_as_fresh_as_ever(world):
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


async def test_a_deaf_tail_is_found_out_though_another_shard_does_not_answer(world):
    n1, n2, _, bob = await apart(world)
    away = next(shard for shard in range(4) if shard != n1.node.context.people.find("ana").shard)
    deaf, silent = Rule(Fault.TAIL_SILENCE, node="n2"), Rule(Fault.SHARD_SILENCE, node="n2", shard=away)
    with world.faults.during(deaf, silent):
        await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
        await world.sleep(8)
        assert bob.saw("ana") == ["online", "busy"]
    assert n2.node.context.metrics.log_gaps > 0


async def test_no_node_begins_where_a_log_cannot_be_read(world):
    with world.faults.during(Rule(Fault.SHARD_SILENCE, shard=2)):
        with pytest.raises(Unavailable, match="the logs of 1 shards do not answer"):
            await world.start("n1")


async def test_a_shard_that_is_silent_for_a_moment_is_not_called_anything(world):
    n1, n2, _, bob = await apart(world)
    shard = n1.node.context.people.find("ana").shard
    for _ in range(4):
        with world.faults.during(Rule(Fault.SHARD_SILENCE, node="n2", shard=shard)):
            await world.sleep(2)
        await world.sleep(2)
    assert len(bob.shown["ana"]) == 1


async def test_a_short_hiccup_is_not_called_anything(world):
    n1, n2, _, bob = await apart(world)
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n2")):
        await world.sleep(2)
    await world.sleep(5)
    assert len(bob.shown["ana"]) == 1


async def test_a_log_that_begins_anew_is_a_loss(world):
    n1, n2, _, bob = await apart(world)
    shard = n1.node.context.people.find("ana").shard
    world.store.empty(shard)
    await world.sleep(2)
    assert shard in n2.node.context.authority.closed_shards
    assert bob.last("ana").stale
    await world.sleep(10)
    assert bob.saw("ana") == ["online"]
    assert not bob.last("ana").stale


async def test_what_a_later_reader_finds_before_the_log_tells_it_is_told_to_who_looked_before(world):
    """bob and cy ask at once; bob's read finds nobody, cy's finds ana, who has come meanwhile."""
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


async def test_heads_that_were_read_before_a_commit_and_answered_after_it_are_no_loss(world):
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


async def test_a_gap_that_was_found_before_a_check_went_on_and_told_after_it_is_no_loss(world):
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


async def test_a_shard_whose_commits_are_in_doubt_keeps_nobody_from_hearing_of_the_others(world):
    """It takes no writes, so that n2 cannot find out what became of its last one; and its log has a gap."""
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
