"""Requests for services: why a viewer sees a status, and which users are not offline."""

import pytest
from tests.api.world import SERVICE, problem, serving

from herenow.node.cluster.staleness import StaleReason

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFERENCES = "/api/v1/presence/preferences"


async def explain(world, viewer, target):
    answer = await world.get(f"/api/v1/explain?viewer={viewer}&target={target}", by=SERVICE)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_explain_endpoint_names_the_visibility_rule_that_decided_what_the_viewer_sees(world):
    await world.befriend(("x-bob", "x-ana"))
    await world.connect("x-ana", "laptop")
    answers = [(await explain(world, "x-bob", "x-ana"))["rule"]]
    for who, body in (("x-ana", {"share_last_seen": False}), ("x-ana", {"visibility": "nobody"})):
        await world.put(PREFERENCES, body, by=who)
        answers.append((await explain(world, "x-bob", "x-ana"))["rule"])
    await world.put("/api/v1/blocks/x-bob", by="x-ana")
    answers.append((await explain(world, "x-bob", "x-ana"))["rule"])
    answers.append((await explain(world, "x-eve", "x-ana"))["rule"])
    answers.append((await explain(world, "x-ana", "x-ana"))["rule"])
    await world.delete("/api/v1/blocks/x-bob", by="x-ana")
    await world.put(PREFERENCES, {"visibility": "everyone", "share_last_seen": True}, by="x-ana")
    answers.append((await explain(world, "x-eve", "x-ana"))["rule"])
    await world.put("/api/v1/presence/mode", {"mode": "invisible"}, by="x-ana")
    answers.append((await explain(world, "x-bob", "x-ana"))["rule"])
    assert answers == ["contacts", "blurred", "nobody", "blocked", "not_related", "self", "everyone", "invisible"]


async def test_the_explain_endpoint_names_session_timer_mode_and_the_status_the_viewer_gets(world):
    await world.befriend(("y-bob", "y-ana"))
    await world.connect("y-ana", "laptop")
    found = await explain(world, "y-bob", "y-ana")
    now = world.node.context.clock.now()
    assert (found["sight"], found["shown"]["status"]) == ("full", "online")
    assert found["facts"]["mutual_follow"]
    assert not found["facts"]["blocked"]
    truth = found["truth"]
    assert (truth["status"], truth["because"], truth["device_id"]) == ("online", "active", "laptop")
    assert truth["look_at"] == now + 300_000
    [session] = truth["sessions"]
    assert (session["state"], session["by"], session["idle"], session["lost_at"]) == ("live", "socket", "no", None)
    await world.put("/api/v1/blocks/y-bob", by="y-ana")
    found = await explain(world, "y-bob", "y-ana")
    assert (found["sight"], found["shown"]["status"], found["truth"]["status"]) == ("offline", "offline", "online")
    assert found["facts"]["blocked"]
    nobody = await explain(world, "y-bob", "who?")
    assert (nobody["truth"]["because"], nobody["truth"]["sessions"]) == ("no_session", [])


async def test_the_explain_endpoint_names_who_set_mode_and_custom_status(world):
    await world.connect("s-ana", "laptop")
    truth = (await explain(world, "s-bob", "s-ana"))["truth"]
    assert (truth["mode_source"], truth["custom_status"], truth["custom_source"], truth["sources"]) == (
        None,
        None,
        None,
        [],
    )
    await world.put("/api/v1/presence/status", {"text": "mine"}, by="s-ana")
    await world.put("/api/v1/users/s-ana/mode", {"mode": "busy", "source": "call"}, by=SERVICE)
    await world.put("/api/v1/users/s-ana/status", {"text": "In a meeting", "source": "calendar"}, by=SERVICE)
    truth = (await explain(world, "s-bob", "s-ana"))["truth"]
    assert (truth["because"], truth["mode"], truth["mode_source"]) == ("mode", "busy", "call")
    assert (truth["custom_status"]["text"], truth["custom_source"]) == ("mine", "user")
    assert [
        (each["source"], each["mode"], each["custom_status"] and each["custom_status"]["text"])
        for each in truth["sources"]
    ] == [("user", "auto", "mine"), ("call", "busy", None), ("calendar", "auto", "In a meeting")]


