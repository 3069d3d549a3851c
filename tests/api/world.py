"""A node with its HTTP application, and callers. Every response is checked against the OpenAPI document.

Time stands still unless a test moves it; the node is real, on the memory engine and a ledger in memory.
"""

import json
from contextlib import asynccontextmanager
from functools import cache
from urllib.parse import quote, unquote

import httpx2 as httpx
import jsonschema_rs

from herenow.api.application import make_app
from herenow.core.limits import Rate
from herenow.core.model import Platform
from herenow.core.settle import Timings
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.kit.clock import NodeClock
from herenow.ledgers import open_ledger
from herenow.node import Node, make_context
from herenow.ports import RelationRow
from herenow.settings import Settings
from herenow.transport.auth import Auth, mint
from herenow_testing.world.settings import node_settings

SECRET = "a secret of the tests that is long enough"
NOW = 1_800_000_000_000
SERVICE = "backend"
STRANGER = ("203.0.113.7", 1234)
"""A peer on another machine."""


UNLIMITED = Rate(every=0, burst=1)


class Hands:
    """A clock that a test moves."""

    def __init__(self):
        self.ms = NOW

    def monotonic(self):
        return self.ms / 1000

    def advance(self, seconds):
        self.ms += round(seconds * 1000)


class World:
    def __init__(self, node, app, settings, hands, client):
        self.node = node
        self.app = app
        self.settings = settings
        self.hands = hands
        self.client = client

    def token(self, user, *, scope=None, ttl=3600.0, secret=SECRET):
        return mint(secret, user, scope=scope, ttl=ttl, now=self.node.context.clock.now() / 1000)

    async def call(self, method, path, *, by=None, scope=None, headers=None, **what):
        """`by`: a user, SERVICE, or None for no token. `scope`: the claim of the token (SERVICE: all scopes)."""
        sent = dict(headers or {})
        if by is not None:
            scope = scope or ("service" if by == SERVICE else None)
            sent["authorization"] = f"Bearer {self.token(by, scope=scope)}"
        response = await self.client.request(method, path, headers=sent, **what)
        check_documented(self.document, self.app, response)
        return response

    async def get(self, path, *, by=None, **what):
        return await self.call("GET", path, by=by, **what)

    async def put(self, path, body=None, *, by=None, **what):
        return await self.call("PUT", path, by=by, json=body, **what)

    async def post(self, path, body=None, *, by=None, **what):
        return await self.call("POST", path, by=by, json=body, **what)

    async def delete(self, path, *, by=None, **what):
        return await self.call("DELETE", path, by=by, **what)

    async def befriend(self, *pairs):
        rows = [RelationRow("follow", *edge) for a, b in pairs for edge in ((a, b), (b, a))]
        await self.node.viewing.apply_relations(rows)

    async def connect(self, user, device="phone", platform=Platform.MOBILE):
        """A WebSocket session without a socket. Returns the connection, and the list that receives its close."""
        closed = []
        connection = self.node.sessions.connect(
            user,
            device,
            platform,
            send=lambda _frame: None,
            end=lambda code, reason: closed.append((code, reason)),
            abort=lambda: None,
        )
        await self.node.viewing.presence(user)
        return connection, closed

    @property
    def document(self):
        return document_of(self.app)


@asynccontextmanager
async def serving(
    *,
    peer=("127.0.0.1", 1234),
    engine=None,
    start=True,
    pages=(),
    worker_reports=None,
    timings=None,
    polling=UNLIMITED,
    make_relations=None,
    ledger_url="sqlite://",
    **settings,
):
    """`make_relations`: creates another relation source from the ledger."""
    hands = Hands()
    ledger = open_ledger(ledger_url)
    await ledger.open()
    context = make_context(
        engine or MemoryEngine(MemoryStore(4, clock=lambda: hands.ms)),
        ledger,
        node_settings(timings=timings or Timings(), node_lease=1e6, ledger_flush=0.01, polling=polling),
        clock=NodeClock(NOW, hands.monotonic),
    )
    node = Node(context, relations=make_relations(ledger) if make_relations else None)
    if start:
        await node.start({})
    all_settings = Settings(ledger="sqlite://", **settings)
    app = make_app(
        node,
        Auth((SECRET,), context.clock, 86_400.0, revocations=node.admin.revocations),
        all_settings,
        pages=pages,
        worker_reports=worker_reports,
    )
    transport = httpx.ASGITransport(app=app, client=peer)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://herenow.test") as client:
            yield World(node, app, all_settings, hands, client)
    finally:
        if start:
            for person in context.people:
                for session in person.held:
                    for connection in list(session.connections):
                        node.sessions.gone(connection)
            await node.stop()
        await ledger.close()


# --- Check against the document


@cache
def document_of(app):
    resource = next(route.endpoint for route in app.routes if route.path == "/openapi.json")
    return json.loads(resource.operations["GET"].handle.__self__.document)


def check_documented(document, app, response):
    """Assert that status, code, content type and shape of the response are documented."""
    described = described_operation(document, app, response.request)
    if response.status_code == 405 or described is None:
        assert response.json()["code"] in ("method_not_allowed", "not_found", "forbidden_origin", "uri_too_long")
        return
    answer = described["responses"].get(str(response.status_code))
    assert answer is not None, f"{response.request.method} {response.request.url}: {response.text}"
    kept = response.url.path.startswith("/api/v1/public/") and response.status_code in (200, 304)
    assert response.headers["cache-control"] == ("public, max-age=30" if kept else "no-store")
    if "content" not in answer:
        assert response.content == b""
        return
    media = response.headers["content-type"].partition(";")[0]
    assert media in answer["content"], media
    if media.endswith("json"):
        schema = json.dumps(answer["content"][media]["schema"])
        validator(schema, json.dumps(document["components"])).validate(response.json())


@cache
def validator(schema, components):
    return jsonschema_rs.validator_for({**json.loads(schema), "components": json.loads(components)})


def described_operation(document, app, request):
    path = request.url.raw_path.partition(b"?")[0].decode()
    path = "/".join(quote(unquote(part), safe="") for part in path.split("/")).rstrip("/") or "/"
    for route in app.routes:
        if route.path_regex.match(path):
            method = "get" if request.method == "HEAD" else request.method.lower()
            return document["paths"].get(route.path, {}).get(method)
    return None


def problem(response, status, code):
    """Assert that the response is this problem; returns its detail."""
    body = response.json()
    assert (response.status_code, body.get("code")) == (status, code), body
    assert response.headers["content-type"] == "application/problem+json"
    assert set(body) == {"type", "title", "status", "code", "detail"}
    assert body["status"] == status
    assert body["type"] == f"/docs#{code}"
    assert body["title"]
    assert body["detail"].endswith((".", "…"))
    return body["detail"]
