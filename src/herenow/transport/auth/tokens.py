"""Mints HS256 tokens, and verifies tokens that are signed with the secret (HS256) or with an issuer's key.

PyJWT checks signatures of public keys (`jwks`). The claims are checked here, because PyJWT accepts some that a presence
server must not: no `exp`, an `exp` as text or in the year 3000, a repeated claim. Errors never contain the token.

The token's algorithm selects the keys: only the secrets for HS256, only public keys of exactly that algorithm for others.
So a public key is never used as a secret, and `none` has no key. `auth` checks revocation, by `issued_at_ms`.
"""

import base64
import binascii
import hmac
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from herenow.errors import ProtocolError
from herenow.settings import fingerprint
from herenow.transport.auth.public_keys import ALGORITHMS, MAX_KID, PublicKeys
from herenow.wire.ids import parse_id
from herenow.wire.inputs import Scope, granted_scopes
from herenow.wire.json_text.nesting import is_too_deep

ALGORITHM = "HS256"
MAX_BYTES = 8192  # common servers limit headers and URLs to this size, too
LEEWAY = 5.0  # seconds that the issuer's clock may run ahead of ours


@dataclass(frozen=True, slots=True)
class Claims:
    user: str
    scope: str | None
    expires_at_ms: int
    issued_at_ms: int | None
    by_issuer: bool = False
    """The token was signed by an issuer's key, not by our secret."""

    @property
    def scopes(self) -> frozenset[Scope]:
        return granted_scopes(self.scope, by_issuer=self.by_issuer)

    @property
    def is_service(self) -> bool:
        """True for a service token: it grants at least one scope."""
        return bool(self.scopes)


@dataclass(frozen=True, slots=True)
class Expected:
    """Required claims `iss` and `aud`; without an issuer `iss` is not checked."""

    issuer: str | None = None
    audience: tuple[str, ...] = ()  # names of this server; `aud` must contain one of them


ANY = Expected()


def mint(secret: str, user: str, *, scope: str | None, ttl: float, now: float, expected: Expected = ANY) -> str:
    """Return a token for `user`, signed with the secret and valid for `ttl` seconds from `now` (epoch seconds). It
    names the issuer and the audience that are `expected`."""
    # Milliseconds, not whole seconds: a token minted right after a revocation must count as issued after it.
    payload: dict[str, object] = {"sub": parse_id(user), "iat": round(now, 3), "exp": round(now + ttl, 3)}
    if scope:
        payload["scope"] = scope
    if expected.issuer is not None:
        payload["iss"] = expected.issuer
    if expected.audience:
        payload["aud"] = expected.audience[0]
    return _signed(payload, secret)


def verify(
    token: str | None,
    secrets: tuple[str, ...],
    *,
    now: float,
    max_ttl: float,
    keys: PublicKeys | None = None,
    expected: Expected = ANY,
) -> Claims:
    """Verify a token at the time `now` (epoch seconds) and return its claims. Without `secrets`, HS256 tokens are refused.
    `max_ttl`: seconds for which a token may still be valid at most.

    Raises `ProtocolError`: `token_missing`, `token_malformed`, `token_algorithm`, `token_bad_signature`,
    `token_claims`, `token_expired`, and the errors of `keys`."""
    if not token:
        raise ProtocolError("token_missing", "A token is required.")
    if len(token) > MAX_BYTES:
        raise ProtocolError("token_malformed", f"The token is longer than {MAX_BYTES} bytes.")
    head, *others = token.split(".")
    if len(others) != 2:
        raise _malformed()
    algorithm, kid = _header(head, _accepted(secret=bool(secrets), keys=keys is not None))
    if algorithm == ALGORITHM:
        payload = _payload_by_secrets(token, secrets, kid)
    else:
        assert keys is not None
        for part in others:
            _decoded(part)  # PyJWT accepts more than one spelling
        signed = (key.payload_of(token) for key in keys.find(algorithm, kid))
        payload = next((each for each in signed if each is not None), None)
        if payload is None and kid is None:
            keys.recheck()
    if payload is None:
        raise ProtocolError("token_bad_signature", "The token's signature is not valid.")
    return _claims(_json_object(payload), now, max_ttl, expected, by_issuer=algorithm != ALGORITHM)


@cache
def _accepted(*, secret: bool, keys: bool) -> tuple[str, ...]:
    return ((ALGORITHM,) if secret else ()) + (tuple(ALGORITHMS) if keys else ())


