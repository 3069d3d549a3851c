"""Every error has one shape, unexpected ones too, and no log line contains a token."""

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from structlog.testing import capture_logs
from tests.api.world import SECRET, problem, serving

from herenow.api.http.problems import problem_response
from herenow.errors import ProtocolError, Unavailable, UnknownOutcome
from herenow.wire.codes import CODES

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def failing(world, monkeypatch):
    """Makes every read of the caller's own presence fail with this error."""

    def fail(error):
        async def me(_user):
            raise error

        monkeypatch.setattr(world.node.viewing, "me", me)

    return fail


@pytest.mark.parametrize(
    ("error", "code", "retry", "detail"),
    [
        (Unavailable("the store is away"), "unavailable", "1", "The store is away."),
        (Unavailable(), "unavailable", "1", "A service that the node needs is unreachable."),
        (UnknownOutcome("no answer in 2 s."), "unknown_outcome", None, "No answer in 2 s."),
    ],
)
async def test_a_request_that_needs_an_unreachable_store_or_ledger_returns_503(
    world, failing, error, code, retry, detail
):
    failing(error)
    answer = await world.get("/api/v1/presence/me", by="ana")
    assert problem(answer, 503, code) == detail
    assert answer.headers.get("retry-after") == retry


@pytest.mark.parametrize("place", ["header", "query"])
async def test_an_unexpected_error_returns_500_and_is_logged_without_the_token(world, failing, place):
    token = world.token("ana")
    failing(RuntimeError(f"it broke while {token} was looked at"))
    headers = {"authorization": f"Bearer {token}"} if place == "header" else {}
    query = f"?token={token}" if place == "query" else ""
    with capture_logs() as logs:
        answer = await world.get("/api/v1/presence/me" + query, headers=headers)
    detail = problem(answer, 500, "internal")
    assert "broke" not in detail
    [line] = logs
    assert (line["event"], line["log_level"], line["path"]) == ("request.failed", "error", "/api/v1/presence/me")
    assert "RuntimeError: it broke" in line["stack"]
    assert token not in str(line)
    assert SECRET not in str(line)


async def test_refused_requests_are_counted_by_error_code(world):
    counted = world.node.context.metrics.refusals
    before = counted["invalid_mode"]
    await world.put("/api/v1/presence/mode", {"mode": "x"}, by="ana")
    assert counted["invalid_mode"] == before + 1


async def test_errors_of_additional_pages_have_the_same_json_shape_as_api_errors():
    async def page(request):
        match request.query_params.get("do"):
            case "404":
                raise HTTPException(404)
            case "405":
                raise HTTPException(405, headers={"Allow": "GET"})
            case "break":
                raise ValueError("no")
            case _:
                return PlainTextResponse("hello")

    async with serving(pages=[Route("/", page)]) as world:
        assert (await world.client.get("/")).text == "hello"
        assert (await world.client.get("")).text == "hello"
        problem(await world.client.get("/?do=404"), 404, "not_found")
        answer = await world.client.get("/?do=405")
        problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "GET"
        problem(await world.client.post("/"), 405, "method_not_allowed")
        with capture_logs():
            problem(await world.client.get("/?do=break"), 500, "internal")


async def test_a_client_that_disconnects_during_a_request_causes_no_log_line(world):
    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        raise AssertionError(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/presence/query",
        "raw_path": b"/api/v1/presence/query",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"authorization", f"Bearer {world.token('ana')}".encode())],
        "client": ("127.0.0.1", 1),
    }
    with capture_logs() as logs:
        await world.app(scope, receive, send)
    assert logs == []


async def test_every_response_has_nosniff_and_no_store_headers(world):
    for path in ("/healthz", "/nope", "/docs", "/openapi.json"):
        answer = await world.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_every_refusal_that_may_be_retried_has_a_retry_after_header():
    for code in CODES.values():
        if code.retry and code.http != 500:
            assert "retry-after" in problem_response(ProtocolError(code.name, "No.")).headers
