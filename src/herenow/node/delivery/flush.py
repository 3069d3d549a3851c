"""When a connection gets the changes that concern it, and in which frames.

A connection gets its first change at once. Then it waits for the end of the flush interval (tick), and gets all changes of
the interval in one frame. A send takes several microseconds in the kernel, so this conflation makes a busy minute cheap. An
encoded status (body) equal to the last one sent is not sent. While a connection has nothing unsent, the last one sent *is*
the channel's body, so it is stored once per channel and interval for all waiting connections (`_Touched`). Only where they
do not all have the same (a viewer came, was sent to in between, or does not read) each outbox stores its own. Channels with
exactly the same many viewers are processed together.

The interval is 20 ms when calm, 50 ms when busy, and up to a second when that does not suffice.
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
    had: bytes
    """The encoded status that all waiting connections last got."""
    sent: frozenset[Outbox]
    """Connections that did not wait and were sent the new status."""


@dataclass(slots=True, eq=False, repr=False)
class _Joint:
    """One frame for all connections that miss exactly these channels."""

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
        self._all_waiting: set[ViewerSet] = set()
        """Viewer sets of which no connection is ready before the interval ends."""
        self._paused: set[Outbox] = set()
        self._timer: asyncio.TimerHandle | None = None

    # Changes

    def deliver(self, channel: Channel, had: bytes) -> None:
        """Deliver a user's new status to the viewers of this channel: connections that are ready get it now, the others
        when the flush interval ends. `had`: the encoded status before."""
        ready = self._ready(channel)
        if len(ready) < len(channel.outboxes):  # otherwise no viewer waits
            self._touch(channel, had, ready)
        self.send(channel, ready)

    def _ready(self, channel: Channel) -> list[Outbox]:
        if not self._cooling and not self._paused:
            return list(channel.outboxes)
        if self._all_waiting and self.viewer_sets.of(channel) in self._all_waiting:
            return []
        ready = [outbox for outbox in channel.outboxes if outbox.ready]
        if not ready and (viewers := self.viewer_sets.of(channel)) is not None:
            self._all_waiting.add(viewers)
        return ready

    def _touch(self, channel: Channel, had: bytes, ready: list[Outbox]) -> None:
        touched = self.touched.get(channel)
        if touched is None:
            self.touched[channel] = _Touched(had, frozenset(ready))
        elif ready or touched.sent:
            self.remember(channel)
            self.touched[channel] = _Touched(had, frozenset(ready))

    def send(self, channel: Channel, ready: list[Outbox]) -> None:
        """Send the channel's current status to these ready connections now; then they wait until the flush interval ends."""
        if ready:
            frame = self._channels.frame(channel)
            for outbox in ready:
                outbox.ready = False
                outbox.send(frame)
            self._cooling += ready
            self._count(channel, len(ready))
        self._schedule()

    def remember(self, channel: Channel) -> None:
        """Copy the status that was last sent on this channel into each outbox that waits for the next flush. The channel
        keeps one copy for all its viewers: call this just before one of them gets another status than the rest."""
        touched = self.touched.pop(channel, None) if self.touched else None
        if touched is not None:
            for outbox in channel.outboxes:
                if outbox not in touched.sent:
                    outbox.add_missed(channel, touched.had)

    def deliver_own(self, person: Person) -> None:
        """Send the user's own view (`presence.self`: status, mode, custom status, devices) to the user's devices if it
        changed. The last view is kept as a hash: encoded it would take too much memory."""
        own = seen_by_oneself(self._people.shown(person.user, person.record.presence))
        had, person.watchers.own_view = person.watchers.own_view, hash(own)
        if had is None or had == person.watchers.own_view:
            return
        for outbox in list(person.watchers.outboxes):
            if not outbox.gets_own:
                continue
            if outbox.ready:
                outbox.ready = False
                self._wait(outbox)
                self.send_own(outbox, own)
            elif outbox.had_own is None:
                outbox.had_own = had

    def send_own(self, outbox: Outbox, own: OwnView) -> None:
        self._metrics.frames += 1
        outbox.send(self_frame(self_body(own)))

    # Clients that do not read

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
        self._wait(outbox)

    def stuck(self, stuck_after: float) -> list[Outbox]:
        limit = self._clock.monotonic() - stuck_after
        return [o for o in self._paused if o.paused_at is not None and o.paused_at <= limit]

    def forget(self, outbox: Outbox) -> None:
        self._paused.discard(outbox)

    # The end of a flush interval

    def relax(self) -> None:
        """Drop the cached sets of viewers, which channels with the same viewers share, if no flush is scheduled. Call
        regularly."""
        if self._timer is None:
            self.viewer_sets.forget()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, outbox: Outbox) -> None:
        """Let this connection wait until the flush interval ends: then it is sent what it missed, or becomes ready."""
        self._cooling.append(outbox)
        self._schedule()

    def _schedule(self, *, worked: bool = False) -> None:
        """Schedule the end of the flush interval, unless that is done. Intervals end on a fixed time grid: otherwise
        the time of an update to one viewer would reveal activity of others. `worked`: a flush has just ended, so leave
        at least a quarter of an interval for other work."""
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
        self._all_waiting.clear()
        cooling, self._cooling = self._cooling, []
        joints: dict[tuple[ChangeSet | Channel, ...], _Joint] = {}
        for outbox in cooling:
            if outbox.closed or outbox.paused_at is not None:
                continue
            if outbox.unsent is None and not outbox.dirty and outbox.had_own is None:
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
        """Add the changes of this flush interval to the outboxes that wait for them. Encoded statuses are compared once
        per channel, not per viewer."""
        touched, self.touched = self.touched, {}
        alike: dict[ViewerSet, list[Channel]] = {}
        for channel, change in touched.items():
            if channel.body == change.had:
                continue
            viewers = None if change.sent else self.viewer_sets.of(channel)
            if viewers is not None:
                alike.setdefault(viewers, []).append(channel)
            else:
                sent = change.sent
                _give([outbox for outbox in channel.outboxes if outbox not in sent], ChangeSet((channel,)))
        for viewers, channels in alike.items():
            _give(viewers, ChangeSet(tuple(channels)))
        for outbox in self._paused:  # these connections are sent the changes later, when `touched` is gone
            for changes in outbox.unsent or ():
                for channel in changes.channels:
                    outbox.add_missed(channel, touched[channel].had)
            outbox.unsent = None

    def _flush(self, outbox: Outbox, joints: dict[tuple[ChangeSet | Channel, ...], _Joint]) -> None:
        """Send a connection the changes that it missed. `joints`: the frames of this flush, by the changes in them;
        connections that watch the same users mostly share a frame."""
        if outbox.had_own is not None:
            self._flush_own(outbox)
        unsent, outbox.unsent = outbox.unsent or (), None
        missed: tuple[ChangeSet | Channel, ...] = tuple(unsent)
        if outbox.dirty:
            dirty, outbox.dirty = outbox.dirty, None
            missed = tuple(c for c, had in dirty.items() if is_news(c, had))
            missed += tuple(c for changes in unsent for c in changes.channels if c not in dirty)
        if not missed:
            return
        joint = joints.get(missed)
        if joint is None:
            joint = joints[missed] = self._make_joint(missed)
        joint.times += 1
        outbox.send(joint.frame)

    def _flush_own(self, outbox: Outbox) -> None:
        had, outbox.had_own = outbox.had_own, None
        person = self._people.find(outbox.user)
        if person is not None and person.watchers.own_view != had:
            self.send_own(outbox, seen_by_oneself(self._people.shown(person.user, person.record.presence)))

    def _make_joint(self, missed: tuple[ChangeSet | Channel, ...]) -> _Joint:
        """Encode the frame for connections that missed these changes. Statuses are sorted by user id: the order of
        events would reveal why a view changed."""
        channels = [c for each in missed for c in (each.channels if isinstance(each, ChangeSet) else (each,))]
        channels.sort(key=_by_id)
        return _Joint(channels, self._channels.joint_frame(channels))

    # Counting

    def _count(self, channel: Channel, sent: int) -> None:
        self._metrics.frames += sent
        self._metrics.deliveries += sent
        if channel.sight.kind is not _TRUTH:
            self.top_targets.count(channel.person.user, sent)
        if channel.delivery is None:  # other ways of delivery delay on purpose
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
        """Adapt the length of the flush interval to the seconds that the last flush took. Flushing may take a third of the
        time, because handling the changes takes as much; from `BUSY_TICK` on, where viewers notice the delay, nearly all. A
        longer interval saves frames, not bytes: it shrinks as soon as the work fits into a shorter one."""
        busy = self._tick >= BUSY_TICK
        if took > self._tick * (0.9 if busy else 0.33):
            self._tick = min(WIDEST_TICK if busy else BUSY_TICK, self._tick * 1.5)
        elif took < self._tick * (0.7 if busy else 0.16):
            self._tick = max(CALM_TICK, self._tick / 1.5)


def _give(outboxes: Iterable[Outbox], changes: ChangeSet) -> None:
    for outbox in outboxes:
        if outbox.unsent is None:
            outbox.unsent = [changes]
        else:
            outbox.unsent.append(changes)


def _by_id(channel: Channel) -> str:
    return channel.person.user
