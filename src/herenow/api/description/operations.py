"""What does an endpoint say of itself? The row that its route, its access check and its documentation are made from.

An endpoint is a function of a `Call` and a row here; the tables of rows stand at the end of each noun's module. Codes
that follow from other columns (a token is needed, there is a body, an id stands in the path) are added by `codes_of`
and need not be said. Another column is the only reason to change this module.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from starlette.responses import Response

from herenow.api.http.request import Call

Handler = Callable[[Call], Awaitable[Response]]


class Access(Enum):
    """Who may call it."""

    ANYONE = auto()
    USER = auto()
    """Any valid token."""
    SERVICE = auto()
    """A token with the scope `service`."""
    OPERATOR = auto()
    """A service token, or no token but a peer on this very machine."""


class Media(Enum):
    JSON = "application/json"
    PROBLEM = "application/problem+json"
    NDJSON = "application/x-ndjson"
    TEXT = "text/plain"
    EVENTS = "text/event-stream"
    HTML = "text/html"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query; those of the path are read from the path itself."""

    name: str
    about: str
    schema: Mapping[str, object]
    required: bool = False
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BodyDoc:
    shape: object
    """A type that msgspec can describe; of one line, for NDJSON."""
    required: bool = True
    media: Media = Media.JSON


@dataclass(frozen=True, slots=True)
class ResponseDoc:
    about: str
    shape: object = None
    """A type that msgspec can describe; None: there is no body, or one that has no schema."""
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
    query: tuple[Parameter, ...] = ()
    body: BodyDoc | None = None
    codes: tuple[str, ...] = field(default=())
    """The refusals that are its own."""

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
    """Every code this operation may answer with."""
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
        codes += TOKEN_CODES
    if operation.access in (Access.SERVICE, Access.OPERATOR):
        codes += ["forbidden"]
    if operation.access in (Access.SERVICE, Access.USER):
        codes += STORE_CODES
    return tuple(dict.fromkeys([*codes, *EVERYWHERE]))


def code_of_id(name: str) -> str:
    """The code for a path parameter that is not an id; users have one of their own."""
    return "invalid_id" if name in ("device", "room") else "invalid_user_id"
