"""Follows the shard logs: what other nodes committed, in order and without gaps.

Watching a user needs no registration in the store: the record is read once, and versions decide between it and what comes by
the log, so a failover can lose no subscription. A log position is a number and a tag: if both continue, nothing was missed.
A gap in the numbers, or another tag at the cursor (the store lost writes and went on from an earlier entry), makes the shard
unverified: its views are stale until this node has asked the fence whether its own writes are there, and has read again what
it holds and watches. A new epoch of this node has the same effect, because nothing shows any more whether the writes of the
old one are there. If the numbers of a log went back, the shard lost data.

If the log shows a record that lacks a session held here, the user is decided before the record is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import structlog

from herenow.core.record import UnknownFormat
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import DEADLINE, read_within
from herenow.kit.retry import Backoff, retry
from herenow.node.cluster.staleness import Staleness, StaleReason
from herenow.node.cluster.user_counts import UserCounts
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.people import Person
from herenow.node.records import PART, Records
from herenow.ports import Entry, LogPart, LogPosition, continues

WAIT = 1.0
"""Seconds for which a read of the logs waits for a new entry."""

DEAF = 3.0
"""Seconds without an answer of a log after which the views of its shard are stale."""

STOPPED = 1.0
"""Seconds between two calls of `listen` from which on this process counts as suspended meanwhile."""

VERIFY_AGAIN = 0.5
"""Seconds after which a shard that could not be read again is tried again."""

log = structlog.get_logger(__name__)


class LogReader:
    def __init__(
        self, context: Context, records: Records, delivery: Delivery, counts: UserCounts, staleness: Staleness
    ) -> None:
        self._people = context.people
        self._clock = context.clock
        self._metrics = context.metrics
        self._engine = context.engine
        self._records = records
        self._delivery = delivery
        self._counts = counts
        self._staleness = staleness
        self._cursors: dict[int, LogPosition] = {}
        self._seen_heads: dict[int, LogPosition] = {}
        self._heard_at = self._listened_at = float("-inf")
        self._silent_since: dict[int, float] = {}
        self._deaf: set[int] = set()
        self.trouble: str | None = None
        """Error of the last read; None: it succeeded."""
        self.behind = 0
        """Unread entries of the logs that answered at the last `check`."""

    @property
    def heard_ago(self) -> float:
        """Seconds since the logs of all shards last answered, with or without a new entry; 0 before the first read."""
        if self._heard_at == float("-inf"):
            return 0.0
        return max(0.0, self._clock.monotonic() - min([self._heard_at, *self._silent_since.values()]))

    @property
    def cursors(self) -> Mapping[int, int]:
        """Shard → position up to which this node has read its log."""
        return self._cursors

    async def start(self) -> None:
        """Set the cursors to the present ends of the logs, where reading begins. Raises `Unavailable` unless all logs
        answer."""
        heads = await read_within(self._engine.heads())
        if missing := self._engine.shards - len(heads):
            raise Unavailable(f"the logs of {missing} shards cannot be read")
        self._cursors = heads
        self._heard_at = self._clock.monotonic()

    async def follow(self) -> None:
        """Read the new entries of all logs once and apply them; waits up to `WAIT` seconds for one. Call in a loop.
        Raises `Unavailable`."""
        cursors, asked = dict(self._cursors), self._clock.monotonic()
        try:
            parts = await read_within(self._engine.tail(cursors, WAIT), WAIT + DEADLINE)
        except Unavailable as error:
            self._metrics.engine_errors += 1
            self.trouble = str(error)
            raise
        self.trouble = None
        for part in parts:
            await self._take(part, cursors[part.shard], asked)
        silent = self._engine.unresponsive
        self._silent_since = {shard: self._silent_since.get(shard, self._heard_at) for shard in silent}
        self._heard_at = self._clock.monotonic()
        if back := self._deaf - silent:
            self._deaf -= back
            self._staleness.clear(back, StaleReason.LOG_SILENT)

    def listen(self) -> None:
        """Mark shards as stale if their logs have not answered for `DEAF` seconds. Call a few times a second; time in
        which this process was suspended does not count."""
        now = self._clock.monotonic()
        if now - self._listened_at > STOPPED:
            self._heard_at = now
            self._silent_since = dict.fromkeys(self._silent_since, now)
        self._listened_at = now
        if lately_deaf := self._unheard_since(now - DEAF) - self._deaf:
            self._deaf |= lately_deaf
            log.warning("tail.deaf", shards=len(self._deaf))
            self._staleness.mark_stale(lately_deaf, StaleReason.LOG_SILENT)

    def _unheard_since(self, then: float) -> set[int]:
        if self._heard_at < then:
            return set(self._staleness.shards)
        return {shard for shard, since in self._silent_since.items() if since < then}

    async def check(self) -> None:
        """Compare the end of each log with this node's cursor, to find entries that `follow` does not return. A log
        that grew, although `follow` returned nothing of it since the last call, is treated as a gap. Shards that do not
        answer are compared later."""
        cursors, asked = dict(self._cursors), self._clock.monotonic()
        heads = await read_within(self._engine.heads())
        before, self._seen_heads = self._seen_heads, heads
        self.behind = sum(max(0, head - self._cursors[shard]) for shard, head in heads.items())
        for shard, head in heads.items():
            other = head == cursors[shard] and not continues(cursors[shard], head.tag)
            if other or head < cursors[shard] or self._cursors[shard] < before.get(shard, 0):
                await self._take(LogPart(shard, (), head, gap=True), cursors[shard], asked)

    async def _take(self, part: LogPart, cursor: LogPosition, asked: float) -> None:
        """Apply entries that were read from a shard's log, and handle a gap. `cursor`: the position that was sent with the
        request at the monotonic time `asked`. The head of the log is compared with it and not with the present position,
        which may have moved meanwhile: a head below that is no data loss.

            check  asks for heads ── head is 7 ─────────────── answer: 7 ─▶ 7 < 8, and nothing is lost
            follow                       └─ 8 is committed, and read
        """
        shard = part.shard
        if part.gap and part.head < cursor:
            self._records.report_loss(shard, None, asked)
        if self._cursors[shard] != cursor:
            return  # another read has moved the cursor; the next read returns what is missing
        if part.gap:
            self._metrics.log_gaps += 1
            log.warning("log.gap", shard=shard, head=part.head, cursor=cursor)
            self._records.hold_drops(shard)
            await self._verify(shard)
            if self._cursors[shard] != cursor:
                return
        for entry in part.entries:
            self._apply(shard, entry)
        self._cursors[shard] = part.head

    async def verify_all(self) -> None:
        """Check every shard with `_verify`, with retries. Call when this node has taken a new epoch."""
        self._staleness.mark_stale(self._staleness.shards, StaleReason.UNVERIFIED)
        for shard in self._staleness.shards:
            await retry(partial(self._verify, shard), Backoff(VERIFY_AGAIN))

    async def _verify(self, shard: int) -> None:
        """Check that the shard has this node's commits, and read its known users again. Views of the shard are stale
        until this succeeds."""
        self._staleness.mark_stale([shard], StaleReason.UNVERIFIED)
        try:
            await self._records.verify(shard)
        except (Unavailable, UnknownOutcome):
            pass  # unreachable, or it lost data: then it is recovered and read again after that
        await self.read_again(shard)
        self._staleness.clear([shard], StaleReason.UNVERIFIED)

    def _apply(self, shard: int, entry: Entry) -> None:
        self._counts.count(shard, entry)
        self._records.forget(entry.user)
        person = self._people.find(entry.user)
        if person is None or entry.record is None:
            return
        try:
            if self._records.learn(person, entry.record):
                if person.record.is_ours(entry.record):  # committed by this node
                    if person.unpublished:
                        self._delivery.publish(person)
                else:
                    self.on_remote_change(person)
        except UnknownFormat:
            log.warning("log.unknown_format", shard=shard)

    async def read_again(self, shard: int) -> None:
        """Read the known users of this shard from the store again, and publish those that differ."""
        self._records.forget_all()
        self._counts.recount(shard)
        people = [person for person in self._people.in_shard(shard) if person.record.known]
        for start in range(0, len(people), PART):
            for person in await self._records.refresh(people[start : start + PART]):
                self.on_remote_change(person)

    def on_remote_change(self, person: Person) -> None:
        """Publish a user's record that another node committed. If the record lacks a session that is held here, it is
        completed and committed first."""
        self._delivery.mark_changed(person)
        if person.matches_record:
            self._delivery.publish(person)
        if person.held or person.record.pending_edits or not person.matches_record:
            self._records.mark_dirty(person)
