"""One REST request as a value: what to send, and how to decode the response.

Pure: an `Ask` contains neither HTTP client nor token, so that the blocking and the asynchronous client share it. `calls`
lists the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from herenow.client.errors import RestError, Unavailable

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    method: str
    path: str
    shape: type[T]
    """The type to decode the JSON response as; NoneType if it has no body."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    lines: Sequence[object] | None = None
    """Rows to send as NDJSON instead of `body`."""
    _read: Callable[[Any], T] | None = None
    _missing: T | UnsetType = UNSET

    def then(self, read: Callable[[T], U]) -> Ask[U]:
        """Return the same request with one more conversion, `read`, which gets the result so far and returns the new
        one."""
        before = self._read
        return replace(cast("Ask[U]", self), _read=read if before is None else lambda decoded: read(before(decoded)))

    def if_missing(self, value: U) -> Ask[T | U]:
        """Return the same request, but its result is `value` when the server refuses it with the code `not_found`."""
        return replace(cast("Ask[T | U]", self), _missing=value)

    @property
    def content(self) -> bytes | None:
        if self.lines is not None:
            return b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines)
        return None if self.body is None else msgspec.json.encode(self.body)

    @property
    def headers(self) -> dict[str, str]:
        if self.lines is not None:
            return {"content-type": "application/x-ndjson"}
        return {} if self.body is None else {"content-type": "application/json"}

    def answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> T:
        """Decode the response to this request. Raises `RestError` with the server's code, or `Unavailable` if the
        response did not come from herenow."""
        if not 200 <= status < 300:
            problem = _problem(status, content, headers)
            if problem.code == "not_found" and not isinstance(self._missing, UnsetType):
                return self._missing
            raise problem
        try:
            decoded = msgspec.json.decode(content or b"null", type=self.shape)
        except msgspec.DecodeError as error:  # probably the response of a proxy
            raise Unavailable(f"this is not an answer of herenow: {error}") from error
        return decoded if self._read is None else self._read(decoded)


class _Problem(Struct, frozen=True):
    code: str
    detail: str = ""


def _problem(status: int, content: bytes, headers: Mapping[str, str]) -> RestError:
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:  # probably the response of a proxy
        problem = _Problem(f"http_{status}", content[:200].decode(errors="replace"))
    after = headers.get("retry-after", "")
    return RestError(problem.code, problem.detail, status, float(after) if after.isdigit() else None)
