"""Statistics of the last minutes, and the users whose changes cause most deliveries."""

from types import SimpleNamespace

import pytest

from herenow.core.model import Status
from herenow.kit.clock import NodeClock
from herenow.node.admin.stats_history import KEPT, STEP, StatsHistory
from herenow.node.delivery.top_targets import MOST, WINDOW, TopTargets
from herenow.node.metrics import BOUNDS, Histogram, Metrics, quantile

NOW = 1_800_000_000_000


class Time:
    def __init__(self):
        self.seconds = 1_000.0
        self.clock = NodeClock(NOW, lambda: self.seconds)


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def pulse(time, metrics):
    return StatsHistory(metrics, time.clock, SimpleNamespace(backlog=7), SimpleNamespace(stale_views=3))


def test_a_statistics_sample_holds_the_counts_of_its_interval_and_current_gauges(pulse, time, metrics):
    metrics.changes, metrics.connections = 5, 2
    time.seconds += 1
    pulse.look()
    assert pulse.since(0) == []  # the interval is not over yet
    metrics.changes, metrics.connections = 9, 3
    metrics.users[Status.BUSY] = 4
    metrics.refusals["not_found"] = 2
    metrics.delivery_seconds.observe(0.002, 6)
    time.seconds += 1
    pulse.look()
    [slot] = pulse.since(0)
    assert (slot.at, slot.seconds, slot.changes, slot.connections, slot.busy) == (NOW, 2.0, 9, 3, 4)
    assert (slot.refusals, sum(slot.delivery), slot.delivery[1]) == (2, 6, 6)
    assert (slot.ledger_backlog, slot.stale_views) == (7, 3)
    metrics.changes = 10
    time.seconds += 2
    pulse.look()
    [slot] = pulse.since(slot.at)
    assert (slot.at, slot.changes, sum(slot.delivery)) == (NOW + STEP, 1, 0)


def test_statistics_samples_are_aligned_to_fixed_times(metrics):
    time = Time()
    late = StatsHistory(
        metrics,
        NodeClock(NOW + 1_300, lambda: time.seconds),
        SimpleNamespace(backlog=0),
        SimpleNamespace(stale_views=0),
    )
    time.seconds += 1
    late.look()
    [slot] = late.since(0)
    assert (slot.at, slot.seconds) == (NOW, 1.0)


def test_a_process_that_was_frozen_has_one_long_statistics_sample(pulse, time, metrics):
    metrics.changes = 60
    time.seconds += 30
    pulse.look()
    [slot] = pulse.since(0)
    assert (slot.at, slot.seconds, slot.changes) == (NOW + 28_000, 30.0, 60)


def test_statistics_samples_of_five_minutes_are_kept(pulse, time):
    for _ in range(KEPT + 50):
        time.seconds += STEP / 1000
        pulse.look()
    slots = pulse.since(0)
    assert len(slots) == KEPT
    assert slots[-1].at - slots[0].at == 300_000 - STEP
    assert pulse.since(slots[-3].at) == slots[-2:]


# --- Quantiles


@pytest.mark.parametrize(
    ("observed", "share", "expected"),
    [
        ([], 0.5, None),
        ([0.0005] * 10, 0.5, 0.0005),
        ([0.0005] * 99 + [0.03], 0.5, 0.001 * 50 / 99),
        ([0.0005] * 98 + [0.03] * 2, 0.99, 0.0375),
        ([99.0], 0.99, BOUNDS[-1]),
        ([0.004] * 4, 1.0, 0.005),
    ],
)
def test_a_quantile_is_interpolated_within_its_histogram_bucket(observed, share, expected):
    histogram = Histogram()
    for seconds in observed:
        histogram.observe(seconds)
    assert quantile(histogram.counts, share) == pytest.approx(expected)


# --- Top targets


def test_users_are_ranked_by_deliveries_in_the_current_and_the_previous_time_window(time):
    fan_out = TopTargets(time.clock)
    fan_out.count("ana", 5)
    fan_out.count("bo", 4)
    time.seconds += WINDOW
    fan_out.turn()
    fan_out.count("bo", 3)
    fan_out.count("cy", 1)
    assert fan_out.top(2) == [("bo", 7), ("ana", 5)]
    time.seconds += WINDOW
    fan_out.turn()
    assert fan_out.top(5) == [("bo", 3), ("cy", 1)]


def test_older_deliveries_do_not_count_in_the_ranking_of_users_by_deliveries(time):
    fan_out = TopTargets(time.clock)
    fan_out.count("ana", 5)
    time.seconds += 2 * WINDOW
    fan_out.turn()
    assert fan_out.top(5) == []


def test_the_ranking_of_users_by_deliveries_has_a_bounded_number_of_users(time):
    fan_out = TopTargets(time.clock)
    fan_out.count("ana", 1)
    for number in range(MOST + 10):
        fan_out.count(str(number), 1)
    fan_out.count("ana", 9)
    assert fan_out.top(1) == [("ana", 10)]
    assert len(fan_out.top(2 * MOST)) == MOST
