"""Custom status, mode and preferences, set by the user and by a service."""

import pytest
from tests.api.world import NOW, SERVICE, problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR = 3_600_000
YEAR = 366 * 24 * HOUR
FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"


@pytest.fixture(params=["own", "by a service"])
def of(request):
    """The path of a user's setting and its caller: the user, or a service. Each has users of its own, because the user's
    own choice counts before that of a service."""

    def of(user, what):
        if request.param == "own":
            return user, f"/api/v1/presence/{what}", user
        return f"{user}-2", f"/api/v1/users/{user}-2/{what}", SERVICE

    return of


async def own(world, user):
    return (await world.get("/api/v1/presence/me", by=user)).json()


# --- Custom status


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ({"text": "hi"}, {"text": "hi", "emoji": "", "expires_at": None}),
        ({"emoji": "🏝"}, {"text": "", "emoji": "🏝", "expires_at": None}),
        ({"text": "x" * 100}, {"text": "x" * 100, "emoji": "", "expires_at": None}),
        ({"text": (FAMILY * 20)}, {"text": FAMILY * 20, "emoji": "", "expires_at": None}),
        ({"text": "a", "emoji": None, "expires_at": None}, {"text": "a", "emoji": "", "expires_at": None}),
        ({"text": "a", "expires_at": NOW + HOUR}, {"text": "a", "emoji": "", "expires_at": NOW + HOUR}),
        (
            {"text": "a", "expires_at": "2027-01-15T10:00:00+02:00"},
            {"text": "a", "emoji": "", "expires_at": 1_800_000_000_000},
        ),
    ],
)
async def test_a_custom_status_is_set_and_returned(world, of, body, stored):
    if body.get("expires_at") == "2027-01-15T10:00:00+02:00":
        body, stored = ({**body, "expires_at": "2027-01-15T12:00:00+02:00"}, {**stored, "expires_at": NOW + 2 * HOUR})
    user, path, by = of("writer", "status")
    answer = await world.put(path, body, by=by)
    assert answer.status_code == 200
    assert answer.json() == {"custom_status": stored}
    assert (await own(world, user))["custom_status"] == stored


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_text"),
        ({"text": "", "emoji": ""}, "invalid_text"),
        ({"text": "x" * 101}, "text_too_long"),
        ({"text": "a\nb"}, "invalid_text"),
        ({"text": "is \u202egnp.exe"}, "invalid_text"),
        ({"text": 7}, "bad_shape"),
        ({"emoji": ["x"]}, "bad_shape"),
        ({"emoji": "x" * 33}, "invalid_emoji"),
        ({"emoji": "\u2066"}, "invalid_emoji"),
        ({"text": "a", "expires_at": NOW}, "instant_in_past"),
        ({"text": "a", "expires_at": NOW // 1000}, "instant_in_past"),
        ({"text": "a", "expires_at": NOW + YEAR + 1}, "instant_too_far"),
        ({"text": "a", "expires_at": "2027-01-15T12:00:00"}, "invalid_instant"),
        ({"text": "a", "expires_at": "soon"}, "invalid_instant"),
        ({"text": "a", "expires_at": 1.5}, "invalid_instant"),
        ({"text": "a", "expires_at": True}, "invalid_instant"),
        ({"text": "a", "color": "red"}, "bad_shape"),
    ],
)
async def test_an_invalid_custom_status_is_refused_and_changes_nothing(world, of, body, code):
    user, path, by = of("careful", "status")
    await world.put(path, {"text": "before"}, by=by)
    problem(await world.put(path, body, by=by), 400, code)
    assert (await own(world, user))["custom_status"]["text"] == "before"


async def test_a_custom_status_is_cleared_and_may_be_cleared_again(world, of):
    user, path, by = of("clearer", "status")
    await world.put(path, {"text": "x"}, by=by)
    for _ in range(2):
        assert (await world.delete(path, by=by)).status_code == 204
    assert (await own(world, user))["custom_status"] is None


async def test_setting_a_custom_status_makes_no_offline_user_online(world, of):
    user, path, by = of("dead", "status")
    await world.put(path, {"text": "x"}, by=by)
    status = (await world.get(f"/api/v1/presence/{user}", by=SERVICE)).json()
    assert (status["status"], status["custom_status"], status["last_seen"]) == ("offline", None, None)


# --- Mode


@pytest.mark.parametrize("mode", ["auto", "busy", "away", "invisible"])
async def test_a_mode_is_set_and_returned(world, of, mode):
    user, path, by = of("chooser", "mode")
    answer = await world.put(path, {"mode": mode}, by=by)
    assert (answer.status_code, answer.json()) == (200, {"mode": mode, "until": None})
    assert (await own(world, user))["mode"] == mode


