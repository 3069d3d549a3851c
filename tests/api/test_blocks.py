"""The caller's block list, and what the blocked user sees."""

import pytest
from tests.api.world import SERVICE, problem

from herenow.core.limits import MAX_BLOCKS
from herenow.node.viewing import privacy

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def blocked(world, user):
    return (await world.get("/api/v1/blocks", by=user)).json()["blocked"]


async def test_users_can_be_added_to_and_removed_from_a_block_list(world):
    assert await blocked(world, "lister") == []
    for other in ("zed", "ann", "ann", "nobody-knows", "a%2Fb"):
        assert (await world.put(f"/api/v1/blocks/{other}", by="lister")).status_code == 204
    assert await blocked(world, "lister") == ["a/b", "ann", "nobody-knows", "zed"]
    assert (await world.get("/api/v1/blocks/ann", by="lister")).json() == {"user_id": "ann"}
    for _ in range(2):
        assert (await world.delete("/api/v1/blocks/ann", by="lister")).status_code == 204
    problem(await world.get("/api/v1/blocks/ann", by="lister"), 404, "not_found")
    assert await blocked(world, "lister") == ["a/b", "nobody-knows", "zed"]
    assert await blocked(world, "zed") == []


async def test_a_service_reads_any_block_list_and_a_user_only_their_own(world):
    await world.put("/api/v1/blocks/eve", by="open-book")
    answer = await world.get("/api/v1/blocks?viewer=open-book", by=SERVICE)
    assert answer.json() == {"blocked": ["eve"]}
    problem(await world.get("/api/v1/blocks?viewer=open-book", by="eve"), 403, "forbidden")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_user_cannot_block_themselves(world, method):
    detail = problem(await world.call(method, "/api/v1/blocks/me-myself", by="me-myself"), 400, "blocking_oneself")
    assert "themselves" in detail
    assert await blocked(world, "me-myself") == []


async def test_blocking_an_invalid_user_id_is_refused(world):
    problem(await world.put("/api/v1/blocks/a%20b", by="lister"), 400, "invalid_user_id")


async def test_the_answer_to_a_block_does_not_reveal_whether_the_blocked_user_exists(world):
    await world.connect("known-one")
    answers = [await world.put(f"/api/v1/blocks/{user}", by="probe") for user in ("known-one", "unknown-one")]
    assert answers[0].headers.raw == answers[1].headers.raw
    assert answers[0].content == answers[1].content


async def test_a_block_takes_effect_before_the_request_is_answered(world):
    await world.befriend(("bea", "cat"))
    await world.connect("bea")
    assert (await world.get("/api/v1/presence/bea", by="cat")).json()["status"] == "online"
    await world.put("/api/v1/blocks/cat", by="bea")
    seen = (await world.get("/api/v1/presence/bea", by="cat")).json()
    assert (seen["status"], seen["last_seen"]) == ("offline", world.node.context.clock.now())
    assert (await world.get("/api/v1/presence/bea", by=SERVICE)).json()["status"] == "online"
    assert (await world.get("/api/v1/presence/bea?viewer=cat", by=SERVICE)).json() == seen
    await world.delete("/api/v1/blocks/cat", by="bea")
    assert (await world.get("/api/v1/presence/bea", by="cat")).json()["status"] == "online"


async def test_j8_a_user_may_block_120_times_a_minute_and_60_times_at_once(world):
    codes = [(await world.put(f"/api/v1/blocks/x{number}", by="hasty")).status_code for number in range(61)]
    assert codes == [204] * 60 + [429]
    refused = await world.delete("/api/v1/blocks/x1", by="hasty")
    assert "120 times a minute" in problem(refused, 429, "blocking_too_fast")
    assert refused.headers.get_list("retry-after") == ["1"]
    assert (await world.put("/api/v1/blocks/hasty", by="another")).status_code == 204
    world.hands.advance(0.5)
    assert (await world.delete("/api/v1/blocks/x1", by="hasty")).status_code == 204
    problem(await world.delete("/api/v1/blocks/x2", by="hasty"), 429, "blocking_too_fast")
    world.hands.advance(60)
    codes = [(await world.put("/api/v1/blocks/x1", by="hasty")).status_code for _ in range(61)]
    assert codes == [204] * 60 + [429]
    assert len(await blocked(world, "hasty")) == 60


async def test_j8_an_invalid_block_does_not_count_against_the_rate_limit_of_blocks(world):
    for _ in range(70):
        problem(await world.put("/api/v1/blocks/clumsy", by="clumsy"), 400, "blocking_oneself")
        problem(await world.put("/api/v1/blocks/a%20b", by="clumsy"), 400, "invalid_user_id")
    assert (await world.put("/api/v1/blocks/ann", by="clumsy")).status_code == 204


async def test_j8_requests_with_a_service_token_have_no_rate_limit_of_blocks(world):
    codes = {(await world.put(f"/api/v1/blocks/x{number}", by=SERVICE)).status_code for number in range(70)}
    assert codes == {204}


async def test_j8_a_user_has_at_most_10_000_blocks_with_any_token(world, monkeypatch):
    assert MAX_BLOCKS == 10_000
    monkeypatch.setattr(privacy, "MAX_BLOCKS", 3)
    for number in range(3):
        assert (await world.put(f"/api/v1/blocks/x{number}", by="angry")).status_code == 204
    assert "3 users" in problem(await world.put("/api/v1/blocks/x3", by="angry"), 400, "too_many_blocks")
    assert (await world.put("/api/v1/blocks/x1", by="angry")).status_code == 204
    token = world.token("angry", scope="service")
    refused = await world.put("/api/v1/blocks/x3", headers={"authorization": f"Bearer {token}"})
    problem(refused, 400, "too_many_blocks")
    await world.delete("/api/v1/blocks/x1", by="angry")
    assert (await world.put("/api/v1/blocks/x3", by="angry")).status_code == 204
