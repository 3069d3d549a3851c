"""Who waits for an answer gets it, or gives up when its own time is over."""

import asyncio

import pytest

from herenow.kit.shared_timeout import Patience

pytestmark = pytest.mark.looptime(noop_cycles=0)


def future():
    return asyncio.get_running_loop().create_future()


async def test_an_answer_in_time_is_an_answer():
    patience, answer = Patience(5), future()
    waits = asyncio.ensure_future(patience.wait_for(answer))
    await asyncio.sleep(4.9)
    answer.set_result(None)
    await waits
    await patience.wait_for(answer)  # it has come: nobody waits


async def test_each_gives_up_after_its_own_time():
    patience, loop, ends = Patience(5), asyncio.get_running_loop(), []

    async def wait():
        with pytest.raises(TimeoutError):
            await patience.wait_for(future())
        ends.append(round(loop.time() - began, 3))

    began, waits = loop.time(), []
    for _ in range(3):
        waits.append(asyncio.ensure_future(wait()))
        await asyncio.sleep(1)
    await asyncio.gather(*waits)
    assert ends == [5, 6, 7]


async def test_a_failure_is_told_as_it_is():
    patience, answer = Patience(5), future()
    waits = asyncio.ensure_future(patience.wait_for(answer))
    await asyncio.sleep(1)
    answer.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await waits


async def test_who_goes_away_disturbs_nobody():
    patience, answer = Patience(5), future()
    gone = asyncio.ensure_future(patience.wait_for(future()))
    stays = asyncio.ensure_future(patience.wait_for(answer))
    await asyncio.sleep(1)
    gone.cancel()
    await asyncio.sleep(1)
    answer.set_result(None)
    await stays
    assert gone.cancelled()


async def test_those_who_have_their_answer_are_not_kept():
    patience = Patience(5)
    for _ in range(100):
        answer = future()
        waits = asyncio.ensure_future(patience.wait_for(answer))
        await asyncio.sleep(0)
        answer.set_result(None)
        await waits
    assert len(patience) <= 1
    await asyncio.sleep(6)
    assert len(patience) == 0


async def test_who_waits_when_there_is_no_more_patience_is_told_at_once():
    patience, answer = Patience(5), future()
    waits = asyncio.ensure_future(patience.wait_for(answer))
    await asyncio.sleep(0)
    patience.close()
    with pytest.raises(TimeoutError):
        await waits
