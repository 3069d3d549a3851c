"""A read is excluded because of the machine's load, never for being slow; and filling a store writes every user."""

import os
import random

import pytest
from bench.__main__ import SCENARIOS, main
from bench.calm import ENOUGH, WAITED, Computing, Taken, Times, taken
from bench.reads import Reads, figures, read_in_turns
from bench.redis import BATCH, EPOCH, Arrivals
from bench.redis_huge import Filling
from bench.report import Result
from click.testing import CliRunner

from herenow.engines.memory import MemoryStore
from herenow_testing.faults.faulty_engine import Fault, Faults, FaultyEngine, Rule


@pytest.mark.parametrize(
    ("later", "calm"),
    [
        (Taken(5, 7, 1_000), True),
        (Taken(5, 7, 1_000 + WAITED), True),
        (Taken(5, 7, 1_001 + WAITED), False),
        (Taken(5, 8, 1_000), False),
        (Taken(6, 7, 1_000), False),
    ],
)
def test_a_benchmark_measurement_is_undisturbed_if_no_cpu_time_was_taken_from_its_processes(later, calm):
    assert later.calm_since(Taken(5, 7, 1_000)) is calm


def test_the_benchmark_reads_from_the_kernel_how_much_cpu_time_was_taken_from_a_process():
    before = taken([os.getpid()])
    after = taken([os.getpid()])
    assert after.stolen >= before.stolen
    assert after.switched >= before.switched
    assert after.waited >= before.waited
    assert after.calm_since(after)


def test_only_undisturbed_benchmark_measurements_count_for_the_calm_percentile():
    times = Times()
    for _ in range(2 * ENOUGH):
        times.add(3.0, calm=True)
    for _ in range(ENOUGH):
        times.add(50.0, calm=False)
    assert (times.p50, times.p99, times.calm_p99) == (3.0, 50.0, 3.0)
    assert round(times.left_out) == 33
    for _ in range(ENOUGH):
        times.add(20.0, calm=True)
    assert times.calm_p99 == 20.0


def test_with_too_few_undisturbed_benchmark_measurements_all_of_them_count():
    times = Times([9.0] * ENOUGH, [1.0] * (ENOUGH - 1))
    assert times.calm_p99 == 9.0
    assert times.left_out == 0.0


def test_the_benchmark_target_for_reads_applies_to_undisturbed_reads_only():
    done = Reads(Times([3.0] * ENOUGH + [50.0] * 9, [3.0] * ENOUGH), Times([3.0], []))
    aimed = [figure for figure in figures([done], "a million") if figure.aim]
    assert [(figure.name, figure.met) for figure in aimed] == [("1000 of a million read together, p99 in calm", True)]


async def test_the_read_benchmark_alternates_reads_with_pure_computing():
    done = await read_in_turns(MemoryStore().handle(), os.getpid(), lambda: ["ann", "bob"], 5)
    assert len(done.read.calm) == 5 or len(done.read.all) == 25
    assert len(done.computed.all) == len(done.read.all)
    assert f"{len(done.read.all)} reads, {len(done.read.calm)} of them in calm" in done.machine


def test_a_pure_computing_step_of_the_read_benchmark_never_takes_negative_time():
    assert Computing(0.0).turn() >= 0


async def test_the_benchmark_fills_a_live_store_with_every_user_across_all_shards():
    store = MemoryStore()
    engine = store.handle()
    for shard in range(engine.shards):
        await engine.join(shard, EPOCH, 0)
    people = 3 * BATCH * engine.shards + 17
    await Filling(engine).arrive(people, Arrivals(random.Random(1)))
    assert store.records().keys() == {f"u{number:011d}" for number in range(people)}


async def test_the_benchmark_repeats_failed_batches_while_filling_a_live_store_and_misses_no_user():
    store = MemoryStore()
    faults = Faults(seed=3, store=store)
    for fault in (Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE):
        faults.on(Rule(fault, probability=0.2, calls=("commit",)))
    engine = FaultyEngine(store.handle(), faults)
    for shard in range(engine.shards):
        await store.handle().join(shard, EPOCH, 0)
    people = 2 * BATCH * engine.shards
    await Filling(engine).arrive(people, Arrivals(random.Random(1)))
    assert len(store.records()) == people
    assert all(faults.taken[fault] for fault in (Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE))


@pytest.mark.parametrize(
    ("arguments", "measured"),
    [(["redis"], ["redis"]), (["redis", "--huge"], ["redis", "redis-huge"]), (["idle", "--huge"], ["idle"])],
)
def test_the_huge_redis_benchmark_is_saved_as_a_separate_result(monkeypatch, tmp_path, arguments, measured):
    monkeypatch.setattr("bench.machine.pin", lambda _pid, _core: None)
    monkeypatch.setattr("bench.__main__.LAST", tmp_path)
    monkeypatch.setattr("bench.redis_huge.run", lambda _effort: Result("redis-huge"))
    for name in ("redis", "idle"):
        monkeypatch.setitem(SCENARIOS, name, lambda _effort, name=name: Result(name))
    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code == 0, answer.output
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == measured
