"""The current public keys of an issuer, and when to read them again.

Keys are read at start, and by a background task before the document is stale. A token with an unknown key causes one more
read, shared by all waiting requests and rate-limited (`Source.patience`), because the issuer may have a new key. While the
source fails, the last keys stay in use and `trouble` reports the failure.
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

TRIED = 8  # most keys tried per token: bounds the work that one token can cause

ABSENT = 1_000  # most key ids remembered as missing

EARLY = 0.8  # a document is read again after this fraction of its time

log = structlog.get_logger(__name__)


class Keyring:
    def __init__(self, source: Source, clock: Clock, on_change: Callable[[], None]) -> None:
        """Keep the public keys of `source`. `on_change` is called when they changed: results of earlier verifications
        are then invalid."""
        self._source = source
        self._clock = clock
        self._tasks = Tasks()
        self._on_change = on_change
        self._raw: bytes | None = None
        self._by_algorithm: dict[str, list[PublicKey]] = {}
        self._named: dict[tuple[str, str], list[PublicKey]] = {}
        self._kids: frozenset[str] = frozenset()
        self._reading: asyncio.Task[None] | None = None
        self._unknown_read_at = float("-inf")  # monotonic time of the last read that an unknown key caused
        self._again_in = 0.0
        self._failures = 0
        self._last_error = ""
        self._wanted: dict[str | None, None] = {}
        """Unknown key ids that the next or running read should find; None: a token without a key id."""
        self._absent: ExpiringLru[str | None, bool] = ExpiringLru(ABSENT)
        """Key ids that a recent read did not find."""
        self.trouble: str | None = None  # a sentence about the failing source; None if there is no problem

    async def start(self) -> None:
        """Read the keys once, and start to read them again at intervals. Raises `ConfigurationError` for an unusable
        file; a URL may be unreachable for a while."""
        await self._read_source()
        if self.trouble is not None and isinstance(self._source, FileSource):
            raise ConfigurationError(f"jwks_file = {self._source.where!r} cannot be used: {self._last_error}.")
        self._tasks.spawn(self._refresh_periodically(), "jwks")

    async def stop(self) -> None:
        await self._tasks.end()

    def find(self, algorithm: str, kid: str | None) -> Sequence[PublicKey]:
        """Return the keys that may have signed a token with this algorithm and key id, at most `TRIED`. `kid` None: the
        token has no key id, so any key of the algorithm may have signed it.

        Raises `KeysPending` if a new read of the keys may find one, else a `ProtocolError` with the reason."""
        found = self._by_algorithm.get(algorithm) if kid is None else self._named.get((algorithm, kid))
        if found:
            return found[:TRIED]
        if kid is not None and kid in self._kids:
            raise ProtocolError("token_algorithm", f"The token's key is not for {algorithm}.")
        raise self._missing(kid)

    def recheck(self) -> None:
        """Read the keys again because none of them fits a token without key id: the issuer may have a new key. Raises
        `KeysPending` while they are read; returns if the last such read was too recent."""
        if self._start_or_join_read(None):
            raise KeysPending

    async def wait_read(self) -> None:
        """Wait until the running read of the keys has ended, if there is one."""
        if self._reading is not None:
            await asyncio.shield(self._reading)

    def _missing(self, kid: str | None) -> ProtocolError:
        if self._start_or_join_read(kid):
            return KeysPending()
        if self._raw is not None and self._was_absent(kid):
            return ProtocolError("token_unknown_key", "The token is signed with a key that is not published.")
        return ProtocolError("keys_unavailable", "The key for this token is not available at the moment; try again.")

    def _was_absent(self, kid: str | None) -> bool:
        return self._absent.get(kid, self._clock.monotonic()) is not None

    def _start_or_join_read(self, kid: str | None) -> bool:
        """Read the keys again because of an unknown key id (None: a token without one), or join the running read.
        Returns False if the last such read was too recent."""
        if self._reading is None:
            now = self._clock.monotonic()
            if now - self._unknown_read_at < self._source.patience:
                return False
            self._unknown_read_at = now
        if len(self._wanted) < ABSENT:
            self._wanted[kid] = None
        self._start_read()
        return True

    def _start_read(self) -> asyncio.Task[None]:
        if self._reading is None:
            self._reading = self._tasks.spawn(self._read_source(), "jwks-look")
            self._reading.add_done_callback(self._on_read_ended)
        return self._reading

    def _on_read_ended(self, _task: asyncio.Task[None]) -> None:
        self._reading = None

    async def _refresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._again_in)
            await asyncio.shield(self._start_read())

    async def _read_source(self) -> None:
        wanted, self._wanted = self._wanted, {}
        try:
            read = await self._source.read()
            if read is not None:
                self._adopt(read.raw, parse_jwks(read.raw))
                self._again_in = read.fresh_for * EARLY
                self.trouble = None
                self._failures = 0
        except BadKeys as error:
            self._failed(error)
        if self.trouble is None:
            self._remember_absent([*wanted, *self._wanted])

    def _adopt(self, raw: bytes, document: Document) -> None:
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

    def _remember_absent(self, wanted: Sequence[str | None]) -> None:
        until = self._clock.monotonic() + self._source.patience
        for kid in wanted:
            if kid is None or kid not in self._kids:
                self._absent.put(kid, value=True, until=until)

    def _failed(self, error: BadKeys) -> None:
        self._failures += 1
        longest = self._source.patience
        self._again_in = longest if self._raw is not None else Backoff(1.0, longest).pause(self._failures)
        self._last_error = str(error)
        kept = "the last good keys stay in use" if self._raw is not None else "no token can be verified with its keys"
        sentence = f"{self._source.where} cannot be used: {error}; {kept}."
        if sentence != self.trouble:
            log.warning("jwks.trouble", source=self._source.where, why=str(error))
        self.trouble = sentence


def what_keys(document: Document) -> str:
    """Count the keys of a JWKS document by algorithm, for messages: "2 for RS256, 1 for ES256"."""
    counts = {a: sum(key.algorithm == a for key in document.keys) for a in ALGORITHMS}
    return ", ".join(f"{count} for {algorithm}" for algorithm, count in counts.items() if count)
