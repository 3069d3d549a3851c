"""Users marked dirty in the same loop iteration are decided in one batch, each as if alone."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.node.scenes import Stalled

from herenow.core.edits import set_mode
from herenow.core.model import Mode
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import resume
from herenow.node.records.decider import BATCH as TOGETHER
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)


@pytest.fixture
def logs():
    with capture_logs() as logs:
        yield logs
    assert not [line for line in logs if line["event"] == "task.died"]


@pytest.fixture
async def world(logs):
    world = World(shards=1)
    yield world
    await world.close()


async def crowd(world, node, count):
    clients = [world.client(f"user{number:03}") for number in range(count)]
    for client in clients:
        await client.connect(node)
    await world.sleep(1)
    return clients


def in_grace(world, clients):
    found = [world.stored(client.user) for client in clients]
    return sum(1 for presence in found if presence.sessions and not presence.live)


async def test_fifty_users_who_disconnect_at_once_are_written_to_the_store_in_one_batch(world):
    node = await world.start("n1")
    clients = await crowd(world, node, 50)
    before = node.node.context.metrics.commits
    for client in clients:
        client.close()
    await world.sleep(1)
    assert in_grace(world, clients) == 50
    assert node.node.context.metrics.commits == before + 1


async def test_users_who_disconnect_at_once_are_all_written_even_if_they_exceed_one_batch(world):
    node = await world.start("n1")
    clients = await crowd(world, node, 2 * TOGETHER + 7)
    for client in clients:
        client.close()
    await world.sleep(1)
    assert in_grace(world, clients) == 2 * TOGETHER + 7
    await world.sleep(31)
    assert not any(presence.sessions for presence in world.everybody_stored().values())


async def test_a_user_whose_write_conflicts_in_a_batch_is_computed_and_written_again_alone(world):
    n1 = await world.start("n1")
    clients = await crowd(world, n1, 20)
    n2 = await world.start("n2")
    tail = Stalled(n1.node.context.engine, "tail")
    await world.sleep(1.1)
    await n2.node.sessions.set_mode("user007", Mode.AWAY, None)  # n1 does not know it yet
    for client in clients:
        client.close()
    await world.sleep(0.2)
    assert in_grace(world, clients) == 20
    assert world.stored("user007").mode is Mode.AWAY
    assert n1.node.context.metrics.conflicts == 1
    await tail.release()


async def test_an_error_in_the_change_of_one_user_in_a_batch_is_raised_only_to_the_caller_who_asked_for_it(world, logs):
    node = await world.start("n1")
    await crowd(world, node, 3)

    def mistake(presence, now, timings):
        raise RuntimeError("a mistake")

    decider = node.node.records.decider
    asked = [
        asyncio.ensure_future(decider.apply("user000", set_mode(Mode.BUSY, None))),
        asyncio.ensure_future(decider.apply("user001", mistake)),
        asyncio.ensure_future(decider.apply("user002", set_mode(Mode.BUSY, None))),
    ]
    first, second, third = asked
    with pytest.raises(RuntimeError, match="a mistake"):
        await second
    assert [(await each).mode for each in (first, third)] == [Mode.BUSY, Mode.BUSY]
    assert [line["event"] for line in logs if line["event"] == "decide.failed"] == ["decide.failed"]
    assert not any(person.record.deciding for person in node.node.context.people)


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
async def test_a_batch_write_of_unknown_outcome_is_resolved_for_all_its_users(world, done):
    node = await world.start("n1")
    clients = await crowd(world, node, 20)
    commit, doubts = node.node.context.engine.commit, []

    async def doubtful(batch):
        if batch.writes and not doubts:
            doubts.append(batch)
            if done:
                await commit(batch)
            raise UnknownOutcome("no answer")
        return await commit(batch)

    node.node.context.engine.commit = doubtful
    for client in clients:
        client.close()
    await world.sleep(2)
    assert len(doubts[0].writes) == 20
    assert in_grace(world, clients) == 20
    assert not any(person.record.deciding or person.record.dirty for person in node.node.context.people)


async def test_all_users_of_a_batch_wait_while_the_store_is_unreachable_and_are_written_afterwards(world):
    node = await world.start("n1")
    clients = await crowd(world, node, 20)
    commit, away = node.node.context.engine.commit, [True]

    async def unreachable(batch):
        if away:
            raise Unavailable("away")
        return await commit(batch)

    node.node.context.engine.commit = unreachable
    for client in clients:
        client.close()
    await world.sleep(0.9)
    assert node.node.records.waiting == 20
    assert in_grace(world, clients) == 0
    away.clear()
    await world.sleep(1)
    assert in_grace(world, clients) == 20
    assert node.node.records.waiting == 0


async def test_a_caller_waiting_for_a_store_write_gets_an_error_when_the_node_stops(world):
    node = await world.start("n1")
    await crowd(world, node, 1)
    Stalled(node.node.context.engine, "commit")
    asked = asyncio.create_task(node.node.records.apply("user000", set_mode(Mode.BUSY, None)))
    await world.sleep(0.1)
    node.node.records.close()  # as a stopping node does
    await node.node.context.tasks.end()
    await asyncio.wait([asked], timeout=3600)
    with pytest.raises(UnknownOutcome):
        asked.result()


async def test_a_caller_whose_store_write_may_have_run_gets_unknown_outcome_and_not_unavailable(world):
    """The store executes the commit and does not answer for longer than PATIENCE."""
    node = await world.start("n1")
    await crowd(world, node, 1)
    engine = node.node.context.engine
    commit, jumps, away = engine.commit, engine.jump, [True]

    async def done_but_not_answered(batch):
        result = await commit(batch)
        if batch.writes and away:
            await asyncio.sleep(3600)
        return result

    async def silent(*args):
        if away:
            await asyncio.sleep(3600)
        return await jumps(*args)

    engine.commit, engine.jump = done_but_not_answered, silent
    with pytest.raises(UnknownOutcome):
        await node.node.records.apply("user000", set_mode(Mode.BUSY, None))
    away.clear()
    await world.sleep(15)
    assert world.stored("user000").mode is Mode.BUSY


async def test_with_eagerly_started_asyncio_tasks_a_connect_is_still_written_to_the_store(world):
    """As with `loop.set_task_factory(asyncio.eager_task_factory)`, Python 3.12."""
    node = await world.start("n1")
    tasks = node.node.context.tasks
    lazily = tasks._create

    async def rest(work, waits_for):
        return await resume(work, waits_for)

    async def nothing(value):
        return value

    def eagerly(work, name):
        if name != "decide":
            return lazily(work, name)
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            return lazily(nothing(done.value), name)
        return lazily(rest(work, waits_for), name)

    tasks._create = eagerly
    ana = world.client("ana")
    await ana.connect(node)
    await world.sleep(1)
    assert world.stored("ana").live


async def test_a_user_named_twice_in_a_batch_is_written_once(world):
    node = await world.start("n1")
    clients = await crowd(world, node, 3)
    for client in clients:
        client.connection.session.active_at += 1
        client.connection.session.idle = True
        client.connection.session.idle_at = client.connection.session.active_at + 1
    users = [c.user for c in clients]
    assert await node.node.records.decide_all([users[0], users[0], *users[1:]])


async def test_after_an_unexpected_store_error_all_users_of_the_batch_are_written():
    world = World(shards=1)
    node = await world.start("n1")
    clients = await crowd(world, node, 5)
    commit, failed = node.node.context.engine.commit, []
    gate = asyncio.get_running_loop().create_future()

    async def breaks(batch):
        if batch.writes and not failed:
            failed.append(batch)
            await gate
            await commit(batch)
            raise RuntimeError("unforeseen")
        return await commit(batch)

    node.node.context.engine.commit = breaks  # type: ignore[method-assign]
    clients[0].close()
    await world.sleep(0.1)
    for client in clients[1:]:
        client.close()  # a batch that waits behind it
    await world.sleep(0.1)
    gate.set_result(None)
    await world.sleep(20)
    assert in_grace(world, clients) == 5
    assert not any(p.record.deciding for p in node.node.context.people)
    await world.close()
