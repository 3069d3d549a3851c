"""A hidden user looks offline, byte for byte: in every output an invisible user equals one who signed out at that
moment.
"""

import asyncio

import pytest
import pytest_asyncio
from tests.api.world import SERVICE, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXITS = (
    ("GET", "/api/v1/presence?user_ids=target&", None),
    ("POST", "/api/v1/presence/query?", {"user_ids": ["target"]}),
    ("GET", "/api/v1/presence/target?", None),
    ("GET", "/api/v1/presence/count?", None),
    ("GET", "/api/v1/presence/leaderboard?", None),
)


@pytest_asyncio.fixture(loop_scope="module")
async def twins():
    """Two equal worlds, until T becomes invisible in one and signs out in the other."""
    async with serving() as hiding, serving() as leaving:
        for world in (hiding, leaving):
            await world.befriend(("viewer", "target"), ("viewer", "other"))
            await world.connect("other")
            await world.connect("target", "laptop")
            await world.put("/api/v1/presence/status", {"text": "here"}, by="target")
            world.hands.advance(7)
        await hiding.put("/api/v1/presence/mode", {"mode": "invisible"}, by="target")
        await leaving.delete("/api/v1/presence/devices/laptop", by="target")
        yield hiding, leaving


async def exits(world):
    """Every output for a viewer, and for a service that names this viewer."""
    for by, query in (("viewer", ""), (SERVICE, "viewer=viewer")):
        for method, path, body in EXITS:
            answer = await world.call(method, path + query, by=by, json=body)
            yield path, answer.headers.raw, answer.content


async def test_an_invisible_user_looks_like_a_user_who_signed_out_at_that_moment(twins):
    hiding, leaving = twins
    shown = [each async for each in exits(hiding)]
    assert shown == [each async for each in exits(leaving)]
    assert all(b'"last_seen":1800000007000' in body for path, _, body in shown if "count" not in path)


async def test_an_invisible_user_looks_signed_out_whatever_they_do_while_hidden(twins):
    hiding, leaving = twins
    await hiding.connect("target", "phone")
    hiding.hands.advance(3)
    await hiding.post("/api/v1/presence/heartbeat", {"device_id": "x", "activity_type": "active"}, by="target")
    await hiding.put("/api/v1/presence/status", {"text": "secret"}, by="target")
    await hiding.delete("/api/v1/presence/devices/phone", by="target")
    leaving.hands.advance(3)
    assert [each async for each in exits(hiding)] == [each async for each in exits(leaving)]


async def test_the_user_and_services_see_the_true_status_of_an_invisible_user(twins):
    hiding, _ = twins
    assert (await hiding.get("/api/v1/presence/target", by="target")).json()["status"] == "online"
    assert (await hiding.get("/api/v1/presence/target", by=SERVICE)).json()["status"] == "online"


async def test_statistics_count_an_invisible_user_as_offline(twins):
    for world in twins:
        users = await counted(world)
        for _ in range(1_000):  # user counts follow the log, a loop iteration later
            if sum(users.values()) == 1:
                break
            await asyncio.sleep(0)
            users = await counted(world)
        assert users == {"online": 1, "busy": 0, "away": 0}


async def counted(world):
    return (await world.get("/api/v1/stats", by=SERVICE)).json()["users"]
