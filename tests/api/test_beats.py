"""Heartbeats by REST: of the caller's own device, and batches of a gateway."""

import asyncio

import pytest
from tests.api.world import NOW, SERVICE, problem, serving

from herenow.core.model import Platform
from herenow.core.settle import Timings
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.errors import Unavailable, UnknownOutcome

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def status_of(world, user):
    return (await world.get(f"/api/v1/presence/{user}", by=SERVICE)).json()["status"]


async def devices_of(world, user):
    answer = await world.get(f"/api/v1/presence/devices?viewer={user}", by=SERVICE)
    return {device["device_id"]: device for device in answer.json()["devices"]}


async def batch(world, *beats):
    answer = await world.post("/api/v1/heartbeats", list(beats), by=SERVICE)
    assert answer.status_code == 200
    return answer.json()


# --- The caller's own device


async def test_a_rest_heartbeat_makes_its_user_online_and_lists_its_device(world):
    body = {"device_id": "tv", "platform": "other", "activity_type": "active"}
    answer = await world.post("/api/v1/presence/heartbeat", body, by="viewer")
    assert (answer.status_code, answer.json()) == (200, {"device_id": "tv", "beat_every": 30})
    assert await status_of(world, "viewer") == "online"
    assert (await devices_of(world, "viewer"))["tv"]["platform"] == "other"


@pytest.mark.parametrize("what", [{}, {"json": {}}, {"json": {"device_id": None, "platform": None}}])
async def test_a_rest_heartbeat_without_a_device_id_belongs_to_a_device_named_rest(world, what):
    for _ in range(3):
        answer = await world.call("POST", "/api/v1/presence/heartbeat", by="plain", **what)
        assert answer.json()["device_id"] == "rest"
    assert list(await devices_of(world, "plain")) == ["rest"]


async def test_an_integer_is_accepted_as_a_device_id_of_a_rest_heartbeat(world):
    answer = await world.post("/api/v1/presence/heartbeat", {"device_id": 7}, by="ana")
    assert answer.json()["device_id"] == "7"


async def test_a_rest_heartbeat_of_an_idle_device_makes_its_user_away(world):
    await world.post("/api/v1/presence/heartbeat", {"activity_type": "idle"}, by="sleepy")
    assert await status_of(world, "sleepy") == "away"
    world.hands.advance(0.001)
    await world.post("/api/v1/presence/heartbeat", {"activity_type": "active"}, by="sleepy")
    assert await status_of(world, "sleepy") == "online"


async def test_a_rest_heartbeat_does_not_replace_the_websocket_session_of_its_device(world):
    await world.connect("both", "phone", Platform.MOBILE)
    await world.post("/api/v1/presence/heartbeat", {"device_id": "phone", "platform": "web"}, by="both")
    assert (await devices_of(world, "both"))["phone"]["platform"] == "mobile"


async def test_two_users_may_use_the_same_device_id_independently(world):
    await world.connect("owner", "shared")
    await world.post("/api/v1/presence/heartbeat", {"device_id": "shared", "activity_type": "idle"}, by="other")
    assert await status_of(world, "owner") == "online"
    assert await status_of(world, "other") == "away"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"device_id": ""}, "invalid_id"),
        ({"device_id": "a b"}, "invalid_id"),
        ({"device_id": True}, "invalid_id"),
        ({"device_id": 1.5}, "invalid_id"),
        ({"device_id": {}}, "invalid_id"),
        ({"activity_type": "asleep"}, "invalid_activity"),
        ({"activity_type": 1}, "invalid_activity"),
        ({"platform": "fridge"}, "invalid_platform"),
        ({"platform": []}, "invalid_platform"),
        ({"user_id": "bob"}, "bad_shape"),
    ],
)
async def test_an_invalid_heartbeat_is_refused_and_creates_no_device(world, body, code):
    problem(await world.post("/api/v1/presence/heartbeat", body, by="wrong"), 400, code)
    assert await devices_of(world, "wrong") == {}


