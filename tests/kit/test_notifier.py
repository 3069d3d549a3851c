"""Waiting for a notification: every waiter wakes once, in order."""

import asyncio
import math

import pytest

from herenow.kit.notifier import Notifier

pytestmark = pytest.mark.looptime


async def test_waiters_for_a_notification_wake_in_the_order_of_arrival():
    notifier, woken = Notifier(), []

    async def wait(name):
        assert await notifier.wait(math.inf)
        woken.append(name)

    waiting = [asyncio.create_task(wait(name)) for name in "abcdefgh"]
    await asyncio.sleep(1)
    notifier.notify()
    notifier.notify()
    await asyncio.gather(*waiting)
    assert woken == list("abcdefgh")


async def test_a_notification_is_not_kept_for_later_waiters(looptime):
    notifier = Notifier()
    notifier.notify()
    assert not await notifier.wait(5)
    assert looptime == 5


async def test_a_wait_for_a_notification_with_a_negative_timeout_returns_at_once(looptime):
    assert not await Notifier().wait(-1)
    assert looptime == 0


async def test_a_cancelled_or_timed_out_waiter_is_removed_from_the_notifier():
    notifier = Notifier()
    cancelled = asyncio.create_task(notifier.wait(math.inf))
    await asyncio.sleep(1)
    cancelled.cancel()
    assert not await notifier.wait(2)
    assert cancelled.cancelled()
    assert not notifier._waiting
    notifier.notify()
