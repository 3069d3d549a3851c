"""Users who poll without being connected have a limit on bulk reads; connected users and services have none."""

import pytest
import pytest_asyncio
from tests.api.world import SERVICE, problem, serving

from herenow.core.limits import Rate

pytestmark = pytest.mark.asyncio(loop_scope="module")

BULK = (
    ("GET", "/api/v1/presence?user_ids=bo", None),
    ("POST", "/api/v1/presence/query", {"user_ids": ["bo"]}),
    ("GET", "/api/v1/presence/leaderboard", None),
    ("GET", "/api/v1/presence/count", None),
)


@pytest_asyncio.fixture(loop_scope="module")
async def world():
    async with serving(polling=Rate(every=30_000, burst=5)) as world:
        yield world


async def ask(world, by, which=0, times=1):
    method, path, body = BULK[which]
    answers = [await world.call(method, path, by=by, json=body) for _ in range(times)]
    return answers[-1]


async def test_a_polling_user_may_read_in_a_burst_and_then_once_per_period_with_retry_after(world):
    assert (await ask(world, "ana", times=5)).status_code == 200
    refused = await ask(world, "ana")
    assert "stream" in problem(refused, 429, "polling_too_fast")
    assert refused.headers["retry-after"] == "30"
    assert refused.headers.get_list("retry-after") == ["30"]
    world.hands.advance(29.5)
    assert (await ask(world, "ana")).headers["retry-after"] == "1"
    world.hands.advance(0.5)
    assert (await ask(world, "ana")).status_code == 200
    assert (await ask(world, "ana")).status_code == 429
    world.hands.advance(150)
    assert (await ask(world, "ana", times=5)).status_code == 200


async def test_bulk_reads_count_against_the_polling_limit_and_single_reads_do_not(world):
    for which in range(4):
        await ask(world, "ana", which)
    await ask(world, "ana")
    for which in range(4):
        assert (await ask(world, "ana", which)).status_code == 429
    for path in ("bo", "me", "devices", "preferences"):
        assert (await world.get(f"/api/v1/presence/{path}", by="ana")).status_code == 200


async def test_an_invalid_request_does_not_count_against_the_polling_limit(world):
    for _ in range(10):
        await world.get("/api/v1/presence?user_ids=a,,b", by="ana")
        await world.get("/api/v1/presence/leaderboard?limit=0", by="ana")
        await world.get("/api/v1/presence/count?viewer=bo", by="ana")
    assert (await ask(world, "ana", times=5)).status_code == 200


async def test_the_polling_limit_is_per_user_not_per_token(world):
    await ask(world, "ana", times=6)
    assert (await ask(world, "bo")).status_code == 200
    world.hands.advance(1)  # another token of the same user
    assert (await ask(world, "ana")).status_code == 429


async def test_a_connected_user_has_no_polling_limit(world):
    await ask(world, "ana", times=6)
    await world.connect("ana")
    assert (await ask(world, "ana", times=20)).status_code == 200


async def test_a_user_with_rest_heartbeats_or_a_session_on_another_node_has_no_polling_limit(world):
    await world.post("/api/v1/presence/heartbeat", by="ana")
    assert (await ask(world, "ana", times=20)).status_code == 200
    await world.post("/api/v1/presence/heartbeat", by="bo")
    bo = world.node.context.people.find("bo")
    bo.held = ()  # as if another node held it: only the store has it
    world.node.context.people.release(bo)
    assert (await ask(world, "bo", times=20)).status_code == 200


async def test_a_user_with_an_open_event_stream_still_has_the_polling_limit(world):
    world.node.viewing.open_stream(
        "ana", bearer="ana", issued_at=None, send=lambda _: None, end=lambda *_: None, abort=lambda: None
    )
    assert (await ask(world, "ana", times=6)).status_code == 429


async def test_a_service_has_no_polling_limit_even_when_it_names_a_viewer(world):
    assert (await ask(world, SERVICE, times=20)).status_code == 200
    for _ in range(20):
        answer = await world.get("/api/v1/presence?user_ids=bo&viewer=ana", by=SERVICE)
        assert answer.status_code == 200


async def test_a_polling_limit_that_is_fully_available_again_uses_no_memory(world):
    for number in range(50):
        await ask(world, f"u{number}")
    assert len(world.node.viewing.polling) == 50
    world.hands.advance(31)
    await ask(world, "ana")
    assert len(world.node.viewing.polling) == 1


async def test_the_number_of_users_whose_polling_limit_is_in_memory_is_bounded(world, monkeypatch):
    monkeypatch.setattr(world.node.viewing.polling._reads._full_at, "_size", 10)
    for number in range(50):
        await ask(world, f"u{number}")
    assert len(world.node.viewing.polling) <= 10


async def test_a_period_of_zero_turns_the_polling_limit_off():
    async with serving(polling=Rate(every=0, burst=1)) as world:
        assert (await ask(world, "ana", times=50)).status_code == 200
        assert len(world.node.viewing.polling) == 0
