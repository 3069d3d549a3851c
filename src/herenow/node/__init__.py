"""A node: everything of it wired together, started and stopped. Each part has its own module; meaning is in none of them.

    connections ─▶ sessions ─▶ decide ─▶ writer ─▶ engine ─▶ log ─▶ tail ─▶ hub ─▶ outboxes ─▶ connections
                                 ▲  └──▶ recorder ─▶ ledger                  ▲
                    reaper, lease, healing                             relations (who may see whom)

Gateways and APIs call the verbs of its parts: `sessions`, `rest_beats`, `subscriptions`, `streams`, `choices`, `views`,
`typing`, `graph`, `privacy`, `users`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from herenow.core.bucket import Rate
from herenow.core.pacing import Crowds
from herenow.core.settle import Edit, Timings
from herenow.errors import HerenowError, Unavailable
from herenow.kit.clock import NodeClock
from herenow.kit.deadline import write_within
from herenow.kit.tasks import Tasks
from herenow.node.access.relation_cache import POLL, Acquaintances
from herenow.node.admin.explain import Inquiries
from herenow.node.admin.revocations import FORGET_EVERY, Revocations
from herenow.node.admin.stats_history import LOOK, Pulse
from herenow.node.admin.users import Users
from herenow.node.cluster.dead_nodes import Sweep
from herenow.node.cluster.lease import LeaseKeeper
from herenow.node.cluster.log_reader import Tail
from herenow.node.cluster.node_messages import Mail
from herenow.node.cluster.reaper import Reaper
from herenow.node.cluster.reaper_assignment import Reaping, Shares
from herenow.node.cluster.shard_recovery import Healing
from herenow.node.cluster.staleness import Freshness
from herenow.node.cluster.user_counts import Census
from herenow.node.delivery.channels import Channels
from herenow.node.delivery.hub import Hub
from herenow.node.delivery.overload import Overload
from herenow.node.metrics import Metrics
from herenow.node.people import HeldSession, People, Person
from herenow.node.records.authority import Standing, new_epoch
from herenow.node.records.decider import Decider
from herenow.node.records.ledger_writer import STAMP_EVERY, Recorder
from herenow.node.records.reader import Reader
from herenow.node.records.restore import take_over
from herenow.node.records.writer import Writer
from herenow.node.sessions.connections import Sessions
from herenow.node.sessions.liveness import Silence
from herenow.node.sessions.modes import Choices
from herenow.node.sessions.rest_beats import RestBeats
from herenow.node.viewing.graph import Graph
from herenow.node.viewing.polling import Polling
from herenow.node.viewing.privacy import Privacy
from herenow.node.viewing.relation_events import News
from herenow.node.viewing.streams import Streams
from herenow.node.viewing.subscriptions import Subscriptions
from herenow.node.viewing.typing import TypingRooms
from herenow.node.viewing.views import Views
from herenow.ports import Engine, Ledger, LedgerChange, Relations, SourceHealth
from herenow.wire.codes import Close

TURN = 0.25
"""Seconds between two turns of the wheel that finds silent sessions."""

FAREWELL = 5.0
"""Seconds a stopping node waits for its clients to go, and once more for its last commits to be acknowledged."""

LAST_WORDS = 5.0
"""Seconds it then has for the ledger, and for its lease: what is not done by then is found by others."""

RENEW_AGAIN = 0.5
"""Seconds after which a renewal that failed is tried again: several times before the lease is in doubt."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node needs to know of the settings. Durations in seconds unless they say otherwise."""

    timings: Timings = field(default_factory=Timings)
    node_lease: float = 10.0
    beat_min: int = 5_000
    """Milliseconds."""
    typing_for: float = 6.0
    typing_min: float = 2.0
    stuck_after: float = 10.0
    flush_every: float = 0.0
    crowds: Crowds = field(default_factory=Crowds)
    ledger_flush: float = 1.0
    max_subscriptions: int = 500
    max_connections_per_user: int = 20
    token_max_ttl: float = 86_400.0
    """How far ahead a token may expire: for so long a revocation has to be kept."""
    rooms_relate: bool = False
    """Members of one room may see each other."""
    polling: Rate = field(default_factory=lambda: Rate(every=30_000, burst=5))
    """Bulk reads of users without a live session."""
    relations_ttl: float | None = None
    """How long a relation is believed that the ledger does not keep; None: the ledger keeps them, and tells of changes."""
    reaping: Reaping = field(default_factory=Reaping)
    embedded: bool = True
    """The engine ends with this process: the ledger must know who was here (DESIGN section 7)."""


