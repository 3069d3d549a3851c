"""Edges: put, delete, read; one at a time and by import."""

import json

import pytest
from tests.api.world import NOW, SERVICE, problem

from herenow.api.endpoints.relation_graph import MOST
from herenow.errors import Unavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")

EDGES = [
    ("/api/v1/follows/{}/{}", {"a": "{}", "b": "{}"}),
    ("/api/v1/contacts/{}/{}", {"a": "{}", "b": "{}", "until": None}),
    ("/api/v1/rooms/{}/members/{}", {"room": "{}", "user": "{}"}),
]


@pytest.mark.parametrize(("path", "shape"), EDGES, ids=["follow", "contact", "member"])
@pytest.mark.parametrize(("a", "b"), [("ana", "bob"), ("1", "01"), ("ä%2Fb", "c%2Cd"[:1])])
async def test_a_follow_a_contact_or_a_room_membership_is_put_read_and_deleted_idempotently(world, path, shape, a, b):
    path = path.format(a, b)
    problem(await world.get(path, by=SERVICE), 404, "not_found")
    for _ in range(2):
        assert (await world.put(path, by=SERVICE)).status_code == 204
    found = await world.get(path, by=SERVICE)
    plain = a.replace("%2F", "/"), b
    names = list(shape)
    assert found.json() == dict(zip(names, (*plain, None), strict=False))
    for _ in range(2):
        assert (await world.delete(path, by=SERVICE)).status_code == 204
    problem(await world.get(path, by=SERVICE), 404, "not_found")


async def test_a_follow_is_directed_and_a_contact_is_symmetric(world):
    await world.put("/api/v1/follows/x/y", by=SERVICE)
    problem(await world.get("/api/v1/follows/y/x", by=SERVICE), 404, "not_found")
    await world.put("/api/v1/contacts/x/y", by=SERVICE)
    assert (await world.get("/api/v1/contacts/y/x", by=SERVICE)).json() == {"a": "y", "b": "x", "until": None}


async def test_a_new_or_removed_follow_or_contact_changes_what_a_viewer_sees_at_once(world):
    await world.connect("shown")

    async def seen():
        return (await world.get("/api/v1/presence/shown", by="looker")).json()["status"]

    assert await seen() == "offline"
    await world.put("/api/v1/follows/shown/looker", by=SERVICE)
    assert await seen() == "offline"
    await world.put("/api/v1/follows/looker/shown", by=SERVICE)
    assert await seen() == "online"
    await world.delete("/api/v1/follows/looker/shown", by=SERVICE)
    assert await seen() == "offline"
    await world.put("/api/v1/contacts/looker/shown", by=SERVICE)
    assert await seen() == "online"


async def test_a_contact_may_have_an_end_time(world):
    path = "/api/v1/contacts/ann/ben"
    await world.put(path, {"until": NOW + 5_000}, by=SERVICE)
    assert (await world.get(path, by=SERVICE)).json()["until"] == NOW + 5_000
    await world.put(path, {"until": "2027-01-15T09:00:00Z"}, by=SERVICE)
    assert (await world.get(path, by=SERVICE)).json()["until"] == 1_800_003_600_000
    await world.put(path, {}, by=SERVICE)
    assert (await world.get(path, by=SERVICE)).json()["until"] is None
    await world.put(path, {"until": NOW + 5_000}, by=SERVICE)
    world.hands.advance(5)
    problem(await world.get(path, by=SERVICE), 404, "not_found")


@pytest.mark.parametrize(
    ("until", "code"),
    [(1, "instant_in_past"), (NOW + 10**12, "instant_too_far"), ("never", "invalid_instant"), ([], "invalid_instant")],
)
async def test_an_invalid_end_time_of_a_contact_is_refused(world, until, code):
    problem(await world.put("/api/v1/contacts/p/q", {"until": until}, by=SERVICE), 400, code)
    problem(await world.get("/api/v1/contacts/p/q", by=SERVICE), 404, "not_found")


