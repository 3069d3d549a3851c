"""Parses a JWKS document into public keys. No I/O.

The type of a key determines its only algorithm: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA. Symmetric keys, keys for
encryption, of other curves or too weak are not used. Private members, which an issuer may publish by mistake, are not read.
A document without any usable key is an error. PyJWT checks the signatures.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey, EllipticCurvePublicNumbers
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from herenow.errors import ProtocolError
from herenow.transport.auth.public_keys import ALGORITHMS, MAX_KID, BadKeys

MAX_BYTES = 262_144  # of a whole document: enough for hundreds of keys, while issuers publish two or three

MAX_KEYS = 100

RSA_BITS = range(2048, 8193)
"""Fewer bits are weak. More cost milliseconds per token, also for tokens of an attacker."""

Key = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

_signatures = jwt.PyJWS(algorithms=[*ALGORITHMS])


@dataclass(frozen=True, slots=True)
class PublicKey:
    algorithm: str
    kid: str | None
    key: Key

    def payload_of(self, token: str) -> bytes | None:
        """Return the payload of a token that this key signed, or None if it did not. Raises `ProtocolError` if the
        token is malformed."""
        try:
            payload = _signatures.decode(token, self.key, algorithms=[self.algorithm])
        except jwt.InvalidSignatureError:
            return None
        except jwt.PyJWTError:
            raise ProtocolError("token_malformed", "The token is not a JSON Web Token.") from None
        assert isinstance(payload, bytes)
        return payload


@dataclass(frozen=True, slots=True)
class Document:
    keys: tuple[PublicKey, ...]
    left_out: tuple[str, ...]  # for each key that is not used: the reason, for the operator


def parse_jwks(raw: bytes) -> Document:
    """Parse a JWKS document; return its usable keys, and the reasons why others are not used. Raises `BadKeys` if no
    key can be used."""
    keys: list[PublicKey] = []
    left_out: list[str] = []
    for number, entry in enumerate(_entries(raw), start=1):
        try:
            keys.append(_public_key(entry))
        except BadKeys as error:
            left_out.append(f"key {number} {error}")
    if not keys:
        raise BadKeys("it has no key that can be used" + (f" ({'; '.join(left_out[:5])})" if left_out else ""))
    return Document(tuple(keys), tuple(left_out))


def _entries(raw: bytes) -> list[object]:
    if len(raw) > MAX_BYTES:
        raise BadKeys(f"it is larger than {MAX_BYTES} bytes")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadKeys("it is not JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise BadKeys('it is not a JWKS: an object with a list "keys"')
    if len(entries) > MAX_KEYS:
        raise BadKeys(f"it has more than {MAX_KEYS} keys")
    return entries


def _public_key(entry: object) -> PublicKey:
    if not isinstance(entry, dict):
        raise BadKeys("is not an object")
    kid = entry.get("kid")
    if kid is not None and (not isinstance(kid, str) or not 1 <= len(kid) <= MAX_KID):
        raise BadKeys("has a kid that is not a string, or is too long")
    kind = entry.get("kty")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise BadKeys(f"is of a type that is not used here (kty {kind!r:.40})")
    algorithm, read = known
    if entry.get("alg", algorithm) != algorithm:
        raise BadKeys(f"is for another algorithm than {algorithm} (alg {entry['alg']!r:.40})")
    if entry.get("use", "sig") != "sig" or not _may_verify(entry.get("key_ops")):
        raise BadKeys("is not for signatures (use or key_ops)")
    try:
        return PublicKey(algorithm, kid, read(entry))
    except (ValueError, UnsupportedAlgorithm):
        raise BadKeys("is damaged") from None


def _may_verify(operations: object) -> bool:
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def _rsa(entry: Mapping[str, object]) -> RSAPublicKey:
    modulus, exponent = _bytes(entry, "n", most=2048), _bytes(entry, "e", most=4)
    n = int.from_bytes(modulus, "big")
    if n.bit_length() not in RSA_BITS:
        raise BadKeys(f"has {n.bit_length()} bits; RSA keys have {RSA_BITS.start} to {RSA_BITS.stop - 1} of them")
    return RSAPublicNumbers(int.from_bytes(exponent, "big"), n).public_key()


def _p256(entry: Mapping[str, object]) -> EllipticCurvePublicKey:
    if entry.get("crv") != "P-256":
        raise BadKeys(f"is on another curve than P-256 (crv {entry.get('crv')!r:.40})")
    x, y = (int.from_bytes(_bytes(entry, name, most=32), "big") for name in ("x", "y"))
    return EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key()  # checks that the point is on the curve


def _ed25519(entry: Mapping[str, object]) -> Ed25519PublicKey:
    if entry.get("crv") != "Ed25519":
        raise BadKeys(f"is on another curve than Ed25519 (crv {entry.get('crv')!r:.40})")
    return Ed25519PublicKey.from_public_bytes(_bytes(entry, "x", most=32))


def _bytes(entry: Mapping[str, object], name: str, *, most: int) -> bytes:
    text = entry.get(name)
    if not isinstance(text, str):
        raise BadKeys(f"lacks {name}")
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadKeys("is damaged") from None
    if not 1 <= len(found) <= most:
        raise BadKeys("is damaged")
    return found


_KINDS: Mapping[str, tuple[str, Callable[[Mapping[str, object]], Key]]] = {
    "RSA": ("RS256", _rsa),
    "EC": ("ES256", _p256),
    "OKP": ("EdDSA", _ed25519),
}
