"""Each simulated fault has its documented effect, and is counted when it takes effect."""

import asyncio
from itertools import islice

import pytest

from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.errors import Unavailable, UnknownOutcome
from herenow.ports import Committed, Engine, Fenced, Lease, Loaded, Write
from herenow_testing.contracts.engine import NOW, TERMS, head_of, joined, record, stored, user_of, users_of
from herenow_testing.faults.faulty_engine import Fault, Faults, FaultyEngine, Rule
from herenow_testing.world.manual_clock import LoopClock, ManualClock

pytestmark = pytest.mark.looptime


@pytest.fixture
def store():
    return MemoryStore(4)


@pytest.fixture
def faults(store):
    return Faults(seed=1, store=store)


@pytest.fixture
async def n1(store, faults):
    return await opened(FaultyEngine(MemoryEngine(store), faults, "n1"))


@pytest.fixture
async def n2(store, faults):
    return await opened(FaultyEngine(MemoryEngine(store), faults, "n2"))


@pytest.fixture
async def truth(store):
    """An engine without faults."""
    return await opened(MemoryEngine(store))


async def opened(engine: Engine) -> Engine:
    await engine.open(TERMS)
    return engine


# Outcomes


async def test_a_simulated_fault_executes_a_write_and_reports_an_unknown_outcome(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.EXECUTED)), pytest.raises(UnknownOutcome):
        await node.write(Write(user, None, record(1)))
    assert await stored(truth, user) == record(1)
    assert await truth.jump(0, node.epoch, 10) == 1
    assert faults.taken == {Fault.EXECUTED: 1}


async def test_a_simulated_fault_skips_a_write_and_reports_an_unknown_outcome(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.NOT_EXECUTED)), pytest.raises(UnknownOutcome):
        await node.write(Write(user, None, record(1)))
    await n1.heads()
    assert await stored(truth, user) is None
    assert await truth.jump(0, node.epoch, 10) == 0


async def test_simulated_unknown_outcomes_affect_only_writes_to_the_live_store(n1, faults):
    doubts = (Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE)
    with faults.during(*[Rule(fault) for fault in doubts]):
        await n1.load(["ana"])
        await n1.due([0], NOW, 10)
        await n1.tail(await n1.heads(), 1)
        await n1.receive(1)
    assert not faults.taken


async def test_a_simulated_late_write_is_executed_after_other_calls_to_the_live_store(n1, n2, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.LATE, reach=3)), pytest.raises(UnknownOutcome):
        await node.write(Write(user, None, record(1)))
    assert await stored(truth, user) is None
    await n2.heads()
    assert await stored(truth, user) is None
    for _ in range(3):
        await n2.heads()
    assert await stored(truth, user) == record(1), "calls of another node count too"


async def test_the_fault_simulator_can_execute_late_writes_at_once(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.LATE)), pytest.raises(UnknownOutcome):
        await node.write(Write(user, None, record(1)))
    await faults.run_late()
    assert await stored(truth, user) == record(1)


async def test_a_late_batch_is_refused_after_the_node_has_raised_its_fence_number(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.LATE, calls=("commit",))), pytest.raises(UnknownOutcome):
        await node.write(Write(user, None, record(1)))
    assert await n1.jump(0, node.epoch, 10) == 0
    await faults.run_late()
    assert await stored(truth, user) is None


async def test_a_live_store_call_with_the_simulated_error_unavailable_is_not_executed(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.UNAVAILABLE)):
        with pytest.raises(Unavailable):
            await node.write(Write(user, None, record(1)))
        with pytest.raises(Unavailable):
            await n1.load([user])
    assert await stored(truth, user) is None
    assert faults.taken[Fault.UNAVAILABLE] == 2
    await node.write(Write(user, None, record(1)))


# Silence


async def test_a_call_to_a_silent_live_store_raises_an_error_at_the_time_limit(n1, truth, faults, looptime):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.SILENCE, limit=0.5)):
        with pytest.raises(UnknownOutcome):
            await node.write(Write(user, None, record(1)))
        assert looptime == 0.5
        with pytest.raises(Unavailable):
            await n1.load([user])
        assert looptime == 1.0
    await n1.heads()
    assert await stored(truth, user) is None
    assert faults.taken[Fault.SILENCE] == 2


async def test_a_call_to_a_silent_live_store_succeeds_if_the_silence_ends_before_the_time_limit(
    n1, truth, faults, looptime
):
    node, user = await joined(n1), user_of(n1, 0)
    rule = faults.on(Rule(Fault.SILENCE, limit=5))
    asyncio.get_running_loop().call_later(2, faults.off, rule)
    await node.write(Write(user, None, record(1)))
    assert looptime == 2
    faults.on(Rule(Fault.SILENCE, limit=5, end=6))
    assert await stored(n1, user) == record(1)
    assert looptime == 6