async def test_a_mode_may_have_an_end_time(world, of):
    user, path, by = of("brief", "mode")
    answer = await world.put(path, {"mode": "busy", "until": NOW + HOUR}, by=by)
    assert answer.json() == {"mode": "busy", "until": NOW + HOUR}
    assert (await world.put(path, {"mode": "auto", "until": NOW + HOUR}, by=by)).json()["until"] is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "bad_shape"),
        ({"mode": "online"}, "invalid_mode"),
        ({"mode": "Busy"}, "invalid_mode"),
        ({"mode": None}, "invalid_mode"),
        ({"mode": 1}, "invalid_mode"),
        ({"mode": "busy", "until": NOW}, "instant_in_past"),
        ({"mode": "busy", "until": NOW + YEAR + 1}, "instant_too_far"),
        ({"mode": "busy", "until": "2027-01-15"}, "invalid_instant"),
        ({"mode": "busy", "till": NOW + HOUR}, "bad_shape"),
    ],
)
async def test_an_invalid_mode_is_refused(world, of, body, code):
    user, path, by = of("chooser", "mode")
    problem(await world.put(path, body, by=by), 400, code)


async def test_clearing_the_mode_keeps_the_custom_text_and_clearing_the_text_keeps_the_mode(world):
    await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="both")
    await world.put("/api/v1/presence/status", {"text": "x"}, by="both")
    await world.put("/api/v1/presence/mode", {"mode": "auto"}, by="both")
    assert (await own(world, "both"))["custom_status"]["text"] == "x"
    await world.put("/api/v1/presence/mode", {"mode": "away"}, by="both")
    await world.delete("/api/v1/presence/status", by="both")
    assert (await own(world, "both"))["mode"] == "away"


# --- Sources


async def setting(world, user, what, source, **body):
    return await world.put(f"/api/v1/users/{user}/{what}", {**body, "source": source}, by=SERVICE)


async def shown(world, user):
    me = await own(world, user)
    text = me["custom_status"] and me["custom_status"]["text"]
    return me["mode"], me.get("mode_source"), text, me.get("custom_source")


async def test_a_mode_or_text_chosen_by_the_user_counts_before_those_set_by_services(world):
    await world.put("/api/v1/presence/mode", {"mode": "away"}, by="chief")
    await world.put("/api/v1/presence/status", {"text": "mine"}, by="chief")
    for source in ("call", "service", "calendar", "schedule"):
        answer = await setting(world, "chief", "mode", source, mode="busy", until=NOW + HOUR)
        assert (answer.status_code, answer.json()) == (200, {"mode": "busy", "until": NOW + HOUR})
        answer = await setting(world, "chief", "status", source, text=source)
        assert answer.json() == {"custom_status": {"text": source, "emoji": "", "expires_at": None}}
    assert await shown(world, "chief") == ("away", "user", "mine", "user")
    answer = await world.put("/api/v1/presence/mode", {"mode": "auto"}, by="chief")
    assert answer.json() == {"mode": "auto", "until": None}, "the user's own choice; the call's shows"
    await world.delete("/api/v1/presence/status", by="chief")
    assert await shown(world, "chief") == ("busy", "call", "call", "call")
    for source, following in (("call", "service"), ("service", "calendar"), ("calendar", "schedule")):
        for what in ("mode", "status"):
            path = f"/api/v1/users/chief/{what}?source={source}"
            assert (await world.delete(path, by=SERVICE)).status_code == 204
        assert await shown(world, "chief") == ("busy", following, following, following)
    await world.delete("/api/v1/users/chief/mode?source=schedule", by=SERVICE)
    assert await shown(world, "chief") == ("auto", None, "schedule", "schedule")


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ({}, ""),
        ({"source": None}, ""),
        ({"source": "service"}, ""),
        ({}, "?source=service"),
        ({"source": "service"}, "?source=service"),
    ],
)
async def test_a_mode_or_text_set_by_a_service_has_the_source_service_by_default(world, body, query):
    user = "default"
    await world.put(f"/api/v1/users/{user}/mode{query}", {"mode": "busy", **body}, by=SERVICE)
    await world.put(f"/api/v1/users/{user}/status{query}", {"text": "x", **body}, by=SERVICE)
    assert await shown(world, user) == ("busy", "service", "x", "service")
    await world.delete(f"/api/v1/users/{user}/mode", by=SERVICE)
    await world.delete(f"/api/v1/users/{user}/status", by=SERVICE)
    assert await shown(world, user) == ("auto", None, None, None)


async def test_clearing_the_mode_of_another_source_leaves_the_mode_set_by_the_calendar(world):
    await setting(world, "two", "mode", "calendar", mode="away")
    await world.delete("/api/v1/users/two/mode", by=SERVICE)
    await world.delete("/api/v1/users/two/status?source=calendar", by=SERVICE)
    assert await shown(world, "two") == ("away", "calendar", None, None)
    await setting(world, "two", "mode", "calendar", mode="auto")
    assert await shown(world, "two") == ("auto", None, None, None)


@pytest.mark.parametrize("source", ["user", "Call", "", "meeting", 7, ["call"], True])
async def test_a_mode_or_custom_status_with_an_unknown_source_is_refused(world, source):
    for what, body in (("mode", {"mode": "busy"}), ("status", {"text": "x"})):
        problem(await setting(world, "who", what, source, **body), 400, "invalid_source")
    assert await shown(world, "who") == ("auto", None, None, None)


