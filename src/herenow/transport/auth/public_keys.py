"""Names, limits and errors of public keys, for code that runs with or without them.

Importing `jwks`, `keyring` or `key_sources` loads cryptography and an HTTP client; importing this module does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from herenow.errors import HerenowError, ProtocolError

if TYPE_CHECKING:
    from herenow.transport.auth.jwks import PublicKey

ALGORITHMS = ("RS256", "ES256", "EdDSA")  # one per type of key: RSA, P-256, Ed25519

MAX_KID = 256


class BadKeys(HerenowError):  # noqa: N818 - reads as what it is
    """A key or a whole document cannot be used; the message is the reason."""


class KeysPending(ProtocolError):  # noqa: N818 - reads as what it is
    """The token can be checked only after a running read of the keys: wait for `Keyring.wait_read`, then check again."""

    def __init__(self) -> None:
        super().__init__("keys_unavailable", "The keys for verifying tokens are being loaded; try again.")


class PublicKeys(Protocol):
    """The public keys of an issuer; implemented by `keyring.Keyring`."""

    def find(self, algorithm: str, kid: str | None) -> Sequence[PublicKey]:
        """Return at least one key that may have signed a token with this algorithm and key id, or raise
        `ProtocolError`."""

    def recheck(self) -> None:
        """Read the keys again if none of them fits a token without key id. Raises `KeysPending` while they are read."""
