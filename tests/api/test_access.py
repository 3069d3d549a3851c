"""Every endpoint with every kind of wrong request: token, method, body."""

import base64
import json

import httpx2 as httpx
import jwt
import pytest
import pytest_asyncio
from tests.api.world import NOW, SECRET, SERVICE, STRANGER, World, problem, serving

from herenow.api.application import CONTRACT
from herenow.api.description.operations import Access, Media
from herenow.wire.inputs import Scope

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODIES = {
    "/api/v1/presence/query": {"user_ids": ["a"]},
    "/api/v1/presence/heartbeat": {"device_id": "d"},
    "/api/v1/heartbeats": [],
    "/api/v1/presence/status": {"text": "x"},
    "/api/v1/users/{user}/status": {"text": "x"},
    "/api/v1/presence/mode": {"mode": "busy"},
    "/api/v1/users/{user}/mode": {"mode": "busy"},
    "/api/v1/presence/preferences": {},
    "/api/v1/contacts/{a}/{b}": {},
    "/api/v1/users/{user}/disconnect": {},
    "/api/v1/users/{user}/revoke": {},
    "/api/v1/relations/changed": {"users": ["a"]},
    "/api/v1/relations": {"kind": "follow", "a": "a", "b": "b"},
}
FLAGS = {"public", "share_last_seen"}
QUERIES = {"/api/v1/presence": "?user_ids=a", "/api/v1/explain": "?viewer=a&target=b"}


def operations(keep=lambda _: True):
    kept = [operation for operation in CONTRACT if keep(operation)]
    return pytest.mark.parametrize("operation", kept, ids=[f"{o.method} {o.path}" for o in kept])


def path_of(operation):
    return operation.path.format(user="zoe", a="yan", b="zoe", room="r", device="d") + QUERIES.get(operation.path, "")


async def send(world, operation, *, by, scope=None, **what):
    if not what and operation.body is not None:
        what = {"json": BODIES[operation.path]}
    return await world.call(operation.method, path_of(operation), by=by, scope=scope, **what)


with_body = operations(lambda operation: operation.body is not None)
with_json = operations(lambda operation: operation.body is not None and operation.body.media is Media.JSON)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def elsewhere(world):
    """The same node for a peer on another machine."""
    transport = httpx.ASGITransport(app=world.app, client=STRANGER)
    async with httpx.AsyncClient(transport=transport, base_url="http://herenow.test") as client:
        yield World(world.node, world.app, world.settings, world.hands, client)


# --- Tokens


@operations(lambda operation: operation.access is not Access.ANYONE)
async def test_a_request_without_a_token_is_refused_by_every_endpoint_that_needs_one(elsewhere, operation):
    answer = await send(elsewhere, operation, by=None)
    problem(answer, 401, "token_missing")
    assert answer.headers["www-authenticate"] == "Bearer"


@operations(lambda operation: operation.access is Access.ANYONE)
async def test_endpoints_that_are_open_to_anyone_need_no_token(elsewhere, operation):
    answer = await send(elsewhere, operation, by=None)
    assert answer.status_code == (404 if "/public/" in operation.path else 200)  # zoe has no public profile


@operations(lambda operation: operation.access in (Access.SERVICE, Access.OPERATOR))
async def test_a_user_token_is_refused_at_a_service_endpoint(world, elsewhere, operation):
    for each in (world, elsewhere):
        problem(await send(each, operation, by="ana"), 403, "forbidden")


@operations(lambda operation: operation.access in (Access.SERVICE, Access.OPERATOR))
async def test_a_service_token_is_accepted_at_a_service_endpoint(elsewhere, operation):
    assert (await send(elsewhere, operation, by=SERVICE)).status_code in (200, 204, 404)


@operations(lambda operation: operation.access is not Access.ANYONE)
async def test_a_service_token_with_only_the_scope_of_an_endpoint_is_accepted_there(elsewhere, operation):
    answer = await send(elsewhere, operation, by=SERVICE, scope=operation.scope)
    assert answer.status_code not in (401, 403)


