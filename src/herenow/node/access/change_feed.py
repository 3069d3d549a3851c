"""Reads the ledger's change table: relations, blocks and preferences that this node or another changed.

The table is polled every second. It is not a history: rows older than any node needs are deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import read_within, write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.ports import LedgerChange

POLL = 1.0
"""Seconds."""

KEEP_CHANGES = 600.0
"""Seconds for which rows of the table are kept: twenty times as long as facts are trusted while it cannot be read."""

CHANGES = 2_000

TRIES = 3
"""Polls in a row after this process was suspended."""

STOOD_STILL = 2 * LEDGER_DEADLINE
"""Seconds. A failed poll that took twice its deadline proves nothing about the ledger: this process was suspended."""

log = structlog.get_logger(__name__)


class ChangeFeed:
    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._metrics = context.metrics
        self._ledger = context.ledger
        self._cursor = 0
        self.read_at = float("-inf")  # monotonic time of the last successful read
        self.trouble: str | None = None
        self._old: tuple[float, int] | None = None
        """(monotonic time, cursor then): `KEEP_CHANGES` seconds later all nodes have read the rows up to it; delete them."""

    async def start(self) -> None:
        self._cursor = await read_within(self._ledger.changes_head(), LEDGER_DEADLINE)
        self.read_at = self._clock.monotonic()

    async def poll(self, apply: Callable[[Sequence[LedgerChange]], Awaitable[None]]) -> None:
        """Read new rows of the ledger's change table and pass them to `apply`. Failures are counted and kept in
        `trouble`, not raised."""
        for _ in range(TRIES):
            asked = self._clock.monotonic()
            await self._poll(apply)
            if self.trouble is None or self._clock.monotonic() - asked < STOOD_STILL:
                break

    async def _poll(self, apply: Callable[[Sequence[LedgerChange]], Awaitable[None]]) -> None:
        try:
            while True:
                changes, cursor = await read_within(self._ledger.changes(self._cursor, CHANGES), LEDGER_DEADLINE)
                self.read_at = self._clock.monotonic()
                await apply(changes)
                self._cursor = cursor
                if len(changes) < CHANGES:
                    break
            if self.trouble is not None:
                log.info("ledger.read")
            self.trouble = None
            await self._forget_old()
        except (Unavailable, UnknownOutcome) as error:
            self._metrics.ledger_errors += 1
            if self.trouble is None:
                log.warning("ledger.unread", error=str(error))
            self.trouble = str(error)

    async def _forget_old(self) -> None:
        if self._old is None:
            self._old = self.read_at, self._cursor
        elif self.read_at - self._old[0] > KEEP_CHANGES:
            await write_within(self._ledger.forget_changes(self._old[1]), LEDGER_DEADLINE)
            self._old = None
