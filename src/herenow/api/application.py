"""The ASGI application: makes a route of every `Operation`, behind the middleware that all requests pass.

Cors ─▶ Problems ─▶ CanonicalPaths ─▶ Starlette's router ─▶ Resource (method, access, readiness) ─▶ the endpoint
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from herenow.api.description.audit import audit
from herenow.api.description.operations import Access, Operation
from herenow.api.description.page import Description
from herenow.api.endpoints import (
    beats,
    blocks,
    devices,
    explain,
    presence,
    profiles,
    relation_graph,
    stream,
    user_admin,
    user_settings,
)
from herenow.api.http.cors import Cors
from herenow.api.http.paths import CanonicalPaths
from herenow.api.http.problems import Problems, Refusal, check_rate, reraise
from herenow.api.http.request import Api, Call, WorkerReports
from herenow.api.ops import dashboard, health, sdk
from herenow.core.limits import LONGEST_PAUSE, REQUEST_COST, size_cost
from herenow.errors import ProtocolError
from herenow.node import Node
from herenow.settings import Settings
from herenow.transport.auth import Auth
from herenow.transport.http import Streaming
from herenow.transport.websocket import Sockets
from herenow.wire.inputs import Scope as TokenScope

CONTRACT = (
    *presence.OPERATIONS,
    *devices.OPERATIONS,
    *user_settings.OPERATIONS,
    *beats.OPERATIONS,
    *stream.OPERATIONS,
    *presence.LAST,
    *blocks.OPERATIONS,
    *profiles.OPERATIONS,
    *relation_graph.OPERATIONS,
    *user_admin.OPERATIONS,
    *explain.OPERATIONS,
    *health.OPERATIONS,
)
"""All endpoints. The first path that matches a request gets it."""


def make_app(
    node: Node,
    auth: Auth,
    settings: Settings,
    *,
    sockets: Sockets | None = None,
    pages: Iterable[Route] = (),
    worker_reports: WorkerReports | None = None,
) -> Starlette:
    """Build the ASGI application with all endpoints. The caller starts and stops the node.

    `sockets`: all open connections of this process, among which event streams count too; None: no limit. `pages`:
    further routes, such as those of the demo. `worker_reports`: collects the reports of all workers; None if there is
    only one process.
    """
    operations = (*CONTRACT, *Description(CONTRACT, max_bulk=settings.max_bulk).operations)
    streaming = Streaming(node, sockets or Sockets(sys.maxsize), settings.dead_after)
    api = Api(node, auth, settings, streaming, worker_reports)
    app = Starlette(
        routes=[
            *pages,
            *sdk.routes(),
            *dashboard.routes(),
            *(Route(path, Resource(api, rows), name=path) for path, rows in _by_path(operations)),
        ],
        middleware=[
            Middleware(Cors, origins=settings.origins, metrics=node.context.metrics),
            Middleware(Problems, metrics=node.context.metrics),
            Middleware(CanonicalPaths),
        ],
        exception_handlers={HTTPException: reraise},
    )
    app.router.redirect_slashes = False  # `CanonicalPaths` has removed a slash at the end
    return app


class Resource:
    """One path and its methods, as an ASGI application."""

    def __init__(self, api: Api, operations: Iterable[Operation]) -> None:
        self._api = api
        self.operations = {operation.method: operation for operation in operations}
        if "GET" in self.operations:
            self.operations["HEAD"] = self.operations["GET"]
        self._allow = ", ".join(sorted(self.operations))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self.operations.get(scope["method"])
        if operation is None:
            raise Refusal("method_not_allowed", f"This path supports only {self._allow}.", [("allow", self._allow)])
        call = Call(self._api, Request(scope, receive))
        await self._authorize(call, operation)
        is_limited = bool(call.caller.user) and not call.caller.service
        if is_limited:
            await self._wait_for_budget(call, operation)
        audited = operation.scope is TokenScope.ADMIN and call.caller.service
        response = await (audit(call, operation) if audited else operation.handle(call))
        if is_limited:
            self._api.node.context.budgets.spend(call.caller.user, size_cost(len(getattr(response, "body", b""))))
        await response(scope, receive, send)

    async def _wait_for_budget(self, call: Call, operation: Operation) -> None:
        """Take the cost of a request from the user's budget, and wait until its debt is paid. Meanwhile nothing is read
        from the connection but one more request. A request that would wait longer than `LONGEST_PAUSE` is refused
        without a cost: waiting requests would fill the memory, since they stay when their connection is gone."""
        context, user = self._api.node.context, call.caller.user
        debt = context.budgets.debt(user)
        check_rate(debt if debt > LONGEST_PAUSE else 0, "requests_too_fast", "The user sends requests too fast.")
        wait = context.budgets.spend(user, REQUEST_COST)
        if wait:
            context.metrics.reading_pauses["request"] += 1
            await asyncio.sleep(wait / 1000)
            await self._authorize(call, operation)  # the token may have been revoked meanwhile

    async def _authorize(self, call: Call, operation: Operation) -> None:
        access = operation.access
        if access is Access.ANYONE or (access is Access.OPERATOR and call.token is None and call.is_local):
            return
        await call.identify()
        if access is not Access.USER and not call.caller.service:
            raise ProtocolError("forbidden", f"This endpoint needs a service token with the scope {operation.scope}.")
        if call.caller.service and operation.scope not in call.caller.scopes:
            raise ProtocolError(
                "scope_missing", f"This endpoint needs the scope {operation.scope}, which the token lacks."
            )
        node = self._api.node
        if access is not Access.OPERATOR and not (node.ready or node.draining):
            raise ProtocolError("not_ready", "The node is starting.")


def _by_path(operations: Iterable[Operation]) -> Iterable[tuple[str, list[Operation]]]:
    paths: dict[str, list[Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, []).append(operation)
    return paths.items()