async def test_a_heartbeat_over_the_session_limit_is_refused_and_the_other_devices_stay():
    async with serving(timings=Timings(max_sessions=3)) as world:
        for device in range(3):
            await world.post("/api/v1/presence/heartbeat", {"device_id": device}, by="ana")
        answer = await world.post("/api/v1/presence/heartbeat", {"device_id": "fourth"}, by="ana")
        assert "3 sessions" in problem(answer, 429, "too_many_sessions")
        assert int(answer.headers["retry-after"]) > 0
        assert len(await devices_of(world, "ana")) == 3
        beat = {"user_id": "ana", "device_id": "fifth"}
        assert (await batch(world, beat))["errors"] == [{"index": 0, "code": "too_many_sessions"}]


# --- Batches of a gateway


async def test_each_heartbeat_of_a_batch_is_accepted_or_refused_on_its_own(world):
    await world.connect("held", "d")
    answer = await batch(
        world,
        {"user_id": "b1", "device_id": "d", "platform": "web"},
        {"user_id": 2, "device_id": 3, "activity_type": "idle"},
        {"user_id": "held"},
        {"user_id": "absent"},
        {"user_id": "a b", "device_id": "d"},
        {"user_id": "b1", "device_id": "a b"},
        {"user_id": "b1", "device_id": "d", "platform": "fridge"},
        {"user_id": "b1", "device_id": "d", "activity_type": "asleep"},
        {"device_id": "d"},
        {"user_id": "b1", "device_id": "d", "gone": "yes"},
        {"user_id": "b1", "device_id": "d", "what": 1},
        {"user_id": "b1", "gone": True},
        {"user_id": "b1", "activity_type": "idle"},
        None,
        [],
    )
    assert (answer["accepted"], answer["dropped"]) == (3, 1)
    assert {error["index"]: error["code"] for error in answer["errors"]} == {
        4: "invalid_user_id",
        5: "invalid_id",
        6: "invalid_platform",
        7: "invalid_activity",
        8: "bad_shape",
        9: "bad_shape",
        10: "bad_shape",
        11: "bad_shape",
        12: "invalid_activity",
        13: "bad_shape",
        14: "bad_shape",
    }
    assert [await status_of(world, user) for user in ("b1", "2", "absent")] == ["online", "away", "offline"]


async def test_an_empty_batch_of_heartbeats_is_accepted(world):
    assert await batch(world) == {"accepted": 0, "dropped": 0, "errors": []}


async def test_a_rest_heartbeat_that_comes_too_soon_is_dropped_but_its_activity_is_applied(world):
    beat = {"user_id": "hasty", "device_id": "d"}
    assert (await batch(world, beat))["accepted"] == 1
    again = await batch(world, {**beat, "activity_type": "idle"})
    assert (again["accepted"], again["dropped"]) == (0, 1)
    assert await status_of(world, "hasty") == "away"


async def test_heartbeats_of_one_user_in_a_batch_are_applied_in_order():
    async with serving(timings=Timings(grace=0)) as world:
        beat = {"user_id": "u", "device_id": "back"}
        left = {"user_id": "u", "device_id": "left"}
        await batch(world, beat, left, {**beat, "gone": True}, {**left, "gone": True}, beat)
        assert list(await devices_of(world, "u")) == ["back"]


async def test_a_heartbeat_without_a_device_makes_an_idle_user_active_and_creates_no_session(world):
    await world.post("/api/v1/presence/heartbeat", {"activity_type": "idle"}, by="dozing")
    world.hands.advance(0.001)
    assert (await batch(world, {"user_id": "dozing"}, {"user_id": "ghost", "activity_type": "active"})) == {
        "accepted": 1,
        "dropped": 1,
        "errors": [],
    }
    assert await status_of(world, "dozing") == "online"
    assert await devices_of(world, "ghost") == {}


