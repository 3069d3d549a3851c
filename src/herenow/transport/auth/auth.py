"""Who is asking? From the three places a token may stand in to the claims it proves.

Answers for REST and WebSocket alike, so that they cannot differ. Does not know what a claim allows, only how keys verify it
(`tokens`, `keyring`) and whether it was revoked since. Changes when there is another way to bring a token or another kind
of key.

Verifying a signature takes 50 to 250 µs; the same token comes with every request of its client. So tokens that were
verified are remembered, by digest and not past their end, until the keys change.
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

REMEMBERED = 20_000
"""Verified tokens of those who show one with every request, the least recently used go first: about 10 MB."""


class RevokedTokens(Protocol):
    """Which tokens were revoked; a node's `Revocations` is one."""

    def is_void(self, user: str, issued_at: int | None) -> bool:
        """True if the user's tokens of that time (ms) were revoked since."""


class Auth:
    def __init__(
        self,
        secret: str | None,
        clock: Clock,
        max_ttl: float,
        *,
        revocations: RevokedTokens | None = None,
        source: Source | None = None,
        expected: Expected = ANY,
    ) -> None:
        """`secret` None: no token is signed with one. `source`: where public keys come from; call `start` then."""
        self._secret = secret
        self._clock = clock
        self._max_ttl = max_ttl
        self._revocations = revocations
        self._expected = expected
        self._keys = None if source is None else self._keyring(source)
        self._verified: Lru[bytes, Claims] = Lru(REMEMBERED)

    def _keyring(self, source: Source) -> Keyring:
        from herenow.transport.auth.keyring import Keyring  # with all of cryptography: not for those who have a secret

        return Keyring(source, self._clock, self._forget)

    async def start(self) -> None:
        """Raises `ConfigurationError`."""
        if self._keys is not None:
            await self._keys.start()

    async def stop(self) -> None:
        if self._keys is not None:
            await self._keys.stop()

    @property
    def trouble(self) -> str | None:
        """What is wrong with the keys, in a sentence."""
        return None if self._keys is None else self._keys.trouble

    def check(self, token: str | None, *, once: bool = False) -> Claims:
        """`once`: it opens a connection, and is not shown again for as long as that lives: it need not be remembered.

        Raises `ProtocolError` with one of the `token_*` codes or `keys_unavailable`; as `KeysPending` where `checked`
        would wait."""
        if not token:
            raise ProtocolError("token_missing", "A token is needed: Authorization: Bearer <token>.")
        claims = self._claims(token, once=once)
        if self.is_void(claims.user, claims.issued_at_ms):
            raise ProtocolError("token_revoked", "The token was issued before the user's tokens were revoked.")
        return claims

    async def checked(self, token: str | None, *, once: bool = False) -> Claims:
        """As `check`, but waits where the answer depends on keys that are being read. Raises `ProtocolError`."""
        try:
            return self.check(token, once=once)
        except KeysPending:
            assert self._keys is not None
            await self._keys.looked()
            return self.check(token, once=once)

    def is_void(self, user: str, issued_at: int | None) -> bool:
        """A token was good, but may have been revoked since."""
        return self._revocations is not None and self._revocations.is_void(user, issued_at)

    def _claims(self, token: str, *, once: bool) -> Claims:
        now = self._clock.now()
        digest = sha256(token[: MAX_BYTES + 1].encode("utf-8", "surrogatepass")).digest()
        known = self._verified.use(digest)
        if known is not None and now < known.expires_at_ms:
            return known
        claims = verify(
            token, self._secret, now=now / 1000, max_ttl=self._max_ttl, keys=self._keys, expected=self._expected
        )
        if once:
            return claims
        self._verified.put(digest, claims)
        return claims

    def _forget(self) -> None:
        self._verified.clear()


def find_token(authorization: str | None, query: str, subprotocols: Iterable[str] = ()) -> str | None:
    """By header, by subprotocol, or by `?token=`, in this order; the query is for clients that can do nothing else."""
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else None
    for subprotocol in subprotocols:
        if subprotocol.startswith(_TOKEN_SUBPROTOCOL):
            return subprotocol.removeprefix(_TOKEN_SUBPROTOCOL)
    return next((value for name, value in parse_qsl(query) if name == "token"), None)
