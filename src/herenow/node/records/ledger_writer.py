"""Saves last seen, modes and custom statuses, which must outlive the store, to the ledger after the commit.

A commit with values that the ledger lacks sets the unsaved flag in the store, which is cleared after the ledger has saved
them. So a node may die at any time: another one finds the flagged records, and those for which the backlog had no room.

Each flush also writes (`last_seen`) the last seen of sessions with an end that the store did not take, and the run markers
of users that are visible now, in case the store is lost together with its nodes.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from typing import Any

import structlog

from herenow.core.model import Mode, Presence
from herenow.core.record import UnknownFormat, decode
from herenow.core.settle import droppable
from herenow.core.values import Value
from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow.kit.deadline import read_within, write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.records.last_seen import RunMarkers, UncommittedEnds
from herenow.node.records.paging import pages
from herenow.ports import Choice

BACKLOG = 200_000  # records kept in memory while the ledger is unreachable: about 100 MB
PART = 2_000  # records per statement batch

KEEP = 60.0
"""Seconds after a gap in a shard's log in which no record is dropped from it: longer than any offer can be in flight."""

MARKS_EVERY = 5  # flushes between two reads of the records that the store has flagged as unsaved
BREATH = 0.05  # seconds between two requested flushes; more transactions would take the interpreter from the event loop

log = structlog.get_logger(__name__)


class _Row(Value, frozen=True):
    shard: int
    record: bytes
    presence: Presence


