"""Who here watches whom, and the way from a change to their sockets.

Answers: somebody's record changed; which connections of this node must hear of it, when, and in which bytes?
Does not know sockets (an outbox has a `send`), stores, or why somebody may see what they see (a `Sight` is given).

The idea. Viewers with the same sight of a target see the same bytes, so they share a `Channel` that is encoded once. A
connection's first change goes out at once; after that it rests for a tick, collects the ids of what changes, and gets
them in one frame at the tick's end. A send costs several microseconds in the kernel whatever we do, so this conflation
is what makes a busy minute cheap. Values equal to the last one sent are not sent: while a connection is clean, the last
one sent *is* the channel's body, so what those who rest had is noted once per channel and tick (`_Touched`). Only where
that is not the same for all of them (somebody comes, or was told in between, or does not read) each remembers its own.
People with exactly the same many viewers are gone through together (`audiences`).

The tick is 20 ms when calm, 50 ms when busy, and up to a second when that does not suffice.

Two things are kept from everybody else's milliseconds. A person with very many viewers here is told in waves (`waves`), or
not at all beyond a ceiling, where viewers ask when they look (`core.pacing`). And what a node that cannot keep up gives up
waits until it can (`core.shedding`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from herenow.core.model import OwnView, View
from herenow.core.pacing import Crowds, Delivery
from herenow.core.shedding import Shed, may_wait
from herenow.core.visibility import Kind, Sight, coarse, day_of, seen, seen_by_oneself
from herenow.service.audiences import Audience, Audiences
from herenow.service.clock import Clock
from herenow.service.fan_out import FanOut
from herenow.service.metrics import Metrics
from herenow.service.outbox import Outbox
from herenow.service.people import People, Person
from herenow.service.waves import Told, Waves
from herenow.wire.shapes import (
    closed_statuses_frame,
    self_body,
    self_frame,
    status_body,
    status_frame,
    statuses_frame,
    with_as_of,
    with_delivery,
)

CALM_TICK = 0.02
BUSY_TICK = 0.05
WIDEST_TICK = 1.0

CATCH_UP = 0.05
"""Seconds at a time that go into sending what waited while the node was late."""

FEW = 64
"""Viewers that a channel keeps in a list, which has a fifth of a dictionary's size; who leaves is searched for there."""

ASKS = b""
"""What a viewer had who was told to ask: we do not know."""


class Channel:
    """One target through one kind of eyes."""

    __slots__ = ("body", "delivery", "outboxes", "person", "shown", "sight")

    def __init__(self, person: Person, sight: Sight) -> None:
        self.person = person
        self.sight = sight
        self.shown = person.presence
        """What the body was made from."""
        self.body = b""
        self.outboxes: list[Outbox] | dict[Outbox, None] = []
        """In the order they came."""
        self.delivery: Delivery | None = None
        """How changes reach the viewers, when not at once: the same for everybody who looks at this person."""

    def add(self, outbox: Outbox) -> None:
        """One that is not here."""
        if isinstance(self.outboxes, dict):
            self.outboxes[outbox] = None
        elif len(self.outboxes) < FEW:
            self.outboxes.append(outbox)
        else:
            self.outboxes = dict.fromkeys((*self.outboxes, outbox))

    def remove(self, outbox: Outbox) -> None:
        """One that is here."""
        if isinstance(self.outboxes, dict):
            del self.outboxes[outbox]
        else:
            self.outboxes.remove(outbox)

    @property
    def said(self) -> bytes:
        """The body as viewers get it. That changes are paced is told with a change, not for its own sake; that they are
        not pushed at all has to be known, and is part of the body."""
        if self.delivery is Delivery.PACED:
            return with_delivery(self.body, self.delivery)
        return self.body


class _Touched:
    """A channel changed in this tick."""

    __slots__ = ("had", "told")

    def __init__(self, had: bytes, told: frozenset[Outbox]) -> None:
        self.had = had
        """What everybody who rests had of it before."""
        self.told = told
        """Who was not resting, and has been sent the new body."""


class News:
    """What changed in a tick for the same viewers. Each is itself, however equal: cheap to find again."""

    __slots__ = ("channels",)

    def __init__(self, channels: tuple[Channel, ...]) -> None:
        self.channels = channels


class _Joint:
    """One frame for everybody who has just these channels to hear of."""

    __slots__ = ("channels", "frame", "times")

    def __init__(self, channels: list[Channel], frame: bytes) -> None:
        self.channels = channels
        self.frame = frame
        self.times = 0


