"""Rate limits: a bucket holds a burst and refills at its rate.

Budgets: what a normal client sends never puts its connection into debt, what a flood sends does.

Load shedding: which changes an overloaded node delays, in which order, and which it never delays.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.core.limits import (
    CONNECTION_BUDGET,
    CREDIT,
    FRAME_COST,
    HEARTBEAT_COST,
    REQUEST_COST,
    USER_BUDGET,
    Budget,
    Rate,
    Shed,
    may_wait,
    shed_level,
    size_cost,
    take_token,
)
from herenow.core.model import NOBODY_HERE, Custom, Platform, Status, View

RATE = Rate(every=30_000, burst=5)
NOW = 1_800_000_000_000


def taken(times, rate=RATE):
    """Milliseconds to wait for each request; 0 if it is allowed."""
    full_at, waits = None, []
    for now in times:
        full_at, wait = take_token(full_at, now, rate)
        waits.append(wait)
    return waits


@pytest.mark.parametrize(
    ("times", "waits"),
    [
        ([0] * 6, [0, 0, 0, 0, 0, 30_000]),
        ([0] * 5 + [29_999, 30_000, 30_000], [0, 0, 0, 0, 0, 1, 0, 30_000]),
        ([0] * 5 + [60_000] * 3, [0, 0, 0, 0, 0, 0, 0, 30_000]),
        ([0] * 5 + [10_000_000] * 6, [0] * 10 + [30_000]),
        ([0, 30_000, 60_000, 90_000, 120_000, 150_000, 180_000], [0] * 7),
        ([5_000, 0], [0, 0]),  # a clock that was set back
    ],
)
def test_a_rate_limit_allows_a_burst_and_one_more_per_period(times, waits):
    assert taken([NOW + time for time in times]) == waits


def test_a_request_refused_by_a_rate_limit_does_not_count_against_it():
    full_at, _ = take_token(None, NOW, Rate(1_000, 1))
    assert [take_token(full_at, NOW + 500, Rate(1_000, 1)) for _ in range(3)] == [(full_at, 500)] * 3


@given(st.lists(st.sampled_from([0, 1, 29_999, 30_000, 30_001, 150_000]), max_size=60), st.integers(1, 6))
def test_no_time_window_has_more_requests_than_the_rate_limit_allows(pauses, burst):
    rate, now, got = Rate(30_000, burst), NOW, []
    full_at = None
    for pause in pauses:
        now += pause
        full_at, wait = take_token(full_at, now, rate)
        if wait == 0:
            got.append(now)
        assert take_token(full_at, now + wait, rate)[1] == 0 or wait == 0  # waiting the given time is enough
    for first in range(len(got)):
        for last in range(first, len(got)):
            assert last - first + 1 <= burst + (got[last] - got[first]) // rate.every


def waits(costs, budget=CONNECTION_BUDGET):
    """Milliseconds to wait after each (time, cost)."""
    full_at, found = 0, []
    for now, cost in costs:
        full_at, wait = budget.spend(full_at, NOW + now, cost)
        found.append(wait)
    return found


def a_second_of_normal_frames(second):
    beats = [(second * 1000 + number * 10, HEARTBEAT_COST) for number in range(100)]
    frames = [(second * 1000 + number * 33, FRAME_COST + size_cost(8_192)) for number in range(30)]
    return sorted(beats + frames)


def test_a_hundred_heartbeats_and_thirty_frames_a_second_never_put_a_connection_into_debt():
    costs = [cost for second in range(600) for cost in a_second_of_normal_frames(second)]
    assert not any(waits(costs))


def test_two_hundred_frames_at_once_beside_normal_traffic_do_not_put_a_connection_into_debt():
    normal = [cost for second in range(60) for cost in a_second_of_normal_frames(second)]
    burst = [(30_000, CREDIT)] * (200 * FRAME_COST // CREDIT)
    assert not any(waits(sorted(normal + burst)))


def test_a_connection_that_sends_a_thousand_frames_at_once_is_in_debt_until_it_has_regained_their_cost():
    found = waits([(0, FRAME_COST)] * 1_000)
    assert found.index(16) == CONNECTION_BUDGET.burst // FRAME_COST
    assert found[-1] == 1_000 * FRAME_COST - CONNECTION_BUDGET.burst
    assert waits([(0, FRAME_COST)] * 1_000 + [(found[-1], 0)])[-1] == 0


def test_a_bucket_that_regains_four_times_as_fast_charges_a_quarter():
    assert waits([(0, 16_000), (0, 400)], USER_BUDGET) == [0, 100]
    assert waits([(0, REQUEST_COST)] * 401, USER_BUDGET)[-2:] == [0, 10]


@pytest.mark.parametrize(("size", "cost"), [(0, 0), (8_192, 0), (9_216, 2), (65_536, 112), (108_192, 195)])
def test_bytes_beyond_the_first_eight_kibibytes_cost_two_per_kibibyte(size, cost):
    assert size_cost(size) == cost


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3_000)), max_size=60), st.integers(0, 5_000))
def test_a_budget_lets_through_no_more_than_its_burst_and_what_it_regains(steps, burst):
    budget, now, full_at, spent = Budget(burst), NOW, NOW, 0
    for pause, cost in steps:
        now += pause
        full_at, wait = budget.spend(full_at, now, cost)
        spent += cost
        now += wait  # a client in debt is read again when it is paid
        assert spent <= burst + (now - NOW)


ONLINE = View(Status.ONLINE, 1, platforms=(Platform.WEB,))
AWAY = View(Status.AWAY, 2, platforms=(Platform.WEB,))
BUSY = View(Status.BUSY, 3, platforms=(Platform.WEB,))
TEA = View(Status.ONLINE, 1, custom=Custom("tea"), platforms=(Platform.WEB,))
AWAY_TEA = View(Status.AWAY, 2, custom=Custom("tea"), platforms=(Platform.WEB,))
PHONE = View(Status.ONLINE, 1, platforms=(Platform.MOBILE,))
GONE = View(Status.OFFLINE, 4, 4)


@pytest.mark.parametrize(
    ("before", "after", "given_up_from"),
    [
        (ONLINE, AWAY, Shed.IDLENESS),
        (AWAY, ONLINE, Shed.IDLENESS),
        (ONLINE, TEA, Shed.TEXT),
        (TEA, ONLINE, Shed.TEXT),
        (ONLINE, AWAY_TEA, Shed.TEXT),
        (ONLINE, PHONE, Shed.TEXT),
        (ONLINE, BUSY, None),
        (BUSY, ONLINE, None),
        (BUSY, AWAY, None),
        (ONLINE, GONE, None),
        (GONE, ONLINE, None),
        (TEA, GONE, None),
        (GONE, AWAY, None),
        (GONE, NOBODY_HERE, None),
        (NOBODY_HERE, GONE, None),
        (ONLINE, ONLINE, None),
    ],
)
def test_each_kind_of_status_change_is_delayed_from_its_own_overload_level_on(before, after, given_up_from):
    levels = [shed for shed in Shed if may_wait(before, after, shed)]
    assert levels == [shed for shed in Shed if given_up_from is not None and shed >= given_up_from]


@pytest.mark.parametrize(
    ("present", "late", "expected"),
    [
        (Shed.NOTHING, 0.0, Shed.NOTHING),
        (Shed.NOTHING, 0.199, Shed.NOTHING),
        (Shed.NOTHING, 0.2, Shed.TYPING),
        (Shed.NOTHING, 0.5, Shed.IDLENESS),
        (Shed.NOTHING, 1.0, Shed.TEXT),
        (Shed.TEXT, 0.5, Shed.TEXT),
        (Shed.TEXT, 0.49, Shed.IDLENESS),
        (Shed.IDLENESS, 0.25, Shed.IDLENESS),
        (Shed.IDLENESS, 0.249, Shed.TYPING),
        (Shed.TYPING, 0.1, Shed.TYPING),
        (Shed.TYPING, 0.099, Shed.NOTHING),
        (Shed.TEXT, 0.0, Shed.NOTHING),
    ],
)
def test_an_overload_level_begins_at_a_bound_of_event_loop_delay_and_ends_at_half_of_it(present, late, expected):
    assert shed_level(present, late) is expected