async def test_a_caller_of_a_silent_live_store_may_be_cancelled_before_the_time_limit(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.SILENCE, limit=60)), pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await node.write(Write(user, None, record(1)))
    assert await stored(truth, user) is None


@pytest.mark.parametrize("given_up_by", ["limit", "caller"])
async def test_a_frozen_live_store_executes_calls_that_were_given_up_when_it_resumes(
    n1, n2, truth, faults, given_up_by
):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(Rule(Fault.FROZEN, limit=2 if given_up_by == "limit" else 60)):
        with pytest.raises((UnknownOutcome, TimeoutError)):
            async with asyncio.timeout(5):
                await node.write(Write(user, None, record(1)))
        assert await stored(truth, user) is None
    await n2.heads()
    assert await stored(truth, user) == record(1)


async def test_a_frozen_live_store_answers_calls_in_order_of_arrival_when_it_resumes(n1, n2, faults):
    node, user = await joined(n1), user_of(n1, 0)
    faults.on(Rule(Fault.FROZEN, limit=2, end=3))
    with pytest.raises(UnknownOutcome):
        await node.write(Write(user, None, record(1)))
    assert await stored(n2, user) == record(1), "asked later, answered after the write that came before"


async def test_a_simulated_fault_can_cut_off_a_single_node_from_the_live_store(n1, n2, faults):
    with faults.during(Rule(Fault.SILENCE, node="n1")):
        await n2.load(["ana"])
        with pytest.raises(Unavailable):
            await n1.load(["ana"])


async def test_a_node_cut_off_from_the_live_store_gets_no_log_entries_and_no_messages(n1, n2, faults):
    node, heads = await joined(n2), await n1.heads()
    waiting = [asyncio.create_task(n1.tail(heads, 10)), asyncio.create_task(n1.receive(10))]
    await asyncio.sleep(1)
    with faults.during(Rule(Fault.SILENCE, node="n1")):
        await node.write(Write(user_of(n1, 0), None, record(1), note=b"n"))
        await n2.send(b"hello")
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
    assert len((await n1.tail(heads, 0))[0].entries) == 1, "the log still has it"


async def test_live_store_calls_with_simulated_delays_finish_out_of_order(n1, n2, faults, looptime):
    faults.on(Rule(Fault.DELAY, limit=0.2))
    finished = []

    async def one(number):
        await n1.heads()
        finished.append(number)

    await asyncio.gather(*[one(number) for number in range(20)])
    assert finished != sorted(finished) == list(range(20))
    assert 0 < looptime <= 0.2
    assert faults.taken[Fault.DELAY] == 20


async def test_with_a_simulated_delay_log_readers_see_a_write_before_its_writer_gets_the_answer(n1, truth, faults):
    node, heads = await joined(n1), await truth.heads()
    faults.on(Rule(Fault.DELAY, limit=1, calls=("commit",)))
    writing = asyncio.create_task(node.write(Write(user_of(n1, 0), None, record(1), note=b"n")))
    assert len(await truth.tail(heads, 10)) == 1
    assert not writing.done()
    await writing


# Faults of readers


async def test_a_simulated_fault_withholds_existing_log_entries_from_one_node(n1, n2, faults, looptime):
    node, heads = await joined(n1), await n1.heads()
    with faults.during(Rule(Fault.TAIL_SILENCE, node="n1")):
        assert await n1.tail(heads, 2) == []
        assert not faults.taken, "there was nothing to withhold"
        await node.write(Write(user_of(n1, 0), None, record(1), note=b"n"))
        assert await n1.tail(heads, 5) == []
        assert looptime == 7
        assert len(await n2.tail(heads, 5)) == 1
    assert faults.taken == {Fault.TAIL_SILENCE: 1}
    assert len(await n1.tail(heads, 5)) == 1


async def test_a_simulated_log_gap_removes_the_log_entries_of_one_write(n1, n2, faults):
    node, heads = await joined(n1), await n1.heads()
    waiting = asyncio.create_task(n2.tail(heads, 10))
    await asyncio.sleep(1)
    with faults.during(Rule(Fault.LOG_GAP)):
        await node.write(Write(user_of(n1, 0), None, record(1), note=b"n"))
    (part,) = await waiting
    assert (part.gap, part.entries, part.head) == (True, (), heads[0] + 1)
    assert faults.taken == {Fault.LOG_GAP: 1}


