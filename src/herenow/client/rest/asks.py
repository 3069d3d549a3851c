"""One REST request as a value: what is sent, and how its answer is read.

Pure: an `Ask` knows neither HTTP client nor token, so that the blocking and the asynchronous client send the same ones.
Which requests there are is said in `calls`.
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
    """What the answer's JSON is decoded as; NoneType: it has no body."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    lines: Sequence[object] | None = None
    """NDJSON instead of a body."""
    _read: Callable[[Any], T] | None = None
    _missing: T | UnsetType = UNSET

    def then(self, read: Callable[[T], U]) -> Ask[U]:
        """The same request; its decoded answer goes through `read`."""
        return replace(cast("Ask[U]", self), _read=read)

    def if_missing(self, value: U) -> Ask[T | U]:
        """The same request; a refusal with the code `not_found` is read as this value."""
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
        """Raises `RestError` with the code of the problem, `Unavailable` if the answer is not herenow's."""
        if not 200 <= status < 300:
            problem = _problem(status, content, headers)
            if problem.code == "not_found" and not isinstance(self._missing, UnsetType):
                return self._missing
            raise problem
        try:
            decoded = msgspec.json.decode(content or b"null", type=self.shape)
        except msgspec.DecodeError as error:  # not herenow's answer: a proxy's, perhaps
            raise Unavailable(f"this is not an answer of herenow: {error}") from error
        return decoded if self._read is None else self._read(decoded)


class _Problem(Struct, frozen=True):
    """The fields of an error answer that a client needs."""

    code: str
    detail: str = ""


def _problem(status: int, content: bytes, headers: Mapping[str, str]) -> RestError:
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:  # not herenow's answer: a proxy's, perhaps
        problem = _Problem(f"http_{status}", content[:200].decode(errors="replace"))
    after = headers.get("retry-after", "")
    return RestError(problem.code, problem.detail, status, float(after) if after.isdigit() else None)
