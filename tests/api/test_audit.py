"""Acts of service tokens with the scope `admin` write one audit line each; reads, refusals and users write none."""

import pytest
from structlog.testing import capture_logs
from tests.api.world import SERVICE, serving

from herenow.errors import UnknownOutcome


@pytest.fixture
async def world():
    async with serving() as world:
        yield world


def audited(logs):
    return [
        {k: v for k, v in line.items() if k not in ("event", "log_level")} for line in logs if line["event"] == "audit"
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "act", "named"),
    [
        ("POST", "users/ana/disconnect", {}, "users/{user}/disconnect", {"user": "ana"}),
        ("POST", "users/ana/revoke", {}, "users/{user}/revoke", {"user": "ana"}),
        ("DELETE", "users/a%20na%F0%9F%99%82", None, "users/{user}", None),
        ("DELETE", "users/%C3%A5na", None, "users/{user}", {"user": "åna"}),
        ("PUT", "users/ana/mode", {"mode": "busy"}, "users/{user}/mode", {"user": "ana"}),
        ("PUT", "users/ana/status", {"text": "Lunch"}, "users/{user}/status", {"user": "ana"}),
        ("DELETE", "users/ana/mode?source=call", None, "users/{user}/mode", {"user": "ana"}),
        ("GET", "explain?viewer=ana&target=bo", None, "explain", {"viewer": "ana", "target": "bo"}),
        ("PUT", "blocks/bo", None, "blocks/{user}", {"user": "bo"}),
        ("PUT", "presence/mode", {"mode": "busy"}, "presence/mode", {}),
        ("PUT", "users/ana/mode", {"mode": "asleep"}, "users/{user}/mode", None),
        ("GET", "users?viewer=ana", None, "users", None),
        ("GET", "presence/ana", None, "presence/{user}", None),
        ("PUT", "follows/ana/bo", None, "follows/{a}/{b}", None),
    ],
)
async def test_an_act_with_the_scope_admin_writes_one_audit_line_unless_it_is_refused(
    world, method, path, body, act, named
):
    with capture_logs() as logs:
        await world.call(method, f"/api/v1/{path}", by=SERVICE, json=body)
    line = {"by": SERVICE, "act": f"{method} /api/v1/{act}", "outcome": "done"}
    assert audited(logs) == ([] if named is None else [line | named])


async def test_an_act_of_a_user_on_their_own_data_writes_no_audit_line(world):
    with capture_logs() as logs:
        assert (await world.put("/api/v1/blocks/bo", by="ana")).status_code == 204
        assert (await world.put("/api/v1/presence/mode", {"mode": "busy"}, by="ana")).status_code == 200
    assert audited(logs) == []


async def test_an_act_without_the_scope_writes_no_audit_line(world):
    with capture_logs() as logs:
        assert (await world.call("DELETE", "/api/v1/users/ana", by=SERVICE, scope="read")).status_code == 403
    assert audited(logs) == []


async def test_an_act_whose_outcome_is_unknown_writes_an_audit_line_that_says_failed(world, monkeypatch):
    async def lost(_user):
        raise UnknownOutcome("the answer was lost")

    monkeypatch.setattr(world.node.admin, "delete", lost)
    with capture_logs() as logs:
        assert (await world.call("DELETE", "/api/v1/users/ana", by=SERVICE)).status_code == 503
    assert audited(logs) == [{"by": SERVICE, "act": "DELETE /api/v1/users/{user}", "outcome": "failed", "user": "ana"}]
