"""The shard logs are this node's inbox: what others committed, in order, without holes.

To follow somebody is purely local: be in `People`, be read once, and let versions decide between what was read and what
comes by the log. Nothing is registered anywhere, so nothing can be lost in a failover. An unbroken tail is equality; a
gap in the numbers means: ask whether the shard still has what we wrote, and read again whom we know. A log whose numbers
went back means that the shard lost its memory.

What the log says of somebody whose session stands here, but not there, is decided before it is shown: a node that was
away for a while asserts its sessions first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import structlog

from herenow.core.record import UnknownFormat
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.clock import Clock
from herenow.kit.deadline import DEADLINE, read_within
from herenow.node.cluster.staleness import Doubt, Freshness
from herenow.node.cluster.user_counts import Census
from herenow.node.delivery.hub import Hub
from herenow.node.metrics import Metrics
from herenow.node.people import People, Person
from herenow.node.records.authority import OnLoss
from herenow.node.records.reader import PART, Reader
from herenow.ports import Engine, Entry, LogPart

WAIT = 1.0
"""Seconds a read of the logs waits for something new."""

DEAF = 3.0
"""Seconds without an answer from the logs after which what we show is called stale."""

STOPPED = 1.0
"""Seconds between two looks at the time from which we take it that this process was stopped or overwhelmed."""

log = structlog.get_logger(__name__)


class Tail:
    def __init__(
        self,
        *,
        engine: Engine,
        people: People,
        reader: Reader,
        hub: Hub,
        census: Census,
        freshness: Freshness,
        clock: Clock,
        metrics: Metrics,
        touch: Callable[[Person], None],
        verify: Callable[[int], Awaitable[None]],
        on_gap: Callable[[int], None],
        on_loss: OnLoss,
    ) -> None:
        """`verify(shard)` raises when the shard does not have what we wrote; `on_gap(shard)` is told that it may have lost
        something, `on_loss` that it has."""
        self._engine = engine
        self._people = people
        self._reader = reader
        self._hub = hub
        self._census = census
        self._freshness = freshness
        self._clock = clock
        self._metrics = metrics
        self._touch = touch
        self._verify = verify
        self._on_gap = on_gap
        self._on_loss = on_loss
        self._cursors: dict[int, int] = {}
        self._seen_heads: dict[int, int] = {}
        self._heard_at = self._listened_at = float("-inf")
        self._silent_since: dict[int, float] = {}
        self._deaf: set[int] = set()
        self.trouble: str | None = None
        """What the last read said instead of an answer; None: it answered."""
        self.behind = 0
        """Entries of all logs that had not been read when we last compared, as far as they answered."""

    @property
    def heard_ago(self) -> float:
        """Seconds since all logs last answered, if only that there is nothing new. 0: they have not been asked yet."""
        if self._heard_at == float("-inf"):
            return 0.0
        return max(0.0, self._clock.monotonic() - min([self._heard_at, *self._silent_since.values()]))

    @property
    def cursors(self) -> Mapping[int, int]:
        """How far each log has been read."""
        return self._cursors

    async def start(self) -> None:
        """From now on: whom we get to know later is read then. Every log must answer: none can be read from nowhere on."""
        heads = await read_within(self._engine.heads())
        if missing := self._engine.shards - len(heads):
            raise Unavailable(f"the logs of {missing} shards do not answer")
        self._cursors = heads
        self._heard_at = self._clock.monotonic()

    async def follow(self) -> None:
        """One read of all logs; called again and again."""
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
        silent = self._engine.silent
        self._silent_since = {shard: self._silent_since.get(shard, self._heard_at) for shard in silent}
        self._heard_at = self._clock.monotonic()
        if back := self._deaf - silent:
            self._deaf -= back
            self._freshness.trust(back, Doubt.DEAF)

    def listen(self) -> None:
        """Have we heard anything lately? A few times a second; when it was not, we stood still and could not hear."""
        now = self._clock.monotonic()
        if now - self._listened_at > STOPPED:
            self._heard_at = now
            self._silent_since = dict.fromkeys(self._silent_since, now)
        self._listened_at = now
        if lately_deaf := self._unheard_since(now - DEAF) - self._deaf:
            self._deaf |= lately_deaf
            log.warning("tail.deaf", shards=len(self._deaf))
            self._freshness.doubt(lately_deaf, Doubt.DEAF)

    def _unheard_since(self, then: float) -> set[int]:
        if self._heard_at < then:
            return set(self._freshness.shards)
        return {shard for shard, since in self._silent_since.items() if since < then}

    async def check(self) -> None:
        """Is the tail silent though the logs grow? Then it has gone deaf without an error: treat it as a gap. A shard that
        does not answer is compared when it does."""
        cursors, asked = dict(self._cursors), self._clock.monotonic()
        heads = await read_within(self._engine.heads())
        before, self._seen_heads = self._seen_heads, heads
        self.behind = sum(max(0, head - self._cursors[shard]) for shard, head in heads.items())
        for shard, head in heads.items():
            if head < cursors[shard] or self._cursors[shard] < before.get(shard, 0):
                await self._take(LogPart(shard, (), head, gap=True), cursors[shard], asked)

    async def _take(self, part: LogPart, cursor: int, asked: float) -> None:
        """`cursor` is the one that was asked with, at the time `asked`, and what the answer is compared with: ours may have
        moved meanwhile, by entries that came after the answer was given, and a log behind those has lost nothing.

            check  asks for heads ── head is 7 ─────────────── answer: 7 ─▶ 7 < 8, and nothing is lost
            follow                       └─ 8 is committed, and read
        """
        shard = part.shard
        if part.gap and part.head < cursor:
            self._on_loss(shard, None, asked)
        if self._cursors[shard] != cursor:
            return  # another read went on from here: whatever this one knew more is found by the next
        if part.gap:
            self._metrics.log_gaps += 1
            log.warning("log.gap", shard=shard, head=part.head, cursor=cursor)
            self._on_gap(shard)
            await self._close_gap(shard)
            if self._cursors[shard] != cursor:
                return
        for entry in part.entries:
            self._apply(shard, entry)
        self._cursors[shard] = part.head

    async def _close_gap(self, shard: int) -> None:
        try:
            await self._verify(shard)
        except (Unavailable, UnknownOutcome):
            pass  # away, or lost: then it heals, and is read again after that
        await self.read_again(shard)

    def _apply(self, shard: int, entry: Entry) -> None:
        self._census.count(shard, entry)
        self._reader.forget(entry.user)
        person = self._people.find(entry.user)
        if person is None or entry.record is None:
            return
        try:
            if person.learn(entry.record):
                if person.is_ours(entry.record):  # decided already, here and now
                    if person.unpublished:
                        self._hub.publish(person)
                else:
                    self.heard(person)
        except UnknownFormat:
            log.warning("log.unknown_format", shard=shard)

    async def read_again(self, shard: int) -> None:
        """Whom we know in this shard, as the store has them."""
        self._reader.forget_all()
        self._census.recount(shard)
        people = [person for person in self._people.in_shard(shard) if person.known]
        for start in range(0, len(people), PART):
            for person in await self._reader.refresh(people[start : start + PART]):
                self.heard(person)

    def heard(self, person: Person) -> None:
        """There is something new about somebody, committed by others: shown, or decided first."""
        person.changed_at = self._clock.monotonic()
        if person.stands:
            self._hub.publish(person)
        if person.sessions or person.asks or not person.stands:
            self._touch(person)
