"""Clock steps: nothing expires early or late."""

import pytest
from tests.node.scenes import meet

STEPS = [60_000, -60_000]


@pytest.mark.looptime(noop_cycles=0)
@pytest.mark.parametrize("step", STEPS)
async def test_a_clock_step_of_a_minute_does_not_change_the_length_of_the_reconnect_window(world, step):
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
async def test_a_clock_step_does_not_change_when_a_half_open_socket_is_lost(world, step):
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
async def test_a_node_that_starts_after_a_clock_step_has_the_time_of_the_other_nodes(world, step):
    """Otherwise it would end graces that other nodes began, or write versions older than theirs."""
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
async def test_old_leases_of_dead_nodes_do_not_affect_the_clock_of_a_new_node(world):
    n1 = await world.start("n1")
    await world.sleep(5)
    n1.kill()
    await world.sleep(3_600)
    n2 = await world.start("n2")
    assert abs(n2.node.context.clock.now() - world.now) < 10


@pytest.mark.looptime(noop_cycles=0)
async def test_e10_nodes_with_clocks_two_minutes_apart_end_timers_on_time(world):
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
