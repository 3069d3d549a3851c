"""Make paths canonical, so that ids in them may have any characters. Refuse paths and queries that are too long.

ASGI servers pass the decoded path, in which the id `a/b` has become two segments. So take the raw path and encode each
segment in one way: `%2F` stays, `%6De` becomes `me` (fixed words match in any spelling), a slash at the end is removed.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from herenow.errors import ProtocolError

MAX_QUERY = 8_192
"""Maximum bytes of a query, and of a path; common proxies have the same limit."""


class CanonicalPaths:
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
            f"A path or a query may have at most {MAX_QUERY} bytes; "
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
        return segment  # `Call` refuses it as an id
