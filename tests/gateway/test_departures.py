"""Thousands of ends leave the event loop its turns, and each of them is done once, in order."""

import asyncio
from functools import partial

import pytest
from structlog.testing import capture_logs

from herenow.gateway.departures import A_TURN, Departures

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_a_few_are_done_at_once():
    departures, gone = Departures(), list[object]()
    for number in range(A_TURN):
        departures.take(partial(gone.append, number))
    assert gone == list(range(A_TURN))


async def test_of_thousands_so_many_are_done_in_a_turn_of_the_loop_and_all_in_their_order():
    departures, gone, per_turn = Departures(), list[object](), list[int]()
    for number in range(3 * A_TURN):
        departures.take(partial(gone.append, number))
    while len(gone) < 3 * A_TURN:
        before = len(gone)
        await asyncio.sleep(0)
        per_turn.append(len(gone) - before)
    assert gone == list(range(3 * A_TURN))
    assert max(per_turn) <= A_TURN
    assert len(per_turn) >= 2


async def test_who_goes_while_others_wait_does_not_overtake_them():
    departures, gone = Departures(), list[object]()
    for number in range(A_TURN + 1):
        departures.take(partial(gone.append, number))
    await asyncio.sleep(0)
    departures.take(partial(gone.append, "later"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert gone == [*range(A_TURN + 1), "later"]


async def test_one_that_fails_takes_no_other_with_it():
    departures, gone = Departures(), list[object]()
    for number in range(A_TURN):
        departures.take(partial(gone.append, number))
    departures.take(lambda: 1 // 0)
    departures.take(partial(gone.append, "behind it"))
    with capture_logs() as logs:
        for _ in range(5):
            await asyncio.sleep(0)
    assert gone[-1] == "behind it"
    assert [line["event"] for line in logs] == ["departure.failed"]


async def test_a_gateway_that_stops_leaves_nobody_waiting():
    departures, gone = Departures(), list[object]()
    for number in range(3 * A_TURN):
        departures.take(partial(gone.append, number))
    departures.finish()
    assert gone == list(range(3 * A_TURN))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(gone) == 3 * A_TURN
