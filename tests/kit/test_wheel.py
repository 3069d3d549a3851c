"""Entries of the wheel fire never early, and at most one bucket late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.kit.wheel import Wheel


def wheel_of(looked, again=lambda thing, now: None):
    def look(thing, now):
        looked.append((thing, now))
        return again(thing, now)

    return Wheel(look)


@pytest.mark.parametrize("at", [0, 1, 249, 250, 251, 1_000])
def test_an_entry_of_a_timer_wheel_fires_in_time_and_not_early(at):
    looked = []
    wheel = wheel_of(looked)
    wheel.put("a", at)
    for now in range(0, 2_000, 50):
        wheel.turn(now)
    [(_, when)] = looked
    assert at <= when < at + 300


def test_an_entry_of_a_timer_wheel_fires_again_if_its_callback_returns_a_time():
    looked = []
    wheel = wheel_of(looked, lambda thing, now: now + 500 if len(looked) < 3 else None)
    wheel.put("a", 100)
    for now in range(0, 10_000, 100):
        wheel.turn(now)
    assert [thing for thing, _ in looked] == ["a"] * 3
    assert len(wheel) == 0


def test_an_overdue_entry_fires_with_the_next_turn_of_the_timer_wheel():
    looked = []
    wheel = wheel_of(looked)
    wheel.turn(10_000)
    wheel.put("a", 50)
    wheel.turn(10_250)
    assert looked == [("a", 10_250)]


def test_a_timer_wheel_that_was_not_turned_for_hours_fires_every_entry_once():
    looked = []
    wheel = wheel_of(looked)
    for number in range(100):
        wheel.put(number, number * 37)
    wheel.turn(5)
    wheel.turn(10_000_000)
    assert sorted(thing for thing, _ in looked) == list(range(100))
    assert len(wheel) == 0


def test_an_entry_that_reschedules_itself_for_now_does_not_block_the_turn_of_the_timer_wheel():
    looked = []
    wheel = wheel_of(looked, lambda thing, now: now)
    wheel.put("a", 0)
    wheel.turn(1_000)
    wheel.turn(1_250)
    assert len(looked) == 2


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)), max_size=30))
def test_every_entry_of_a_timer_wheel_fires_in_time_whenever_it_was_added(puts):
    looked = []
    wheel = wheel_of(looked)
    wanted = {}
    for now in range(0, 6_000, 250):
        for number, (when, at) in enumerate(puts):
            if now <= when < now + 250:
                wheel.put(number, at)
                wanted[number] = max(at, now)
        wheel.turn(now)
    wheel.turn(7_000)
    assert {thing for thing, _ in looked} == wanted.keys()
    for thing, when in looked:
        assert wanted[thing] <= when
        assert when - wanted[thing] <= 500 or when == 7_000
