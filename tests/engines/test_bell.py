"""Waiting for news: everybody wakes once, in order, and nobody is left behind."""

import asyncio
import math

import pytest

from herenow.kit.notifier import Bell

pytestmark = pytest.mark.looptime


async def test_everybody_who_waits_wakes_in_the_order_they_came():
    bell, woken = Bell(), []

    async def wait(name):
        assert await bell.wait(math.inf)
        woken.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in "abcdefgh"]
    await asyncio.sleep(1)
    bell.ring()
    bell.ring()
    await asyncio.gather(*waiting)
    assert woken == list("abcdefgh")


async def test_a_ring_is_not_kept_for_whoever_comes_later(looptime):
    bell = Bell()
    bell.ring()
    assert not await bell.wait(5)
    assert looptime == 5


async def test_a_wait_that_is_over_ends_at_once(looptime):
    assert not await Bell().wait(-1)
    assert looptime == 0


async def test_whoever_was_cancelled_or_gave_up_leaves_nothing_behind():
    bell = Bell()
    cancelled = asyncio.create_task(bell.wait(math.inf))
    await asyncio.sleep(1)
    cancelled.cancel()
    assert not await bell.wait(2)
    assert cancelled.cancelled()
    assert not bell._waiting
    bell.ring()
