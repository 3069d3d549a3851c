"""Things are looked at when they asked for it: never before, and at most a bucket later."""

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
def test_nothing_is_looked_at_before_its_time(at):
    looked = []
    wheel = wheel_of(looked)
    wheel.put("a", at)
    for now in range(0, 2_000, 50):
        wheel.turn(now)
    [(_, when)] = looked
    assert at <= when < at + 300


def test_what_is_put_back_comes_again_and_what_is_let_go_does_not():
    looked = []
    wheel = wheel_of(looked, lambda thing, now: now + 500 if len(looked) < 3 else None)
    wheel.put("a", 100)
    for now in range(0, 10_000, 100):
        wheel.turn(now)
    assert [thing for thing, _ in looked] == ["a"] * 3
    assert len(wheel) == 0


def test_what_is_overdue_when_it_is_put_comes_with_the_next_turn():
    looked = []
    wheel = wheel_of(looked)
    wheel.turn(10_000)
    wheel.put("a", 50)
    wheel.turn(10_250)
    assert looked == [("a", 10_250)]


def test_a_wheel_that_stood_still_for_hours_opens_everything_once():
    looked = []
    wheel = wheel_of(looked)
    for number in range(100):
        wheel.put(number, number * 37)
    wheel.turn(5)
    wheel.turn(10_000_000)
    assert sorted(thing for thing, _ in looked) == list(range(100))
    assert len(wheel) == 0


def test_one_that_asks_for_now_again_and_again_does_not_hold_up_the_turn():
    looked = []
    wheel = wheel_of(looked, lambda thing, now: now)
    wheel.put("a", 0)
    wheel.turn(1_000)
    wheel.turn(1_250)
    assert len(looked) == 2


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 5_000)), max_size=30))
def test_whatever_is_put_when_comes_in_time(puts):
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