async def test_the_fault_simulator_can_remove_old_log_entries_and_a_reader_learns_that_some_are_missing(n1, faults):
    node, head = await joined(n1), await head_of(n1)
    await node.write(*[Write(user, None, record(1), note=b"n") for user in islice(users_of(n1, 0), 5)])
    faults.cut_log(0, keep=2)
    (part,) = await n1.tail({0: head}, 0)
    assert (part.gap, len(part.entries)) == (True, 2)
    assert faults.taken == {Fault.LOG_GAP: 1}


async def test_a_simulated_fault_loses_messages_of_the_sender_or_of_one_receiver(n1, n2, faults):
    with faults.during(Rule(Fault.MESSAGE_LOST, node="n1", calls=("send",))):
        await n1.send(b"to nobody")
        await n2.send(b"to all")
    with faults.during(Rule(Fault.MESSAGE_LOST, node="n1", calls=("receive",))):
        assert await n1.receive(0) == []
    assert await n2.receive(0) == [b"to all"]
    assert faults.taken == {Fault.MESSAGE_LOST: 2}


# Data loss


async def test_a_simulated_rollback_of_a_shard_loses_its_latest_acknowledged_writes_and_fence_numbers(
    n1, truth, faults
):
    users = list(islice(users_of(n1, 0), 6))
    faults.on(Rule(Fault.ROLLBACK, calls=("due",), times=1, reach=3))
    node = await joined(n1)
    for user in users:
        await node.write(Write(user, None, record(1)))
    assert not faults.taken
    await n1.due([0], NOW, 10)
    left = [found.record is not None for found in await truth.load(users)]
    assert 3 <= sum(left) <= 5
    assert left == sorted(left, reverse=True), "the latest were lost"
    assert await n1.commit(node.batch()) == Fenced(sum(left))
    assert faults.taken == {Fault.ROLLBACK: 1}


async def test_a_simulated_rollback_of_an_unchanged_shard_does_nothing(n1, faults):
    faults.on(Rule(Fault.ROLLBACK))
    await n1.due([0], NOW, 10)
    assert not faults.taken


