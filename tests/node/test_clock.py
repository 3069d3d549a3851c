"""Clock steps: nothing expires early or lives on."""

import pytest
from tests.node.scenes import meet

from herenow.kit.clock import NodeClock
from herenow_testing.world.manual_clock import START

STEPS = [60_000, -60_000]


class Follower:
    """A clock that measures the store's every three seconds, as a lease does."""

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
def test_two_minutes_stay_two_minutes_when_the_stores_clock_is_set(step):
    node = Follower()
    node.run(30)
    node.store += step
    before = node.clock.now()
    node.run(120)
    assert 120_000 - 700 <= node.clock.now() - before <= 120_000 + 700


@pytest.mark.parametrize("step", STEPS)
def test_time_never_goes_back_and_arrives_at_the_stores(step):
    node = Follower()
    node.store += step
    last = node.clock.now()
    for _ in range(5_000):
        node.run(3)
        assert node.clock.now() >= last
        last = node.clock.now()
    assert abs(node.clock.now() - node.store) <= 20


def test_an_answer_that_took_long_is_no_measurement():
    node = Follower()
    node.run(30)
    asked = node.passed
    node.passed += 1.9
    node.clock.follow(node.store - 60_000, asked)
    node.passed += 600
    assert node.clock.now() == START + 30_000 + 601_900


def test_the_time_of_the_answer_is_taken_for_the_middle_of_the_way():
    node = Follower()
    asked = node.passed
    node.passed += 0.8
    node.clock.follow(START + 400, asked)
    node.passed += 600
    assert abs(node.clock.now() - (START + 600_800)) <= 1


@pytest.mark.parametrize("behind", [0, 60_000, -60_000])
def test_however_often_it_is_read_it_counts_every_millisecond(behind):
    node = Follower()
    node.clock.follow(START + behind, node.passed)
    read = []
    for tenth in range(2_000):
        node.passed = tenth / 10_000
        read.append(node.clock.now() - START)
    assert all(abs(each - tenth / 10) <= 2 for tenth, each in enumerate(read))
    assert set(read) == set(range(read[-1] + 1))
    assert node.clock.now() is node.clock.now()


def test_who_was_away_catches_up_at_once_but_never_goes_back():
    node = Follower()
    node.clock.catch_up(START + 60_000)
    assert node.clock.now() == START + 60_000
    node.clock.catch_up(START)
    assert node.clock.now() == START + 60_000


@pytest.mark.looptime(noop_cycles=0)
@pytest.mark.parametrize("step", STEPS)
async def test_a_grace_and_a_silence_last_as_long_as_ever(world, step):
    _, ana, bob = await meet(world)
    await world.start("n2")
    await world.sleep(10)
    world.clock.step(step)
    lost = world.now
    ana.close()
    await world.sleep(29)
    assert bob.saw("ana") == ["online"]
    await world.sleep(2)
    assert bob.saw("ana") == ["online", "offline"]
    assert lost


@pytest.mark.looptime(noop_cycles=0)
@pytest.mark.parametrize("step", STEPS)
async def test_a_half_open_socket_is_found_in_its_time(world, step):
    _, ana, bob = await meet(world)
    await world.sleep(10)
    ana.pong()
    ana.vanish()
    await world.sleep(20)
    world.clock.step(step)
    await world.sleep(99)
    assert bob.saw("ana") == ["online"]
    await world.sleep(2.5)
    assert bob.saw("ana") == ["online", "offline"]


@pytest.mark.looptime(noop_cycles=0)
@pytest.mark.parametrize("step", STEPS)
async def test_a_node_that_starts_after_the_step_has_the_time_of_the_others(world, step):
    """Otherwise it would end graces that the others began; or its versions would be older than those they know."""
    n1, ana, bob = await meet(world)
    await world.sleep(10)
    world.clock.step(step)
    await world.sleep(10)
    ana.close()
    n2 = await world.start("n2")
    assert abs(n2.node.context.clock.now() - n1.node.context.clock.now()) < 4_000
    cy = world.client("cy")
    await cy.connect(n2)
    await world.sleep(19)
    assert bob.saw("ana") == ["online"]
    await world.sleep(12)
    assert bob.saw("ana") == ["online", "offline"]
    await ana.connect(n2)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "offline", "online"]


@pytest.mark.looptime(noop_cycles=0)
async def test_rows_that_were_left_behind_long_ago_say_nothing_about_the_time(world):
    n1 = await world.start("n1")
    await world.sleep(5)
    n1.kill()
    await world.sleep(3_600)
    n2 = await world.start("n2")
    assert abs(n2.node.context.clock.now() - world.now) < 10


@pytest.mark.looptime(noop_cycles=0)
async def test_e10_nodes_whose_clocks_are_two_minutes_apart_end_things_in_time(world):
    await world.befriend("ana", "bob")
    n1 = await world.start("n1", ahead=60_000)
    n2 = await world.start("n2", ahead=-60_000)
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(n1)
    await bob.connect(n2)
    await bob.watch("ana")
    ana.close()
    await world.sleep(29.5)
    assert bob.saw("ana") == ["online"]
    await world.sleep(1.5)
    assert bob.saw("ana") == ["online", "offline"]
