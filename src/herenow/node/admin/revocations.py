"""Revoked tokens and deleted users: a complete copy of the ledger's table.

Tokens are checked where a query of the database would take too long (a handshake, a frame). Revocations are rare, and rows
are deleted when all tokens they concern have expired, so the copy is small: about 200 bytes per user with revoked tokens.

It is read at start and updated in two independent ways: by the ledger's change table (polled every second), and by a message
of the node that wrote a row. A node that cannot read the ledger continues with its copy without a time limit
(docs/decisions), and reads the whole table when it can again.
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
"""Seconds before a failed read is repeated."""

FORGET_EVERY = 600.0
"""Seconds between two deletions of expired rows."""

SLACK = 60_000
"""Milliseconds that a row is kept longer, because clocks of issuers and nodes differ a little."""

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
        """Register a function that is called with each revocation that is new or changed."""
        self._listeners.append(listener)

    @property
    def whole(self) -> bool:
        """True if this copy has all revocations of the ledger. False: the ledger's change table was unreadable for
        long, and the revocations have not all been read again since."""
        return self._whole

    # Read

    def is_void(self, user: str, issued_at: int | None) -> bool:
        """True if a token of this user that was issued at `issued_at` (ms) is revoked. `issued_at` None: a token
        without issue time, which counts as 0."""
        void = self._voids.get(user)
        return void is not None and (issued_at or 0) < void.before

    def of(self, user: str) -> Void | None:
        return self._voids.get(user)

    def make_void(self, user: str, before: int, *, erased: int | None = None) -> Void:
        """Make a revocation of the user's tokens issued before `before` (ms), without saving it. It is kept as long as
        any token it may concern: one that is accepted now, or was issued at `before`. `erased`: when the user was
        deleted (ms); None: not deleted."""
        return Void(user, before, max(before, self._clock.now()) + self._lifetime, erased)

    # Update

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
        """Mark this copy as incomplete, because the ledger's change table was unreadable for long. If it is readable
        again (`trusted`), read all revocations again."""
        self._whole = False
        if trusted:
            self._tasks.spawn(self._read_again(), "voids")

    async def write(self, void: Void) -> None:
        """Save a revocation in the ledger, then apply it on this node. Raises `Unavailable` or `UnknownOutcome`, since
        a revocation must be durable."""
        await write_within(self._ledger.void(void), LEDGER_DEADLINE)
        self.learn(void)

    async def forget_old(self) -> None:
        now = self._clock.now()
        await write_within(self._ledger.forget_voids(now), LEDGER_DEADLINE)
        self._voids = {user: void for user, void in self._voids.items() if void.until > now}

    async def _read(self, user: str) -> None:
        void = await retry(
            lambda: read_within(self._ledger.void_of(user), LEDGER_DEADLINE),
            AGAIN,
            errors=(Unavailable,),
            on_error=self._count,
        )
        if void is not None:
            self.learn(void)

    async def _read_again(self) -> None:
        if not self._whole:
            await retry(self.start, AGAIN, errors=(Unavailable,), on_error=self._count_and_log)

    def _count(self, _error: Exception) -> None:
        self._metrics.ledger_errors += 1

    def _count_and_log(self, error: Exception) -> None:
        self._count(error)
        log.warning("voids.unread", error=str(error))

    async def start(self) -> None:
        after = ""
        while page := await read_within(self._ledger.voids(after, PAGE), LEDGER_DEADLINE):
            for void in page:
                self.learn(void)
            after = page[-1].user
        self._whole = True
