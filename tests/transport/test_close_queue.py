"""Thousands of closes do not block the event loop, and each is processed once, in order."""

import asyncio
from functools import partial

import pytest
from structlog.testing import capture_logs
from tests.transport.test_expiry import a_door
from tests.transport.test_leaving import come, lost_at

from herenow.transport.websocket.close_queue import BUDGET, CloseQueue
from herenow.wire.codes import Close

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_a_few_closed_connections_are_processed_at_once():
    queue, gone = CloseQueue(), list[object]()
    for number in range(BUDGET):
        queue.take(partial(gone.append, number))
    assert gone == list(range(BUDGET))


async def test_many_closed_connections_are_processed_in_order_a_limited_number_per_loop_iteration():
    queue, gone, per_turn = CloseQueue(), list[object](), list[int]()
    for number in range(3 * BUDGET):
        queue.take(partial(gone.append, number))
    while len(gone) < 3 * BUDGET:
        before = len(gone)
        await asyncio.sleep(0)
        per_turn.append(len(gone) - before)
    assert gone == list(range(3 * BUDGET))
    assert max(per_turn) <= BUDGET
    assert len(per_turn) >= 2


async def test_a_connection_closed_later_is_not_processed_before_those_that_wait():
    queue, gone = CloseQueue(), list[object]()
    for number in range(BUDGET + 1):
        queue.take(partial(gone.append, number))
    await asyncio.sleep(0)
    queue.take(partial(gone.append, "later"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert gone == [*range(BUDGET + 1), "later"]


async def test_an_error_while_one_closed_connection_is_processed_is_logged_and_the_next_is_processed():
    queue, gone = CloseQueue(), list[object]()
    for number in range(BUDGET):
        queue.take(partial(gone.append, number))
    queue.take(lambda: 1 // 0)
    queue.take(partial(gone.append, "behind it"))
    with capture_logs() as logs:
        for _ in range(5):
            await asyncio.sleep(0)
    assert gone[-1] == "behind it"
    assert [line["event"] for line in logs] == ["departure.failed"]


async def test_finishing_the_queue_of_closed_connections_processes_all_that_wait():
    queue, gone = CloseQueue(), list[object]()
    for number in range(3 * BUDGET):
        queue.take(partial(gone.append, number))
    queue.finish()
    assert gone == list(range(3 * BUDGET))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(gone) == 3 * BUDGET


def fill(door):
    """Fills the budget of this loop iteration, so that the next close waits."""
    for _ in range(BUDGET):
        door.gateway.close_queue.take(lambda: None)


async def test_a_connection_closed_just_before_a_shutdown_keeps_its_close_time_as_last_sign_of_life():
    async with a_door() as door:
        ana = come(door)
        await door.world.sleep(20)
        fill(door)
        ana.on_closed(None, "")
        left = door.gateway.node.context.clock.now()
        door.gateway.node.sessions.end_all(Close.DRAINING, lambda: "")  # as a drain does
        assert await lost_at(door) == left
        [session] = door.world.stored("ana").sessions
        assert session.seen_at == left


async def test_a_connection_closed_by_the_client_is_not_counted_as_closed_by_the_server_during_a_shutdown():
    async with a_door() as door:
        ana = come(door)
        await door.world.sleep(1)
        fill(door)
        ana.on_closed(None, "")
        before = door.gateway.node.context.metrics.closes[Close.DRAINING]
        door.gateway.node.sessions.end_all(Close.DRAINING, lambda: "")
        assert door.gateway.node.context.metrics.closes[Close.DRAINING] == before


async def test_closed_connections_that_wait_to_be_processed_do_not_count_against_the_limit_per_user():
    async with a_door() as door:
        limit = door.gateway.node.sessions.connections._max_connections
        tabs = [come(door) for _ in range(limit)]
        await door.world.sleep(1)
        fill(door)
        for tab in tabs:
            tab.on_closed(None, "")
        again = come(door)
        assert again._connection is not None, dict(door.gateway.node.context.metrics.refusals)
