"""Concurrent calls become one batch, and every caller gets its own answer."""

import asyncio

import pytest
from structlog.testing import capture_logs

from herenow.errors import Unavailable
from herenow.kit.batcher import Batcher

pytestmark = pytest.mark.looptime(noop_cycles=0)


class Squares:
    """Answers squares, and records which keys were asked when."""

    def __init__(self, takes=0.0):
        self.takes = takes
        self.asked = []
        self.at = []

    async def __call__(self, keys):
        self.asked.append(keys)
        self.at.append(round(asyncio.get_running_loop().time() - self.began, 3))
        await asyncio.sleep(self.takes)
        return {key: key * key if key >= 0 else ValueError(f"{key} is negative") for key in keys}

    def batcher(self, **options):
        self.began = asyncio.get_running_loop().time()
        return Batcher(self, "squares", **options)


async def test_keys_requested_from_a_batcher_in_one_event_loop_iteration_form_one_batch():
    squares = Squares()
    batcher = squares.batcher()
    assert await asyncio.gather(*map(batcher.ask, [1, 2, 3])) == [1, 4, 9]
    assert await batcher.ask(4) == 16
    assert squares.asked == [(1, 2, 3), (4,)]
    assert batcher.waiting == 0


async def test_a_key_requested_from_a_batcher_by_many_callers_is_in_the_batch_once():
    squares = Squares()
    batcher = squares.batcher()
    assert await asyncio.gather(*map(batcher.ask, [5] * 100)) == [25] * 100
    assert squares.asked == [(5,)]


async def test_a_key_requested_from_a_batcher_while_a_batch_runs_goes_into_the_next_batch():
    squares = Squares(takes=1.0)
    batcher = squares.batcher()
    first = asyncio.create_task(batcher.ask(1))
    await asyncio.sleep(0.5)
    assert await batcher.ask(1) == 1
    assert await first == 1
    assert squares.asked == [(1,), (1,)]


async def test_a_batch_stays_open_for_the_configured_delay():
    squares = Squares()
    batcher = squares.batcher(delay=0.1)
    asks = []
    for key in range(4):
        asks.append(asyncio.create_task(batcher.ask(key)))
        await asyncio.sleep(0.04)
    assert await asyncio.gather(*asks) == [0, 1, 4, 9]
    assert squares.asked == [(0, 1, 2), (3,)]


@pytest.mark.parametrize("delay", [0.0, 1.0])
async def test_a_full_batch_is_sent_at_once(delay):
    squares = Squares()
    batcher = squares.batcher(most=3, delay=delay)
    assert await batcher.ask_all(range(7)) == {key: key * key for key in range(7)}
    assert squares.asked == [(0, 1, 2), (3, 4, 5), (6,)]
    assert squares.at == [0, 0, delay]


async def test_batches_are_sent_at_least_the_configured_spacing_apart():
    squares = Squares()
    batcher = squares.batcher(spacing=1.0)
    asks = []
    for key in range(5):
        asks.append(asyncio.create_task(batcher.ask(key)))
        await asyncio.sleep(0.4)
    await asyncio.gather(*asks)
    assert squares.asked == [(0,), (1, 2), (3, 4)]
    assert squares.at == [0, 1, 2]


async def test_a_batch_waits_until_the_running_batch_is_finished():
    squares = Squares(takes=0.5)
    batcher = squares.batcher(patience=2.0)
    asks = []
    for key in range(4):
        asks.append(asyncio.create_task(batcher.ask(key)))
        await asyncio.sleep(0.1)
    await asyncio.gather(*asks)
    assert squares.asked == [(0,), (1, 2, 3)]
    assert squares.at == [0, 0.5]


async def test_a_batch_waits_for_the_running_batch_no_longer_than_the_configured_patience():
    squares = Squares(takes=50)
    batcher = squares.batcher(patience=2.0)
    first = asyncio.create_task(batcher.ask(1))
    await asyncio.sleep(1)
    await asyncio.gather(first, batcher.ask(2))
    assert squares.at == [0, 3]


async def test_an_error_of_one_key_does_not_affect_other_keys_of_a_batch():
    squares = Squares()
    batcher = squares.batcher()
    answers = await asyncio.gather(batcher.ask(2), batcher.ask(-1), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["4", "-1 is negative"]
    answers = await batcher.ask_all([3, -3])
    assert answers[3] == 9
    assert isinstance(answers[-3], ValueError)


async def test_an_error_of_the_batch_call_is_raised_to_every_caller():
    async def fail(keys):
        raise Unavailable("no answer")

    batcher = Batcher(fail, "failing")
    answers = await asyncio.gather(*map(batcher.ask, [1, 2, 3]), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["no answer"] * 3
    assert all(isinstance(answer, Unavailable) for answer in answers)
    assert batcher.waiting == 0


async def test_an_unexpected_error_in_the_batch_call_is_logged_and_callers_get_unavailable():
    async def fail(keys):
        raise KeyError("oops")

    batcher = Batcher(fail, "failing")
    with capture_logs() as logs:
        with pytest.raises(Unavailable, match="failing was cancelled"):
            await batcher.ask(1)
    assert [(line["event"], line["task"]) for line in logs] == [("task.died", "failing")]


async def test_a_cancelled_caller_does_not_affect_other_callers_of_a_batch():
    squares = Squares(takes=1.0)
    batcher = squares.batcher()
    first, second = asyncio.create_task(batcher.ask(1)), asyncio.create_task(batcher.ask(2))
    await asyncio.sleep(0.5)
    first.cancel()
    assert await second == 4
    assert first.cancelled()


@pytest.mark.parametrize("wait", [0.0, 0.5, 1.5])
async def test_closing_a_batcher_gives_every_waiting_caller_the_error_unavailable(wait):
    squares = Squares(takes=1.0)
    batcher = squares.batcher(delay=1.0)
    ask = asyncio.create_task(batcher.ask(1))
    await asyncio.sleep(0)
    await asyncio.sleep(wait)
    await batcher.close()
    with pytest.raises(Unavailable, match="squares was cancelled"):
        await ask
    assert batcher.waiting == 0


async def test_a_batcher_is_usable_again_after_a_cancelled_batch():
    squares = Squares()
    batcher = squares.batcher()
    ask = asyncio.create_task(batcher.ask(1))
    await asyncio.sleep(0)
    await batcher.close()
    await asyncio.gather(ask, return_exceptions=True)
    assert await batcher.ask(2) == 4


async def test_finish_of_a_batcher_sends_and_awaits_every_key_requested_so_far():
    squares = Squares(takes=0.0)
    batcher = squares.batcher(delay=5.0, most=2)
    asks = [asyncio.create_task(batcher.ask(key)) for key in range(5)]
    await asyncio.sleep(0)
    await batcher.finish()
    assert await asyncio.gather(*asks) == [0, 1, 4, 9, 16]
    assert squares.asked == [(0, 1), (2, 3), (4,)]
    assert squares.at == [0, 0, 0]
    assert batcher.waiting == 0
