"""Which endpoint does an address mean? Paths in one spelling, so that ids of any characters can stand in them.

Servers hand over the path decoded, where the id `a/b` has become two segments. Here the raw path is taken instead and
each segment is spelled in the one canonical way: `%2F` stays, `%6De` becomes `me` (so that fixed words win however they
are spelled), and a slash at the end is nothing. Paths and queries that are too long are refused here.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from herenow.errors import ProtocolError

MAX_QUERY = 8_192
"""Bytes of a query, and of a path: common proxies stop there too."""


class CanonicalPaths:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _check_length(scope)
            scope["path"] = _canonical(scope)
        await self._app(scope, receive, send)


def _check_length(scope: Scope) -> None:
    if len(scope["query_string"]) > MAX_QUERY or len(scope["path"]) > MAX_QUERY:
        raise ProtocolError(
            "uri_too_long",
            f"An address has at most {MAX_QUERY} bytes of path or query; "
            "POST /api/v1/presence/query takes a long list in its body.",
        )


def _canonical(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    if "%" in path or not path.isascii():
        path = "/".join(map(_respelled, path.split("/")))
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


def _respelled(segment: str) -> str:
    try:
        return quote(unquote(segment, errors="strict"), safe="")
    except UnicodeDecodeError:
        return segment  # whoever reads it as an id refuses it
