"""What must outlive the store: last seen, modes, custom status. Written behind the hot path, lost by nothing.

A commit whose facts the ledger does not have yet carries a mark in the store; the mark goes only after the ledger has
answered. So this recorder may die at any point: what it held in memory is still marked, and `_take_up_marks` of any
node finds it. The backlog in memory is the latest row per user, bounded; beyond the bound the marks must do.

On an embedded engine there is nobody else who could remember who was here when the process is killed. Therefore coming
into view marks the user open in the ledger, leaving or hiding closes the mark, and the run is stamped every second: at
the next start everybody left open was last seen at the last stamp.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from typing import Any

import structlog

from herenow.core.model import Presence, Status
from herenow.core.record import UnknownFormat, decode
from herenow.core.settle import droppable
from herenow.core.values import Value
from herenow.core.visibility import status_in_public
from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.kit.deadline import read_within, write_within
from herenow.node.authority import new_epoch
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.records.paging import pages
from herenow.ports import Choice

BACKLOG = 200_000
"""Rows kept in memory while the ledger is away: about 100 MB. Beyond it the marks in the store must do."""

PART = 2_000
"""Rows per statement batch."""

KEEP = 60.0
"""Seconds after a gap in a shard's log in which no record leaves it: longer than any offer can be under way."""

MARKS_EVERY = 5
"""Flushes between two looks at the store's marks."""

BREATH = 0.05
"""Seconds between two flushes that were asked for: a thousand choices a second are twenty transactions, not hundreds
that take the interpreter from the event loop."""

STAMP_EVERY = 1.0
"""Seconds between two stamps of an embedded run: how far off last seen may be after a kill."""

_OFFLINE = Status.OFFLINE  # an attribute of an enum is slow to get

log = structlog.get_logger(__name__)


class _Row(Value, frozen=True):
    shard: int
    record: bytes
    presence: Presence


