"""Which public keys may have signed a token, as of now?

Keys are fetched in the background, at start and before they grow old, never while somebody waits for an answer that does
not depend on it. A key that is not known makes us look again, at most every so often and once for all who ask: an issuer
may have begun to use a new one. What was good stays in use while its source is down, slow, or talks nonsense; who reads
`trouble` hears of it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

import structlog

from herenow.errors import ConfigurationError, ProtocolError
from herenow.kit.clock import Clock
from herenow.kit.lru import ExpiringLru
from herenow.kit.retry import Backoff
from herenow.kit.tasks import Tasks
from herenow.transport.auth.jwks import Document, PublicKey, parse_jwks
from herenow.transport.auth.key_sources import FileSource, Source
from herenow.transport.auth.public_keys import ALGORITHMS, BadKeys, KeysPending

TRIED = 8
"""Keys that one token may be tried with: verifying is work, and whoever sends a token causes it."""

ABSENT = 1_000
"""Names of keys remembered that are not there."""

EARLY = 0.8
"""The part of its time after which a document is read again."""

log = structlog.get_logger(__name__)


class Keyring:
    def __init__(self, source: Source, clock: Clock, on_change: Callable[[], None]) -> None:
        """`on_change`: other keys than before; what was verified with those says nothing."""
        self._source = source
        self._clock = clock
        self._tasks = Tasks()
        self._on_change = on_change
        self._raw: bytes | None = None
        self._by_algorithm: dict[str, list[PublicKey]] = {}
        self._named: dict[tuple[str, str], list[PublicKey]] = {}
        self._kids: frozenset[str] = frozenset()
        self._looking: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        """When we last looked because of a key that was not known."""
        self._again_in = 0.0
        self._failures = 0
        self._why = ""
        self._asked: dict[str | None, None] = {}
        """Keys that somebody asked for and that we look for now."""
        self._absent: ExpiringLru[str | None, bool] = ExpiringLru(ABSENT)
        """Keys that were not there when we looked for them a short while ago."""
        self.trouble: str | None = None
        """What is wrong with the source, in a sentence; None: nothing."""

    async def start(self) -> None:
        """A file must be good at start (`ConfigurationError`): nobody but the operator can mend it. An address may be
        down for a while."""
        await self._look()
        if self.trouble is not None and isinstance(self._source, FileSource):
            raise ConfigurationError(f"jwks_file = {self._source.where!r} cannot be used: {self._why}.")
        self._tasks.spawn(self._keep(), "jwks")

    async def stop(self) -> None:
        await self._tasks.end()

    # Asking

    def find(self, algorithm: str, kid: str | None) -> Sequence[PublicKey]:
        """The few keys that may have signed it. Raises `KeysPending`, or a `ProtocolError` that says why there is none."""
        found = self._by_algorithm.get(algorithm) if kid is None else self._named.get((algorithm, kid))
        if found:
            return found[:TRIED]
        if kid is not None and kid in self._kids:
            raise ProtocolError("token_algorithm", f"The token's key is not for {algorithm}.")
        raise self._missing(kid)

    def doubt(self) -> None:
        """A token that names no key fits none we know: look once, for an issuer that names none may have a new one."""
        if self._may_look(None):
            raise KeysPending

    async def looked(self) -> None:
        """Wait for the look that is under way, if there is one."""
        if self._looking is not None:
            await asyncio.shield(self._looking)

    # How

    def _missing(self, kid: str | None) -> ProtocolError:
        if self._may_look(kid):
            return KeysPending()
        if self._raw is not None and self._was_absent(kid):
            return ProtocolError("token_unknown_key", "The token is signed with a key that is not published.")
        return ProtocolError(
            "keys_unavailable", "The key that this token needs cannot be had at the moment; try again."
        )

    def _was_absent(self, kid: str | None) -> bool:
        return self._absent.get(kid, self._clock.monotonic()) is not None

    def _may_look(self, kid: str | None) -> bool:
        """Somebody looks now, or has just begun to, because of this."""
        if self._looking is None:
            now = self._clock.monotonic()
            if now - self._asked_at < self._source.patience:
                return False
            self._asked_at = now
        if len(self._asked) < ABSENT:
            self._asked[kid] = None
        self._begin()
        return True

    def _begin(self) -> asyncio.Task[None]:
        if self._looking is None:
            self._looking = self._tasks.spawn(self._look(), "jwks-look")
            self._looking.add_done_callback(self._ended)
        return self._looking

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._looking = None

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._again_in)
            await asyncio.shield(self._begin())

    async def _look(self) -> None:
        asked, self._asked = self._asked, {}
        try:
            read = await self._source.read()
            if read is not None:
                self._take(read.raw, parse_jwks(read.raw))
                self._again_in = read.fresh_for * EARLY
                self.trouble = None
                self._failures = 0
        except BadKeys as error:
            self._failed(error)
        if self.trouble is None:
            self._note_absent([*asked, *self._asked])

    def _take(self, raw: bytes, document: Document) -> None:
        if raw == self._raw:
            return
        by_algorithm: defaultdict[str, list[PublicKey]] = defaultdict(list)
        named: defaultdict[tuple[str, str], list[PublicKey]] = defaultdict(list)
        for key in document.keys:
            by_algorithm[key.algorithm].append(key)
            if key.kid is not None:
                named[key.algorithm, key.kid].append(key)
        self._raw, self._by_algorithm, self._named = raw, dict(by_algorithm), dict(named)
        self._kids = frozenset(kid for _, kid in named)
        self._absent.clear()
        for why in document.left_out:
            log.warning("jwks.left_out", source=self._source.where, why=why)
        log.info("jwks.taken", source=self._source.where, keys=len(document.keys))
        self._on_change()

    def _note_absent(self, asked: Sequence[str | None]) -> None:
        until = self._clock.monotonic() + self._source.patience
        for kid in asked:
            if kid is None or kid not in self._kids:
                self._absent.put(kid, value=True, until=until)

    def _failed(self, error: BadKeys) -> None:
        self._failures += 1
        longest = self._source.patience
        self._again_in = longest if self._raw is not None else Backoff(1.0, longest).pause(self._failures)
        self._why = str(error)
        kept = (
            "the keys it last gave stay in use" if self._raw is not None else "no token can be verified with its keys"
        )
        sentence = f"{self._source.where} cannot be used: {error}; {kept}."
        if sentence != self.trouble:
            log.warning("jwks.trouble", source=self._source.where, why=str(error))
        self.trouble = sentence


def what_keys(document: Document) -> str:
    """For people: how many keys, for what."""
    counts = {a: sum(key.algorithm == a for key in document.keys) for a in ALGORITHMS}
    return ", ".join(f"{count} for {algorithm}" for algorithm, count in counts.items() if count)
