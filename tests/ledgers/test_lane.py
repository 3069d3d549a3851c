"""Questions that share a thread."""

import asyncio
import threading

import pytest
from sqlalchemy import StaticPool, create_engine

from herenow.ledgers.lane import TOGETHER, Lane


@pytest.fixture
async def lane():
    """With one thread."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    lane = Lane(engine, 1, "lane")
    yield lane
    await lane.close()


async def test_who_has_given_up_is_not_answered_before_those_who_wait(lane):
    held_up, answered = threading.Event(), []
    first = asyncio.ensure_future(lane.ask(lambda _: held_up.wait()))
    await asyncio.sleep(0.05)
    asked = [asyncio.ensure_future(lane.ask(answered.append)) for _ in range(3 * TOGETHER)]
    await asyncio.sleep(0.05)  # they are on their way to the thread
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    held_up.set()
    assert await lane.ask(lambda _: "fresh") == "fresh"
    assert await first
    assert answered == []
