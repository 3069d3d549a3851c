"""The shard logs are this node's inbox: what others committed, in order, without holes.

To follow somebody is purely local: be in `People`, be read once, and let versions decide between what was read and what
comes by the log. Nothing is registered anywhere, so nothing can be lost in a failover. An unbroken tail is equality; a
gap in the numbers means: read again whom we know. A log whose numbers went back means that the shard lost its memory.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from herenow.errors import Unavailable
from herenow.ports import Engine, Entry, LogPart
from herenow.service.calls import DEADLINE, reading
from herenow.service.census import Census
from herenow.service.hub import Hub
from herenow.service.metrics import Metrics
from herenow.service.people import People, Person
from herenow.service.reader import Reader

WAIT = 1.0
"""Seconds a read of the logs waits for something new."""

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
        metrics: Metrics,
        touch: Callable[[Person], None],
        on_loss: Callable[[int, int | None], None],
    ) -> None:
        self._engine = engine
        self._people = people
        self._reader = reader
        self._hub = hub
        self._census = census
        self._metrics = metrics
        self._touch = touch
        self._on_loss = on_loss
        self._cursors: dict[int, int] = {}
        self._seen_head: dict[int, int] = {}

    async def start(self) -> None:
        """From now on: whom we get to know later is read then."""
        self._cursors = await reading(self._engine.heads())

    async def follow(self) -> None:
        """One read of all logs; called again and again."""
        try:
            parts = await reading(self._engine.tail(self._cursors, WAIT), WAIT + DEADLINE)
        except Unavailable:
            self._metrics.engine_errors += 1
            raise
        for part in parts:
            await self._take(part)

    async def check(self) -> None:
        """Is the tail silent though the logs grow? Then it has gone deaf without an error: treat it as a gap."""
        heads = await reading(self._engine.heads())
        for shard, head in heads.items():
            cursor = self._cursors.get(shard, 0)
            if cursor < head and self._seen_head.get(shard, head) > cursor:
                await self._take(LogPart(shard, (), head, gap=True))
            elif head < cursor:
                await self._take(LogPart(shard, (), head, gap=True))
        self._seen_head = heads

    async def _take(self, part: LogPart) -> None:
        behind = part.head < self._cursors.get(part.shard, 0)
        if part.gap:
            self._metrics.log_gaps += 1
            log.warning("log.gap", shard=part.shard, head=part.head, cursor=self._cursors.get(part.shard))
            if behind:
                self._on_loss(part.shard, None)
            await self.read_again(part.shard)
        for entry in part.entries:
            self._apply(entry)
        self._cursors[part.shard] = part.head

    def _apply(self, entry: Entry) -> None:
        self._census.count(entry.note)
        self._reader.forget(entry.user)
        person = self._people.find(entry.user)
        if person is None or entry.record is None or not person.known:
            return
        if person.learn(entry.record, settled=person.settled):
            self._heard(person)

    async def read_again(self, shard: int) -> None:
        """Whom we know in this shard, as the store has them."""
        people = [person for person in self._people.in_shard(shard) if person.known]
        for start in range(0, len(people), 1000):
            part = people[start : start + 1000]
            loaded = await reading(self._engine.load([person.user for person in part]))
            for person, found in zip(part, loaded, strict=True):
                if not found.settled:
                    self._on_loss(shard, None)
                if person.learn(found.record, settled=found.settled):
                    self._heard(person)
                elif person.sessions:
                    self._touch(person)
        self._census.recount()

    def _heard(self, person: Person) -> None:
        self._hub.publish(person)
        if person.sessions or person.asks:
            self._touch(person)
