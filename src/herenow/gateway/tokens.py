"""Who does this token speak for? Minting and verifying HS256 tokens.

The signature is PyJWT's work; what the claims must look like is ours, because PyJWT lets pass what a presence
server should not: no `exp`, an `exp` in text, one in the year 3000, a claim said twice. Verification never
tells more than a code and a sentence, and neither ever contains the token.

Time is an argument. Revocation ("tokens issued before T are void") is a fact of the ledger and not known here;
`issued_at_ms` is what it needs. A new algorithm or claim is a reason to change this module.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import jwt

from herenow.errors import ProtocolError
from herenow.wire.ids import parse_id

ALGORITHM = "HS256"
MAX_BYTES = 8192  # a token travels in a header or a URL; common servers stop there too
LEEWAY = 5.0  # seconds that the issuer's clock may run ahead of ours
SERVICE = "service"

_signatures = jwt.PyJWS(algorithms=[ALGORITHM])


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says."""

    user: str
    scope: str | None
    expires_at_ms: int
    issued_at_ms: int | None

    @property
    def is_service(self) -> bool:
        return self.scope is not None and SERVICE in self.scope.split()


def mint(secret: str, user: str, *, scope: str | None, ttl: float, now: float) -> str:
    """A token for `user`, valid for `ttl` seconds from `now` (epoch seconds)."""
    # Milliseconds, not whole seconds: a token minted right after a revocation must count as issued after it.
    payload: dict[str, object] = {"sub": parse_id(user), "iat": round(now, 3), "exp": round(now + ttl, 3)}
    if scope:
        payload["scope"] = scope
    return jwt.encode(payload, secret, algorithm=ALGORITHM)


def verify(token: str | None, secret: str, *, now: float, max_ttl: float) -> Claims:
    """What the token says, if it is ours and valid at `now` (epoch seconds).

    Raises `ProtocolError` with one of the codes `token_missing`, `token_malformed`, `token_algorithm`,
    `token_bad_signature`, `token_claims`, `token_expired`.
    """
    if not token:
        raise ProtocolError("token_missing", "A token is required.")
    if len(token) > MAX_BYTES:
        raise ProtocolError("token_malformed", f"The token is longer than {MAX_BYTES} bytes.")
    _check_header(token)
    return _claims(_json_object(_signed_payload(token, secret)), now, max_ttl)


def _check_header(token: str) -> None:
    head, *rest = token.split(".")
    if len(rest) != 2:
        raise _malformed()
    header = _json_object(_decoded(head))
    if header.get("alg") != ALGORITHM:
        raise ProtocolError("token_algorithm", f"The token must be signed with {ALGORITHM}.")
    if "crit" in header or "b64" in header:
        raise ProtocolError("token_malformed", "The token's header demands an extension.")


def _signed_payload(token: str, secret: str) -> bytes:
    try:
        payload = _signatures.decode(token, secret, algorithms=[ALGORITHM])
    except jwt.InvalidSignatureError:
        raise ProtocolError("token_bad_signature", "The token's signature does not fit.") from None
    except jwt.PyJWTError:
        raise _malformed() from None
    assert isinstance(payload, bytes)
    return payload


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _malformed() from None


def _json_object(raw: bytes) -> dict[str, object]:
    try:
        value = json.loads(raw, object_pairs_hook=_without_repetition, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # bad JSON, bad UTF-8, a number of thousands of digits, a deep nest
        raise _malformed() from None
    if not isinstance(value, dict):
        raise _malformed()
    return value


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # Two readers of {"sub":"ana","sub":"bob"} may see two people.
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ProtocolError("token_claims", "The token says a claim twice.")
    return value


def _no_constant(_name: str) -> object:
    raise _malformed()


def _claims(payload: Mapping[str, object], now: float, max_ttl: float) -> Claims:
    issued_at = _time(payload, "iat")
    not_before = _time(payload, "nbf")
    if max(issued_at or 0.0, not_before or 0.0) > now + LEEWAY:
        raise ProtocolError("token_claims", "The token is not valid yet (claim iat or nbf).")
    return Claims(
        user=_subject(payload),
        scope=_scope(payload),
        expires_at_ms=int(_expiry(payload, now, max_ttl) * 1000),
        issued_at_ms=None if issued_at is None else int(issued_at * 1000),
    )


def _expiry(payload: Mapping[str, object], now: float, max_ttl: float) -> float:
    expires_at = _time(payload, "exp")
    if expires_at is None:
        raise ProtocolError("token_claims", "The token has no expiry (claim exp).")
    if expires_at <= now:
        raise ProtocolError("token_expired", "The token has expired.")
    if expires_at > now + max_ttl + LEEWAY:
        raise ProtocolError("token_claims", f"The token may expire at most {max_ttl:g} s ahead (claim exp).")
    return expires_at


def _time(payload: Mapping[str, object], name: str) -> float | None:
    """Epoch seconds; None if the claim is absent."""
    if name not in payload:
        return None
    value = payload[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError("token_claims", f"The claim {name} is a number of seconds.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ProtocolError("token_claims", f"The claim {name} is not a possible time.")
    return number


def _subject(payload: Mapping[str, object]) -> str:
    if "sub" not in payload:
        raise ProtocolError("token_claims", "The token names no user (claim sub).")
    try:
        return parse_id(payload["sub"])
    except ProtocolError as error:
        raise ProtocolError("token_claims", f"The claim sub is not a user id. {error.message}") from None


def _scope(payload: Mapping[str, object]) -> str | None:
    if "scope" not in payload:
        return None
    scope = payload["scope"]
    if not isinstance(scope, str):
        raise ProtocolError("token_claims", "The claim scope is a string of words.")
    return scope


def _malformed() -> ProtocolError:
    return ProtocolError("token_malformed", "The token is not a JSON Web Token.")
