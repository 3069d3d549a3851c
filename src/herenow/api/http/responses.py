"""Responses, with the headers that all of them have. By default, caches may not store them: presence is soon out of date."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.responses import Response

JSON = "application/json"

_encode = msgspec.json.Encoder().encode
NO_STORE = "no-store"

Headers = Iterable[tuple[str, str]]


class Reply(Response):
    """A complete response. Starlette's own constructor costs more than everything else in a small request."""

    def __init__(
        self, body: bytes, *, status: int = 200, media: str = JSON, headers: Headers = (), cache: str = NO_STORE
    ) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [(b"cache-control", cache.encode("latin-1")), (b"x-content-type-options", b"nosniff")]
        if status not in (204, 304):
            self.raw_headers += ((b"content-type", media.encode("latin-1")), (b"content-length", b"%d" % len(body)))
        self.raw_headers += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def json_response(value: object, *, status: int = 200) -> Response:
    return Reply(_encode(value), status=status)


def raw_json_response(body: bytes) -> Response:
    """Return a JSON response with a body that is already encoded."""
    return Reply(body)


def json_array(items: Iterable[bytes]) -> bytes:
    """Join encoded JSON values into one encoded JSON array."""
    return b"[" + b",".join(items) + b"]"


def no_content() -> Response:
    return Reply(b"", status=204)
