"""Reading statuses: order, limits, viewers."""

import json
from urllib.parse import quote

import pytest
from tests.api.world import SERVICE, problem, serving

from herenow.core.shards import shard_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

STRANGER: dict[str, object] = {
    "status": "offline",
    "since": None,
    "last_seen": None,
    "custom_status": None,
    "platforms": [],
}


@pytest.fixture(params=["GET", "POST"])
def ask(request, world):
    """Both requests for several users: GET and POST."""

    async def ask(*ids, by="ana", query=""):
        if request.param == "GET":
            return await world.get(f"/api/v1/presence?user_ids={','.join(ids)}{query}", by=by)
        query = query.replace("&", "?", 1)
        return await world.post("/api/v1/presence/query" + query, {"user_ids": list(ids)}, by=by)

    return ask


async def test_a_bulk_read_returns_statuses_in_the_order_of_the_request_and_each_user_once(ask):
    answer = await ask("c", "a", "b", "a", "c")
    assert answer.status_code == 200
    assert [status["user_id"] for status in answer.json()] == ["c", "a", "b"]


async def test_a_bulk_read_of_no_user_ids_returns_an_empty_list(ask):
    assert (await ask()).json() == []


async def test_reading_a_stranger_and_reading_an_unknown_id_give_the_same_answer(world, ask):
    await world.connect("somebody-else")
    await world.put("/api/v1/presence/status", {"text": "hi"}, by="somebody-else")
    as_of = world.node.context.clock.now()
    there, nowhere = (await ask("somebody-else", "nobody")).json()
    assert there == {"user_id": "somebody-else", **STRANGER, "as_of": as_of}
    assert nowhere == {"user_id": "nobody", **STRANGER, "as_of": as_of}


async def test_statuses_of_strangers_are_not_read_so_that_timing_does_not_reveal_whether_they_exist(
    world, ask, monkeypatch
):
    await world.befriend(("ana", "known"))
    asked = []
    look = world.node.records.read

    async def noting(users, **how):
        asked.extend(users)
        return await look(users, **how)

    monkeypatch.setattr(world.node.records, "read", noting)
    await ask("somebody-else", "known", "nobody", "ana")
    assert asked == ["known", "ana"]


async def test_only_statuses_of_users_in_a_stale_shard_are_marked_stale(world, ask):
    users = [f"shard-{number}" for number in range(40)]
    world.node.delivery.set_stale(1, stale=True)
    world.hands.advance(1)
    seen = {status["user_id"]: status for status in (await ask(*users)).json()}
    world.node.delivery.set_stale(1, stale=False)
    for user in users:
        in_doubt = shard_of(user, 4) == 1
        assert seen[user].get("stale", False) is in_doubt
        assert seen[user]["as_of"] == world.node.context.clock.now() - (1_000 if in_doubt else 0)


async def test_the_status_of_a_friend_is_shown(world, ask, request):
    friend = f"friend-{request.node.callspec.id}"
    now = world.node.context.clock.now()
    await world.befriend(("ana", friend))
    await world.connect(friend)
    [status] = (await ask(friend)).json()
    assert status == {
        "user_id": friend,
        "status": "online",
        "since": now,
        "last_seen": None,
        "custom_status": None,
        "platforms": ["mobile"],
        "as_of": now,
    }
    assert (await world.get(f"/api/v1/presence/{friend}", by="ana")).json() == status


async def test_the_limit_of_user_ids_in_a_bulk_read_counts_duplicates(world, ask):
    most = world.settings.max_bulk
    assert len((await ask(*["a"] * most)).json()) == 1
    detail = problem(await ask(*["a"] * (most + 1)), 400, "too_many_ids")
    assert str(most) in detail


async def test_the_error_of_a_bulk_read_names_the_invalid_user_id(ask):
    assert "'%'" not in problem(await ask("good", "a" * 200), 400, "invalid_user_id")
    assert "'aaaa" in problem(await ask("good", "a" * 200), 400, "invalid_user_id")


async def test_an_empty_user_id_in_a_bulk_read_is_refused(ask):
    for ids in (["a", "", "b"], ["", ""], ["a", ""]):
        problem(await ask(*ids), 400, "empty_item")


@pytest.mark.parametrize("query", ["", "?", "?user_id=a", "?viewer=a"])
async def test_a_bulk_read_without_user_ids_is_refused(world, query):
    assert "user_ids" in problem(await world.get("/api/v1/presence" + query, by=SERVICE), 400, "bad_shape")


async def test_repeated_user_ids_parameters_of_a_bulk_read_are_joined(world):
    answer = await world.get("/api/v1/presence?user_ids=b&user_ids=a,b", by="ana")
    assert [status["user_id"] for status in answer.json()] == ["b", "a"]


