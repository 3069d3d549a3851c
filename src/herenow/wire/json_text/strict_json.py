"""Strict JSON decoding, for frames and request bodies: JSON that can be read in one way only.

msgspec parses and checks the shape; failures become one error with a code. An object with a repeated key is refused, because
two parsers may read different values. JSON that is nested too deeply (`nesting`) is refused before it is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from herenow.errors import ProtocolError
from herenow.wire.json_text.nesting import is_too_deep

T = TypeVar("T")


class StrictDecoder(Generic[T]):
    def __init__(
        self,
        decoder: msgspec.json.Decoder[T],
        misfit: Callable[[object, str], ProtocolError],
        *,
        repeated_keys: bool = False,
    ) -> None:
        """Make a strict decoder from one of msgspec. `misfit(value, reason)` returns the error for JSON of the wrong
        shape. `repeated_keys`: whether an object may contain a key twice."""
        self._decoder = decoder
        self._misfit = misfit
        self._repeated_keys = repeated_keys

    def decode(self, payload: bytes) -> T:
        """Decode a payload of any bytes. Raises `ProtocolError` (`bad_json`, or the one that `misfit` returns) and
        nothing else."""
        if is_too_deep(payload):
            raise _too_deep()
        try:
            value = self._decoder.decode(payload)
            if not self._repeated_keys:
                _refuse_repeated_keys(payload.decode())
        except msgspec.ValidationError as error:
            raise self._misfit(_read(payload), _lowered(error)) from None
        except (ValueError, RecursionError) as error:
            raise _unreadable(error) from None
        return value


def _lowered(error: Exception) -> str:
    """Return the error message of msgspec with its first letter in lower case, for the middle of a sentence."""
    sentence = str(error)
    return sentence if sentence[:2].isupper() else sentence[:1].lower() + sentence[1:]  # "JSON is malformed"


def _read(payload: bytes) -> object:
    """Parse a payload of the wrong shape as plain JSON. Raises `ProtocolError` if it is not JSON: msgspec stopped at
    the first wrong field, so the bytes after it were not checked yet."""
    try:
        return msgspec.json.decode(payload)
    except (ValueError, RecursionError) as error:
        raise _unreadable(error) from None


def _refuse_repeated_keys(text: str) -> None:
    # msgspec keeps the last of two equal keys, and has no option for this. Parsing again takes 2 µs for a small frame;
    # heartbeats do not come here.
    _key_checker.raw_decode(text.lstrip())


def _no_repetition(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ProtocolError("bad_json", "A key is repeated in this JSON object.")


def _unreadable(error: Exception) -> ProtocolError:
    match error:
        case RecursionError():  # not by the payload's depth: the call stack is nearly full
            return _too_deep()
        case UnicodeDecodeError():
            return ProtocolError("bad_json", "This JSON is not UTF-8.")
        case msgspec.DecodeError():
            return ProtocolError("bad_json", f"This is not valid JSON: {_lowered(error)}.")
        case _:
            return ProtocolError("bad_json", "This JSON has a number that is too large.")


def _too_deep() -> ProtocolError:
    return ProtocolError("bad_json", "This JSON is nested too deeply.")


_key_checker = json.JSONDecoder(object_pairs_hook=_no_repetition)
