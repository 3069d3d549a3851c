"""Sessions of a dead node enter grace, whatever else goes wrong."""

import asyncio

import pytest
from structlog.testing import capture_logs

from herenow.core.shards import shard_of
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def crowd(world, users):
    """All users on n1; bob watches them from n2; n3 is a third node."""
    n1, n2, n3 = await world.start_all("n1", "n2", "n3")
    await world.befriend("bob", *users)
    for user in users:
        await world.client(user).connect(n1)
    bob = world.client("bob")
    await bob.connect(n2)
    await bob.watch(*users)
    await world.sleep(2)
    return n1, n2, n3, bob


def in_shards(*shards):
    return [user for user in map("u{}".format, range(100)) if shard_of(user, 4) in shards]


async def test_an_unavailable_shard_does_not_keep_users_of_a_dead_node_in_other_shards_online(world):
    away, others = in_shards(0)[:3], in_shards(1, 2, 3)[:10]
    n1, n2, n3, bob = await crowd(world, away + others)
    epoch = n1.node.context.authority.epoch
    with world.faults.during(Rule(Fault.UNAVAILABLE, shard=0)):
        n1.kill()
        await world.sleep(120)
        assert all(bob.saw(user) == ["online", "offline"] for user in others)
        assert epoch in world.store.leases, "it is not done yet"
    await world.sleep(60)
    assert all(bob.saw(user) == ["online", "offline"] for user in away)
    assert epoch not in world.store.leases


async def test_shards_searched_for_users_of_a_dead_node_are_not_searched_again_while_another_is_away(world):
    n1, n2, n3, bob = await crowd(world, in_shards(1, 2, 3)[:10])
    walked = [_walked(node.node.context.engine) for node in (n2, n3)]
    with world.faults.during(Rule(Fault.UNAVAILABLE, shard=0)):
        n1.kill()
        await world.sleep(60)
        assert [sorted(each) for each in walked] == [[1, 2, 3]] * 2, "by who marked it, and by who took over"


async def test_an_error_with_one_user_of_a_dead_node_does_not_keep_its_other_users_online(world):
    users = sorted(map("u{}".format, range(30)), key=lambda user: shard_of(user, 4))
    n1, n2, n3, bob = await crowd(world, users)
    for node in (n2, n3):
        _cannot_decide(node.node.records.decider, users[0])
    with capture_logs() as logs:
        n1.kill()
        await world.sleep(120)
    assert any(line["event"] == "sweep.undecided" for line in logs)
    assert bob.saw(users[0]) == ["online"]
    assert all(bob.saw(user) == ["online", "offline"] for user in users[1:])


async def test_users_of_several_dead_nodes_are_found_by_reading_each_shard_once(world):
    nodes = await world.start_all(*(f"n{number}" for number in range(1, 8)))
    dead, alive = nodes[:3], nodes[3:]
    for number in range(20):
        await world.client(f"u{number}").connect(dead[number % 3])
    await world.sleep(3)
    walked = [_walked(node.node.context.engine) for node in alive]
    for node in alive:  # marking a node dead takes time
        _slowly(node.node.context.engine, "mark_dead")
    for node in dead:
        node.kill()
    await world.sleep(60)
    assert len(world.store.leases) == 4
    assert sorted(shard for each in walked for shard in each) == [0, 1, 2, 3]
    assert not any(user.sessions for user in world.everybody_stored().values())


def _slowly(engine, name):
    call = getattr(engine, name)

    async def slow(*args):
        await asyncio.sleep(0.05)
        return await call(*args)

    setattr(engine, name, slow)


def _cannot_decide(decider, user):
    decide = decider._steps.decide

    def broken(person):
        if person.user == user:
            raise ValueError("a mistake")
        return decide(person)

    decider._steps.decide = broken


def _walked(engine):
    """The shards that this engine walks from now on."""
    walk, walked = engine.walk, []

    async def noted(shard, cursor, limit):
        walked.append(shard)
        return await walk(shard, cursor, limit)

    engine.walk = noted
    return walked