class LedgerWriter:
    def __init__(self, context: Context, markers: RunMarkers, ends: UncommittedEnds) -> None:
        self._people = context.people
        self._clock = context.clock
        self._metrics = context.metrics
        self._engine = context.engine
        self._ledger = context.ledger
        self._flush_every = context.settings.ledger_flush
        self._embedded = context.settings.engine_in_memory
        self._markers, self._ends = markers, ends
        self._rows: dict[str, _Row] = {}
        self._wanted = asyncio.Event()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._flushes = 0
        self._drops_held_until: dict[int, float] = {}  # shard → monotonic time until which no record is dropped from it
        self.is_late = False
        self._refusals: dict[int, str] = {}  # shard → its last error

    @property
    def backlog(self) -> int:
        return len(self._rows)

    @property
    def trouble(self) -> str | None:
        return next(iter(self._refusals.values()), None)

    def note(self, user: str, shard: int, before: Presence, after: Presence, record: bytes, *, unsaved: bool) -> None:
        """Queue a committed record to be saved in the ledger, if `unsaved`. If the sessions or the visibility of the
        user changed from `before` to `after`, the user's run marker (`RunMarkers`) is checked, too."""
        if unsaved and (user in self._rows or len(self._rows) < BACKLOG):
            self._rows[user] = _Row(shard, record, after)
            if (before.mode is Mode.INVISIBLE) != (after.mode is Mode.INVISIBLE):
                self._wanted.set()  # other nodes hide or show the user by the ledger, too
        if before.sessions is not after.sessions or before.hidden is not after.hidden:
            self._markers.check(user)

    async def wait_saved(self, user: str, patience: float = 1.0) -> None:
        """Wait up to `patience` seconds until the ledger has saved the user's queued record; if it takes longer, it is
        saved later. Returns at once while the ledger is unreachable."""
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
        """Save the queued records (`flush`) on request and every `ledger_flush` seconds; never returns."""
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
            except Exception as error:  # a bug: log it and go on, the queued records must not be lost
                self.is_late = True
                self._metrics.ledger_errors += 1
                log.error("ledger.failed", error=repr(error), backlog=len(self._rows), exc_info=True)
                await asyncio.sleep(self._flush_every)

    async def flush(self) -> None:
        """Save all queued records and run markers in the ledger; raises the ledger's errors. If a shard of the store
        does not answer, its records stay flagged there as unsaved, and are saved again later."""
        await self._ends.save()
        while self._rows:
            part = dict(list(self._rows.items())[:PART])
            await self._save(part)
            for user, row in part.items():
                if self._rows.get(user) is row:
                    del self._rows[user]
            self._resolve_waiting(part)
            if len(part) < PART:
                break
        await self._markers.flush()
        self._flushes += 1
        if self._flushes % MARKS_EVERY == 0:
            await self._for_each_shard({shard: self._queue_unsaved(shard) for shard in range(self._engine.shards)})

    async def finish(self) -> None:
        """Save all that is left when the node stops. Records that cannot be saved stay flagged in the store, or keep
        their run marker, from which another node can save them."""
        try:
            await self.flush()
            if self._embedded:
                await self._save_present_users()
            await self._markers.finish()
        except HerenowError as error:
            log.warning("ledger.unavailable", error=str(error), backlog=len(self._rows))

    async def _save_present_users(self) -> None:
        """Save the last seen of visible users that still have sessions when a node with an embedded store stops."""
        async for part in pages(self._engine):
            last_seen = {user: _last_evidence(p) for user, p in part if p.sessions and not p.hidden}
            if last_seen:
                await write_within(self._ledger.save_last_seen(last_seen), LEDGER_DEADLINE)

    async def _save(self, rows: dict[str, _Row]) -> None:
        last_seen = {u: row.presence.last_seen for u, row in rows.items() if row.presence.last_seen is not None}
        choices = [choice_of_record(user, row.presence) for user, row in rows.items() if row.presence.chosen]
        if last_seen:
            await write_within(self._ledger.save_last_seen(last_seen), LEDGER_DEADLINE)
        if choices:
            await write_within(self._ledger.save_choices(choices), LEDGER_DEADLINE)
        by_shard: dict[int, list[tuple[str, bytes, bool]]] = defaultdict(list)
        for user, row in rows.items():
            drop = droppable(row.presence)
            if not drop or self._clock.monotonic() >= self._drops_held_until.get(row.shard, 0.0):
                by_shard[row.shard].append((user, row.record, drop))
        await self._for_each_shard({shard: self._report_saved(shard, saved) for shard, saved in by_shard.items()})

    async def _report_saved(self, shard: int, saved: list[tuple[str, bytes, bool]]) -> None:
        await write_within(self._engine.saved(shard, saved))
        self._forget_dropped(saved)

    async def _for_each_shard(self, calls: Mapping[int, Coroutine[Any, Any, None]]) -> None:
        """Run one call to the store per shard, all at the same time, so that unreachable shards together cost one
        deadline. Shards that fail are logged and counted; only unexpected exceptions are raised."""
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
        """Do not remove saved records of offline users from this shard for `KEEP` seconds. The shard may have lost
        data, and another node could put an older record in the place of the removed one. The records are removed
        later."""
        self._drops_held_until[shard] = self._clock.monotonic() + KEEP

    def _forget_dropped(self, saved: list[tuple[str, bytes, bool]]) -> None:
        """Note that the store has removed these records, so that the next commit expects none. `saved`: (user, record,
        True if it was removed)."""
        for user, record, dropped in saved:
            person = self._people.find(user) if dropped else None
            if person is not None and person.record.stored == record:
                person.record.stored = None

    async def _queue_unsaved(self, shard: int) -> None:
        """Queue the records that the shard has flagged as unsaved: their node died, or they changed before they were
        saved."""
        for user, record in await read_within(self._engine.unsaved(shard, PART)):
            if user in self._rows:
                continue
            try:
                presence = decode(record)
            except UnknownFormat:
                continue
            self._rows[user] = _Row(shard, record, presence)

    def _resolve_waiting(self, rows: dict[str, _Row]) -> None:
        waiting, self._waiting = self._waiting, []
        for user, done in waiting:
            if user not in rows or user in self._rows:  # not saved yet, or a newer record is queued
                self._waiting.append((user, done))
            elif not done.done():
                done.set_result(None)


def _last_evidence(presence: Presence) -> int:
    return max(presence.last_seen or 0, *(session.seen_at for session in presence.sessions))


def choice_of_record(user: str, presence: Presence) -> Choice:
    return Choice(user, presence.chosen, presence.mode, presence.mode_until, presence.custom, presence.sources)