async def test_the_fault_simulator_can_roll_back_a_shard_to_a_remembered_state(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    faults.remember(0)
    await node.write(Write(user, None, record(1)))
    faults.roll_back(0)
    assert await stored(truth, user) is None
    assert faults.taken == {Fault.ROLLBACK: 1}


async def test_the_fault_simulator_can_roll_back_the_whole_live_store_including_node_leases(n1, truth, faults):
    await n1.renew(Lease("e", 1, NOW), begins=True)
    faults.remember()
    await n1.renew(Lease("e", 2, NOW))
    await (await joined(n1, 2)).write(Write(user_of(n1, 2), None, record(1)))
    faults.roll_back()
    assert await truth.leases() == [Lease("e", 1, NOW)]
    assert await stored(truth, user_of(n1, 2)) is None


async def test_a_fault_rule_empties_only_the_shard_that_a_call_uses(n1, truth, faults):
    for shard in (0, 1):
        await (await joined(n1, shard)).write(Write(user_of(n1, shard), None, record(1)))
    faults.on(Rule(Fault.EMPTY, shard=1, times=1))
    await n1.due([0], NOW, 10)
    assert not faults.taken
    await n1.due([1], NOW, 10)
    found = await truth.load([user_of(n1, 0), user_of(n1, 1)])
    assert found == [Loaded(record(1), settled=True), Loaded(None, settled=False)]
    assert faults.taken == {Fault.EMPTY: 1}


async def test_a_fault_rule_empties_the_whole_live_store_at_a_set_time(n1, truth, faults):
    await n1.renew(Lease("e", 1, NOW), begins=True)
    faults.on(Rule(Fault.EMPTY, begin=10, times=1, whole=True))
    assert await n1.renew(Lease("e", 2, NOW))
    await asyncio.sleep(10)
    assert not await n1.renew(Lease("e", 3, NOW))
    assert await truth.leases() == []
    await n1.renew(Lease("f", 1, NOW), begins=True)
    assert faults.taken == {Fault.EMPTY: 1}


async def test_the_fault_simulator_can_empty_the_live_store_directly(n1, truth, faults):
    await (await joined(n1)).write(Write(user_of(n1, 0), None, record(1)))
    faults.empty()
    assert await truth.load([user_of(n1, 0)]) == [Loaded(None, settled=False)]


async def test_the_fault_simulator_cannot_empty_a_live_store_that_it_was_not_given():
    with pytest.raises(AssertionError, match="store="):
        Faults().empty()


# Selection of calls


async def test_a_fault_rule_applies_only_within_its_time_window(n1, faults):
    faults.on(Rule(Fault.UNAVAILABLE, begin=1, end=2))
    struck = []
    for _ in range(4):
        outcomes = await asyncio.gather(n1.heads(), return_exceptions=True)
        struck.append(isinstance(outcomes[0], Unavailable))
        await asyncio.sleep(0.75)
    assert struck == [False, False, True, False]


async def test_a_fault_rule_applies_the_given_number_of_times(n1, faults):
    faults.on(Rule(Fault.UNAVAILABLE, times=2))
    outcomes = [(await asyncio.gather(n1.heads(), return_exceptions=True))[0] for _ in range(4)]
    assert [isinstance(outcome, Unavailable) for outcome in outcomes] == [True, True, False, False]


async def test_a_fault_rule_applies_only_to_its_named_calls_and_shard(n1, faults):
    faults.on(Rule(Fault.UNAVAILABLE, calls=("due", "walk"), shard=1))
    await n1.due([0], NOW, 1)
    await n1.unsaved(1, 1)
    for call in (n1.due([1], NOW, 1), n1.walk(1, None, 1)):
        with pytest.raises(Unavailable):
            await call


async def outcomes_of(seed):
    store = MemoryStore(4)
    plan = [Rule(fault, probability=0.2) for fault in (Fault.EXECUTED, Fault.LATE, Fault.UNAVAILABLE, Fault.ROLLBACK)]
    faults = Faults(seed, plan, store=store)
    engine = FaultyEngine(MemoryEngine(store), faults)
    node, user = await joined(MemoryEngine(store)), user_of(engine, 0)
    found = []
    for version in range(1, 60):
        batch = node.batch(Write(user, await stored(MemoryEngine(store), user), record(version)))
        (outcome,) = await asyncio.gather(engine.commit(batch), return_exceptions=True)
        found.append(type(outcome).__name__)
        node.last = store.shards[0].fences[node.epoch]
    return found, faults.taken


async def test_the_same_random_seed_repeats_the_same_simulated_faults():
    found, taken = await outcomes_of(7)
    assert (found, taken) == await outcomes_of(7)
    assert found != (await outcomes_of(8))[0]
    assert set(found) >= {"Committed", "UnknownOutcome", "Unavailable"}
    assert set(taken) == {Fault.EXECUTED, Fault.LATE, Fault.UNAVAILABLE, Fault.ROLLBACK}


async def test_a_fault_rule_of_probability_one_half_affects_about_half_the_calls(n1, faults):
    faults.on(Rule(Fault.UNAVAILABLE, probability=0.5))
    await asyncio.gather(*[n1.heads() for _ in range(1000)], return_exceptions=True)
    assert 400 < faults.taken[Fault.UNAVAILABLE] < 600


async def test_a_live_store_connection_can_be_closed_while_the_store_is_unavailable(n1, faults):
    faults.on(Rule(Fault.UNAVAILABLE))
    await n1.close()


async def test_writes_to_the_live_store_work_again_after_all_simulated_faults_end(n1, truth, faults):
    node, user = await joined(n1), user_of(n1, 0)
    with faults.during(*[Rule(fault, probability=0.5) for fault in Fault]):
        for version in range(1, 50):
            batch = node.batch(Write(user, await stored(truth, user), record(version)))
            await asyncio.gather(n1.commit(batch), return_exceptions=True)
            await truth.join(0, node.epoch, 0)
            node.last = await truth.jump(0, node.epoch, 0)
    await faults.run_late()
    node.last = await n1.jump(0, node.epoch, 0)
    assert isinstance(await n1.commit(node.batch(Write(user, await stored(n1, user), record(99)))), Committed)
    assert await stored(truth, user) == record(99)


# Clocks


def test_the_manual_clock_for_tests_moves_only_when_advanced():
    clock = ManualClock(1_000)
    clock.advance(1_500)
    assert (clock.now(), clock.monotonic()) == (2_500, 1.5)
    clock.step(-2_000)
    assert (clock.now(), clock.monotonic()) == (500, 1.5)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)


async def test_the_loop_clock_for_tests_follows_the_time_of_the_event_loop():
    clock = LoopClock(1_000)
    await asyncio.sleep(0.3)
    assert (clock.now(), clock.monotonic()) == (1_300, 0.3)
    clock.step(60_000)
    assert (clock.now(), clock.monotonic()) == (61_300, 0.3)