@operations(lambda operation: operation.access is not Access.ANYONE)
async def test_a_service_token_with_all_scopes_but_that_of_an_endpoint_is_refused_with_its_name(elsewhere, operation):
    others = " ".join(scope for scope in Scope if scope is not operation.scope)
    answer = await send(elsewhere, operation, by=SERVICE, scope=others)
    problem(answer, 403, "scope_missing")
    assert f"the scope {operation.scope}," in answer.json()["detail"]


async def test_words_of_the_scope_claim_that_are_no_scopes_of_herenow_give_no_right(world):
    problem(await world.get("/api/v1/users", by="ana", scope="openid profile readers"), 403, "forbidden")
    problem(await world.get("/api/v1/users", by="ana", scope="openid read"), 403, "forbidden")
    problem(await world.get("/api/v1/users", by="ana", scope="openid herenow:graph"), 403, "scope_missing")
    assert (await world.get("/api/v1/users", by="ana", scope="openid herenow:read")).status_code == 200
    assert (await world.get("/api/v1/presence/zoe", by="ana", scope="openid")).json()["status"] == "offline"


@pytest.mark.parametrize("scope", ["gateway", "events"])
async def test_scopes_without_an_endpoint_are_accepted_in_a_token_and_permit_nothing(world, scope):
    problem(await world.get("/api/v1/presence/me", by=SERVICE, scope=scope), 403, "scope_missing")


@operations(lambda operation: operation.access in (Access.USER, Access.SERVICE))
async def test_a_starting_node_refuses_requests_with_retry_after(starting, operation):
    answer = await send(starting, operation, by=SERVICE)
    problem(answer, 503, "not_ready")
    assert int(answer.headers["retry-after"]) > 0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def starting():
    async with serving(start=False) as world:
        yield world


def unsigned(claims):
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts) + "."


CLAIMS = {"sub": "ana", "exp": NOW / 1000 + 60}


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", "token_missing"),
        ("nonsense", "token_malformed"),
        ("a.b.c", "token_malformed"),
        (unsigned(CLAIMS), "token_algorithm"),
        (jwt.encode(CLAIMS, SECRET * 2, "HS512"), "token_algorithm"),
        (jwt.encode(CLAIMS, "another secret that is long enough for it", "HS256"), "token_bad_signature"),
        (jwt.encode({"sub": "ana"}, SECRET, "HS256"), "token_claims"),
        (jwt.encode({**CLAIMS, "exp": NOW / 1000 - 1}, SECRET, "HS256"), "token_expired"),
        (jwt.encode({**CLAIMS, "exp": NOW / 1000 + 90_000}, SECRET, "HS256"), "token_claims"),
        (jwt.encode({**CLAIMS, "sub": "a b"}, SECRET, "HS256"), "token_claims"),
    ],
)
@pytest.mark.parametrize("place", ["header", "query"])
async def test_each_kind_of_bad_token_is_refused_with_its_own_error_code(world, token, code, place):
    if place == "header":
        answer = await world.get("/api/v1/presence/me", headers={"authorization": f"Bearer {token}"})
    else:
        answer = await world.get(f"/api/v1/presence/me?token={token}")
    detail = problem(answer, 401, code)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    if token:
        assert token not in detail


async def test_a_token_in_the_query_string_is_accepted(world):
    answer = await world.get(f"/api/v1/presence/me?token={world.token('ana')}")
    assert answer.status_code == 200


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "token", "Bearer  "])
async def test_another_authorization_scheme_is_not_read_as_a_token(world, header):
    problem(await world.get("/api/v1/presence/me", headers={"authorization": header}), 401, "token_missing")


async def test_a_service_token_may_have_any_id_as_its_subject(world):
    token = world.token("crön/job", scope="service")
    answer = await world.get("/api/v1/presence?user_ids=ana", headers={"authorization": f"bearer {token}"})
    assert answer.status_code == 200


# --- Methods and paths


