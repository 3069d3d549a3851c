"""Read and decode the body of a request.

A body that is too large is refused before it is buffered if it has a Content-Length, otherwise as soon as it exceeds the
limit. JSON is parsed as strictly as on the WebSocket (`wire.json_text`). The caller checks the values.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import Request

from herenow.errors import ProtocolError
from herenow.wire.json_text.strict_json import StrictDecoder

T = TypeVar("T")

_JSON = frozenset({"application/json"})
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json"})


class Decoder(StrictDecoder[T]):
    """Decodes a body into a shape. Raises `bad_shape` if it does not fit."""

    def __init__(self, shape: type[T], words: str, *, repeated_keys: bool = False) -> None:
        """Create a decoder for bodies of the type `shape`. `words` complete the error message "The body must be …".
        `repeated_keys`: allow repeated keys in JSON objects."""

        def misfit(_value: object, why: str) -> ProtocolError:
            return ProtocolError("bad_shape", f"The body must be {words}: {why}.")

        super().__init__(msgspec.json.Decoder(shape), misfit, repeated_keys=repeated_keys)


async def read_json(request: Request, limit: int, decoder: Decoder[T]) -> T:
    payload = await _read(request, limit)
    if payload.strip():
        _check_type(request, _JSON, "application/json")
    return decoder.decode(payload if payload.strip() else b"{}")


async def read_lines(request: Request, limit: int) -> list[bytes]:
    payload = await _read(request, limit)
    if payload.strip():
        _check_type(request, _NDJSON, "application/x-ndjson")
    return payload.split(b"\n")


def _check_type(request: Request, allowed: frozenset[str], expected: str) -> None:
    """Raise `unsupported_media_type` if the request has a content type that is not in `allowed`; a missing one is
    accepted. The message names `expected`."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given and given not in allowed:
        raise ProtocolError(
            "unsupported_media_type", f"The body must be {expected}; this one says it is {given[:64]!r}."
        )


async def _read(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    length = 0
    async for part in request.stream():
        length += len(part)
        if length > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> ProtocolError:
    return ProtocolError("body_too_large", f"A body may have at most {limit} bytes.")