async def test_integers_are_accepted_as_user_ids_and_other_json_types_are_refused(world):
    answer = await world.post("/api/v1/presence/query", {"user_ids": [7, "07", "7"]}, by="ana")
    assert [status["user_id"] for status in answer.json()] == ["7", "07"]
    for bad, named in ((True, "true"), (1.5, "1.5"), (None, "null"), ([], "an array"), ({}, "an object")):
        answer = await world.post("/api/v1/presence/query", {"user_ids": ["a", bad]}, by="ana")
        assert named in problem(answer, 400, "invalid_user_id")
    huge = await world.call("POST", "/api/v1/presence/query", by="ana", content=b'{"user_ids": [' + b"9" * 4000 + b"]}")
    assert "many digits" in problem(huge, 400, "invalid_user_id")


@pytest.mark.parametrize("user", ["a/b", "ünï", "a%b", "a+b", "a&b=c?#", "%2F", "€" * 42])
async def test_any_user_id_is_accepted_and_returned_unchanged_in_path_query_and_body(world, user):
    spelled = quote(user, safe="")
    one = (await world.get(f"/api/v1/presence/{spelled}", by="ana")).json()
    [many] = (await world.get(f"/api/v1/presence?user_ids={spelled}", by="ana")).json()
    [posted] = (await world.post("/api/v1/presence/query", {"user_ids": [user]}, by="ana")).json()
    assert one["user_id"] == many["user_id"] == posted["user_id"] == user


@pytest.mark.parametrize("spelled", ["%20", "a%2Cb", "a%00", "%FF", "e%CC%81", "a" * 129, "%E2%82%AC" * 43])
async def test_an_invalid_user_id_is_refused_in_path_and_query(world, spelled):
    one = await world.get(f"/api/v1/presence/{spelled}", by="ana")
    problem(one, 400, "invalid_user_id")
    many = await world.get(f"/api/v1/presence?user_ids=a,{spelled}", by="ana")
    if spelled != "a%2Cb":
        assert many.json()["code"] in ("invalid_user_id", "bad_shape")


async def test_fixed_words_in_a_path_such_as_me_take_precedence_over_user_ids(world):
    await world.befriend(("ana", "me"))
    await world.connect("me")
    assert "devices" in (await world.get("/api/v1/presence/me", by="ana")).json()
    assert "devices" in (await world.get("/api/v1/presence/%6D%65", by="ana")).json()
    [status] = (await world.get("/api/v1/presence?user_ids=me", by="ana")).json()
    assert status["status"] == "online"
    for word in ("heartbeat", "query", "mode"):
        problem(await world.get(f"/api/v1/presence/{word}", by="ana"), 405, "method_not_allowed")
    problem(await world.get("/api/v1/presence/stream", by="ana"), 400, "bad_shape")


async def test_a_trailing_slash_of_a_request_path_is_ignored(world):
    for path in ("/api/v1/presence/me", "/api/v1/presence/ana", "/api/v1/presence/count", "/healthz", "/docs"):
        assert (await world.get(path + "/", by="ana")).status_code == 200
    assert (await world.get("/api/v1/presence/?user_ids=", by="ana")).json() == []


async def test_an_invisible_user_reads_their_own_true_status(world):
    await world.connect("hider")
    await world.put("/api/v1/presence/mode", {"mode": "invisible"}, by="hider")
    assert (await world.get("/api/v1/presence/hider", by="hider")).json()["status"] == "online"
    me = (await world.get("/api/v1/presence/me", by="hider")).json()
    assert (me["status"], me["mode"]) == ("online", "invisible")
    assert [device["device_id"] for device in me["devices"]] == ["phone"]


async def test_a_service_reads_true_statuses_unless_it_names_a_viewer(world, ask):
    await world.connect("target")
    [truth] = (await ask("target", by=SERVICE)).json()
    [as_stranger] = (await ask("target", by=SERVICE, query="&viewer=nobody")).json()
    [as_self] = (await ask("target", by=SERVICE, query="&viewer=target")).json()
    assert (truth["status"], as_stranger["status"], as_self["status"]) == ("online", "offline", "online")


async def test_a_service_request_without_a_named_viewer_is_answered_for_the_subject_of_its_token(world):
    await world.befriend((SERVICE, "pal"), ("viewed", "pal"))
    await world.connect("pal")
    assert (await world.get("/api/v1/presence/count", by=SERVICE)).json()["online"] == 1
    assert (await world.get("/api/v1/presence/count?viewer=nobody", by=SERVICE)).json()["online"] == 0
    [friend] = (await world.get("/api/v1/presence/leaderboard?viewer=viewed", by=SERVICE)).json()["friends"]
    assert friend["user_id"] == "pal"
    assert (await world.get("/api/v1/presence/me?viewer=pal", by=SERVICE)).json()["status"] == "online"
    assert len((await world.get("/api/v1/presence/devices?viewer=pal", by=SERVICE)).json()["devices"]) == 1


