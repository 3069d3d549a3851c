"""Blocks never fail while the database answers, whatever other users do meanwhile: on an SQLite file and on PostgreSQL."""

import asyncio
from collections import Counter

import pytest
from tests.api.world import serving


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'herenow.db'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def world(ledger_url):
    async with serving(ledger_url=ledger_url) as world:
        yield world


async def blocked(world, user):
    return (await world.get("/api/v1/blocks", by=user)).json()["blocked"]


async def block_all(world, pairs):
    """The numbers of responses by status. The requests overlap; each begins half a millisecond after the one before."""

    async def block(place, user, other):
        await asyncio.sleep(place / 2000)
        return (await world.put(f"/api/v1/blocks/{other}", by=user)).status_code

    return Counter(await asyncio.gather(*(block(place, *pair) for place, pair in enumerate(pairs))))


@pytest.mark.parametrize("count", [2, 25, 50])
async def test_g12_a_user_who_blocks_fifty_users_at_once_succeeds_with_all(world, count):
    assert await block_all(world, [("ana", f"other-{number}") for number in range(count)]) == {204: count}
    assert len(await blocked(world, "ana")) == count


async def test_g12_a_hundred_users_who_block_one_user_at_once_all_succeed(world):
    assert await block_all(world, [(f"user-{number}", "ana") for number in range(100)]) == {204: 100}


async def test_g12_a_user_cannot_prevent_blocks_by_changing_preferences_in_a_loop(world):
    async def change_for_ever():
        while True:
            for visibility in ("nobody", "contacts"):
                answer = await world.put("/api/v1/presence/preferences", {"visibility": visibility}, by="target")
                assert answer.status_code == 200

    changing = [asyncio.create_task(change_for_ever()) for _ in range(3)]
    try:
        codes = Counter()
        for number in range(50):
            codes += await block_all(world, [(f"user-{number}", "target")])
    finally:
        for task in changing:
            task.cancel()
        await asyncio.gather(*changing, return_exceptions=True)
    assert codes == {204: 50}


async def test_g12_blocks_succeed_while_others_unblock_and_block_the_same_users(world):
    async def block_and_unblock(user):
        codes = Counter()
        for _ in range(10):
            for method in ("PUT", "DELETE"):
                codes[(await world.call(method, "/api/v1/blocks/target", by=user)).status_code] += 1
        return codes

    codes = await asyncio.gather(*(block_and_unblock(f"user-{number}") for number in range(10)))
    assert sum(codes, Counter()) == {204: 200}
