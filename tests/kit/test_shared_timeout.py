"""Every wait ends with its answer, or at the time limit counted from its own start."""

import asyncio

import pytest

from herenow.kit.shared_timeout import SharedTimeout

pytestmark = pytest.mark.looptime(noop_cycles=0)


def future():
    return asyncio.get_running_loop().create_future()


async def test_a_wait_ends_when_its_answer_arrives_before_the_timeout():
    timeout, answer = SharedTimeout(5), future()
    waits = asyncio.ensure_future(timeout.wait_for(answer))
    await asyncio.sleep(4.9)
    answer.set_result(None)
    await waits
    await timeout.wait_for(answer)  # already done: no wait


async def test_waits_with_a_shared_timeout_time_out_counted_from_their_own_start():
    timeout, loop, ends = SharedTimeout(5), asyncio.get_running_loop(), []

    async def wait():
        with pytest.raises(TimeoutError):
            await timeout.wait_for(future())
        ends.append(round(loop.time() - began, 3))

    began, waits = loop.time(), []
    for _ in range(3):
        waits.append(asyncio.ensure_future(wait()))
        await asyncio.sleep(1)
    await asyncio.gather(*waits)
    assert ends == [5, 6, 7]


async def test_an_error_of_the_awaited_future_is_raised_to_the_waiter():
    timeout, answer = SharedTimeout(5), future()
    waits = asyncio.ensure_future(timeout.wait_for(answer))
    await asyncio.sleep(1)
    answer.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await waits


async def test_a_cancelled_wait_does_not_affect_other_waits_of_a_shared_timeout():
    timeout, answer = SharedTimeout(5), future()
    gone = asyncio.ensure_future(timeout.wait_for(future()))
    stays = asyncio.ensure_future(timeout.wait_for(answer))
    await asyncio.sleep(1)
    gone.cancel()
    await asyncio.sleep(1)
    answer.set_result(None)
    await stays
    assert gone.cancelled()


async def test_a_shared_timeout_keeps_no_finished_waits():
    timeout = SharedTimeout(5)
    for _ in range(100):
        answer = future()
        waits = asyncio.ensure_future(timeout.wait_for(answer))
        await asyncio.sleep(0)
        answer.set_result(None)
        await waits
    assert len(timeout) <= 1
    await asyncio.sleep(6)
    assert len(timeout) == 0


async def test_closing_a_shared_timeout_ends_pending_waits_with_a_timeout_error():
    timeout, answer = SharedTimeout(5), future()
    waits = asyncio.ensure_future(timeout.wait_for(answer))
    await asyncio.sleep(0)
    timeout.close()
    with pytest.raises(TimeoutError):
        await waits