@operations()
async def test_an_unknown_method_is_refused_and_the_allow_header_lists_the_known_ones(world, operation):
    there = {other.method for other in CONTRACT if other.path == operation.path}
    there |= {"HEAD"} if "GET" in there else set()
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"} - there:
        answer = await world.call(method, path_of(operation), by=SERVICE)
        problem(answer, 405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == there


@operations(lambda operation: operation.method == "GET")
async def test_a_head_request_has_the_status_and_content_type_of_the_get_request(world, operation):
    got = await send(world, operation, by=SERVICE)
    head = await world.client.head(
        path_of(operation), headers={"authorization": f"Bearer {world.token(SERVICE, scope='service')}"}
    )
    assert head.status_code == got.status_code
    assert head.headers["content-type"] == got.headers["content-type"]


@pytest.mark.parametrize("path", ["/nope", "/api", "/api/v1", "/api/v2/presence", "/api/v1/presence/a/b", "//", "/"])
async def test_an_unknown_path_returns_404(world, path):
    problem(await world.get(path, by="ana"), 404, "not_found")
    problem(await world.delete(path), 404, "not_found")


# --- Bodies


@with_json
async def test_a_request_body_that_is_not_json_is_refused(world, operation):
    for bad in (b"{", b"nope", b'{"a":', b"\xff\xfe", b'{"a":"\xff"}', b"[" * 100_000, b'{"x": NaN}', b"{}{}"):
        problem(await send(world, operation, by=SERVICE, content=bad), 400, "bad_json")


@with_json
async def test_a_request_body_of_the_wrong_shape_is_refused(world, operation):
    for bad in (b'"text"', b"7", b"null", b"true", b'{"no_such_field": 1}'):
        problem(await send(world, operation, by=SERVICE, content=bad), 400, "bad_shape")


@with_json
async def test_a_request_body_with_a_field_of_the_wrong_type_is_refused(world, operation):
    fields = set(operation.body.shape.__struct_fields__) if operation.path != "/api/v1/heartbeats" else {"x"}
    for field in fields:
        for wrong in ({"an": "object"}, "yes" if field in FLAGS else True):
            answer = await send(world, operation, by=SERVICE, json={field: wrong})
            assert answer.status_code == 400, (field, wrong)


@with_body
async def test_a_request_body_that_is_too_large_is_refused(world, operation):
    most = world.settings.max_body
    content = b" " * (most - 2) + b"{}"
    assert (await send(world, operation, by=SERVICE, content=content)).status_code != 413
    answer = await send(world, operation, by=SERVICE, content=content + b" ")
    assert str(most) in problem(answer, 413, "body_too_large")


@with_body
async def test_a_request_body_without_a_declared_length_is_refused_once_it_exceeds_the_limit(world, operation):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 65_536
            yield b" " * 65_536

    problem(await send(world, operation, by=SERVICE, content=endless()), 413, "body_too_large")
    assert sent <= world.settings.max_body + 2 * 65_536


@with_body
async def test_a_request_body_of_another_content_type_than_json_is_refused(world, operation):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "x"):
        answer = await send(world, operation, by=SERVICE, content=b"{}", headers={"content-type": kind})
        problem(answer, 415, "unsupported_media_type")


@with_body
async def test_a_request_body_without_a_content_type_or_with_a_charset_is_accepted(world, operation):
    content = json.dumps(BODIES[operation.path]).encode()
    for headers in ({}, {"content-type": 'Application/JSON; charset="utf-8"'}):
        answer = await send(world, operation, by=SERVICE, content=content, headers=headers)
        assert answer.status_code in (200, 204)


@operations(lambda operation: bool(operation.path_names))
async def test_an_invalid_id_in_the_path_is_refused_by_every_endpoint(world, operation):
    for name in operation.path_names:
        ids = dict.fromkeys(operation.path_names, "fine") | {"b": "other", name: "a%20b"}
        answer = await world.call(operation.method, operation.path.format(**ids), by=SERVICE)
        assert "'a b'" in problem(answer, 400, "invalid_id" if name in ("room", "device") else "invalid_user_id")
