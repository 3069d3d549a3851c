"""`Operation`: one endpoint. Its route, access check and documentation are made from it.

Each module of endpoints ends with a table of its operations. `codes_of` adds the error codes that follow from other fields
(access, body, ids in the path); `codes` has only the others.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from starlette.responses import Response

from herenow.api.http.request import Call
from herenow.wire.inputs import Scope

Handler = Callable[[Call], Awaitable[Response]]


class Access(Enum):
    ANYONE = auto()
    USER = auto()
    """Any valid token."""
    SERVICE = auto()
    """A service token."""
    OPERATOR = auto()
    """A service token, or no token and a client on this machine."""


class Media(Enum):
    JSON = "application/json"
    PROBLEM = "application/problem+json"
    NDJSON = "application/x-ndjson"
    TEXT = "text/plain"
    EVENTS = "text/event-stream"
    HTML = "text/html"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter. Path parameters are taken from the path itself."""

    name: str
    about: str
    schema: Mapping[str, object]
    required: bool = False
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BodyDoc:
    shape: object
    """A type that msgspec can describe; for NDJSON, the type of one line."""
    required: bool = True
    media: Media = Media.JSON


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    about: str
    shape: object = None
    """A type that msgspec can describe; None if there is no body, or no schema for it."""
    media: Media = Media.JSON


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    handle: Handler
    summary: str
    answers: Mapping[int, ResponseDoc]
    about: str = ""
    access: Access = Access.USER
    scope: Scope | None = None
    """The scope that a service token needs here; None only where no token is needed."""
    query: tuple[Parameter, ...] = ()
    body: BodyDoc | None = None
    codes: tuple[str, ...] = field(default=())
    """Error codes, without those that `codes_of` adds."""

    @property
    def path_names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)


TOKEN_CODES = (
    "token_missing",
    "token_malformed",
    "token_algorithm",
    "token_bad_signature",
    "token_claims",
    "token_expired",
    "token_revoked",
    "token_unknown_key",
    "keys_unavailable",
)
BODY_CODES = ("bad_json", "bad_shape", "body_too_large", "unsupported_media_type")
STORE_CODES = ("not_ready", "unavailable", "unknown_outcome")
EVERYWHERE = ("forbidden_origin", "uri_too_long", "internal")


def codes_of(operation: Operation) -> tuple[str, ...]:
    """All error codes that this operation may return."""
    codes = [*operation.codes]
    for parameter in operation.query:
        codes += parameter.codes
    if operation.path_names:
        codes += [code_of_id(name) for name in operation.path_names]
    if operation.body is not None:
        codes += BODY_CODES
    if operation.query:
        codes += ["bad_shape"]
    if operation.access is not Access.ANYONE:
        codes += [*TOKEN_CODES, "scope_missing"]
    if operation.access in (Access.SERVICE, Access.OPERATOR):
        codes += ["forbidden"]
    if operation.access in (Access.SERVICE, Access.USER):
        codes += STORE_CODES
    if operation.access is Access.USER:
        codes += ["requests_too_fast"]
    return tuple(dict.fromkeys([*codes, *EVERYWHERE]))


def code_of_id(name: str) -> str:
    """The error code for a path parameter that is not a valid id."""
    return "invalid_id" if name in ("device", "room") else "invalid_user_id"