@lru_cache(maxsize=64)  # the tokens of one issuer have the same header
def _header(head: str, accepted: tuple[str, ...]) -> tuple[str, str | None]:
    """Decode the header of a token and return its algorithm, one of `accepted`, and its key id (None: none). Other
    members about keys (jku, jwk, x5u, …) are ignored: any sender could set them."""
    header = _json_object(_decoded(head))
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in accepted:
        raise ProtocolError("token_algorithm", f"The token must be signed with {' or '.join(accepted)}.")
    if "crit" in header or "b64" in header:
        raise ProtocolError("token_malformed", "The token's header requires an extension (crit).")
    if kid is not None and (not isinstance(kid, str) or not 1 <= len(kid) <= MAX_KID):
        raise ProtocolError("token_malformed", "The token's kid is not a string, or is too long.")
    return algorithm, kid


def _signed(payload: Mapping[str, object], secret: str) -> str:
    """Return a token with this payload, signed with HS256 (RFC 7515). PyJWT is not used, because it would load
    cryptography, which commands and nodes with a secret do not need."""
    parts = ({"alg": ALGORITHM, "typ": "JWT"}, payload)
    signed = ".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
    return f"{signed}.{_encoded(hmac.digest(secret.encode(), signed.encode(), 'sha256'))}"


def _payload_by_secrets(token: str, secrets: tuple[str, ...], kid: str | None) -> bytes | None:
    """Return the payload of an HS256 token that one of the secrets signed, or None. A `kid` that is the fingerprint of one
    of them selects it; any other is ignored.

    This code takes 9 µs and PyJWT 80 µs, because it also tests whether the secret is JSON; each new connection has a
    token to verify."""
    signed, _, signature = token.rpartition(".")
    given = _decoded(signature)
    named = [] if kid is None else [secret for secret in secrets if fingerprint(secret) == kid]
    for secret in named or secrets:
        if hmac.compare_digest(hmac.digest(secret.encode(), signed.encode(), "sha256"), given):
            return _decoded(signed.partition(".")[2])
    return None


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def _decoded(part: str) -> bytes:
    try:
        standard = part.replace("-", "+").replace("_", "/") + "=" * (-len(part) % 4)
        decoded = binascii.a2b_base64(standard, strict_mode=True)
    except ValueError:  # includes binascii.Error; also raised for text that is not ASCII
        raise _malformed() from None
    if _encoded(decoded) != part:  # unused bits of the last character are set: another text with the same bytes
        raise _malformed()
    return decoded


def _json_object(raw: bytes) -> dict[str, object]:
    if is_too_deep(raw):
        raise _malformed()
    try:
        value = _json.decode(raw.decode())
    except (ValueError, RecursionError):  # bad JSON, bad UTF-8, or a number with thousands of digits
        raise _malformed() from None
    if not isinstance(value, dict):
        raise _malformed()
    return value


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # Two parsers of {"sub":"ana","sub":"bob"} may read different users.
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ProtocolError("token_claims", "A claim of the token is repeated.")
    return value


def _no_constant(_name: str) -> object:
    raise _malformed()


_json = json.JSONDecoder(object_pairs_hook=_without_repetition, parse_constant=_no_constant)


def _claims(
    payload: Mapping[str, object], now: float, max_ttl: float, expected: Expected, *, by_issuer: bool
) -> Claims:
    _check_parties(payload, expected)
    issued_at = _time(payload, "iat")
    not_before = _time(payload, "nbf")
    if max(issued_at or 0.0, not_before or 0.0) > now + LEEWAY:
        raise ProtocolError("token_claims", "The token is not valid yet (claim iat or nbf).")
    return Claims(
        user=_subject(payload),
        scope=_scope(payload),
        expires_at_ms=int(_expiry(payload, now, max_ttl) * 1000),
        issued_at_ms=None if issued_at is None else round(issued_at * 1000),
        by_issuer=by_issuer,
    )


def _check_parties(payload: Mapping[str, object], expected: Expected) -> None:
    issuer, audience = payload.get("iss"), payload.get("aud", [])
    if expected.issuer is not None and issuer != expected.issuer:
        raise ProtocolError("token_claims", "The token is from another issuer (claim iss).")
    named = [audience] if isinstance(audience, str) else audience
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise ProtocolError("token_claims", "The claim aud is a string or a list of strings.")
    # RFC 7519, section 4.1.3: a server that `aud` does not name must refuse, also if it has no configured name.
    if (named or expected.audience) and not set(named).intersection(expected.audience):
        raise ProtocolError("token_claims", "The token is for another audience (claim aud, setting jwt_audience).")


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
    """Return the claim `name` as epoch seconds; None if it is absent. Raises `ProtocolError` if it is no valid time."""
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