class LedgerWriter:
    def __init__(self, context: Context) -> None:
        self._people = context.people
        self._clock = context.clock
        self._metrics = context.metrics
        self._engine = context.engine
        self._ledger = context.ledger
        self._flush_every = context.settings.ledger_flush
        self._run = new_epoch() if context.settings.engine_in_memory else None
        self._rows: dict[str, _Row] = {}
        self._here: dict[str, bool] = {}
        self._wanted = asyncio.Event()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._flushes = 0
        self._kept: dict[int, float] = {}
        """Shard → monotonic time until which no record leaves it."""
        self.is_late = False
        """The last flush did not reach the ledger; what it should have written waits."""
        self._refusals: dict[int, str] = {}
        """Shard → what it last said instead of an answer."""

    @property
    def backlog(self) -> int:
        return len(self._rows)

    @property
    def trouble(self) -> str | None:
        """What a shard says instead of letting go of what the ledger has; None: all of them do."""
        return next(iter(self._refusals.values()), None)

    def note(self, user: str, shard: int, before: Presence, after: Presence, record: bytes, *, unsaved: bool) -> None:
        """A commit of ours took place."""
        if unsaved and (user in self._rows or len(self._rows) < BACKLOG):
            self._rows[user] = _Row(shard, record, after)
        if self._run is not None:
            was, is_here = _in_view(before), _in_view(after)
            if was != is_here:
                self._here[user] = is_here

    async def wait_saved(self, user: str, patience: float = 1.0) -> None:
        """Wait until the ledger has what was chosen, but not for long: it is accepted and kept all the same. While the
        ledger is known to be away, not at all."""
        if user not in self._rows or self.is_late:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((user, done))
        self._wanted.set()
        try:
            async with asyncio.timeout(patience):
                await done
        except TimeoutError:
            log.warning("ledger.late", backlog=len(self._rows))
        finally:
            self._waiting = [each for each in self._waiting if each[1] is not done]

    async def run(self) -> None:
        """Flush when asked, or when it is time."""
        while True:
            try:
                async with asyncio.timeout(self._flush_every):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self.flush()
                await asyncio.sleep(min(BREATH, self._flush_every))
                self.is_late = False
            except (Unavailable, UnknownOutcome) as error:
                self.is_late = True
                self._metrics.ledger_errors += 1
                log.warning("ledger.unavailable", error=str(error), backlog=len(self._rows))
                await asyncio.sleep(self._flush_every)
            except Exception as error:  # a mistake: said, and tried again, for what waits must not be lost by it
                self.is_late = True
                self._metrics.ledger_errors += 1
                log.error("ledger.failed", error=repr(error), backlog=len(self._rows), exc_info=True)
                await asyncio.sleep(self._flush_every)

    async def stamp(self) -> None:
        """Say that this run still runs."""
        if self._run is not None:
            try:
                await write_within(self._ledger.stamp_run(self._run, self._clock.now()), LEDGER_DEADLINE)
            except (Unavailable, UnknownOutcome):
                self._metrics.ledger_errors += 1

    async def flush(self) -> None:
        """Raises what the ledger says. A shard that is away keeps nobody from the ledger: whatever it has of theirs stays
        marked there, and is taken up when it answers."""
        await self._flush_marks()
        while self._rows:
            part = dict(list(self._rows.items())[:PART])
            await self._save(part)
            for user, row in part.items():
                if self._rows.get(user) is row:
                    del self._rows[user]
            self._tell(part)
            if len(part) < PART:
                break
        self._flushes += 1
        if self._flushes % MARKS_EVERY == 0:
            await self._take_up_marks()

    async def finish(self) -> None:
        """The last flush of a node that stops; what cannot be written stays marked, in the store or as an open run."""
        try:
            await self.flush()
            if self._run is not None:
                await self._see_off()
                await write_within(self._ledger.end_run(self._run), LEDGER_DEADLINE)
        except HerenowError as error:
            log.warning("ledger.unavailable", error=str(error), backlog=len(self._rows))

    async def _see_off(self) -> None:
        """An embedded store ends with its process: whoever is still in it was last seen when their sessions say."""
        async for part in pages(self._engine):
            last_seen = {user: _last_evidence(p) for user, p in part if p.sessions and not p.hidden}
            if last_seen:
                await write_within(self._ledger.save_last_seen(last_seen), LEDGER_DEADLINE)

    async def _save(self, rows: dict[str, _Row]) -> None:
        last_seen = {u: row.presence.last_seen for u, row in rows.items() if row.presence.last_seen is not None}
        choices = [_choice(user, row.presence) for user, row in rows.items() if row.presence.chosen]
        if last_seen:
            await write_within(self._ledger.save_last_seen(last_seen), LEDGER_DEADLINE)
        if choices:
            await write_within(self._ledger.save_choices(choices), LEDGER_DEADLINE)
        by_shard: dict[int, list[tuple[str, bytes, bool]]] = defaultdict(list)
        for user, row in rows.items():
            drop = droppable(row.presence)
            if not drop or self._may_drop(row.shard):
                by_shard[row.shard].append((user, row.record, drop))
        await self._of_each({shard: self._let_go(shard, saved) for shard, saved in by_shard.items()})

    async def _let_go(self, shard: int, saved: list[tuple[str, bytes, bool]]) -> None:
        await write_within(self._engine.saved(shard, saved))
        self._left(saved)

    async def _of_each(self, calls: Mapping[int, Coroutine[Any, Any, None]]) -> None:
        """Of several shards, at the same time: those that are away cost one deadline together."""
        results = await asyncio.gather(*calls.values(), return_exceptions=True)
        for shard, result in zip(calls, results, strict=True):
            self._refusals.pop(shard, None)
            if isinstance(result, Unavailable | UnknownOutcome):
                self._refusals[shard] = str(result)
                self._metrics.engine_errors += 1
                log.warning("recorder.store_unavailable", shard=shard, error=str(result))
            elif isinstance(result, BaseException):
                raise result

    def hold_drops(self, shard: int) -> None:
        """The shard may have lost something, and nodes offer what they know: what is newest must not leave it, or
        something older takes its place. It stays marked, and leaves later."""
        self._kept[shard] = self._clock.monotonic() + KEEP

    def _may_drop(self, shard: int) -> bool:
        return self._clock.monotonic() >= self._kept.get(shard, 0.0)

    def _left(self, saved: list[tuple[str, bytes, bool]]) -> None:
        """Whose record has just left the store: our next commit expects none."""
        for user, record, dropped in saved:
            person = self._people.find(user) if dropped else None
            if person is not None and person.record.stored == record:
                person.record.stored = None

    async def _flush_marks(self) -> None:
        if self._run is None or not self._here:
            return
        marks, self._here = self._here, {}
        here = [user for user, is_here in marks.items() if is_here]
        gone = [user for user, is_here in marks.items() if not is_here]
        try:
            await write_within(self._ledger.open_marks(self._run, here, gone), LEDGER_DEADLINE)
        except (Unavailable, UnknownOutcome):
            self._here = marks | self._here
            raise

    async def _take_up_marks(self) -> None:
        """What somebody committed whose recorder did not live to write it, or what moved on before it was written."""
        await self._of_each({shard: self._take_up(shard) for shard in range(self._engine.shards)})

    async def _take_up(self, shard: int) -> None:
        for user, record in await read_within(self._engine.unsaved(shard, PART)):
            if user in self._rows:
                continue
            try:
                presence = decode(record)
            except UnknownFormat:
                continue
            self._rows[user] = _Row(shard, record, presence)

    def _tell(self, rows: dict[str, _Row]) -> None:
        waiting, self._waiting = self._waiting, []
        for user, done in waiting:
            if user not in rows or user in self._rows:  # not yet, or there is something newer to write
                self._waiting.append((user, done))
            elif not done.done():
                done.set_result(None)


def _in_view(presence: Presence) -> bool:
    return status_in_public(presence) is not _OFFLINE


def _last_evidence(presence: Presence) -> int:
    return max(presence.last_seen or 0, *(session.seen_at for session in presence.sessions))


def _choice(user: str, presence: Presence) -> Choice:
    return Choice(user, presence.chosen, presence.mode, presence.mode_until, presence.custom)
