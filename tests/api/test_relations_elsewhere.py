"""Relations kept outside the ledger: edges are refused, changes are reported; and open relations."""

import json

import pytest
from tests.api.world import SERVICE, problem, serving

from herenow.api.endpoints.relation_graph import MOST, MOST_WHOLE
from herenow.errors import Unavailable
from herenow.relations import OpenRelations

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANGED = "/api/v1/relations/changed"


async def noted(world, after):
    changes, _ = await world.node.context.ledger.changes(after, 100)
    return [(change.kind, change.a, change.b) for change in changes]


async def test_every_kind_of_reported_relation_change_is_written_to_the_ledger(world):
    head = await world.node.context.ledger.changes_head()
    body = {"pairs": [["a", 2]], "users": ["c"], "members": [["r", "d"]], "rooms": ["s"]}
    assert (await world.post(CHANGED, body, by=SERVICE)).status_code == 204
    assert await noted(world, head) == [
        ("relation", "a", "2"),
        ("relations", "c", ""),
        ("member", "r", "d"),
        ("members", "s", ""),
    ]


async def test_an_empty_report_of_relation_changes_is_accepted(world):
    head = await world.node.context.ledger.changes_head()
    assert (await world.post(CHANGED, {}, by=SERVICE)).status_code == 204
    assert await noted(world, head) == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"pairs": [["a"]]}, 400, "bad_shape"),
        ({"pairs": [["a", "b", "c"]]}, 400, "bad_shape"),
        ({"pairs": "a,b"}, 400, "bad_shape"),
        ({"pairs": [["a", "a"]]}, 400, "invalid_relation"),
        ({"pairs": [["a", "b c"]]}, 400, "invalid_user_id"),
        ({"users": [None]}, 400, "invalid_user_id"),
        ({"members": [["a b", "c"]]}, 400, "invalid_id"),
        ({"rooms": [""]}, 400, "invalid_id"),
        ({"everything": True}, 400, "bad_shape"),
        ({"pairs": [[n, n + 1] for n in range(MOST + 1)]}, 400, "too_many_rows"),
        ({"users": list(range(MOST_WHOLE + 1))}, 400, "too_many_rows"),
    ],
)
async def test_one_invalid_relation_change_refuses_the_whole_report(world, body, status, code):
    head = await world.node.context.ledger.changes_head()
    problem(await world.post(CHANGED, body, by=SERVICE), status, code)
    assert await noted(world, head) == []


async def test_only_a_service_may_report_relation_changes(world):
    problem(await world.post(CHANGED, {}, by="ana"), 403, "forbidden")
    problem(await world.post(CHANGED, {}), 401, "token_missing")


async def test_a_reported_relation_change_that_cannot_be_written_to_the_ledger_returns_503(monkeypatch):
    async with serving() as world:

        async def away(changes):
            raise Unavailable("away")

        monkeypatch.setattr(world.node.context.ledger, "note_changes", away)
        problem(await world.post(CHANGED, {"users": ["a"]}, by=SERVICE), 503, "unavailable")


async def test_if_everyone_may_see_everyone_follows_and_contacts_are_refused_but_rooms_accepted():
    async with serving(make_relations=OpenRelations, relations="open") as world:
        for path in ("/api/v1/follows/a/b", "/api/v1/contacts/a/b"):
            for method in ("PUT", "DELETE", "GET"):
                detail = problem(await world.call(method, path, by=SERVICE), 409, "relations_elsewhere")
                assert "All users see each other" in detail
        rows = [{"kind": "room", "a": "r", "b": "ana"}, {"kind": "follow", "a": "ana", "b": "bo"}]
        lines = "\n".join(map(json.dumps, rows))
        refused = await world.call("POST", "/api/v1/relations", by=SERVICE, content=lines)
        problem(refused, 409, "relations_elsewhere")
        problem(await world.get("/api/v1/rooms/r/members/ana", by=SERVICE), 404, "not_found")
        assert (await world.put("/api/v1/rooms/r/members/ana", by=SERVICE)).status_code == 204
        assert await world.node.access.is_member("r", "ana")
        assert not await world.node.access.is_member("r", "bo")


async def test_if_everyone_may_see_everyone_strangers_are_visible_but_are_no_contacts():
    async with serving(make_relations=OpenRelations, relations="open") as world:
        await world.connect("ana")
        assert (await world.get("/api/v1/presence/ana", by="stranger")).json()["status"] == "online"
        assert (await world.get("/api/v1/presence/leaderboard", by="stranger")).json() == {"friends": []}


async def test_a_failing_application_that_keeps_relations_is_named_by_readyz_and_counted_in_metrics(world):
    health = world.node.relations_health
    health.errors["timeout"] += 2
    health.trouble = "The application gave no valid answer about relations."
    try:
        [trouble] = (await world.get("/readyz", by=SERVICE)).json()["degraded"]
        assert (trouble["what"], trouble["detail"]) == ("relations_source", health.trouble)
        numbers = (await world.get("/metrics", by=SERVICE)).text
        assert 'herenow_relations_errors_total{kind="timeout"} 2.0' in numbers
    finally:
        health.errors.clear()
        health.trouble = None
