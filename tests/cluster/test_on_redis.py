"""The random schedules on a real Valkey instead of memory. Fewer seeds: both engines keep the same promises."""

import os
from contextlib import closing

import pytest
from tests.cluster.redis_world import PatientLoop
from tests.cluster.test_random_schedules import ran, report

SEEDS = range(int(os.environ.get("HERENOW_REDIS_SEEDS", "2")))


def play(store, seed, **how):
    """Run a schedule on its own loop and return it."""

    async def tell():
        await store.begin()
        try:
            async with ran(seed, store=store, **how) as schedule:
                return schedule
        finally:
            await store.close()

    with closing(PatientLoop()) as loop:
        schedule = loop.run_until_complete(tell())
    assert not schedule.checker.problems, report(schedule)
    return schedule


@pytest.mark.parametrize("seed", SEEDS)
def test_viewers_see_true_statuses_under_random_faults_on_redis(seed, store):
    counts = play(store, seed, chaos=25.0).checker.counts
    assert counts["shown"] > 20
    assert counts["looked"] > 60


def test_without_faults_no_status_is_late_on_redis(store):
    schedule = play(store, 2, chaos=20.0, faults=[])
    assert [node.node.context.metrics.shards_lost for node in schedule.world.nodes.values()] == [0, 0, 0]
    assert [node.node.context.metrics.epochs for node in schedule.world.nodes.values()] == [0, 0, 0]


@pytest.mark.parametrize("kind", ["empty store", "rollback shard", "late"])
def test_viewers_see_true_statuses_under_each_single_fault_on_redis(kind, store):
    play(store, 1, chaos=15.0, faults=[kind])
