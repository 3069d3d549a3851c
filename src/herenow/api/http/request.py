"""`Call`: one request, as an endpoint gets it.

It reads ids from the path, parameters from the query, the body and the caller. Each method returns a checked value or raises
`ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request

from herenow.api.http import peers
from herenow.api.http.request_body import Decoder, read_json, read_lines
from herenow.errors import ProtocolError
from herenow.node import Node
from herenow.settings import Settings
from herenow.transport.auth import Auth, Claims, find_token
from herenow.transport.http import Streaming
from herenow.wire.ids import parse_id
from herenow.wire.inputs import Scope
from herenow.workers.worker_link import Told

MAX_PARAMETERS = 100
"""Maximum parameters of a query. A list is one parameter, so a few are enough."""

ECHO = 64
"""Maximum characters of a refused value in the error sentence."""

WorkerReports = Callable[[], Awaitable[Sequence[Told]]]
"""Collects the statistics of all workers that share this port."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Api:
    node: Node
    auth: Auth
    settings: Settings
    streaming: Streaming
    worker_reports: WorkerReports | None = None
    """None if there is only one process."""


@dataclass(frozen=True, slots=True)
class Caller:
    user: str
    scopes: frozenset[Scope] = frozenset()
    issued_at: int = 0
    """When the token was issued, in epoch milliseconds; 0 if it has no `iat`."""

    @property
    def service(self) -> bool:
        return bool(self.scopes)


class Call:
    __slots__ = ("_api", "_parameters", "_request", "caller", "claims")

    def __init__(self, api: Api, request: Request) -> None:
        self._api = api
        self._request = request
        self._parameters: list[tuple[str, str]] | None = None
        self.caller = _ANONYMOUS
        self.claims: Claims
        """Of the token; set by `identify`."""

    @property
    def node(self) -> Node:
        return self._api.node

    @property
    def auth(self) -> Auth:
        return self._api.auth

    @property
    def settings(self) -> Settings:
        return self._api.settings

    @property
    def streaming(self) -> Streaming:
        return self._api.streaming

    @property
    def worker_reports(self) -> WorkerReports | None:
        return self._api.worker_reports

    @property
    def now(self) -> int:
        return self._api.node.context.clock.now()

    # The caller

    @property
    def token(self) -> str | None:
        return find_token(self.header("authorization"), self._query_text())

    async def identify(self) -> None:
        """Check the token of the request and set `caller` and `claims`. Raises `ProtocolError` with a `token_*` code or
        `keys_unavailable`."""
        claims = self.claims = await self._api.auth.checked(self.token)
        self.caller = Caller(claims.user, claims.scopes, claims.issued_at_ms or 0)

    async def is_operators(self) -> bool:
        """Return True if the request has a token with the scope service, or comes from this machine without a token. A
        token that is not valid is not reported: for endpoints that answer all callers."""
        if self.token is None:
            return self.is_local
        try:
            await self.identify()
        except ProtocolError:
            return False
        return self.caller.service

    def header(self, name: str) -> str | None:
        return self._request.headers.get(name)

    @property
    def is_local(self) -> bool:
        """True if the request comes from this machine and needs no token for what operators may read."""
        client = self._request.client
        return self.settings.trust_loopback == "on" and peers.is_local(
            None if client is None else client.host, self._request.headers
        )

    @property
    def viewer(self) -> str | None:
        """The user that the response is filtered for: the query parameter `viewer`, which only services may use for
        another user, or else the caller. None for a service without the parameter, which gets the true presence."""
        asked = self.parameter("viewer")
        if asked is None:
            return None if self.caller.service else self.caller.user
        viewer = user_id(asked)
        if not self.caller.service and viewer != self.caller.user:
            raise ProtocolError("forbidden", "Only a service token may name another viewer.")
        return viewer

    @property
    def myself(self) -> str:
        """The user that paths such as `/presence/me` refer to: the caller, or the parameter `viewer` of a service."""
        return self.viewer or self.caller.user

    # The path

    def path_user(self, name: str = "user") -> str:
        return user_id(self.path_text(name))

    def path_id(self, name: str) -> str:
        return plain_id(self.path_text(name), name)

    def path_text(self, name: str) -> str:
        """Return a path parameter, percent-decoded. Bytes that are not UTF-8 become surrogates, which are refused in
        ids."""
        text: str = self._request.path_params[name]
        return unquote(text, errors="surrogateescape")

    # The query

    def parameter(self, name: str) -> str | None:
        """The value of a query parameter; None if it is absent. Raises `bad_shape` if it is given more than once."""
        values = self.parameters(name)
        if len(values) > 1:
            raise ProtocolError("bad_shape", f"The parameter {name} is given more than once.")
        return values[0] if values else None

    def parameters(self, name: str) -> list[str]:
        if self._parameters is None:
            self._parameters = self._parsed_query()
        return [value for known, value in self._parameters if known == name]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self.parameter(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()):
            raise ProtocolError("bad_shape", f"The parameter {name} must be a whole number.")
        number = int(text) if len(text) < 20 else most + 1
        if not least <= number <= most:
            raise ProtocolError("out_of_range", f"The parameter {name} must be from {least} to {most}.")
        return number

    def _query_text(self) -> str:
        query: bytes = self._request.scope["query_string"]
        return query.decode("latin-1")

    def _parsed_query(self) -> list[tuple[str, str]]:
        try:
            return parse_qsl(self._query_text(), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS)
        except UnicodeDecodeError:
            raise ProtocolError("bad_shape", "The query is not percent-encoded UTF-8.") from None
        except ValueError:
            raise ProtocolError("bad_shape", f"A query may have at most {MAX_PARAMETERS} parameters.") from None

    # The body

    async def body(self, decoder: Decoder[T]) -> T:
        """Read the request body and decode it with `decoder`. An absent body is decoded as an empty object."""
        return await read_json(self._request, self.settings.max_body, decoder)

    async def lines(self) -> list[bytes]:
        return await read_lines(self._request, self.settings.max_body)


_ANONYMOUS = Caller("")


def user_id(value: object) -> str:
    """Check a user id and return it as a string. Raises `invalid_user_id`, with the refused value in the message."""
    try:
        return parse_id(value)
    except ProtocolError as error:
        raise ProtocolError("invalid_user_id", f"{echo(value)} is not a user id. {error.message}") from None


def plain_id(value: object, kind: str) -> str:
    """Check an id of a device or room and return it as a string. Raises `invalid_id`, with the refused value and the
    word `kind` in the message."""
    try:
        return parse_id(value)
    except ProtocolError as error:
        raise ProtocolError("invalid_id", f"{echo(value)} is not a {kind} id. {error.message}") from None


def echo(value: object) -> str:
    """Format a refused value as short printable text, for an error message."""
    match value:
        case str():
            return repr(value if len(value) <= ECHO else value[:ECHO] + "…")
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int() if value.bit_length() > 4 * ECHO:
            return "a number of many digits"
        case int() | float():
            return str(value)
        case _:
            return "an array" if isinstance(value, list) else "an object"