async def test_a_heartbeat_that_reports_its_device_gone_makes_the_user_offline_after_the_reconnect_window():
    async with serving(timings=Timings(grace=5_000)) as world:
        await batch(world, {"user_id": "u", "device_id": "d"}, {"user_id": "held", "device_id": "x"})
        world.hands.advance(1)
        assert (await batch(world, {"user_id": "u", "device_id": "d", "gone": True}))["accepted"] == 1
        assert (await world.get("/api/v1/presence/me?viewer=u", by=SERVICE)).json()["status"] == "online"
        world.hands.advance(5)
        assert (await world.get("/api/v1/presence/me?viewer=u", by=SERVICE)).json()["status"] == "offline"
        status = (await world.get("/api/v1/presence/u", by=SERVICE)).json()
        assert status["last_seen"] == NOW + 1_000


async def test_a_heartbeat_that_reports_its_device_gone_does_not_end_the_websocket_of_the_device(world):
    _, closed = await world.connect("wired", "d")
    await batch(world, {"user_id": "wired", "device_id": "d", "gone": True})
    assert closed == []
    assert await status_of(world, "wired") == "online"


async def test_a_batch_with_more_heartbeats_than_the_limit_is_refused(world):
    answer = await world.post("/api/v1/heartbeats", [0] * 10_001, by=SERVICE)
    assert "10000" in problem(answer, 400, "too_many_rows")
    full = await world.post("/api/v1/heartbeats", [0] * 10_000, by=SERVICE)
    assert len(full.json()["errors"]) == 10_000


async def test_a_large_batch_of_heartbeats_does_not_block_other_requests(world):
    beats = [{"user_id": f"many-{number}", "device_id": "d"} for number in range(1_000)]
    await batch(world, *beats)
    order = []

    async def note(what, doing):
        await doing
        order.append(what)

    large = asyncio.create_task(note("batch", batch(world, *beats)))
    await asyncio.sleep(0)
    await note("read", world.get("/healthz"))
    await large
    assert order == ["read", "batch"]


class Counting(MemoryEngine):
    """An engine that counts its calls and raises Unavailable while `away` is set."""

    away = False
    commits = loads = 0

    async def load(self, users):
        self.loads += 1
        return await super().load(users)

    async def commit(self, batch):
        self.commits += 1
        if self.away:
            raise Unavailable("The store is away.")
        return await super().commit(batch)


async def test_a_batch_of_500_heartbeats_needs_few_reads_and_commits():
    engine = Counting(MemoryStore(4, clock=lambda: NOW))
    async with serving(engine=engine) as world:
        engine.loads = engine.commits = 0
        beats = [{"user_id": f"u{number}", "device_id": "d"} for number in range(500)]
        assert (await batch(world, *beats))["accepted"] == 500
        assert engine.loads <= 5
        assert engine.commits <= 50


async def test_heartbeats_are_accepted_while_the_store_is_unreachable_without_a_write_attempt_for_each(monkeypatch):
    monkeypatch.setattr("herenow.node.records.decider.WAIT", 0.01)
    engine = Counting(MemoryStore(4, clock=lambda: NOW))
    async with serving(engine=engine) as world:
        engine.away, engine.commits = True, 0
        beats = [{"user_id": f"u{number}", "device_id": "d"} for number in range(1_000)]
        answer = await world.post("/api/v1/heartbeats", beats, by=SERVICE)
        assert answer.status_code == 202
        assert answer.json() == {"accepted": 1_000, "dropped": 0, "errors": [], "stale": True}
        assert engine.commits < 1_000
        answer = await world.post("/api/v1/presence/heartbeat", {"device_id": "d"}, by="u1")
        assert (answer.status_code, answer.json()["stale"]) == (202, True)
        engine.away = False


async def test_a_heartbeat_whose_write_has_an_unknown_outcome_gets_the_code_unknown_outcome(world, monkeypatch):
    async def doubtful(*_args, **_named):
        raise UnknownOutcome("The store did not answer in time.")

    monkeypatch.setattr(world.node.sessions, "beat_by_rest", doubtful)
    beat = {"user_id": "u", "device_id": "d"}
    assert (await batch(world, beat, beat))["errors"] == [
        {"index": 0, "code": "unknown_outcome"},
        {"index": 1, "code": "unknown_outcome"},
    ]
    problem(await world.post("/api/v1/presence/heartbeat", {}, by="u"), 503, "unknown_outcome")
