"""Connects users with the connections of this node that watch them, and delivers changes of their records.

    hub ─▶ channels    the visible state as bytes, shared by viewers with the same view scope
        ─▶ flush       ready connections get a change at once, others at the end of the flush interval
        ─▶ fanout      users with very many viewers: paced delivery, or polling

Changes that an overloaded node delays (`core.limits`) wait here until it has caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from herenow.core.limits import DeliveryMode, FanoutLimits, Shed, may_wait
from herenow.core.visibility import ViewScope, seen_by_oneself
from herenow.kit.idset import NO_IDS, among, having, lacking
from herenow.node.context import Context
from herenow.node.delivery.channels import Channels, is_news, viewers, watched_by
from herenow.node.delivery.fanout import FanoutPolicy
from herenow.node.delivery.flush import FlushScheduler
from herenow.node.people import Channel, Outbox, Person, without

CATCH_UP = 0.05
"""Seconds that one `catch_up` may take."""


class Hub:
    def __init__(self, context: Context, channels: Channels) -> None:
        self._people = context.people
        self._channels = channels
        self._clock = context.clock
        self._metrics = context.metrics
        self._flush = FlushScheduler(context, channels)
        limits = FanoutLimits(context.settings.pace_above, context.settings.push_ceiling)
        self._fanout = FanoutPolicy(context.people, channels, self._flush, limits)
        self._paced = self._fanout.paced
        self.top_targets = self._flush.top_targets
        self.pause, self.resume, self.stuck = self._flush.pause, self._flush.resume, self._flush.stuck
        self._shed = Shed.NOTHING
        self._overdue: list[Channel] = []
        """Delayed channels to check: the present level may not permit their delay any more."""

    def close(self) -> None:
        self._flush.close()
        self._paced.close()

    # Watching

    def watch(self, outbox: Outbox, wanted: Sequence[tuple[Person, ViewScope]]) -> list[Channel]:
        """Let this connection watch these users, each named once with its view scope: from now on it is sent their
        changes. Returns the channel that it joined for each. The caller must send the channels' current statuses before
        it next awaits, because the outbox counts as up to date."""
        watching = among(outbox.watching, [person.user for person, _ in wanted])
        new, channels = list[str](), list[Channel]()
        # Of fifty users that are watched at once nearly all are plain cases, for which these checks save the calls.
        behind, deliveries, few = self._channels.behind, self._channels.deliveries, self._fanout.few
        touched, alike = self._flush.touched, self._flush.viewer_sets.alike
        waves = self._paced.under_way
        try:
            for person, sight in wanted:
                user = person.user
                if user in watching:
                    self.change_scope(outbox, person, sight)
                shared = person.watchers.channels
                if len(shared) == 1 and shared[0].sight is sight and not behind:
                    [channel] = shared
                else:
                    channel = self._channel(person, sight)
                if channel in touched:
                    self._flush.remember(channel)
                if user not in watching:
                    new.append(user)
                    channel.add(outbox)
                    if channel in alike:
                        self._flush.viewer_sets.changed(channel)
                if deliveries or len(channel.outboxes) > few or len(person.watchers.channels) > 1:
                    self._fanout.choose(person)
                if waves:
                    self._paced.withdraw(person, outbox)
                if outbox.dirty:
                    outbox.take_missed(channel)
                channels.append(channel)
        finally:
            outbox.watching = having(outbox.watching, new)
        return channels

    def unwatch(self, outbox: Outbox, users: Sequence[str]) -> None:
        """Stop sending this connection changes of these users. Users that it does not watch are ignored."""
        watching = among(outbox.watching, users)
        outbox.watching = lacking(outbox.watching, users)
        for user in dict.fromkeys(users):
            if user in watching:
                self._stop_watching(outbox, user)

    def _stop_watching(self, outbox: Outbox, user: str) -> None:
        person = self._people.find(user)
        assert person is not None  # watched users are not released
        channel = watched_by(outbox, person)
        if outbox.dirty:
            outbox.take_missed(channel)
        if self._paced:
            self._paced.withdraw(person, outbox)
        self._leave(outbox, channel)
        self._fanout.choose(person)

    def change_scope(self, outbox: Outbox, person: Person, sight: ViewScope) -> None:
        """Change how much this connection may see of the user (its view scope), and send an update if the view differs."""
        old = watched_by(outbox, person)
        if old.sight == sight:
            return
        self.mark_changed(person)
        self._flush.remember(old)
        missed = outbox.take_missed(old)
        new = self._channel(person, sight)
        self._flush.remember(new)
        self._join(outbox, new)
        self._leave(outbox, old)
        if missed is None:
            self._fanout.offer(outbox, new, old)
        elif is_news(new, missed):
            outbox.add_missed(new, missed)
        self._fanout.choose(person)

    def join_own(self, outbox: Outbox, person: Person) -> None:
        """Send this connection its user's own view (`presence.self`: status, mode, custom status, devices), now and
        after each change."""
        if outbox.gets_own or outbox.closed:
            return
        own = seen_by_oneself(self._people.shown(person.user, person.record.presence))
        if not any(other.gets_own for other in person.watchers.outboxes):  # otherwise `publish` updates it
            person.watchers.own_view = hash(own)
        outbox.gets_own = True
        self._flush.send_own(outbox, own)

    def add_outbox(self, person: Person, outbox: Outbox) -> None:
        person.watchers.outboxes += (outbox,)

    def forget(self, outbox: Outbox) -> None:
        """Remove the outbox of a closed connection from all users that it watches, and drop its unsent changes."""
        outbox.closed = True
        viewer = self._people.find(outbox.user)
        if viewer is not None and outbox in viewer.watchers.outboxes:
            viewer.watchers.outboxes = without(viewer.watchers.outboxes, outbox)
        self._flush.forget(outbox)
        outbox.dirty = None
        watched, outbox.watching = outbox.watching, NO_IDS
        for user in watched:
            self._stop_watching(outbox, user)

    def _channel(self, person: Person, sight: ViewScope) -> Channel:
        for channel in person.watchers.channels:
            if channel.sight is sight or channel.sight == sight:
                if channel in self._channels.behind:  # a new viewer gets the current state, so all viewers do
                    self._show(channel)
                return channel
        return self._channels.open(person, sight)

    def _join(self, outbox: Outbox, channel: Channel) -> None:
        channel.add(outbox)
        self._flush.viewer_sets.changed(channel)

    def _leave(self, outbox: Outbox, channel: Channel) -> None:
        channel.remove(outbox)
        self._flush.viewer_sets.changed(channel)
        if not channel.outboxes:
            self._channels.drop(channel)

    # Changes

    def mark_changed(self, person: Person) -> None:
        """Record that a change of the user, which will be published, began now: delivery latency is measured from this
        time."""
        person.watchers.changed_at = self._clock.monotonic()

    def publish(self, person: Person) -> None:
        """Send the user's new status to viewers and the user's own devices, after the record changed."""
        self._publish(person, self._refresh)

    def set_stale(self, shard: int, *, stale: bool) -> None:
        """Flag the views of all users of a shard as stale, or as no longer stale, and send that to their viewers."""
        if stale == self._channels.is_stale(shard):
            return
        self._channels.set_stale(shard, stale=stale)
        for person in self._people.in_shard(shard):
            decided_first = person.unpublished and not person.matches_record
            if person.watchers.channels and not decided_first:
                self.mark_changed(person)
                self._publish(person, self._show)  # never delayed by overload

    def new_day(self) -> None:
        """Send viewers the approximate last seens that changed at midnight UTC. Call regularly."""
        for channel in self._channels.new_day():
            self.mark_changed(channel.person)
            self._refresh(channel)

    def _publish(self, person: Person, show: Callable[[Channel], None]) -> None:
        person.watchers.published = person.record.revision
        for channel in person.watchers.channels:
            show(channel)
        if person.watchers.outboxes:
            self._flush.deliver_own(person)
            if self._paced:
                self._fanout.hasten(person)

    def _refresh(self, channel: Channel) -> None:
        if not self._shed or not self._may_wait(channel):
            self._show(channel)
        elif channel not in self._channels.behind:
            self._channels.behind[channel] = None
            self._metrics.given_up["change"] += 1

    def _show(self, channel: Channel) -> None:
        had = channel.body
        self._channels.encode(channel)
        if channel.body == had:
            return
        if channel.delivery is None:
            self._flush.deliver(channel, had)
        elif channel.delivery is DeliveryMode.PACED:
            self._fanout.pace(channel, had)

    # Overload

    @property
    def gives_up_typing(self) -> bool:
        return self._shed >= Shed.TYPING

    def shed(self, level: Shed) -> None:
        """Set the level of load shedding, and send the delayed changes that this level does not delay."""
        self._shed = level
        self._overdue = list(self._channels.behind)
        self.catch_up()

    def catch_up(self) -> None:
        """Send changes that overload has delayed, for at most `CATCH_UP` seconds so that the node does not fall behind
        again. Call often."""
        self._flush.relax()
        until = self._clock.monotonic() + CATCH_UP
        while self._overdue:
            channel = self._overdue.pop()
            if channel in self._channels.behind and not self._may_wait(channel):
                self._show(channel)
            if self._clock.monotonic() > until:
                return

    def _may_wait(self, channel: Channel) -> bool:
        return may_wait(*self._channels.change(channel), self._shed)

    def viewers(self, user: str) -> int:
        person = self._people.find(user)
        return 0 if person is None else viewers(person)

    @property
    def popular(self) -> dict[DeliveryMode, int]:
        ways = list(self._channels.deliveries.values())
        return {delivery: ways.count(delivery) for delivery in DeliveryMode}

    @property
    def paced_waiting(self) -> int:
        return self._paced.waiting