@pytest.mark.parametrize("source", ["user", "Call", "", "meeting"])
async def test_a_mode_or_custom_status_with_an_unknown_source_in_the_query_string_is_refused(world, source):
    for what, body in (("mode", {"mode": "busy"}), ("status", {"text": "x"})):
        path = f"/api/v1/users/who/{what}?source={source}"
        problem(await world.put(path, body, by=SERVICE), 400, "invalid_source")
        problem(await world.delete(path, by=SERVICE), 400, "invalid_source")


async def test_a_mode_with_different_sources_in_body_and_query_string_is_refused(world):
    path = "/api/v1/users/who/mode?source=call"
    problem(await world.put(path, {"mode": "busy", "source": "calendar"}, by=SERVICE), 400, "bad_shape")
    problem(await world.delete(f"{path}&source=call", by=SERVICE), 400, "bad_shape")


async def test_a_user_cannot_name_a_source_for_their_own_mode_or_custom_status(world):
    problem(await world.put("/api/v1/presence/mode", {"mode": "busy", "source": "call"}, by="who"), 400, "bad_shape")
    problem(await world.put("/api/v1/presence/status", {"text": "x", "source": "call"}, by="who"), 400, "bad_shape")


async def test_a_mode_and_status_set_by_a_service_are_shown_to_friends(world):
    await world.befriend(("ana", "bob"))
    await world.connect("bob")
    await world.put("/api/v1/users/bob/status", {"text": "In a meeting", "emoji": "📅"}, by=SERVICE)
    await world.put("/api/v1/users/bob/mode", {"mode": "busy"}, by=SERVICE)
    seen = (await world.get("/api/v1/presence/bob", by="ana")).json()
    assert (seen["status"], seen["custom_status"]["text"]) == ("busy", "In a meeting")


# --- Preferences


DEFAULTS = {"visibility": "contacts", "share_last_seen": True, "idle_after": None, "public": False}


async def test_new_preferences_are_merged_into_the_saved_ones_and_returned(world):
    path = "/api/v1/presence/preferences"
    result = dict(DEFAULTS)
    assert (await world.get(path, by="pref")).json() == result
    for body in (
        {"idle_after": 60},
        {},
        {"idle_after": 30, "public": True},
        {"idle_after": 86_400},
        {"idle_after": 45.5, "visibility": "everyone"},
        {"visibility": "nobody", "share_last_seen": False},
        {"visibility": "nobody"},
        {"public": False},
        {"idle_after": None},
        DEFAULTS,
    ):
        result |= body
        answer = await world.put(path, body, by="pref")
        assert (answer.status_code, answer.json()) == (200, result)
        assert (await world.get(path, by="pref")).json() == result


async def test_a_service_reads_the_preferences_of_any_user(world):
    await world.put("/api/v1/presence/preferences", {"visibility": "nobody"}, by="shy")
    answer = await world.get("/api/v1/presence/preferences?viewer=shy", by=SERVICE)
    assert answer.json() == DEFAULTS | {"visibility": "nobody"}


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ({"idle_after": 29.9}, "out_of_range", "idle_after"),
        ({"idle_after": 86_401}, "out_of_range", "idle_after"),
        ({"idle_after": -1}, "out_of_range", "idle_after"),
        ({"idle_after": 1e300}, "out_of_range", "idle_after"),
        ({"idle_after": "60"}, "bad_shape", "idle_after"),
        ({"idle_after": True}, "bad_shape", "idle_after"),
        ({"idle_after": [60]}, "bad_shape", "idle_after"),
        ({"visibility": "friends"}, "invalid_visibility", "everyone, contacts, nobody"),
        ({"visibility": "Nobody"}, "invalid_visibility", "visibility"),
        ({"visibility": None}, "invalid_visibility", "visibility"),
        ({"visibility": 2}, "invalid_visibility", "visibility"),
        ({"visibility": ["nobody"]}, "invalid_visibility", "visibility"),
        ({"share_last_seen": "no"}, "bad_shape", "share_last_seen"),
        ({"share_last_seen": None}, "bad_shape", "share_last_seen"),
        ({"public": 1}, "bad_shape", "public"),
        ({"hidden_at": 5}, "bad_shape", "visibility"),
        ({"visibility": "nobody", "idle_after": 1}, "out_of_range", "idle_after"),
    ],
)
async def test_an_invalid_preference_is_refused_and_changes_nothing(world, body, code, named):
    answer = await world.put("/api/v1/presence/preferences", body, by="careful-pref")
    assert named in problem(answer, 400, code)
    assert (await world.get("/api/v1/presence/preferences", by="careful-pref")).json() == DEFAULTS


async def test_the_idle_after_preference_of_a_user_replaces_the_default(world):
    await world.connect("quick")
    await world.connect("slow")
    await world.put("/api/v1/presence/preferences", {"idle_after": 40}, by="quick")
    world.hands.advance(41)
    assert (await own(world, "quick"))["status"] == "away"
    assert (await own(world, "slow"))["status"] == "online"
