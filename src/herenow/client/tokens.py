"""Tokens for one's own users: what the back end of an application mints, and what a client reads of one.

A token is signed with the server's `secret`. Reading one here verifies nothing (the server does); it only tells when to
renew it.
"""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

import jwt

from herenow.wire.ids import parse_id


def mint(
    secret: str, user: str | int, *, service: bool = False, ttl: float | timedelta = 3600, now: float | None = None
) -> str:
    """A token for `user`, good for `ttl` seconds; with `service` for the endpoints of back ends.

    Raises `ProtocolError` if `user` cannot be an id.
    """
    issued = time.time() if now is None else now
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    # Milliseconds, not whole seconds: a token minted right after a revocation must count as issued after it.
    payload: dict[str, object] = {"sub": parse_id(user), "iat": round(issued, 3), "exp": round(issued + seconds, 3)}
    if service:
        payload["scope"] = "service"
    return jwt.encode(payload, secret, algorithm="HS256")


def expires_at(token: str) -> float | None:
    """Epoch seconds; None: it does not say, or is not a JWT."""
    expiry = _claims(token).get("exp")
    return float(expiry) if isinstance(expiry, int | float) and math.isfinite(expiry) else None


def subject(token: str) -> object:
    """Whose it is; None: it does not say, or is not a JWT."""
    return _claims(token).get("sub")


def _claims(token: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False, "verify_sub": False})
    except jwt.PyJWTError:
        return {}
    return claims


def wall_clock() -> float:
    """Epoch seconds."""
    return time.time()


def steady_clock() -> float:
    """Seconds that only go forward: the clock on the wall may be set right while we run."""
    return time.monotonic()
