"""Chooses how changes of a user with very many viewers on this node reach them.

At once; paced (`paced`), which leaves the event loop free for others; or above the push ceiling not at all: clients poll.
The thresholds are in `core.limits`. The choice is made when a viewer comes or goes, for a user and not per view scope:
otherwise the way of delivery would reveal what other viewers see.
"""

from __future__ import annotations

from herenow.core.limits import DeliveryMode, FanoutLimits
from herenow.core.visibility import Kind
from herenow.node.delivery.channels import ASKS, Channels, is_news, viewers
from herenow.node.delivery.flush import FlushScheduler
from herenow.node.delivery.paced import PacedDelivery, Recipients
from herenow.node.people import Channel, Outbox, People, Person


class FanoutPolicy:
    def __init__(self, people: People, channels: Channels, flush: FlushScheduler, limits: FanoutLimits) -> None:
        self._people = people
        self._channels = channels
        self._flush = flush
        self._limits = limits
        self.few = min(limits.pace_above, limits.push_ceiling)
        self.paced = PacedDelivery(self._is_active, self._send_slice)

    def choose(self, person: Person) -> None:
        count = viewers(person)
        deliveries = self._channels.deliveries
        if count <= self.few and person.user not in deliveries:
            return
        present = deliveries.get(person.user)
        chosen = self._limits.delivery(count, present)
        if chosen is not present:
            self._deliver(person, present, chosen)

    def _deliver(self, person: Person, present: DeliveryMode | None, chosen: DeliveryMode | None) -> None:
        if chosen is None:
            del self._channels.deliveries[person.user]
        else:
            self._channels.deliveries[person.user] = chosen
        for channel in person.watchers.channels:
            if channel.sight.kind is Kind.TRUTH:
                continue
            self._flush.remember(channel)
            channel.delivery = chosen
            if DeliveryMode.POLL in (present, chosen):  # clients must know whether to poll
                had = channel.body
                self._channels.encode(channel)
                self.pace(channel, ASKS if present is DeliveryMode.POLL else had)
        if chosen is None:
            self.paced.finish(person)

    def pace(self, channel: Channel, had: bytes) -> None:
        """Schedule a user's new status for paced delivery to the viewers of this channel. Viewers with an unsent change
        get it with the next flush instead. `had`: the encoded status before."""
        outboxes = [outbox for outbox in channel.outboxes if channel not in (outbox.dirty or ())]
        self.paced.add(channel.person, outboxes, had, self._limits.lasts(viewers(channel.person)))

    def offer(self, outbox: Outbox, channel: Channel, before: Channel) -> None:
        """Deliver the difference after this outbox moved from channel `before` to `channel`: it may see more or less of
        the user. In paced delivery it waits as for any other change, so that the delay does not reveal the reason. A
        viewer that polls before and after is sent nothing."""
        person = channel.person
        asks = before.delivery is DeliveryMode.POLL
        if channel.delivery is None:
            waited = self.paced.withdraw(person, outbox)
            had = waited if waited is not None else ASKS if asks else before.body
            if not is_news(channel, had):
                return
            if outbox.ready:
                self._flush.send(channel, [outbox])
            else:
                outbox.add_missed(channel, had)
        elif channel.body != before.body and not (asks and channel.delivery is DeliveryMode.POLL):
            self.paced.add(person, [outbox], before.body, self._limits.lasts(viewers(person)))

    def hasten(self, viewer: Person) -> None:
        """Let waiting paced updates reach this viewer earlier if the viewer is active now. Call when the viewer's
        presence changed."""
        if self._is_active(viewer.user):
            for outbox in viewer.watchers.outboxes:
                self.paced.hasten(outbox)

    def _is_active(self, user: str) -> bool:
        viewer = self._people.find(user)
        return viewer is not None and viewer.record.presence.active

    def _send_slice(self, person: Person, recipients: Recipients) -> None:
        """Send the user's current status to these recipients of a paced delivery, unless they have it or no longer
        watch the user. Connections that are not ready get it when their flush interval ends."""
        ready: dict[Channel, list[Outbox]] = {}
        for outbox, had in recipients:
            channel = next((c for c in person.watchers.channels if outbox in c.outboxes), None)
            if channel is None or not is_news(channel, had):
                continue
            if outbox.ready:
                ready.setdefault(channel, []).append(outbox)
            else:
                outbox.add_missed(channel, had)
        for channel, outboxes in ready.items():
            self._flush.send(channel, outboxes)
