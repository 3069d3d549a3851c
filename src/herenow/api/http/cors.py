"""CORS, by the same rule as for WebSockets: pages of the server's own origin or of one in `origins` may use the API.

Requests of other origins are refused first of all. Tokens are in a header that only a page's own script can set, so
credentials are not allowed and cookies are never read. A request without `Origin` does not come from a page.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herenow.api.http.problems import problem_response
from herenow.api.http.responses import Reply
from herenow.errors import ProtocolError
from herenow.node.metrics import Metrics
from herenow.transport.auth import is_allowed

METHODS = "GET, POST, PUT, DELETE"
HEADERS = "authorization, content-type"
EXPOSED = "retry-after, www-authenticate, allow"
MAX_AGE = "600"
"""Seconds that a browser may cache a preflight, so a change of `origins` takes effect within ten minutes."""


class Cors:
    def __init__(self, app: ASGIApp, origins: Collection[str], metrics: Metrics) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is None:
            await self._app(scope, receive, send)
        elif not self._is_allowed(origin, headers, scope):
            self._metrics.refusals["forbidden_origin"] += 1
            await problem_response(
                ProtocolError(
                    "forbidden_origin",
                    "Pages of this origin may not use the server; the operator can add it to the setting `origins`.",
                )
            )(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(origin)(scope, receive, send)
        else:
            await self._app(scope, receive, _add_cors_headers(origin, send))

    def _is_allowed(self, origin: str, headers: Headers, scope: Scope) -> bool:
        secure = scope["scheme"] == "https"
        return is_allowed(origin, host=headers.get("host", ""), secure=secure, origins=self._origins)


def _preflight(origin: str) -> Reply:
    return Reply(
        b"",
        status=204,
        headers=(
            ("access-control-allow-origin", origin),
            ("access-control-allow-methods", METHODS),
            ("access-control-allow-headers", HEADERS),
            ("access-control-max-age", MAX_AGE),
            ("vary", "origin"),
        ),
    )


def _add_cors_headers(origin: str, send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = EXPOSED
            headers.add_vary_header("origin")
        await send(message)

    return sent
