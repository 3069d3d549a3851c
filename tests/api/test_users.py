"""Operations of a back end over HTTP: disconnect, revoke, delete."""

import pytest
from tests.api.world import NOW, SERVICE, problem, serving

from herenow.errors import Unavailable
from herenow.ports import RelationRow


@pytest.fixture
async def world():
    async with serving() as world:
        yield world


async def test_the_disconnect_endpoint_signs_a_user_out_on_all_devices(world):
    await world.befriend(("ana", "bob"))
    _, phone = await world.connect("ana")
    _, tablet = await world.connect("ana", "tablet")
    assert (await world.post("/api/v1/users/ana/disconnect", {}, by=SERVICE)).status_code == 204
    assert phone == tablet == [(4409, "signed out")]
    seen = (await world.get("/api/v1/presence/ana", by="bob")).json()
    assert (seen["status"], seen["last_seen"]) == ("offline", NOW)
    assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200


async def test_disconnecting_one_device_of_a_user_leaves_the_other_devices_connected(world):
    _, phone = await world.connect("ana")
    _, tablet = await world.connect("ana", "tablet")
    answer = await world.post("/api/v1/users/ana/disconnect", {"device_id": "tablet"}, by=SERVICE)
    assert answer.status_code == 204
    assert (phone, tablet) == ([], [(4409, "signed out")])
    gone = await world.post("/api/v1/users/ana/disconnect", {"device_id": "no such"}, by=SERVICE)
    problem(gone, 400, "invalid_id")


async def test_the_disconnect_endpoint_accepts_an_empty_body_and_an_unknown_user(world):
    answer = await world.call("POST", "/api/v1/users/nobody/disconnect", by=SERVICE)
    assert answer.status_code == 204


async def test_the_revoke_endpoint_invalidates_tokens_issued_before_now_by_default(world):
    old = {"authorization": f"Bearer {world.token('ana')}"}
    _, closed = await world.connect("ana")
    world.hands.advance(1)
    answer = await world.post("/api/v1/users/ana/revoke", {}, by=SERVICE)
    assert answer.json() == {"user_id": "ana", "issued_before": NOW + 1_000}
    assert closed == [(4401, "token_revoked")]
    problem(await world.get("/api/v1/presence/me", headers=old), 401, "token_revoked")
    assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200


async def test_the_revoke_endpoint_with_a_time_keeps_tokens_issued_later_valid(world):
    _, closed = await world.connect("ana")
    answer = await world.post("/api/v1/users/ana/revoke", {"issued_before": NOW - 5}, by=SERVICE)
    assert answer.status_code == 200
    assert closed == []
    assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200


@pytest.mark.parametrize(
    ("instant", "code"),
    [
        (NOW + 60_000, "instant_in_future"),
        ("tomorrow", "invalid_instant"),
        (True, "invalid_instant"),
        (1.5, "invalid_instant"),
        ("2026-01-01T00:00:00", "invalid_instant"),
    ],
)
async def test_an_invalid_time_of_a_token_revocation_is_refused(world, instant, code):
    problem(await world.post("/api/v1/users/ana/revoke", {"issued_before": instant}, by=SERVICE), 400, code)


async def test_a_token_revocation_with_a_time_before_1970_invalidates_no_token(world):
    answer = await world.post("/api/v1/users/ana/revoke", {"issued_before": -5}, by=SERVICE)
    assert answer.json()["issued_before"] == 0
    assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200


async def test_a_revoked_service_token_is_refused(world):
    old = {"authorization": f"Bearer {world.token(SERVICE, scope='service')}"}
    world.hands.advance(1)
    await world.post(f"/api/v1/users/{SERVICE}/revoke", {}, by=SERVICE)
    problem(await world.get("/api/v1/stats", headers=old), 401, "token_revoked")


async def test_a_deleted_user_has_no_relations_sessions_mode_or_preferences_left(world):
    await world.befriend(("ana", "bob"))
    await world.node.viewing.apply_relations([RelationRow("room", "r", "ana")])
    await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="ana")
    await world.put("/api/v1/presence/status", {"text": "lunch"}, by="ana")
    await world.put("/api/v1/presence/preferences", {"idle_after": 60}, by="ana")
    old = {"authorization": f"Bearer {world.token('ana')}"}
    _, closed = await world.connect("ana")
    world.hands.advance(1)
    assert (await world.delete("/api/v1/users/ana", by=SERVICE)).status_code == 204
    assert closed == [(4401, "user_deleted")]
    problem(await world.get("/api/v1/presence/me", headers=old), 401, "token_revoked")
    stranger = (await world.get("/api/v1/presence/nobody", by="bob")).json()
    for by in ("bob", SERVICE):
        seen = (await world.get("/api/v1/presence/ana", by=by)).json()
        assert seen | {"as_of": 0} == stranger | {"as_of": 0, "user_id": "ana"}
    assert (await world.get("/api/v1/presence/leaderboard", by="bob")).json() == {"friends": []}
    problem(await world.get("/api/v1/follows/ana/bob", by=SERVICE), 404, "not_found")
    problem(await world.get("/api/v1/follows/bob/ana", by=SERVICE), 404, "not_found")
    problem(await world.get("/api/v1/rooms/r/members/ana", by=SERVICE), 404, "not_found")
    me = (await world.get("/api/v1/presence/me", by="ana")).json()
    assert (me["mode"], me["custom_status"], me["devices"]) == ("auto", None, [])
    assert (await world.get("/api/v1/presence/preferences", by="ana")).json()["idle_after"] != 60


async def test_deleting_a_user_again_or_an_unknown_user_succeeds(world):
    for user in ("ana", "ana", "nobody"):
        assert (await world.delete(f"/api/v1/users/{user}", by=SERVICE)).status_code == 204


async def test_revoking_tokens_and_deleting_a_user_fail_without_effect_while_the_ledger_is_unreachable(
    world, monkeypatch
):
    async def away(*_):
        raise Unavailable("The ledger is away.")

    _, closed = await world.connect("ana")
    monkeypatch.setattr(world.node.context.ledger, "void", away)
    monkeypatch.setattr(world.node.context.ledger, "erase", away)
    for refused in (
        await world.post("/api/v1/users/ana/revoke", {}, by=SERVICE),
        await world.delete("/api/v1/users/ana", by=SERVICE),
    ):
        problem(refused, 503, "unavailable")
        assert refused.headers["retry-after"]
    assert closed == []
    assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200
