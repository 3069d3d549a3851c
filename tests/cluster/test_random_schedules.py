"""Under random faults in random order, viewers see true statuses.

`HERENOW_SEEDS=500 pytest tests/cluster/test_random_schedules.py` runs more seeds; a failing seed prints its trace and
can be repeated.
"""

import os
from contextlib import asynccontextmanager, closing

import looptime
import pytest
from structlog.testing import capture_logs
from tests.cluster.broken import BROKEN
from tests.cluster.schedule import FAULTS, Schedule

from herenow_testing.faults.faulty_engine import Fault

pytestmark = pytest.mark.looptime(noop_cycles=0)

SEEDS = range(int(os.environ.get("HERENOW_SEEDS", "30")))

BY_RULE = {
    "unavailable": Fault.UNAVAILABLE,
    "executed": Fault.EXECUTED,
    "not executed": Fault.NOT_EXECUTED,
    "late": Fault.LATE,
    "delay": Fault.DELAY,
    "message lost": Fault.MESSAGE_LOST,
    "deaf": Fault.TAIL_SILENCE,
    "log gap": Fault.LOG_GAP,
    "cut off": Fault.SILENCE,
    "frozen store": Fault.FROZEN,
}


@asynccontextmanager
async def ran(seed, **how):
    schedule = Schedule(seed, **how)
    with capture_logs() as logs:
        try:
            await schedule.run()
        finally:
            await schedule.close()
    died = [line for line in logs if line["event"] in ("task.died", "decide.failed") or line.get("exc_info")]
    schedule.checker.problems.extend(map(str, died))
    yield schedule


def report(schedule):
    """Everything needed to understand and repeat a failure."""
    problems = schedule.checker.problems
    return "\n".join(
        [
            f"seed {schedule.seed}: {len(problems)} problems",
            *problems[:10],
            *schedule.trace,
            str(schedule.checker.counts),
        ]
    )


@pytest.mark.parametrize("seed", SEEDS)
async def test_viewers_see_true_statuses_under_random_faults(seed):
    async with ran(seed) as schedule:
        counts = schedule.checker.counts
        assert not schedule.checker.problems, report(schedule)
        assert counts["shown"] > 50
        assert counts["looked"] > 100
        assert counts["told"] > 100
        assert counts["compared"] >= 3 * 3 * len(schedule.users)


@pytest.mark.parametrize("kind", FAULTS)
async def test_each_single_fault_takes_effect_and_viewers_still_see_true_statuses(kind):
    async with ran(1, faults=[kind]) as schedule:
        assert not schedule.checker.problems, report(schedule)
        if kind in BY_RULE:
            assert schedule.world.faults.taken[BY_RULE[kind]] > 0
        else:
            assert schedule.checker.counts[kind] > 0
        if kind in ("empty shard", "empty store", "rollback shard", "rollback store", "detour"):
            assert any(node.node.context.metrics.shards_lost for node in schedule.world.nodes.values())
        if kind in ("cut off", "freeze"):
            assert any(node.node.context.metrics.epochs for node in schedule.world.nodes.values())


async def test_without_faults_no_status_is_late():
    async with ran(2, faults=[]) as schedule:
        assert not schedule.checker.problems, report(schedule)
        assert not schedule.world.faults.taken
        assert [node.node.context.metrics.shards_lost for node in schedule.world.nodes.values()] == [0, 0, 0]
        assert [node.node.context.metrics.epochs for node in schedule.world.nodes.values()] == [0, 0, 0]


def test_the_same_seed_gives_the_same_random_faults_and_the_same_frames():
    async def tell():
        async with ran(7, chaos=20.0) as schedule:
            return schedule.trace, [client.frames for client in schedule.world.clients]

    stories = []
    for _ in range(2):
        with closing(looptime.new_event_loop(noop_cycles=0)) as loop:
            stories.append(loop.run_until_complete(tell()))
    assert stories[0] == stories[1]


@pytest.mark.parametrize(("broken", "faults", "finds"), BROKEN, ids=[broken.__name__ for broken, _, _ in BROKEN])
async def test_the_checker_of_random_schedules_detects_each_deliberately_broken_node(broken, faults, finds):
    """The checker can fail: each of these nodes makes one mistake."""
    for seed in range(40):  # most mistakes show with the first seed; an ignored gap shows in one of eight
        async with ran(seed, faults=faults, spoil=broken) as schedule:
            if any(f" {finds}: " in problem for problem in schedule.checker.problems):
                return
    pytest.fail(f"nobody noticed: {broken.__doc__}")
