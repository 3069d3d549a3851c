"""Who is asking? From the three places a token may stand in to the claims it proves.

Answers for REST and WebSocket alike, so that they cannot differ. Does not know what a claim allows, only how a secret
verifies it (`tokens`). Changes when there is another way to bring a token or another kind of key.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

from herenow.errors import ProtocolError
from herenow.gateway.tokens import Claims, verify
from herenow.service.clock import Clock

SUBPROTOCOL = "herenow.v1"
_TOKEN_SUBPROTOCOL = "herenow.token."  # noqa: S105 - a prefix, not a secret


class Auth:
    def __init__(self, secret: str, clock: Clock, max_ttl: float) -> None:
        self._secret = secret
        self._clock = clock
        self._max_ttl = max_ttl

    def check(self, token: str | None) -> Claims:
        """Raises `ProtocolError` with one of the `token_*` codes."""
        if not token:
            raise ProtocolError("token_missing", "A token is needed: Authorization: Bearer <token>.")
        return verify(token, self._secret, now=self._clock.now() / 1000, max_ttl=self._max_ttl)


def find_token(authorization: str | None, query: str, subprotocols: Iterable[str] = ()) -> str | None:
    """By header, by subprotocol, or by `?token=`, in this order; the query is for clients that can do nothing else."""
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None
    for subprotocol in subprotocols:
        if subprotocol.startswith(_TOKEN_SUBPROTOCOL):
            return subprotocol.removeprefix(_TOKEN_SUBPROTOCOL)
    return next((value for name, value in parse_qsl(query) if name == "token"), None)
