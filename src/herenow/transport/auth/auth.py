"""Authentication: finds the token of a request and returns its verified claims. REST and WebSocket use the same code.

`tokens` and `keyring` verify; this module adds a cache and the check for revocation. Callers decide what a claim permits.
Verifying a signature takes 50 to 250 µs, and a client sends the same token with every request. So verified tokens are cached
by digest, until they expire or the keys change.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl

from herenow.errors import ProtocolError
from herenow.kit.clock import Clock
from herenow.kit.lru import Lru
from herenow.transport.auth.public_keys import KeysPending
from herenow.transport.auth.tokens import ANY, MAX_BYTES, Claims, Expected, verify

if TYPE_CHECKING:
    from herenow.transport.auth.key_sources import Source
    from herenow.transport.auth.keyring import Keyring

SUBPROTOCOL = "herenow.v1"
_TOKEN_SUBPROTOCOL = "herenow.token."  # noqa: S105 - a prefix, not a secret

REMEMBERED = 20_000  # verified tokens in the LRU cache: about 10 MB


class RevokedTokens(Protocol):
    """The check for revoked tokens; implemented by a node's `Revocations`."""

    def is_void(self, user: str, issued_at: int | None) -> bool:
        """Return True if a token of this user, issued at `issued_at` (epoch ms; None: unknown), is revoked."""


class Auth:
    def __init__(
        self,
        secrets: tuple[str, ...],
        clock: Clock,
        max_ttl: float,
        *,
        revocations: RevokedTokens | None = None,
        source: Source | None = None,
        expected: Expected = ANY,
    ) -> None:
        """Verify tokens by the secrets (none: HS256 tokens are refused) and by the public keys of `source`; with a
        source, call `start` before the first check. `max_ttl`: seconds for which a token may be valid at most."""
        self._secrets = secrets
        self._clock = clock
        self._max_ttl = max_ttl
        self._revocations = revocations
        self._expected = expected
        self._keys = None if source is None else self._keyring(source)
        self._verified: Lru[bytes, Claims] = Lru(REMEMBERED)

    def _keyring(self, source: Source) -> Keyring:
        from herenow.transport.auth.keyring import Keyring  # loads cryptography: only if public keys are used

        return Keyring(source, self._clock, self._forget)

    def use_secrets(self, secrets: tuple[str, ...]) -> None:
        """Verify tokens by these secrets from now on. Open connections stay, with the tokens that they have shown."""
        self._secrets = secrets
        self._forget()

    async def start(self) -> None:
        """Read the public keys for the first time. Raises `ConfigurationError` if a key file cannot be used."""
        if self._keys is not None:
            await self._keys.start()

    async def stop(self) -> None:
        if self._keys is not None:
            await self._keys.stop()

    @property
    def trouble(self) -> str | None:
        """A sentence for the operator if the public keys cannot be read; None if there is no problem."""
        return None if self._keys is None else self._keys.trouble

    def check(self, token: str | None, *, once: bool = False) -> Claims:
        """Verify a token and return its claims. `once`: do not cache it, because it opens a connection and is not sent
        again.

        Raises `ProtocolError` (`token_*`, `keys_unavailable`), or its subclass `KeysPending` if public keys are being
        read, where `checked` would wait."""
        if not token:
            raise ProtocolError("token_missing", "A token is needed: Authorization: Bearer <token>.")
        claims = self._claims(token, once=once)
        if self.is_void(claims.user, claims.issued_at_ms):
            raise ProtocolError("token_revoked", "The token was issued before the user's tokens were revoked.")
        return claims

    async def checked(self, token: str | None, *, once: bool = False) -> Claims:
        """Verify a token like `check`, but wait if public keys are being read. Raises `ProtocolError`."""
        try:
            return self.check(token, once=once)
        except KeysPending:
            assert self._keys is not None
            await self._keys.wait_read()
            return self.check(token, once=once)

    def is_void(self, user: str, issued_at: int | None) -> bool:
        return self._revocations is not None and self._revocations.is_void(user, issued_at)

    def _claims(self, token: str, *, once: bool) -> Claims:
        now = self._clock.now()
        digest = sha256(token[: MAX_BYTES + 1].encode("utf-8", "surrogatepass")).digest()
        known = self._verified.use(digest)
        if known is not None and now < known.expires_at_ms:
            return known
        claims = verify(
            token, self._secrets, now=now / 1000, max_ttl=self._max_ttl, keys=self._keys, expected=self._expected
        )
        if once:
            return claims
        self._verified.put(digest, claims)
        return claims

    def _forget(self) -> None:
        self._verified.clear()


def find_token(authorization: str | None, query: str, subprotocols: Iterable[str] = ()) -> str | None:
    """Return the token of a request from its header, a subprotocol or `?token=`, in this order; None if there is none.

    An Authorization header with another scheme than Bearer gives None. The query is for clients that can set neither of
    the others."""
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None
    for subprotocol in subprotocols:
        if subprotocol.startswith(_TOKEN_SUBPROTOCOL):
            return subprotocol.removeprefix(_TOKEN_SUBPROTOCOL)
    return next((value for name, value in parse_qsl(query) if name == "token"), None)
