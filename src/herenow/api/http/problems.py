"""Error responses of all endpoints: problem+json with a code of `wire.codes`.

Unexpected errors are logged with a stack trace, but without the content of the request.
"""

from __future__ import annotations

import traceback

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herenow.api.http.responses import Headers, Reply
from herenow.errors import ProtocolError, Unavailable, UnknownOutcome
from herenow.node.metrics import Metrics
from herenow.transport.auth import find_token
from herenow.wire.codes import CODES

MEDIA = "application/problem+json"

RETRY_AFTER = {429: "30", 503: "1"}
"""HTTP status → seconds, for codes that may be retried. 429: a session ends with its grace period. 503: the store may be
back at any moment."""

log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class Problem(msgspec.Struct, frozen=True):
    type: str
    """Path of the explanation of the code, on this server."""
    title: str
    status: int
    code: str
    detail: str


class Refusal(ProtocolError):  # noqa: N818 - reads as what it is
    """A protocol error with additional response headers."""

    def __init__(self, code: str, message: str, headers: Headers) -> None:
        super().__init__(code, message)
        self.headers = tuple(headers)


def check_rate(wait: int, code: str, message: str) -> None:
    """Raise the error `code` with `Retry-After` if the caller must wait `wait` milliseconds; nothing if that is 0."""
    if wait:
        raise Refusal(code, message, [("retry-after", str(-(-wait // 1000)))])


class Problems:
    """ASGI middleware: makes an error response of every exception, and counts it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sent(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except ClientDisconnect:
            return
        except Exception as error:
            problem = as_protocol_error(error)
            if problem.code == "internal":
                _log(scope, error)
            if started:
                raise  # a part of the response is sent: only the server can end the connection
            self._metrics.refusals[problem.code] += 1
            await problem_response(problem)(scope, receive, send)


def as_protocol_error(error: Exception) -> ProtocolError:
    """Convert any exception to the error that the client gets; an unexpected one gets the code `internal`."""
    match error:
        case ProtocolError():
            return error
        case Unavailable():
            return ProtocolError("unavailable", _sentence(error))
        case UnknownOutcome():
            return ProtocolError("unknown_outcome", _sentence(error))
        case HTTPException(status_code=404):
            return ProtocolError("not_found", "There is no endpoint at this path; /docs lists all of them.")
        case HTTPException(status_code=405):
            return Refusal(
                "method_not_allowed", "This path does not support this method.", (error.headers or {}).items()
            )
        case _:
            return ProtocolError("internal", "Internal error; the server's log has the details.")


def problem_response(error: ProtocolError) -> Response:
    code = CODES[error.code]
    problem = Problem(f"/docs#{code.name}", code.meaning, code.http, code.name, error.message)
    return Reply(_encode(problem), status=code.http, media=MEDIA, headers=_headers(error))


def reraise(_request: Request, error: Exception) -> Response:
    """Exception handler that passes Starlette's errors on to `Problems`, because Starlette would send plain text."""
    raise error


def _headers(error: ProtocolError) -> list[tuple[str, str]]:
    code = CODES[error.code]
    headers = list(error.headers) if isinstance(error, Refusal) else []
    if code.http == 401:
        scheme = "Bearer" if code.name == "token_missing" else 'Bearer error="invalid_token"'
        headers.append(("www-authenticate", scheme))
    if code.retry and code.http in RETRY_AFTER and "retry-after" not in dict(headers):
        headers.append(("retry-after", RETRY_AFTER[code.http]))
    if code.http == 413:
        headers.append(("connection", "close"))  # do not read the remaining body
    return headers


def _sentence(error: Exception) -> str:
    text = str(error) or "a service that the node needs is unreachable"
    return text[0].upper() + text[1:].rstrip(".") + "."


def _log(scope: Scope, error: Exception) -> None:
    # No exc_info: a renderer may print local variables, and one of them is the token.
    stack = "".join(traceback.format_exception(error))
    token = _token(scope)
    log.error(
        "request.failed",
        method=scope["method"],
        path=scope["path"],
        stack=stack.replace(token, "…") if token else stack,
    )


def _token(scope: Scope) -> str | None:
    authorization = dict(scope["headers"]).get(b"authorization")
    query: bytes = scope["query_string"]
    return find_token(None if authorization is None else authorization.decode("latin-1"), query.decode("latin-1"))
