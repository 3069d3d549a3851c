"""When does a connection hear of what changed for it, and in which frames?

A connection's first change goes out at once; after that it rests for a tick, collects the ids of what changes, and gets
them in one frame at the tick's end. A send costs several microseconds in the kernel whatever we do, so this conflation
is what makes a busy minute cheap. Values equal to the last one sent are not sent: while a connection is clean, the last
one sent *is* the channel's body, so what those who rest had is noted once per channel and tick (`_Touched`). Only where
that is not the same for all of them (somebody comes, or was told in between, or does not read) each remembers its own.
People with exactly the same many viewers are gone through together (`audiences`).

The tick is 20 ms when calm, 50 ms when busy, and up to a second when that does not suffice.

Does not know sockets (an outbox has a `send`), who watches whom and why (`hub`), nor what is said (`channels`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from herenow.core.model import OwnView
from herenow.core.visibility import Kind, seen_by_oneself
from herenow.node.context import Context
from herenow.node.delivery.channels import Channels, is_news
from herenow.node.delivery.top_targets import TopTargets
from herenow.node.delivery.viewer_sets import SharedViewerSets, ViewerSet
from herenow.node.people import ChangeSet, Channel, Outbox, Person
from herenow.wire.shapes import self_body, self_frame

_TRUTH = Kind.TRUTH  # an attribute of an enum is slow to get

CALM_TICK = 0.02
BUSY_TICK = 0.05
WIDEST_TICK = 1.0


@dataclass(slots=True, eq=False, repr=False)
class _Touched:
    """A channel changed in this tick."""

    had: bytes
    """What everybody who rests had of it before."""
    told: frozenset[Outbox]
    """Who was not resting, and has been sent the new body."""


@dataclass(slots=True, eq=False, repr=False)
class _Joint:
    """One frame for everybody who has just these channels to hear of."""

    channels: list[Channel]
    frame: bytes
    times: int = 0


class FlushScheduler:
    def __init__(self, context: Context, channels: Channels) -> None:
        self._people = context.people
        self._channels = channels
        self._clock = context.clock
        self._metrics = context.metrics
        self.top_targets = TopTargets(context.clock)
        self.viewer_sets = SharedViewerSets()
        flush_every = context.settings.flush_every
        self._adaptive = flush_every == 0
        self._tick = flush_every or CALM_TICK
        self._cooling: list[Outbox] = []
        self.touched: dict[Channel, _Touched] = {}
        self._resting: set[ViewerSet] = set()
        """Nobody of these is ready before the tick ends."""
        self._paused: set[Outbox] = set()
        self._timer: asyncio.TimerHandle | None = None

    # A change

    def tell(self, channel: Channel, had: bytes) -> None:
        """Its viewers had this until now. Who is ready gets it now; those who rest are gone through at the end of the
        tick, once."""
        ready = self._ready(channel)
        if len(ready) < len(channel.outboxes):  # else nobody rests who had something
            self._touch(channel, had, ready)
        self.send(channel, ready)

    def _ready(self, channel: Channel) -> list[Outbox]:
        """Who is to be sent to now, and then rests as all the others."""
        if not self._cooling and not self._paused:
            return list(channel.outboxes)
        if self._resting and self.viewer_sets.of(channel) in self._resting:
            return []
        ready = [outbox for outbox in channel.outboxes if outbox.ready]
        if not ready and (audience := self.viewer_sets.of(channel)) is not None:
            self._resting.add(audience)
        return ready

    def _touch(self, channel: Channel, had: bytes, ready: list[Outbox]) -> None:
        """Some of its viewers rest."""
        touched = self.touched.get(channel)
        if touched is None:
            self.touched[channel] = _Touched(had, frozenset(ready))
        elif ready or touched.told:
            self.remember(channel)
            self.touched[channel] = _Touched(had, frozenset(ready))

    def send(self, channel: Channel, ready: list[Outbox]) -> None:
        """At once, to these, who then rest."""
        if ready:
            frame = self._channels.frame(channel)
            for outbox in ready:
                outbox.ready = False
                outbox.send(frame)
            self._cooling += ready
            self._count(channel, len(ready))
        self._schedule()

    def remember(self, channel: Channel) -> None:
        """From here on not everybody who rests had the same of it: let each remember its own."""
        touched = self.touched.pop(channel, None) if self.touched else None
        if touched is not None:
            for outbox in channel.outboxes:
                if outbox not in touched.told:
                    outbox.misses(channel, touched.had)

    def tell_own(self, person: Person) -> None:
        """The user's own devices stay in step. Compared by hash: a body each would be the largest thing we keep."""
        own = seen_by_oneself(person.record.presence)
        had, person.watchers.own_view = person.watchers.own_view, hash(own)
        if had is None or had == person.watchers.own_view:
            return
        for outbox in list(person.watchers.outboxes):
            if not outbox.hears_own:
                continue
            if outbox.ready:
                outbox.ready = False
                self._cool(outbox)
                self.send_own(outbox, own)
            elif outbox.had_own is None:
                outbox.had_own = had

    def send_own(self, outbox: Outbox, own: OwnView) -> None:
        self._metrics.frames += 1
        outbox.send(self_frame(self_body(own)))

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

    def forget(self, outbox: Outbox) -> None:
        """The connection is gone."""
        self._paused.discard(outbox)

    # The end of a tick

    def relax(self) -> None:
        """Now and then: while it is calm, nothing is kept of who has the same viewers."""
        if self._timer is None:
            self.viewer_sets.forget()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

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
        joints: dict[tuple[ChangeSet | Channel, ...], _Joint] = {}
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

    def _gather(self) -> None:
        """What each of those who rest has not heard of. Compared once per channel, not per viewer."""
        touched, self.touched = self.touched, {}
        alike: dict[ViewerSet, list[Channel]] = {}
        for channel, change in touched.items():
            if channel.body == change.had:
                continue
            audience = None if change.told else self.viewer_sets.of(channel)
            if audience is not None:
                alike.setdefault(audience, []).append(channel)
            else:
                told = change.told
                _give([outbox for outbox in channel.outboxes if outbox not in told], ChangeSet((channel,)))
        for audience, channels in alike.items():
            _give(audience, ChangeSet(tuple(channels)))
        for outbox in self._paused:  # their turn comes later, when this is the past
            for news in outbox.unheard or ():
                for channel in news.channels:
                    outbox.misses(channel, touched[channel].had)
            outbox.unheard = None

    def _flush(self, outbox: Outbox, joints: dict[tuple[ChangeSet | Channel, ...], _Joint]) -> None:
        """Connections that watch the same people mostly have the same to hear of: one frame for all of them."""
        if outbox.had_own is not None:
            self._flush_own(outbox)
        unheard, outbox.unheard = outbox.unheard or (), None
        missed: tuple[ChangeSet | Channel, ...] = tuple(unheard)
        if outbox.dirty:
            dirty, outbox.dirty = outbox.dirty, None
            missed = tuple(c for c, had in dirty.items() if is_news(c, had))
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
        if person is not None and person.watchers.own_view != had:
            self.send_own(outbox, seen_by_oneself(person.record.presence))

    def _joint(self, missed: tuple[ChangeSet | Channel, ...]) -> _Joint:
        """By id: an order of events would tell why somebody looks different."""
        channels = [c for each in missed for c in (each.channels if isinstance(each, ChangeSet) else (each,))]
        channels.sort(key=_by_id)
        return _Joint(channels, self._channels.joint_frame(channels))

    # Counting

    def _count(self, channel: Channel, sent: int) -> None:
        self._metrics.frames += sent
        self._metrics.deliveries += sent
        if channel.sight.kind is not _TRUTH:
            self.top_targets.count(channel.person.user, sent)
        if channel.delivery is None:  # others are late on purpose
            late = self._clock.monotonic() - channel.person.watchers.changed_at
            self._metrics.delivery_seconds.observe(max(0.0, late), sent)

    def _count_flushed(self, joints: Iterable[_Joint], now: float) -> None:
        for joint in joints:
            count = joint.times
            self._metrics.frames += count
            self._metrics.deliveries += count * len(joint.channels)
            for channel in joint.channels:
                if channel.sight.kind is not _TRUTH:
                    self.top_targets.count(channel.person.user, count)
                if channel.delivery is None:
                    late = max(0.0, now - channel.person.watchers.changed_at)
                    self._metrics.delivery_seconds.observe(late, count)

    def _adapt(self, took: float) -> None:
        """A third of the time may go into flushing, for the changes themselves want as much; beyond `BUSY_TICK`, where
        viewers notice, nearly all of it must. A wider tick saves frames, not bytes, so it is left as soon as the work fits
        into a narrower one."""
        busy = self._tick >= BUSY_TICK
        if took > self._tick * (0.9 if busy else 0.33):
            self._tick = min(WIDEST_TICK if busy else BUSY_TICK, self._tick * 1.5)
        elif took < self._tick * (0.7 if busy else 0.16):
            self._tick = max(CALM_TICK, self._tick / 1.5)


def _give(outboxes: Iterable[Outbox], news: ChangeSet) -> None:
    for outbox in outboxes:
        if outbox.unheard is None:
            outbox.unheard = [news]
        else:
            outbox.unheard.append(news)


def _by_id(channel: Channel) -> str:
    return channel.person.user