@pytest.mark.parametrize("query", ["", "?viewer=a", "?target=b", "?viewer=a&viewer=b&target=c"])
async def test_the_explain_endpoint_needs_exactly_one_viewer_and_one_target(world, query):
    problem(await world.get(f"/api/v1/explain{query}", by=SERVICE), 400, "bad_shape")


async def walk(world, query=""):
    users, cursor, pages = [], None, 0
    while True:
        more = "" if cursor is None else f"&cursor={cursor}"
        answer = (await world.get(f"/api/v1/users?limit=3{query}{more}", by=SERVICE)).json()
        users += [(each["user_id"], each["status"]) for each in answer["users"]]
        cursor, pages = answer["cursor"], pages + 1
        if cursor is None:
            return sorted(users), pages


async def test_users_who_are_not_offline_are_listed_page_by_page():
    async with serving() as world:
        names = [f"user-{number:02}" for number in range(20)]
        for name in names:
            await world.connect(name)
        await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="user-03")
        await world.put("/api/v1/presence/mode", {"mode": "invisible"}, by="user-04")
        await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="user-gone")
        busy = [("user-03", "busy")]
        online = [(name, "online") for name in names if name != "user-03"]
        found, pages = await walk(world)
        assert found == sorted(online + busy)
        assert pages > 1
        assert (await walk(world, "&status=online"))[0] == online
        assert (await walk(world, "&status=busy"))[0] == busy
        assert (await walk(world, "&status=away"))[0] == []


async def test_a_list_of_users_for_a_viewer_contains_only_users_the_viewer_sees():
    async with serving() as world:
        await world.befriend(("bob", "ana"), ("bob", "cy"), ("bob", "dee"))
        for name in ("ana", "cy", "dee", "stranger"):
            await world.connect(name)
        await world.put("/api/v1/blocks/bob", by="cy")
        await world.put("/api/v1/presence/mode", {"mode": "invisible"}, by="dee")
        assert (await walk(world, "&viewer=bob"))[0] == [("ana", "online")]


@pytest.mark.parametrize("query", ["status=offline", "status=", "cursor=x", "cursor=%00", "cursor=MDp6eno", "limit=x"])
async def test_a_list_of_users_with_an_invalid_query_is_refused(world, query):
    await world.connect("somebody")
    problem(await world.get(f"/api/v1/users?{query}", by=SERVICE), 400, "bad_shape")


async def test_a_cursor_beyond_the_last_page_of_the_list_of_users_returns_an_empty_page(world):
    answer = await world.get("/api/v1/users?cursor=OTk6", by=SERVICE)
    assert answer.json() == {"users": [], "cursor": None}


async def test_explain_and_the_troubles_name_shards_where_ends_wait_or_that_must_be_verified(world):
    await world.connect("w-ana", "laptop")
    node = world.node
    shard, shards = node.context.people.shard_of("w-ana"), node.context.engine.shards
    assert await waits(world, "w-ana") == (False, False)
    node.context.authority.outages.on_failure([shard])
    node.cluster.log_reader._staleness.mark_stale([shard], StaleReason.UNVERIFIED)
    assert await waits(world, "w-ana") == (True, True)
    troubles = {each["what"]: each["detail"] for each in (await world.get("/readyz")).json()["degraded"]}
    assert "1 must be verified against the live store." in troubles["stale_shards"]
    assert troubles["ends_wait"].startswith(f"No user is shown offline in 1 of {shards} shards")
    node.cluster.log_reader._staleness.clear([shard], StaleReason.UNVERIFIED)
    node.context.authority.outages.on_success(shard)
    assert await waits(world, "w-ana") == (False, True)


async def waits(world, target):
    found = await explain(world, "w-bob", target)
    return found["must_verify"], found["ends_wait"]