@pytest.mark.parametrize("kind", ["follows", "contacts"])
@pytest.mark.parametrize("method", ["PUT", "DELETE", "GET"])
async def test_a_relation_of_a_user_to_themselves_is_refused(world, kind, method):
    problem(await world.call(method, f"/api/v1/{kind}/me/me", by=SERVICE), 400, "invalid_relation")


async def test_a_room_may_have_the_same_id_as_its_member(world):
    assert (await world.put("/api/v1/rooms/same/members/same", by=SERVICE)).status_code == 204


# --- Imports


async def lines(world, *rows, **what):
    content = b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
    headers = {"content-type": "application/x-ndjson"}
    return await world.call("POST", "/api/v1/relations", by=SERVICE, content=content, headers=headers, **what)


async def test_an_import_of_relations_returns_the_number_of_rows_and_of_changes(world):
    rows = (
        {"kind": "follow", "a": "i1", "b": "i2"},
        b"",
        {"kind": "follow", "a": "i2", "b": "i1"},
        {"kind": "contact", "a": "i1", "b": 3, "until": NOW + 1_000},
        {"kind": "room", "a": "lobby", "b": "i1"},
    )
    answer = await lines(world, *rows)
    assert (answer.status_code, answer.json()) == (200, {"rows": 4, "changed": 4})
    assert (await lines(world, *rows)).json() == {"rows": 4, "changed": 0}
    await world.connect("i2")
    assert (await world.get("/api/v1/presence/i2", by="i1")).json()["status"] == "online"
    assert (await world.get("/api/v1/rooms/lobby/members/i1", by=SERVICE)).status_code == 200


async def test_an_empty_import_of_relations_changes_nothing(world):
    assert (await lines(world)).json() == {"rows": 0, "changed": 0}


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"{", "invalid_relation"),
        (b"[]", "invalid_relation"),
        ({"kind": "block", "a": "a", "b": "b"}, "invalid_relation"),
        ({"kind": "follow", "a": "a"}, "invalid_relation"),
        ({"kind": "follow", "a": "a", "b": "a"}, "invalid_relation"),
        ({"kind": "follow", "a": "a", "b": "b", "until": NOW}, "invalid_relation"),
        ({"kind": "follow", "a": "a", "b": "b", "c": 1}, "invalid_relation"),
        ({"kind": "follow", "a": "a b", "b": "b"}, "invalid_user_id"),
        ({"kind": "room", "a": "a b", "b": "b"}, "invalid_id"),
        ({"kind": "contact", "a": "a", "b": "b", "until": "soon"}, "invalid_instant"),
    ],
)
async def test_one_bad_line_cancels_the_whole_import_of_relations_and_the_error_names_the_line(world, bad, code):
    answer = await lines(world, {"kind": "follow", "a": "all", "b": "none"}, b"", bad)
    assert problem(answer, 400, code).startswith("Line 3: ")
    problem(await world.get("/api/v1/follows/all/none", by=SERVICE), 404, "not_found")


async def test_an_import_of_more_relations_than_the_limit_is_refused(world):
    row = b'{"kind":"room","a":"r","b":"u"}'
    assert (await lines(world, *[row] * MOST)).json()["rows"] == MOST
    assert str(MOST) in problem(await lines(world, *[row] * (MOST + 1)), 400, "too_many_rows")


async def test_a_relation_change_while_the_ledger_is_unreachable_returns_503_with_a_reason(world, monkeypatch):
    async def away(*_args):
        raise Unavailable("the database is unreachable")

    monkeypatch.setattr(world.node.viewing, "apply_relations", away)
    answer = await world.put("/api/v1/follows/a/b", by=SERVICE)
    assert problem(answer, 503, "unavailable") == "The database is unreachable."
    assert answer.headers["retry-after"] == "1"
