"""Tokens: minting them in an application's back end, and reading their claims in a client.

A token is signed with the server's `secret`. Reading does not verify it (the server does); it only shows when to renew it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import jwt

from herenow.wire.ids import parse_id
from herenow.wire.inputs import SERVICE, Scope


def mint(
    secret: str,
    user: str | int,
    *,
    service: bool = False,
    scope: str | Iterable[str] = (),
    ttl: float | timedelta = 3600,
    now: float | None = None,
) -> str:
    """Return a token (JWT) for `user`, valid for `ttl` seconds from `now` (epoch seconds; None: the current time).

    With `scope` it is a service token with these scopes (`"read"`, `["beats", "read"]`), which the endpoints for back ends
    require; with `service=True` it has all scopes. Raises `ProtocolError` if `user` is not a valid id, and `ValueError` if
    there is no such scope.
    """
    issued = time.time() if now is None else now
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    # Millisecond precision: a token minted in the same second after a revocation must count as issued after it.
    payload: dict[str, object] = {"sub": parse_id(user), "iat": round(issued, 3), "exp": round(issued + seconds, 3)}
    words = [SERVICE] if service else (scope.split() if isinstance(scope, str) else list(scope))
    if unknown := [word for word in words if word not in (SERVICE, *Scope)]:
        raise ValueError(f"there is no scope {unknown[0]!r}; the scopes are {', '.join(Scope)} and {SERVICE}")
    if words:
        payload["scope"] = " ".join(words)
    return jwt.encode(payload, secret, algorithm="HS256")


def expires_at(token: str) -> float | None:
    """The expiry of a token (its `exp` claim) in epoch seconds; None if it has none or is not a JWT."""
    expiry = _claims(token).get("exp")
    return float(expiry) if isinstance(expiry, int | float) and math.isfinite(expiry) else None


def subject(token: str) -> object:
    """The user id in a token (its `sub` claim); None if it has none or is not a JWT. The signature is not verified."""
    return _claims(token).get("sub")


def _claims(token: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False, "verify_sub": False})
    except jwt.PyJWTError:
        return {}
    return claims


def wall_clock() -> float:
    """The current time in epoch seconds."""
    return time.time()


def steady_clock() -> float:
    """The monotonic time in seconds: unlike the wall clock it does not jump when the system time is corrected."""
    return time.monotonic()