@pytest.mark.parametrize(
    "path", ["presence?user_ids=a&", "presence/a?", "presence/me?", "presence/count?", "presence/devices?"]
)
async def test_a_user_may_name_only_themselves_as_viewer(world, path):
    problem(await world.get(f"/api/v1/{path}viewer=bob", by="ana"), 403, "forbidden")
    assert (await world.get(f"/api/v1/{path}viewer=ana", by="ana")).status_code == 200
    problem(await world.get(f"/api/v1/{path}viewer=", by=SERVICE), 400, "invalid_user_id")
    problem(await world.get(f"/api/v1/{path}viewer=a&viewer=b", by=SERVICE), 400, "bad_shape")


async def test_contacts_are_counted_by_the_status_the_viewer_sees(world):
    await world.befriend(*(("counter", f"c{number}") for number in range(5)))
    await world.connect("c0")
    await world.connect("c1")
    await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="c1")
    await world.connect("c2")
    await world.put("/api/v1/presence/mode", {"mode": "away"}, by="c2")
    await world.connect("c3")
    await world.put("/api/v1/presence/mode", {"mode": "invisible"}, by="c3")
    counts = (await world.get("/api/v1/presence/count", by="counter")).json()
    assert counts == {"online": 1, "busy": 1, "away": 1, "offline": 2}


async def test_the_leaderboard_ranks_online_busy_away_then_by_last_seen(world):
    names = ["l-away", "l-busy", "l-on-b", "l-on-a", "l-left-1", "l-left-2", "l-never"]
    await world.befriend(*(("leader", name) for name in names))
    for name in names[:6]:
        await world.connect(name)
    await world.put("/api/v1/presence/mode", {"mode": "away"}, by="l-away")
    await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="l-busy")
    for name in ("l-left-1", "l-left-2"):
        world.hands.advance(1)
        await world.delete("/api/v1/presence/devices/phone", by=name)

    async def board(query=""):
        answer = await world.get("/api/v1/presence/leaderboard" + query, by="leader")
        return [friend["user_id"] for friend in answer.json()["friends"]]

    ranked = ["l-on-a", "l-on-b", "l-busy", "l-away", "l-left-2", "l-left-1", "l-never"]
    assert await board() == ranked
    assert await board("?limit=3") == ranked[:3]
    assert await board("?limit=1000") == ranked


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("0", "out_of_range"),
        ("1001", "out_of_range"),
        ("9" * 30, "out_of_range"),
        ("-1", "bad_shape"),
        ("x", "bad_shape"),
        ("", "bad_shape"),
        ("1.5", "bad_shape"),
        ("²", "bad_shape"),
        ("5&limit=6", "bad_shape"),
    ],
)
async def test_a_leaderboard_limit_out_of_range_is_refused(world, limit, code):
    problem(await world.get(f"/api/v1/presence/leaderboard?limit={limit}", by="ana"), 400, code)


async def test_the_operator_can_configure_the_limit_of_users_per_bulk_read(world):
    async with serving(max_bulk=3) as small:
        assert (await small.get("/api/v1/presence?user_ids=a,b,c", by="ana")).status_code == 200
        assert "3" in problem(await small.get("/api/v1/presence?user_ids=a,b,c,d", by="ana"), 400, "too_many_ids")
        assert (await small.get("/api/v1/presence/leaderboard", by="ana")).status_code == 200
        problem(await small.get("/api/v1/presence/leaderboard?limit=4", by="ana"), 400, "out_of_range")


async def test_a_too_long_url_is_refused_and_the_error_names_the_post_endpoint(world):
    ids = ",".join(f"user-{number:04}" for number in range(1000))
    detail = problem(await world.get(f"/api/v1/presence?user_ids={ids}", by="ana"), 414, "uri_too_long")
    assert "POST /api/v1/presence/query" in detail
    problem(await world.get("/api/v1/presence/" + "a" * 9000, by="ana"), 414, "uri_too_long")


async def test_too_many_or_undecodable_query_parameters_are_refused(world):
    problem(await world.get("/api/v1/presence?" + "a=1&" * 101, by="ana"), 400, "bad_shape")
    problem(await world.get("/api/v1/presence?user_ids=%FF", by="ana"), 400, "bad_shape")


async def test_a_request_body_with_a_duplicate_json_key_is_refused(world):
    twice = json.dumps({"user_ids": ["a"]})[:-1] + ', "user_ids": []}'
    answer = await world.call("POST", "/api/v1/presence/query", by="ana", content=twice)
    problem(answer, 400, "bad_json")
