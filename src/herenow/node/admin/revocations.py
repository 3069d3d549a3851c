"""Which tokens are void, and who was deleted: a copy of the ledger's table, kept whole on every node.

A token is checked where nobody can wait for a database (a handshake, a frame), so the answer must be here. Revocations are
rare and their rows go once every token that could be meant has expired, so the whole table is small: about 200 bytes per
user whose tokens were revoked within the last day.

It is read at start, and kept in step by two ways that do not depend on each other: the ledger's change table (polled
every second), and a message of the node that wrote it. A node that cannot read the ledger goes on with what it knows, for
as long as that takes: see docs/decisions. When it can again, it reads the whole table anew.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from herenow.errors import Unavailable
from herenow.kit.deadline import read_within, write_within
from herenow.kit.retry import Backoff, retry
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.ports import LedgerChange, Void
from herenow.settings import milliseconds

PAGE = 5_000
AGAIN = Backoff(1.0)
"""Seconds after which a row that could not be read is asked for again."""

FORGET_EVERY = 600.0
"""Seconds between two looks for rows whose time has passed."""

SLACK = 60_000
"""Milliseconds that a row is kept longer than it must be: clocks of issuers and nodes differ a little."""

log = structlog.get_logger(__name__)


class Revocations:
    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._tasks = context.tasks
        self._ledger = context.ledger
        self._lifetime = milliseconds(context.settings.token_max_ttl) + SLACK
        self._voids: dict[str, Void] = {}
        self._listeners: list[Callable[[Void], None]] = []
        self._whole = True

    def subscribe(self, listener: Callable[[Void], None]) -> None:
        """To be called with every row that says something new."""
        self._listeners.append(listener)

    @property
    def whole(self) -> bool:
        """False: the ledger was away, and we have not read the whole table since."""
        return self._whole

    async def start(self) -> None:
        await self._read_all()

    # Asking

    def is_void(self, user: str, issued_at: int | None) -> bool:
        """A token that does not say when it was issued counts as issued at 0."""
        void = self._voids.get(user)
        return void is not None and (issued_at or 0) < void.before

    def of(self, user: str) -> Void | None:
        return self._voids.get(user)

    def made(self, user: str, before: int, *, erased: int | None = None) -> Void:
        """A row that is kept for as long as it can matter: a token that is accepted now may live that long, and so may
        one that was issued at `before`."""
        return Void(user, before, max(before, self._clock.now()) + self._lifetime, erased)

    # Hearing

    def learn(self, void: Void) -> None:
        known = self._voids.get(void.user)
        if known is not None:
            erased = max(known.erased or 0, void.erased or 0) or None
            void = Void(void.user, max(known.before, void.before), max(known.until, void.until), erased)
            if (void.before, void.erased) == (known.before, known.erased):
                return
        self._voids[void.user] = void
        for listener in self._listeners:
            listener(void)

    def on_ledger_change(self, change: LedgerChange) -> None:
        if change.kind == "void":
            self._tasks.spawn(self._read(change.a), "void")

    def on_trust_change(self, *, trusted: bool) -> None:
        """The change table could not be read for long: rows may have been added and removed meanwhile."""
        self._whole = False
        if trusted:
            self._tasks.spawn(self._until_read(), "voids")

    async def write(self, void: Void) -> None:
        """Raises `Unavailable` or `UnknownOutcome`: a revocation that is not durable is none."""
        await write_within(self._ledger.void(void), LEDGER_DEADLINE)
        self.learn(void)

    async def forget_old(self) -> None:
        now = self._clock.now()
        await write_within(self._ledger.forget_voids(now), LEDGER_DEADLINE)
        self._voids = {user: void for user, void in self._voids.items() if void.until > now}

    # How

    async def _read(self, user: str) -> None:
        void = await retry(
            lambda: read_within(self._ledger.void_of(user), LEDGER_DEADLINE),
            AGAIN,
            errors=(Unavailable,),
            on_error=self._count,
        )
        if void is not None:
            self.learn(void)

    async def _until_read(self) -> None:
        if not self._whole:
            await retry(self._read_all, AGAIN, errors=(Unavailable,), on_error=self._count_and_log)

    def _count(self, _error: Exception) -> None:
        self._metrics.ledger_errors += 1

    def _count_and_log(self, error: Exception) -> None:
        self._count(error)
        log.warning("voids.unread", error=str(error))

    async def _read_all(self) -> None:
        after = ""
        while page := await read_within(self._ledger.voids(after, PAGE), LEDGER_DEADLINE):
            for void in page:
                self.learn(void)
            after = page[-1].user
        self._whole = True
