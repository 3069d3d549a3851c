"""The public profile exists only for users who enabled it."""

import pytest
from tests.api.world import problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFERENCES = "/api/v1/presence/preferences"


async def profile(world, user):
    """Without a token."""
    return await world.get(f"/api/v1/public/{user}")


async def test_the_profile_of_a_user_who_did_not_make_it_public_looks_like_that_of_an_unknown_user(world):
    await world.connect("private-person")
    await world.put(PREFERENCES, {"visibility": "everyone"}, by="private-person")
    one, other = await profile(world, "private-person"), await profile(world, "no-such-one")
    problem(one, 404, "not_found")
    assert (one.content, one.headers.raw) == (other.content, other.headers.raw)


async def test_a_public_profile_needs_no_token_and_is_cacheable(world):
    await world.connect("celebrity")
    await world.put(PREFERENCES, {"public": True}, by="celebrity")
    answer = await profile(world, "celebrity")
    assert (answer.status_code, answer.json()["status"]) == (200, "online")
    assert answer.headers["cache-control"] == "public, max-age=30"
    again = await world.get("/api/v1/public/celebrity", headers={"if-none-match": f'"other", {answer.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == answer.headers["etag"]
    await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="celebrity")
    changed = await world.get("/api/v1/public/celebrity", headers={"if-none-match": answer.headers["etag"]})
    assert (changed.status_code, changed.json()["status"]) == (200, "busy")
    await world.put(PREFERENCES, {"public": False}, by="celebrity")
    problem(await profile(world, "celebrity"), 404, "not_found")


@pytest.mark.parametrize(
    ("path", "body"), [("/api/v1/presence/mode", {"mode": "invisible"}), (PREFERENCES, {"visibility": "nobody"})]
)
async def test_the_public_profile_of_a_hidden_user_equals_that_of_a_signed_out_user(world, path, body):
    [how] = body
    hiding, leaving = f"hides-by-{how}", f"leaves-by-{how}"
    for user in (hiding, leaving):
        await world.put(PREFERENCES, {"public": True}, by=user)
        await world.connect(user, "d")
    await world.put(path, body, by=hiding)
    await world.delete("/api/v1/presence/devices/d", by=leaving)
    await world.put("/api/v1/presence/status", {"text": "secret"}, by=hiding)
    world.hands.advance(5)
    hidden, gone = await profile(world, hiding), await profile(world, leaving)
    assert hidden.content.replace(hiding.encode(), b"") == gone.content.replace(leaving.encode(), b"")
    assert hidden.json()["status"] == "offline"


async def test_the_profile_of_a_user_who_hides_last_seen_shows_an_approximate_time_with_a_stable_etag(world):
    """Users who left at different times of the same day differ only by their names."""
    await world.put(PREFERENCES, {"public": True, "share_last_seen": False}, by="vague")
    tags = set()
    for _ in range(2):
        await world.connect("vague", "d")
        await world.delete("/api/v1/presence/devices/d", by="vague")
        answer = await profile(world, "vague")
        assert answer.json()["last_seen_bucket"] == "recently"
        assert (answer.json()["last_seen"], answer.json()["since"]) == (None, None)
        tags.add(answer.headers["etag"])
        world.hands.advance(7)
    assert len(tags) == 1


async def test_a_profile_request_with_an_invalid_id_is_refused(world):
    problem(await profile(world, "a%20b"), 400, "invalid_user_id")
