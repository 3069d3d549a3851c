"""A clock that follows another one: durations stay right, and time never decreases."""

import pytest

from herenow.kit.clock import NodeClock

START = 1_800_000_000_000
STEPS = [60_000, -60_000]


class Follower:
    """A clock that reads the store's time every three seconds, as a lease does."""

    def __init__(self):
        self.passed = 0.0
        self.store = START
        self.clock = NodeClock(START, monotonic=lambda: self.passed)

    def run(self, seconds):
        for _ in range(round(seconds / 3)):
            self.passed += 3
            self.store += 3_000
            self.clock.follow(self.store, self.passed)


@pytest.mark.parametrize("step", STEPS)
def test_durations_on_a_node_stay_right_when_the_clock_of_the_store_is_changed(step):
    node = Follower()
    node.run(30)
    node.store += step
    before = node.clock.now()
    node.run(120)
    assert 120_000 - 700 <= node.clock.now() - before <= 120_000 + 700


@pytest.mark.parametrize("step", STEPS)
def test_the_clock_of_a_node_never_goes_back_and_converges_to_the_time_of_the_store(step):
    node = Follower()
    node.store += step
    last = node.clock.now()
    for _ in range(5_000):
        node.run(3)
        assert node.clock.now() >= last
        last = node.clock.now()
    assert abs(node.clock.now() - node.store) <= 20


def test_a_slow_time_answer_of_the_store_does_not_change_the_clock_of_a_node():
    node = Follower()
    node.run(30)
    asked = node.passed
    node.passed += 1.9
    node.clock.follow(node.store - 60_000, asked)
    node.passed += 600
    assert node.clock.now() == START + 30_000 + 601_900


def test_the_time_of_the_store_is_assumed_to_be_from_the_middle_of_the_round_trip():
    node = Follower()
    asked = node.passed
    node.passed += 0.8
    node.clock.follow(START + 400, asked)
    node.passed += 600
    assert abs(node.clock.now() - (START + 600_800)) <= 1


@pytest.mark.parametrize("behind", [0, 60_000, -60_000])
def test_the_clock_of_a_node_skips_no_millisecond_however_often_it_is_read(behind):
    node = Follower()
    node.clock.follow(START + behind, node.passed)
    read = []
    for tenth in range(2_000):
        node.passed = tenth / 10_000
        read.append(node.clock.now() - START)
    assert all(abs(each - tenth / 10) <= 2 for tenth, each in enumerate(read))
    assert set(read) == set(range(read[-1] + 1))
    assert node.clock.now() is node.clock.now()


def test_the_clock_of_a_node_can_be_moved_forward_at_once_but_never_back():
    node = Follower()
    node.clock.catch_up(START + 60_000)
    assert node.clock.now() == START + 60_000
    node.clock.catch_up(START)
    assert node.clock.now() == START + 60_000
