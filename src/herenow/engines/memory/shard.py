"""One shard of the live store inside this process.

Plain synchronous data: no method waits, so each one is atomic. A shard knows no node, no other shard and no clock.

Cost: a write is a few dict operations; `due` and a page of `walk` read only what they return and the outdated entries
in between. Outdated wake-ups and removed arrivals are cleaned up when they outnumber the live ones, so each cleanup is
paid for by the writes that caused it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import islice

from herenow.core.record import version_of
from herenow.ports import (
    LOG_BYTES,
    Batch,
    Committed,
    Conflict,
    Due,
    Entry,
    Fenced,
    LogPart,
    LogPosition,
    Offer,
    Page,
    Write,
    Written,
    continues,
)

WASTE = 1024  # number of outdated entries that is always tolerated: below it, cleaning up costs more than it saves
RETIRED = 500  # retired epochs remembered: more than can be retired while one call is under way

_WRITTEN = Written()


class Shard:
    """Records with wake-ups and unsaved flags (`marks`), the log, fences, and whether the shard is settled (P6)."""

    __slots__ = (
        "arrivals",
        "fences",
        "generation",
        "log",
        "marks",
        "number",
        "records",
        "retired",
        "settled",
        "unsettled_at",
        "wakes",
    )

    def __init__(self, number: int, log_limit: int, *, settled: bool) -> None:
        self.number = number
        self.records: dict[str, bytes] = {}
        self.wakes = Wakes()
        self.marks: dict[str, None] = {}
        self.log = Log(number, log_limit)
        self.fences: dict[str, int] = {}
        self.retired: dict[str, None] = {}
        """Retired epochs, oldest first: `join` refuses them."""
        self.settled = settled
        self.unsettled_at: int | None = None
        self.arrivals: list[str] = []
        """Users in order of arrival, including removed ones: the order of a walk."""
        self.generation = 0
        """Incremented whenever `arrivals` is rewritten: a walk with an older cursor starts again."""

    def copy(self) -> Shard:
        twin = Shard(self.number, self.log.limit, settled=self.settled)
        twin.records = self.records.copy()
        twin.wakes = self.wakes.copy()
        twin.marks = self.marks.copy()
        twin.log = self.log.copy()
        twin.fences = self.fences.copy()
        twin.retired = self.retired.copy()
        twin.unsettled_at = self.unsettled_at
        twin.arrivals = self.arrivals.copy()
        twin.generation = self.generation
        return twin

    # Records

    def commit(self, batch: Batch) -> Committed | Fenced:
        row = self.fences.get(batch.epoch)
        if row is None or row != batch.last:
            return Fenced(row)
        self.fences[batch.epoch] = batch.next
        tag = f"{batch.epoch}.{batch.next}"
        return Committed(tuple([self._write(write, tag) for write in batch.writes]), self.settled)

    def _write(self, write: Write, tag: str) -> Written | Conflict:
        user, record = write.user, write.record
        current = self.records.get(user)
        if current != write.expected:
            return Conflict(current)
        if record is not None:
            self._put(user, record, unsaved=write.unsaved)
        elif current is not None:
            self._remove(user)
        self.wakes.set(user, write.wake_at)
        if write.note is not None:
            self.log.append(user, record, write.note, tag)
        return _WRITTEN

    def offer(self, offer: Offer) -> None:
        if self.settled:
            return
        current = self.records.get(offer.user)
        if current is None or version_of(current) < offer.version:
            self._put(offer.user, offer.record, unsaved=offer.unsaved)
            self.wakes.set(offer.user, offer.wake_at)

    def _put(self, user: str, record: bytes, *, unsaved: bool) -> None:
        if user not in self.records:
            self.arrivals.append(user)
        self.records[user] = record
        if unsaved:
            self.marks[user] = None

    def _remove(self, user: str) -> None:
        del self.records[user]
        self.marks.pop(user, None)
        if len(self.arrivals) > 2 * len(self.records) + WASTE:
            self.arrivals = list(self.records)
            self.generation += 1

    def walk(self, cursor: str | None, limit: int) -> Page:
        at = self._position(cursor)
        found: list[tuple[str, bytes]] = []
        while at < len(self.arrivals) and len(found) < limit:
            user = self.arrivals[at]
            record = self.records.get(user)
            if record is not None:
                found.append((user, record))
            at += 1
        return Page(tuple(found), f"{self.generation}.{at}" if at < len(self.arrivals) else None)

    def _position(self, cursor: str | None) -> int:
        if cursor is None:
            return 0
        generation, _, place = cursor.partition(".")
        at = int(place)
        if at < 0:
            raise ValueError(cursor)
        return at if int(generation) == self.generation else 0

    # Records not yet saved in the ledger

    def unsaved(self, limit: int) -> list[tuple[str, bytes]]:
        return [(user, self.records[user]) for user in islice(self.marks, limit)]

    def saved(self, rows: Iterable[tuple[str, bytes, bool]]) -> None:
        for user, record, drop in rows:
            if self.records.get(user) != record:
                continue
            self.marks.pop(user, None)
            if drop:
                self._remove(user)
                self.wakes.set(user, None)

    # Fences

    def join(self, epoch: str, number: int) -> bool:
        if epoch in self.retired:
            return False
        self.fences[epoch] = max(number, self.fences.get(epoch, number))
        return True

    def retire(self, epoch: str) -> None:
        self.fences.pop(epoch, None)
        self.retired.pop(epoch, None)
        self.retired[epoch] = None
        if len(self.retired) > RETIRED:
            del self.retired[next(iter(self.retired))]

    def jump(self, epoch: str, number: int) -> int | None:
        row = self.fences.get(epoch)
        if row is not None:
            self.fences[epoch] = max(number, row)
        return row

    # Settledness

    def unsettle(self, now: int) -> bool:
        """Record that the shard lost data at `now` (epoch ms): it is in recovery from then on, and its log restarts.
        Returns False and does nothing if that was recorded before."""
        if self.unsettled_at is not None:
            return False
        self.settled = False
        self.unsettled_at = now
        self.log.restart(now)
        return True

    def stay_unsettled(self, since: int) -> None:
        if self.unsettled_at is not None:
            self.unsettled_at = max(self.unsettled_at, since)

    def settle(self, now: int, after: int) -> bool:
        if not self.settled and self.unsettled_at is not None and now - self.unsettled_at >= after:
            self.settled = True
            self.unsettled_at = None
        return self.settled


class Wakes:
    """Wake-up times: a dict has the current one of each user, a heap the order; the heap may hold outdated entries."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def copy(self) -> Wakes:
        twin = Wakes()
        twin._at = self._at.copy()
        twin._heap = self._heap.copy()
        return twin

    def set(self, user: str, at: int | None) -> None:
        if at is None:
            self._at.pop(user, None)
        elif self._at.get(user) != at:
            self._at[user] = at
            heappush(self._heap, (at, user))
            if len(self._heap) > 2 * len(self._at) + WASTE:
                self._heap = [(at, user) for user, at in self._at.items()]
                heapify(self._heap)

    def due(self, now: int, limit: int, *, settled: bool) -> Due:
        """Return the users with a wake-up at or before `now`, earliest first, at most `limit`, and the next wake-up
        after theirs. They stay due until a write changes their wake-up (P4). `settled`: whether the shard is complete;
        it is only passed on."""
        found: list[tuple[int, str]] = []
        first = self._first(None)
        while first is not None and first[0] <= now and len(found) < limit:
            found.append(heappop(self._heap))
            first = self._first(first)
        for entry in found:
            heappush(self._heap, entry)
        return Due(
            users=tuple([user for _, user in found]),
            next_at=None if first is None else first[0],
            wakes=tuple([at for at, _ in found]),
            settled=settled,
        )

    def _first(self, taken: tuple[int, str] | None) -> tuple[int, str] | None:
        """Remove outdated entries from the top of the heap and return the earliest current one, (wake-up, user); None
        if the heap is empty. An entry equal to `taken`, the one popped before, is removed too: a wake-up that was
        changed and changed back is in the heap twice."""
        heap, at = self._heap, self._at
        while heap and (at.get(heap[0][1]) != heap[0][0] or heap[0] == taken):
            heappop(heap)
        return heap[0] if heap else None


