"""Requests of a user beyond the user's budget wait, and are refused if they would wait too long. Services have none."""

import asyncio

import pytest
import pytest_asyncio
from tests.api.world import SERVICE, problem, serving

from herenow.core.limits import LONGEST_PAUSE, REQUEST_COST, USER_BUDGET

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = USER_BUDGET.burst * USER_BUDGET.share // REQUEST_COST


@pytest_asyncio.fixture(loop_scope="module")
async def world():
    async with serving() as world:
        yield world


async def test_requests_of_a_user_beyond_the_budget_wait_and_are_answered(world):
    pauses = world.node.context.metrics.reading_pauses
    for _ in range(AT_ONCE):
        assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200
    assert pauses == {}
    assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200
    assert pauses == {"request": 1}
    await world.get("/api/v1/presence/me", by="bo")
    assert pauses == {"request": 1}
    world.hands.advance(USER_BUDGET.burst / 1000 + 1)
    await world.get("/api/v1/presence/me", by="ana")
    assert pauses == {"request": 1}


async def test_a_request_that_would_wait_for_more_than_two_seconds_is_refused_and_costs_nothing(world):
    budgets = world.node.context.budgets
    budgets.spend("ana", (USER_BUDGET.burst + LONGEST_PAUSE + 500) * USER_BUDGET.share)
    answer = await world.get("/api/v1/presence/me", by="ana")
    problem(answer, 429, "requests_too_fast")
    assert answer.headers["retry-after"] == "3"
    assert budgets.debt("ana") == LONGEST_PAUSE + 500
    assert (await world.get("/api/v1/presence/me", by="bo")).status_code == 200


async def test_a_request_that_waited_is_refused_if_its_token_was_revoked_meanwhile(world):
    budgets = world.node.context.budgets
    budgets.spend("ana", (USER_BUDGET.burst + 100) * USER_BUDGET.share)
    waits = asyncio.create_task(world.put("/api/v1/presence/mode", {"mode": "busy"}, by="ana"))
    while not world.node.context.metrics.reading_pauses:
        await asyncio.sleep(0)
    world.hands.advance(0.01)
    assert (await world.call("POST", "/api/v1/users/ana/revoke", by=SERVICE)).status_code == 200
    problem(await waits, 401, "token_revoked")


async def test_a_user_may_send_a_hundred_requests_a_second_for_ever(world):
    for _ in range(2 * AT_ONCE):
        await world.get("/api/v1/presence/me", by="ana")
        world.hands.advance(0.01)
    assert world.node.context.metrics.reading_pauses == {}


async def test_requests_of_a_service_never_wait(world):
    for _ in range(AT_ONCE + 10):
        await world.get("/api/v1/presence/ana", by=SERVICE)
    assert world.node.context.metrics.reading_pauses == {}
    assert len(world.node.context.budgets) == 0


async def test_a_long_answer_costs_its_reader_more_than_a_short_one(world):
    users = [f"user{number:04d}" for number in range(1_000)]
    await world.connect("ana")
    pauses = world.node.context.metrics.reading_pauses
    reads = 0
    while not pauses and reads < AT_ONCE:
        answer = await world.call("POST", "/api/v1/presence/query", by="ana", json={"user_ids": users})
        assert len(answer.json()) == len(users)
        reads += 1
    assert reads < AT_ONCE / 2