class Node:
    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        settings: NodeSettings,
        *,
        relations: Relations | None = None,
        relations_health: SourceHealth | None = None,
        clock: NodeClock | None = None,
        tasks: Tasks | None = None,
        make_epoch: Callable[[], str] = new_epoch,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.ledger = ledger
        self.clock = clock or NodeClock()
        self.metrics = Metrics()
        self.relations_health = relations_health or SourceHealth()
        self.ready = False
        self.draining = False
        self.on_epoch: Callable[[str], None] = _nobody
        """Told of every new epoch before anything is written under it."""
        self._tasks = tasks or Tasks()
        timings, clock_, metrics, tasks = settings.timings, self.clock, self.metrics, self._tasks
        self.standing = Standing(clock_, settings.node_lease, make_epoch)
        self.people = People(engine.shards)
        self.channels = Channels(self.people, clock_)
        self.hub = Hub(
            self.people,
            self.channels,
            clock_,
            metrics,
            settings.flush_every,
            crowds=settings.crowds,
        )
        self.overload = Overload(clock_, TURN, self.hub.shed)
        self.freshness = Freshness(self.hub, engine.shards)
        self.recorder = Recorder(
            engine,
            ledger,
            self.people,
            clock_,
            metrics,
            flush_every=settings.ledger_flush,
            embedded=settings.embedded,
        )
        self.healing = Healing(
            engine=engine,
            people=self.people,
            freshness=self.freshness,
            standing=self.standing,
            clock=clock_,
            timings=timings,
            tasks=tasks,
            metrics=metrics,
            node_lease=settings.node_lease,
        )
        self.pulse = Pulse(
            metrics,
            clock_,
            backlog=lambda: self.recorder.backlog,
            stale_views=lambda: self.hub.stale_views,
        )
        self.reader = Reader(engine, ledger, self.people, clock_, metrics, self.healing.lost)
        self.writer = Writer(
            engine,
            self.standing,
            clock_,
            tasks,
            metrics,
            self.healing.lost,
            embedded=settings.embedded,
        )
        self.decider = Decider(
            people=self.people,
            reader=self.reader,
            writer=self.writer,
            hub=self.hub,
            recorder=self.recorder,
            standing=self.standing,
            clock=clock_,
            timings=timings,
            tasks=tasks,
            metrics=metrics,
            on_ended=self._ended,
            on_standing=self._standing_now,
            bar=self._bar,
        )
        self.silence = Silence(self.people, self.decider, self.standing, clock_, timings, TURN)
        self.sessions = Sessions(
            people=self.people,
            decider=self.decider,
            hub=self.hub,
            silence=self.silence,
            standing=self.standing,
            clock=clock_,
            timings=timings,
            metrics=metrics,
            beat_min=settings.beat_min,
            max_connections=settings.max_connections_per_user,
        )
        self.rest_beats = RestBeats(
            people=self.people,
            decider=self.decider,
            sessions=self.sessions,
            silence=self.silence,
            standing=self.standing,
            clock=clock_,
            timings=timings,
            beat_min=settings.beat_min,
        )
        self.census = Census(engine, metrics)
        self.tail = Tail(
            engine=engine,
            people=self.people,
            reader=self.reader,
            hub=self.hub,
            census=self.census,
            freshness=self.freshness,
            clock=clock_,
            metrics=metrics,
            touch=self.decider.touch,
            verify=self.writer.verify,
            on_gap=self.recorder.keep,
            on_loss=self.healing.lost,
        )
        self.reader.on_news = self.tail.heard
        self.sweep = Sweep(engine, self.people, self.decider)
        self.healing.attach(writer=self.writer, decider=self.decider, tail=self.tail, sweep=self.sweep)
        self.shares = Shares(
            shards=engine.shards,
            reaping=settings.reaping,
            standing=self.standing,
            clock=clock_,
            node_lease=settings.node_lease,
            send=self._send,
        )
        self.reaper = Reaper(
            engine=engine,
            decider=self.decider,
            standing=self.standing,
            shares=self.shares,
            reaping=settings.reaping,
            clock=clock_,
            tasks=tasks,
            metrics=metrics,
            on_loss=self.healing.lost,
        )
        self.lease = LeaseKeeper(
            engine=engine,
            standing=self.standing,
            clock=clock_,
            sweep=self.sweep,
            freshness=self.freshness,
            tasks=tasks,
            metrics=metrics,
            node_lease=settings.node_lease,
            on_new_epoch=self._begin_epoch,
        )
        self.choices = Choices(self.decider, self.recorder, ledger)
        self.subscriptions = Subscriptions(
            people=self.people,
            hub=self.hub,
            channels=self.channels,
            reader=self.reader,
            clock=clock_,
            metrics=metrics,
            tasks=tasks,
            max_subscriptions=settings.max_subscriptions,
        )
        self.streams = Streams(
            people=self.people,
            hub=self.hub,
            channels=self.channels,
            subscriptions=self.subscriptions,
            clock=clock_,
            metrics=metrics,
            shards=engine.shards,
            max_connections=settings.max_connections_per_user,
            max_subscriptions=settings.max_subscriptions,
        )
        self.polling = Polling(self.people, self.reader, clock_, settings.polling)
        self.typing = TypingRooms(
            engine=engine,
            people=self.people,
            reader=self.reader,
            subscriptions=self.subscriptions,
            clock=clock_,
            metrics=metrics,
            tasks=tasks,
            typing_for=settings.typing_for,
            typing_min=settings.typing_min,
            given_up=lambda: self.hub.gives_up_typing,
        )
        self.relations = Acquaintances(
            relations or ledger,
            ledger,
            clock_,
            metrics,
            self._relation_changed,
            self._trust_changed,
            on_old=self.subscriptions.facts_old,
            on_over=self.subscriptions.facts_over,
            on_answers=self.subscriptions.look_again_at_all,
            ttl=settings.relations_ttl,
            rooms_relate=settings.rooms_relate,
        )
        self.revocations = Revocations(ledger, clock_, metrics, tasks, token_max_ttl=settings.token_max_ttl)
        self.users = Users(
            engine=engine,
            ledger=ledger,
            people=self.people,
            reader=self.reader,
            decider=self.decider,
            sessions=self.sessions,
            streams=self.streams,
            relations=self.relations,
            revocations=self.revocations,
            standing=self.standing,
            clock=clock_,
            tasks=tasks,
            origin=self.typing.origin,
        )
        self.views = Views(
            people=self.people,
            channels=self.channels,
            reader=self.reader,
            decider=self.decider,
            subscriptions=self.subscriptions,
            shards=engine.shards,
        )
        self.subscriptions.attach(self.relations)
        self.typing.attach(self.relations)
        self.views.attach(self.relations)
        self.news = News(engine, self.relations, self.subscriptions, self.typing)
        self.graph = Graph(ledger, self.news, clock_)
        self.mail = Mail(
            engine=engine,
            typing=self.typing,
            news=self.news,
            shares=self.shares,
            users=self.users,
            tasks=tasks,
        )
        self.inquiries = Inquiries(engine, self.relations, self.decider, self.views, timings)
        self.privacy = Privacy(ledger, self.relations, self.reader, self.news, clock_)
        self.sessions.on_gone = self.typing.leave_all

    # Life

    async def start(self, terms: Mapping[str, str]) -> None:
        """Engine and ledger are reached, what was left open is closed, and everything runs. `ledger` is open already."""
        await self.engine.open(terms)
        if self.settings.embedded:
            await take_over(self.engine, self.ledger, self.clock, self.settings.timings)
        await self.lease.start()
        await self.relations.start()
        await self.revocations.start()  # after the cursor of what changes: nothing is missed between them
        await self.tail.start()
        await self.census.keep(self.tail.cursors)
        await self.healing.start()
        self._run()
        self.ready = True

    def _run(self) -> None:
        every, spawn = self._tasks.every, self._tasks.spawn
        third = self.settings.node_lease / 3
        every(third, self.lease.keep, "lease", after_failure=RENEW_AGAIN)
        every(third, self._check_store, "check")
        every(0, self._follow_log, "tail")
        every(self.settings.reaping.poll, self.reaper.run, "reaper")
        every(third, self.shares.tell, "shares")
        every(POLL, self.relations.poll, "relations")
        every(FORGET_EVERY, self.revocations.forget_old, "voids")
        every(0, self.mail.receive, "mail")
        every(TURN, self._turn, "wheel")
        every(1.0, self._look_around, "round")
        every(LOOK, self._note, "pulse")
        spawn(self.recorder.run(), "recorder")
        if self.settings.embedded:
            every(STAMP_EVERY, self.recorder.stamp, "run-stamp")

    async def drain(self) -> None:
        """Clients are told to come back, and have a moment to go. Requests are still answered."""
        if self.draining:
            return
        self.draining = True
        self.ready = False
        self.sessions.end_all(Close.DRAINING, self.come_back)
        self.streams.end_all(Close.DRAINING, self.come_back)
        if not await self._within(FAREWELL, lambda: not self.metrics.connections):
            log.warning("stop.clients_stay", connections=self.metrics.connections)

    async def stop(self) -> None:
        """What clients leave behind is committed and written; the lease goes last. Nothing new may come in any more."""
        await self.drain()
        self.sessions.let_go_all()
        handed_over = await self._hand_over()
        await self._finish_ledger()
        if handed_over:
            await self.shares.leave()
            await self._end_lease()
        self.hub.close()
        self.decider.close()
        await self._tasks.end()
        await self.engine.close()

    async def _hand_over(self) -> bool:
        """Whether everything we held is committed as lost. If not, our row stays, so that others find us dead."""
        stamps = self._tasks.spawn(self.rest_beats.hand_over(), "hand-over")
        if await self._within(FAREWELL, lambda: stamps.done() and not any(p.unfinished for p in self.people)):
            return True
        log.warning("stop.unfinished", users=sum(p.unfinished for p in self.people))
        return not any(p.unfinished for p in self.people)

    async def _within(self, seconds: float, done: Callable[[], bool]) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    if done():
                        return True
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False

    async def _finish_ledger(self) -> None:
        """An embedded store ends with this process, so that all of it must be written; another keeps its marks."""
        try:
            async with asyncio.timeout(None if self.settings.embedded else LAST_WORDS):
                await self.recorder.finish()
        except TimeoutError:
            log.warning("ledger.unavailable", backlog=self.recorder.backlog)

    async def _end_lease(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self.lease.end()
        except (HerenowError, TimeoutError) as error:
            log.warning("lease.left", error=str(error))

    # Errands

    async def _check_store(self) -> None:
        """What would go wrong without an error: a tail that hears nothing, a shard that lost writes. Each for itself: where
        the logs cannot be compared, a shard may have lost something all the same."""
        try:
            await self.tail.check()
        except Unavailable as error:
            self.metrics.engine_errors += 1
            log.warning("check.failed", error=str(error))
        await self.writer.verify_lately()

    async def _follow_log(self) -> None:
        try:
            await self.tail.follow()
        except Unavailable:
            await asyncio.sleep(0.2)

    async def _turn(self) -> None:
        self.hub.catch_up()
        self.overload.look()
        self.silence.turn()
        if self.silence.suspicious:
            self._tasks.spawn(self.silence.lose(), "silence")
        self.tail.listen()
        for outbox in self.hub.stuck(self.settings.stuck_after):
            outbox.abort()

    async def _note(self) -> None:
        self.pulse.look()
        self.hub.fan_out.turn()

    async def _look_around(self) -> None:
        """What need not be done at once."""
        self.people.forget_old(self.clock.now())
        self.hub.new_day()
        for person in await self.reader.confirm():
            if person.stands:  # else it is decided first
                self.hub.publish(person)
        if self.relations.in_doubt:
            self._tasks.spawn(self.relations.resolve(), "doubts")  # a source may take its time
        await self.census.keep(self.tail.cursors)

    # Between the parts

    async def _send(self, message: bytes) -> None:
        await write_within(self.engine.send(message))

    def _ended(self, session: HeldSession, why: str) -> None:
        self.sessions.ended(session, why)

    def _standing_now(self, session: HeldSession) -> None:
        self.sessions.stands(session)

    def _begin_epoch(self) -> None:
        self.on_epoch(self.standing.epoch)
        self.sessions.assert_again()
        self.decider.try_again()

    def _relation_changed(self, change: LedgerChange) -> None:
        self.subscriptions.changed(change)
        self.typing.changed(change)
        self.revocations.changed(change)

    def _trust_changed(self) -> None:
        self.subscriptions.trust_changed()
        self.revocations.ledger_is(within_reach=self.relations.trusted)

    def _bar(self, person: Person) -> list[Edit]:
        return self.users.bar(person)

    def come_back(self) -> str:
        """When to return: spread over a third of the grace, so that nobody is missed and not all come at once."""
        spread = self.settings.timings.grace // 3
        return f"retry_after_ms={random.randint(0, max(spread, 1))}"


def _nobody(epoch: str) -> None:
    pass