class Log:
    """The newest log entries of a shard. `head` is the last entry number assigned."""

    __slots__ = ("_bytes", "_entries", "_shard", "_tag", "head", "limit")

    def __init__(self, shard: int, limit: int) -> None:
        self._shard = shard
        self.limit = limit
        self.head = 0
        self._tag = ""
        self._bytes = 0
        self._entries: deque[tuple[Entry, str]] = deque()
        """Each entry with the tag of the entry before it."""

    def copy(self) -> Log:
        twin = Log(self._shard, self.limit)
        twin.head = self.head
        twin._tag = self._tag
        twin._bytes = self._bytes
        twin._entries = self._entries.copy()
        return twin

    @property
    def position(self) -> LogPosition:
        return LogPosition(self.head, self._tag)

    def append(self, user: str, record: bytes | None, note: bytes, tag: str) -> None:
        self.head += 1
        entry = Entry(self.head, user, record, note)
        self._entries.append((entry, self._tag))
        self._bytes += _size(entry)
        self._tag = tag
        while len(self._entries) > self.limit or (self._bytes > LOG_BYTES and len(self._entries) > 1):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        entry, _ = self._entries.popleft()
        self._bytes -= _size(entry)

    def after(self, cursor: int) -> LogPart | None:
        asked = self.head - cursor
        if asked == 0 and continues(cursor, self._tag):
            return None
        if asked <= 0:
            return LogPart(self._shard, (), self.position, gap=True)
        latest = list(islice(reversed(self._entries), asked))
        latest.reverse()
        gap = len(latest) < asked or not continues(cursor, latest[0][1])
        return LogPart(self._shard, tuple([entry for entry, _ in latest]), self.position, gap=gap)

    def trim(self, keep: int) -> None:
        while len(self._entries) > keep:
            self._drop_oldest()

    def restart(self, now: int) -> None:
        """Delete all log entries and continue with an entry number that no reader has reached, so that every reader
        notices that entries are missing.

        Without a new number, a log rolled back from entry 9 to 5 that then gets new entries 6 to 9 would seem complete
        to a reader at 9. The time in milliseconds is high enough while a shard averages fewer than 1 000 entries per
        second."""
        self._entries.clear()
        self._bytes = 0
        self.head = max(self.head + 1, now)
        self._tag = f"u{now}"


def _size(entry: Entry) -> int:
    return len(entry.user) + len(entry.note) + (0 if entry.record is None else len(entry.record))
