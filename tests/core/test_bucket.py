"""A bucket gives what it holds, fills at its rate, and is never fuller than full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.core.bucket import Rate, take

RATE = Rate(every=30_000, burst=5)
NOW = 1_800_000_000_000


def taken(times, rate=RATE):
    """Which of these moments got something, and what the others had to wait."""
    full_at, waits = None, []
    for now in times:
        full_at, wait = take(full_at, now, rate)
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
def test_so_many_at_once_and_one_more_per_period(times, waits):
    assert taken([NOW + time for time in times]) == waits


def test_a_refusal_costs_nothing():
    full_at, _ = take(None, NOW, Rate(1_000, 1))
    assert [take(full_at, NOW + 500, Rate(1_000, 1)) for _ in range(3)] == [(full_at, 500)] * 3


@given(st.lists(st.sampled_from([0, 1, 29_999, 30_000, 30_001, 150_000]), max_size=60), st.integers(1, 6))
def test_no_window_sees_more_than_it_may(pauses, burst):
    rate, now, got = Rate(30_000, burst), NOW, []
    full_at = None
    for pause in pauses:
        now += pause
        full_at, wait = take(full_at, now, rate)
        if wait == 0:
            got.append(now)
        assert take(full_at, now + wait, rate)[1] == 0 or wait == 0  # who waits as told is let in
    for first in range(len(got)):
        for last in range(first, len(got)):
            assert last - first + 1 <= burst + (got[last] - got[first]) // rate.every
