"""What is there to say about an issuer's public keys without having one?

Names, limits and errors, for those who verify tokens whether or not keys are used. The keys themselves (`jwks`, `keyring`,
`key_sources`) bring cryptography and an HTTP client with them, and are imported by a node that has an issuer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from herenow.errors import HerenowError, ProtocolError

if TYPE_CHECKING:
    from herenow.transport.auth.jwks import PublicKey

ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""One per type of key: RSA, P-256, Ed25519."""

MAX_KID = 256


class BadKeys(HerenowError):  # noqa: N818 - reads as what it is
    """No key can be had: a sentence says why."""


class KeysPending(ProtocolError):  # noqa: N818 - reads as what it is
    """Whether the token is good depends on a document that is being read: wait for `Keyring.looked`, ask again."""

    def __init__(self) -> None:
        super().__init__("keys_unavailable", "The keys that tokens are verified with are being read; try again.")


class PublicKeys(Protocol):
    """Keys of issuers; `keyring` has them."""

    def find(self, algorithm: str, kid: str | None) -> Sequence[PublicKey]:
        """At least one, or an error."""

    def doubt(self) -> None:
        """None of them fits a token that names no key; may raise."""