class Hub:
    def __init__(
        self,
        people: People,
        clock: Clock,
        metrics: Metrics,
        flush_every: float = 0.0,
        crowds: Crowds | None = None,
    ) -> None:
        """`flush_every` in seconds; 0: the tick adapts itself."""
        self._people = people
        self._clock = clock
        self._metrics = metrics
        self.fan_out = FanOut(clock)
        self._adaptive = flush_every == 0
        self._tick = flush_every or CALM_TICK
        self._cooling: list[Outbox] = []
        self._touched: dict[Channel, _Touched] = {}
        self._audiences = Audiences()
        self._resting: set[Audience] = set()
        """Nobody of these is ready before the tick ends."""
        self._timer: asyncio.TimerHandle | None = None
        self._paused: set[Outbox] = set()
        self._stale: dict[int, int] = {}
        self._crowds = crowds or Crowds()
        self._few = min(self._crowds.pace_above, self._crowds.push_ceiling)
        self._deliveries: dict[str, Delivery] = {}
        """Who has so many viewers that changes are not told at once."""
        self._waves = Waves(self._is_active, self._tell)
        self._shed = Shed.NOTHING
        self._given_up: dict[Channel, None] = {}
        """Whose difference waits until the node has caught up."""
        self._overdue: list[Channel] = []
        """Those among them that the present level may not give up."""
        self.today = day_of(clock.now())
        """What buckets are counted from, here and in every answer: it moves for all at once, with `new_day`."""

    # Watching

    def watch(self, outbox: Outbox, person: Person, sight: Sight) -> Channel:
        """From now on this connection gets what changes. The caller sends the channel's body first, in this very step,
        so that clean means up to date."""
        present = outbox.watching.get(person.user)
        if present is not None and present.sight != sight:
            self.resight(outbox, person, sight)
        channel = self._channel(person, sight)
        self._remember(channel)
        if present is None:
            self._join(outbox, channel)
        self._choose_delivery(person)
        if self._waves:
            self._waves.withdraw(person, outbox)
        if outbox.dirty:
            outbox.dirty.pop(channel, None)
        return channel

    def unwatch(self, outbox: Outbox, user: str) -> None:
        channel = outbox.watching.pop(user, None)
        if channel is not None:
            outbox.dirty.pop(channel, None)
            if self._waves:
                self._waves.withdraw(channel.person, outbox)
            self._leave(outbox, channel)
            self._choose_delivery(channel.person)

    def resight(self, outbox: Outbox, person: Person, sight: Sight) -> None:
        """The rules now give this viewer another view of the same target: it hears of it if that looks different."""
        old = outbox.watching[person.user]
        if old.sight == sight:
            return
        person.changed_at = self._clock.monotonic()
        self._remember(old)
        missed = outbox.dirty.pop(old, None)
        new = self._channel(person, sight)
        self._remember(new)
        self._join(outbox, new)
        self._leave(outbox, old)
        if missed is None:
            self._offer(outbox, new, old)
        elif _is_news(new, missed):
            outbox.dirty[new] = missed
        self._choose_delivery(person)

    def join_own(self, outbox: Outbox, person: Person) -> None:
        """A user's own connection gets `presence.self`, now and after any change."""
        if outbox.hears_own or outbox.closed:
            return
        own = seen_by_oneself(person.presence)
        if not any(other.hears_own for other in person.outboxes):  # else it is kept by `publish`
            person.own_view = hash(own)
        outbox.hears_own = True
        self._send_own(outbox, own)

    def forget(self, outbox: Outbox) -> None:
        """The connection is gone: so is its interest, everywhere."""
        outbox.closed = True
        self._paused.discard(outbox)
        for user in list(outbox.watching):
            self.unwatch(outbox, user)
        outbox.dirty.clear()

    # Changes

    def publish(self, person: Person) -> None:
        """Something about this person may look different now."""
        self._publish(person, self._refresh)

    def _publish(self, person: Person, show: Callable[[Channel], None]) -> None:
        person.unpublished = False
        for channel in person.channels:
            show(channel)
        if person.outboxes:
            self._publish_own(person)
            if self._waves and self._is_active(person.user):
                for outbox in person.outboxes:
                    self._waves.hasten(outbox)

    def _refresh(self, channel: Channel) -> None:
        if not self._shed or not self._may_wait(channel):
            self._show(channel)
        elif channel not in self._given_up:
            self._given_up[channel] = None
            self._metrics.given_up["change"] += 1

    def _show(self, channel: Channel) -> None:
        had = channel.body
        self._encode(channel)
        if channel.body != had:
            self._fan_out(channel, had)

    def _may_wait(self, channel: Channel) -> bool:
        return may_wait(
            seen(channel.shown, self._sight(channel), self.today), self._seen(channel), self._shed
        )

    @property
    def gives_up_typing(self) -> bool:
        return self._shed >= Shed.TYPING

    def shed(self, level: Shed) -> None:
        """The node is late, or has caught up: what the new level does not give up is sent."""
        self._shed = level
        self._overdue = list(self._given_up)
        self.catch_up()

    def catch_up(self) -> None:
        """A little at a time, or the node would be late again. Called a few times a second."""
        if self._timer is None:  # it is calm
            self._audiences.forget()
        until = self._clock.monotonic() + CATCH_UP
        while self._overdue:
            channel = self._overdue.pop()
            if channel in self._given_up and not self._may_wait(channel):
                self._show(channel)
            if self._clock.monotonic() > until:
                return

    def _publish_own(self, person: Person) -> None:
        """The user's own devices stay in step. Compared by hash: a body each would be the largest thing we keep."""
        own = seen_by_oneself(person.presence)
        had, person.own_view = person.own_view, hash(own)
        if had is None or had == person.own_view:
            return
        for outbox in list(person.outboxes):
            if not outbox.hears_own:
                continue
            if outbox.ready:
                outbox.ready = False
                self._cool(outbox)
                self._send_own(outbox, own)
            elif outbox.had_own is None:
                outbox.had_own = had

    def as_of(self, shard: int, now: int | None = None) -> int:
        """Since when what we say of this shard is known to be true; `now` for who has asked the clock already."""
        return self._stale.get(shard) or now or self._clock.now()

    def is_stale(self, shard: int) -> bool:
        return shard in self._stale

    @property
    def stale_shards(self) -> int:
        return len(self._stale)

    @property
    def stale_views(self) -> int:
        """How many views that somebody here has open say that they are stale. Counted while there are any."""
        if not self._stale:
            return 0
        stale = [person for person in self._people if person.channels and self._says_stale(person)]
        return sum(len(channel.outboxes) for person in stale for channel in person.channels)

    def viewers(self, user: str) -> int:
        """Who looks at this person here; own devices and services are not counted."""
        person = self._people.find(user)
        return 0 if person is None else _viewers(person)

    def set_stale(self, shard: int, *, stale: bool) -> None:
        """A flip is told once to everybody who looks at somebody in that shard."""
        if stale == (shard in self._stale):
            return
        if stale:
            self._stale[shard] = self._clock.now()
        else:
            del self._stale[shard]
        for person in self._people.in_shard(shard):
            if person.channels and (person.stands or not person.unpublished):  # else it is decided first
                person.changed_at = self._clock.monotonic()  # what is told now is news of now
                self._publish(person, self._show)  # no matter what an overloaded node gives up

    def body(self, person: Person, sight: Sight) -> bytes:
        """A status body for an answer: the channel's if there is one. An answer says nothing about delivery."""
        for channel in person.channels:
            if channel.sight == sight and channel.delivery is not Delivery.POLL:
                if channel not in self._given_up:
                    return channel.body
                break
        return status_body(
            person.user, seen(person.presence, sight, self.today), stale=self._says_stale(person)
        )

    @property
    def popular(self) -> dict[Delivery, int]:
        """How many people are delivered in which way, if not at once."""
        return {delivery: list(self._deliveries.values()).count(delivery) for delivery in Delivery}

    @property
    def paced_waiting(self) -> int:
        return self._waves.waiting

    def as_answered(self, sights: Mapping[str, Sight]) -> Mapping[str, Sight]:
        """What is on demand is told less exactly, whoever asks by whichever way."""
        if Delivery.POLL not in self._deliveries.values():
            return sights
        return {
            user: coarse(sight) if self._deliveries.get(user) is Delivery.POLL else sight
            for user, sight in sights.items()
        }

    def new_day(self) -> None:
        """Buckets grow old at midnight, for those who hide as for those who are gone. Called now and then."""
        today = day_of(self._clock.now())
        if today == self.today:
            return
        self.today = today
        for person in self._people:
            for channel in person.channels:
                if self._sight(channel).blurred:
                    person.changed_at = self._clock.monotonic()
                    self._refresh(channel)

    # A peer that does not read

    def pause(self, outbox: Outbox) -> None:
        if outbox.paused_at is None and not outbox.closed:
            outbox.paused_at = self._clock.monotonic()
            outbox.ready = False
            self._paused.add(outbox)

    def resume(self, outbox: Outbox) -> None:
        if outbox.paused_at is None:
            return
        outbox.paused_at = None
        self._paused.discard(outbox)
        self._cool(outbox)

    def stuck(self, stuck_after: float) -> list[Outbox]:
        """Who has not read for so long."""
        limit = self._clock.monotonic() - stuck_after
        return [o for o in self._paused if o.paused_at is not None and o.paused_at <= limit]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waves.close()

    # How

    def _channel(self, person: Person, sight: Sight) -> Channel:
        for channel in person.channels:
            if channel.sight is sight or channel.sight == sight:
                if channel in self._given_up:  # who comes now gets the truth, and so does everybody
                    self._show(channel)
                return channel
        channel = Channel(person, sight)
        channel.delivery = None if sight.kind is Kind.TRUTH else self._deliveries.get(person.user)
        self._encode(channel)
        person.channels = (*person.channels, channel)
        return channel

    def _join(self, outbox: Outbox, channel: Channel) -> None:
        channel.add(outbox)
        outbox.watching[channel.person.user] = channel
        self._audiences.changed(channel)

    def _leave(self, outbox: Outbox, channel: Channel) -> None:
        channel.remove(outbox)
        self._audiences.changed(channel)
        if not channel.outboxes:
            self._given_up.pop(channel, None)
            person = channel.person
            person.channels = tuple(c for c in person.channels if c is not channel)
            self._people.release(person, self._clock.now())

    def _sight(self, channel: Channel) -> Sight:
        return coarse(channel.sight) if channel.delivery is Delivery.POLL else channel.sight

    def _seen(self, channel: Channel) -> View:
        return seen(channel.person.presence, self._sight(channel), self.today)

    def _encode(self, channel: Channel) -> None:
        person = channel.person
        self._given_up.pop(channel, None)
        channel.shown = person.presence
        channel.body = status_body(person.user, self._seen(channel), stale=self._says_stale(person))
        if channel.delivery is Delivery.POLL:
            channel.body = with_delivery(channel.body, channel.delivery)

    def _says_stale(self, person: Person) -> bool:
        return person.guessed or person.shard in self._stale

    def _frame(self, channel: Channel) -> bytes:
        return status_frame(channel.said, self.as_of(channel.person.shard))

    def _fan_out(self, channel: Channel, had: bytes) -> None:
        """Who is ready gets it now; those who rest are gone through at the end of the tick, once."""
        if channel.delivery is not None:
            if channel.delivery is Delivery.PACED:
                self._pace(channel, had)
            return
        ready = self._ready(channel)
        touched = self._touched.get(channel)
        if touched is None:
            self._touched[channel] = _Touched(had, frozenset(ready))
        elif ready or touched.told:
            self._remember(channel)
            self._touched[channel] = _Touched(had, frozenset(ready))
        self._send_now(channel, ready)
        self._schedule()

    def _ready(self, channel: Channel) -> list[Outbox]:
        """Who is to be sent to now, and then rests as all the others."""
        audience = self._audiences.of(channel)
        if audience in self._resting:
            return []
        if audience is not None:
            self._resting.add(audience)
        return [outbox for outbox in channel.outboxes if outbox.ready]

    def _send_now(self, channel: Channel, ready: list[Outbox]) -> None:
        if ready:
            frame = self._frame(channel)
            for outbox in ready:
                outbox.ready = False
                outbox.send(frame)
            self._cooling += ready
            self._count(channel, len(ready))

    # Very many viewers

    def _choose_delivery(self, person: Person) -> None:
        """By the number of those who look, whatever they get to see. Own devices and services are no part of the crowd."""
        viewers = _viewers(person)
        if viewers <= self._few and person.user not in self._deliveries:
            return
        present = self._deliveries.get(person.user)
        chosen = self._crowds.delivery(viewers, present)
        if chosen is not present:
            self._deliver(person, present, chosen)

    def _deliver(self, person: Person, present: Delivery | None, chosen: Delivery | None) -> None:
        if chosen is None:
            del self._deliveries[person.user]
        else:
            self._deliveries[person.user] = chosen
        for channel in person.channels:
            if channel.sight.kind is Kind.TRUTH:
                continue
            self._remember(channel)
            channel.delivery = chosen
            if Delivery.POLL in (present, chosen):  # that has to be known: who is not told, must ask
                had = channel.body
                self._encode(channel)
                self._pace(channel, ASKS if present is Delivery.POLL else had)
        if chosen is None:
            self._waves.finish(person)

    def _pace(self, channel: Channel, had: bytes) -> None:
        """Each hears of it at its turn; who has something else to hear of at the end of this tick hears of it then."""
        outboxes = [outbox for outbox in channel.outboxes if channel not in outbox.dirty]
        self._waves.add(channel.person, outboxes, had, self._crowds.lasts(_viewers(channel.person)))

    def _is_active(self, user: str) -> bool:
        viewer = self._people.find(user)
        return viewer is not None and viewer.presence.active

    def _tell(self, person: Person, told: Told) -> None:
        """A part of a wave: what there is to see now, under the rules of now."""
        ready: dict[Channel, list[Outbox]] = {}
        for outbox, had in told:
            channel = outbox.watching.get(person.user)
            if channel is None or not _is_news(channel, had):
                continue
            if outbox.ready:
                ready.setdefault(channel, []).append(outbox)
            else:
                outbox.dirty.setdefault(channel, had)
        for channel, outboxes in ready.items():
            self._send_now(channel, outboxes)
            self._schedule()

    # Ticks

    def _remember(self, channel: Channel) -> None:
        """From here on not everybody who rests had the same of it: let each remember its own."""
        touched = self._touched.pop(channel, None) if self._touched else None
        if touched is not None:
            for outbox in channel.outboxes:
                if outbox not in touched.told:
                    outbox.dirty.setdefault(channel, touched.had)

    def _gather(self) -> None:
        """The end of a tick: what each of those who rest has not heard of. Compared once per channel, not per viewer."""
        touched, self._touched = self._touched, {}
        alike: dict[Audience, list[Channel]] = {}
        for channel, change in touched.items():
            if channel.body == change.had:
                continue
            audience = None if change.told else self._audiences.of(channel)
            if audience is not None:
                alike.setdefault(audience, []).append(channel)
            else:
                told = change.told
                _give([outbox for outbox in channel.outboxes if outbox not in told], News((channel,)))
        for audience, channels in alike.items():
            _give(audience, News(tuple(channels)))
        for outbox in self._paused:  # their turn comes later, when this is the past
            for news in outbox.unheard or ():
                for channel in news.channels:
                    outbox.dirty.setdefault(channel, touched[channel].had)
            outbox.unheard = None

    def _offer(self, outbox: Outbox, channel: Channel, before: Channel) -> None:
        """This one alone sees through other eyes now. Beside a crowd its turn comes as for any other change, and does not
        tell the reason; what is on demand is not pushed for this reason either."""
        person = channel.person
        asks = before.delivery is Delivery.POLL
        if channel.delivery is None:
            waited = self._waves.withdraw(person, outbox)
            had = waited if waited is not None else ASKS if asks else before.body
            if not _is_news(channel, had):
                return
            if outbox.ready:
                self._send_now(channel, [outbox])
                self._schedule()
            else:
                outbox.dirty[channel] = had
        elif channel.body != before.body and not (asks and channel.delivery is Delivery.POLL):
            self._waves.add(person, [outbox], before.body, self._crowds.lasts(_viewers(person)))

    def _send_own(self, outbox: Outbox, own: OwnView) -> None:
        self._metrics.frames += 1
        outbox.send(self_frame(self_body(own)))

    def _count(self, channel: Channel, sent: int) -> None:
        self._metrics.frames += sent
        self._metrics.deliveries += sent
        if channel.sight.kind is not Kind.TRUTH:
            self.fan_out.count(channel.person.user, sent)
        if channel.delivery is None:  # others are late on purpose
            late = self._clock.monotonic() - channel.person.changed_at
            self._metrics.delivery_seconds.observe(max(0.0, late), sent)

    def _cool(self, outbox: Outbox) -> None:
        """Let it wait for the end of a tick, where it is flushed or becomes ready."""
        self._cooling.append(outbox)
        self._schedule()

    def _schedule(self, *, worked: bool = False) -> None:
        """Ticks end on a grid of their own, whoever began to rest when: else the moment at which one viewer hears
        something would tell that somebody else did something. After a flush a quarter of a tick is left for everything
        else."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            pause = self._tick - loop.time() % self._tick
            if worked and pause < self._tick / 4:
                pause += self._tick
            self._timer = loop.call_later(pause, self._flush_all)

    def _flush_all(self) -> None:
        self._timer = None
        started = self._clock.monotonic()
        self._gather()
        self._resting.clear()
        cooling, self._cooling = self._cooling, []
        joints: dict[tuple[News | Channel, ...], _Joint] = {}
        for outbox in cooling:
            if outbox.closed or outbox.paused_at is not None:
                continue
            if outbox.unheard is None and not outbox.dirty and outbox.had_own is None:
                outbox.ready = True
                continue
            self._cooling.append(outbox)
            self._flush(outbox, joints)
        self._count_flushed(joints.values(), started)
        took = self._clock.monotonic() - started
        if self._adaptive:
            self._adapt(took)
        if self._cooling:
            self._schedule(worked=True)

    def _flush(self, outbox: Outbox, joints: dict[tuple[News | Channel, ...], _Joint]) -> None:
        """Connections that watch the same people mostly have the same to hear of: one frame for all of them."""
        if outbox.had_own is not None:
            self._flush_own(outbox)
        unheard, outbox.unheard = outbox.unheard or (), None
        missed: tuple[News | Channel, ...] = tuple(unheard)
        if outbox.dirty:
            dirty, outbox.dirty = outbox.dirty, {}
            missed = tuple(c for c, had in dirty.items() if _is_news(c, had))
            missed += tuple(c for news in unheard for c in news.channels if c not in dirty)
        if not missed:
            return
        joint = joints.get(missed)
        if joint is None:
            joint = joints[missed] = self._joint(missed)
        joint.times += 1
        outbox.send(joint.frame)

    def _flush_own(self, outbox: Outbox) -> None:
        had, outbox.had_own = outbox.had_own, None
        person = self._people.find(outbox.user)
        if person is not None and person.own_view != had:
            self._send_own(outbox, seen_by_oneself(person.presence))

    def _joint(self, missed: tuple[News | Channel, ...]) -> _Joint:
        """By id: an order of events would tell why somebody looks different."""
        channels = [c for each in missed for c in (each.channels if isinstance(each, News) else (each,))]
        channels.sort(key=_by_id)
        return _Joint(channels, self._joint_frame(channels))

    def _joint_frame(self, channels: list[Channel]) -> bytes:
        if len(channels) == 1:
            return self._frame(channels[0])
        if self._stale:  # then each is as of a time of its own
            return closed_statuses_frame([with_as_of(c.said, self.as_of(c.person.shard)) for c in channels])
        return statuses_frame([channel.said for channel in channels], self._clock.now())

    def _count_flushed(self, joints: Iterable[_Joint], now: float) -> None:
        for joint in joints:
            count = joint.times
            self._metrics.frames += count
            self._metrics.deliveries += count * len(joint.channels)
            for channel in joint.channels:
                if channel.sight.kind is not Kind.TRUTH:
                    self.fan_out.count(channel.person.user, count)
                if channel.delivery is None:
                    late = max(0.0, now - channel.person.changed_at)
                    self._metrics.delivery_seconds.observe(late, count)

    def _adapt(self, took: float) -> None:
        """Half of the time may go into flushing; beyond `BUSY_TICK`, where viewers notice, nearly all of it must. A wider
        tick saves frames, not bytes, so it is left as soon as the work fits into a narrower one."""
        busy = self._tick >= BUSY_TICK
        if took > self._tick * (0.9 if busy else 0.5):
            self._tick = min(WIDEST_TICK if busy else BUSY_TICK, self._tick * 1.5)
        elif took < self._tick * (0.7 if busy else 0.25):
            self._tick = max(CALM_TICK, self._tick / 1.5)


def _give(outboxes: Iterable[Outbox], news: News) -> None:
    for outbox in outboxes:
        if outbox.unheard is None:
            outbox.unheard = [news]
        else:
            outbox.unheard.append(news)


def _by_id(channel: Channel) -> str:
    return channel.person.user


def _is_news(channel: Channel, had: bytes) -> bool:
    """For who had this, and knows whether to ask."""
    return channel.body != had and not (had == ASKS and channel.delivery is Delivery.POLL)


def _viewers(person: Person) -> int:
    if len(person.channels) == 1:  # nearly everybody
        [channel] = person.channels
        return 0 if channel.sight.kind is Kind.TRUTH else len(channel.outboxes)
    return sum([len(c.outboxes) for c in person.channels if c.sight.kind is not Kind.TRUTH])
