"""Which origins may use the server, and which CORS headers they get."""

import pytest
import pytest_asyncio
from tests.api.world import SERVICE, problem, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP = "https://app.example.org"
OWN = "http://herenow.test"
FOREIGN = [
    "https://evil.example",
    "null",
    "http://app.example.org",
    "https://app.example.org.evil.example",
    "https://herenow.test",
    "http://herenow.test:8000",
    "http://herenow.test@evil.example",
    "",
]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def open_to_app():
    async with serving(origins=APP) as world:
        yield world


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/presence/me"),
        ("PUT", "/api/v1/presence/mode"),
        ("GET", "/healthz"),
        ("GET", "/nope"),
        ("OPTIONS", "/api/v1/presence/mode"),
    ],
)
async def test_a_request_from_a_foreign_origin_is_refused_before_any_other_check(open_to_app, origin, method, path):
    headers = {"origin": origin, "access-control-request-method": "PUT"}
    answer = await open_to_app.client.request(method, path, headers=headers)
    problem(answer, 403, "forbidden_origin")
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_write_from_a_foreign_origin_is_not_executed(open_to_app):
    headers = {"origin": "https://evil.example"}
    before = open_to_app.node.context.metrics.refusals["forbidden_origin"]
    problem(
        await open_to_app.put("/api/v1/presence/mode", {"mode": "busy"}, by="ana", headers=headers),
        403,
        "forbidden_origin",
    )
    assert (await open_to_app.get("/api/v1/presence/me", by="ana")).json()["mode"] == "auto"
    assert open_to_app.node.context.metrics.refusals["forbidden_origin"] == before + 1


@pytest.mark.parametrize("origin", [APP, APP.upper(), OWN, "http://HERENOW.test", "http://herenow.test:80"])
async def test_a_response_to_an_allowed_origin_has_cors_headers(open_to_app, origin):
    for path, by, status in (
        ("/api/v1/presence/me", "ana", 200),
        ("/api/v1/presence/me", None, 401),
        ("/nope", "ana", 404),
    ):
        answer = await open_to_app.get(path, by=by, headers={"origin": origin})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["vary"] == "origin"
        assert "retry-after" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", [APP, OWN])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_preflight_needs_no_token(open_to_app, origin, method):
    answer = await open_to_app.client.options(
        "/api/v1/presence/mode",
        headers={
            "origin": origin,
            "access-control-request-method": method,
            "access-control-request-headers": "authorization,content-type",
        },
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == origin
    assert method in answer.headers["access-control-allow-methods"].split(", ")
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert allowed == ["authorization", "content-type"]
    assert int(answer.headers["access-control-max-age"]) > 0


async def test_an_options_request_that_is_no_preflight_is_refused_as_an_unknown_method(open_to_app):
    problem(await open_to_app.call("OPTIONS", "/api/v1/presence/me"), 405, "method_not_allowed")
    answer = await open_to_app.call("OPTIONS", "/api/v1/presence/me", headers={"origin": APP})
    problem(answer, 405, "method_not_allowed")


async def test_a_request_without_an_origin_gets_no_cors_headers(open_to_app):
    answer = await open_to_app.get("/api/v1/presence/me", by="ana")
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_without_configured_origins_only_the_servers_own_pages_are_allowed():
    async with serving() as world:
        problem(await world.get("/healthz", headers={"origin": APP}), 403, "forbidden_origin")
        assert (await world.get("/healthz", headers={"origin": OWN})).status_code == 200
        assert (await world.get("/api/v1/stats", by=SERVICE, headers={"origin": OWN})).status_code == 200
