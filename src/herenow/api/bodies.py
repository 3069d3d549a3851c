"""What does the body say? Read up to a limit, as the content type promised, into exactly the expected shape.

A body is refused before it is buffered when it says how long it is, and as soon as it is too long when it does not.
JSON that could be read in two ways (a key that stands there twice) is refused as on the WebSocket. Values are checked
by whoever asked for the shape. Another content type would be a reason to change this module.
"""

from __future__ import annotations

import json
from typing import Generic, TypeVar

import msgspec
from starlette.requests import Request

from herenow.errors import ProtocolError

T = TypeVar("T")

_JSON = frozenset({"application/json"})
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json"})


class Decoder(Generic[T]):
    """The shape of a body, and how to say what it is when something else came."""

    def __init__(self, shape: type[T], words: str, *, repeated_keys: bool = False) -> None:
        """`words` complete "The body is …". `repeated_keys`: they are not looked for, as in a batch of thousands."""
        self._decoder = msgspec.json.Decoder(shape)
        self._words = words
        self._repeated_keys = repeated_keys

    def decode(self, payload: bytes) -> T:
        """Raises `ProtocolError` with `bad_json` or `bad_shape`, and nothing else, whatever the bytes are."""
        try:
            value = self._decoder.decode(payload)
            if not self._repeated_keys:
                _key_checker.decode(payload.decode())
        except msgspec.ValidationError as error:
            raise self._misfit(payload, error) from None
        except (ValueError, RecursionError) as error:
            raise _unreadable(error) from None
        return value

    def _misfit(self, payload: bytes, mismatch: msgspec.ValidationError) -> ProtocolError:
        """A wrong field may stand before the place where the JSON breaks off."""
        try:
            msgspec.json.decode(payload)
        except (ValueError, RecursionError) as error:
            return _unreadable(error)
        return ProtocolError("bad_shape", f"The body is {self._words}: {_lower(str(mismatch))}.")


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


def _check_type(request: Request, allowed: frozenset[str], said: str) -> None:
    """A body without a type is taken at its word."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given and given not in allowed:
        raise ProtocolError(
            "unsupported_media_type", f"The body must be {said}; this one says it is {given[:64]!r}."
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
    return ProtocolError("body_too_large", f"A body has at most {limit} bytes.")


def _unreadable(error: Exception) -> ProtocolError:
    match error:
        case RecursionError():
            return ProtocolError("bad_json", "This JSON is nested too deeply.")
        case UnicodeDecodeError():
            return ProtocolError("bad_json", "This JSON is not UTF-8.")
        case msgspec.DecodeError():
            return ProtocolError("bad_json", f"This is not JSON that can be read: {_lower(str(error))}.")
        case _:
            return ProtocolError("bad_json", "This JSON has a number that is too large.")


def _no_repetition(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ProtocolError("bad_json", "A key is repeated in a JSON object.")


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


_key_checker = json.JSONDecoder(object_pairs_hook=_no_repetition)
