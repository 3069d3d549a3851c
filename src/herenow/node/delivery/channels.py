"""The bytes that viewers get of a user, and the time as of which they are true.

Viewers with the same view scope of a target get the same bytes: they share a `Channel`, which is encoded once. Answers to
reads have the same day, staleness and precision as pushed frames, so that a read reveals nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herenow.core.limits import DeliveryMode
from herenow.core.model import View
from herenow.core.visibility import Kind, ViewScope, coarse, day_of, seen
from herenow.kit.clock import Clock
from herenow.node.people import Channel, Outbox, People, Person
from herenow.wire.shapes import (
    closed_statuses_frame,
    status_body,
    status_frame,
    statuses_frame,
    with_as_of,
    with_delivery,
)

_POLL, _TRUTH = DeliveryMode.POLL, Kind.TRUTH  # an attribute of an enum is slow to get

ASKS = b""
"""In place of the last body, for a viewer that polls: the body it has is not known."""


class Channels:
    def __init__(self, people: People, clock: Clock) -> None:
        self._people = people
        self._clock = clock
        self._stale: dict[int, int] = {}
        """Stale shards, and since when (ms)."""
        self.today = day_of(clock.now())
        """Day number for approximate last seens, in frames and answers. It changes for all viewers at once (`new_day`)."""
        self.deliveries: dict[str, DeliveryMode] = {}
        """Users with so many viewers that changes are not sent at once (`fanout` decides)."""
        self.behind: dict[Channel, None] = {}
        """Channels whose body is old on purpose: the change waits until the node is less overloaded (`hub`)."""

    # Bytes

    def open(self, person: Person, sight: ViewScope) -> Channel:
        channel = Channel(person, sight)
        channel.delivery = None if sight.kind is _TRUTH else self.deliveries.get(person.user)
        self.encode(channel)
        person.watchers.channels = (*person.watchers.channels, channel)
        return channel

    def drop(self, channel: Channel) -> None:
        self.behind.pop(channel, None)
        person = channel.person
        person.watchers.channels = tuple(c for c in person.watchers.channels if c is not channel)
        self._people.release(person)

    def encode(self, channel: Channel) -> None:
        person = channel.person
        self.behind.pop(channel, None)
        channel.shown = person.record.presence
        view = seen(person.record.presence, self._sight(channel), self.today)
        channel.body = status_body(person.user, view, stale=self._says_stale(person))
        if channel.delivery is _POLL:
            channel.body = with_delivery(channel.body, channel.delivery)

    def frame(self, channel: Channel) -> bytes:
        return status_frame(channel.sent_body, self.as_of(channel.person.shard))

    def joint_frame(self, channels: list[Channel]) -> bytes:
        if len(channels) == 1:
            return self.frame(channels[0])
        if self._stale:  # then each shard has its own time
            return closed_statuses_frame([with_as_of(c.sent_body, self.as_of(c.person.shard)) for c in channels])
        return statuses_frame([channel.sent_body for channel in channels], self._clock.now())

    def change(self, channel: Channel) -> tuple[View, View]:
        """Returns (view last shown, current view)."""
        sight = self._sight(channel)
        return seen(channel.shown, sight, self.today), seen(channel.person.record.presence, sight, self.today)

    def _sight(self, channel: Channel) -> ViewScope:
        return coarse(channel.sight) if channel.delivery is _POLL else channel.sight

    # Answers

    def body(self, person: Person, sight: ViewScope) -> bytes:
        """The status body for an answer, from the channel if there is one. It does not contain the delivery mode."""
        for channel in person.watchers.channels:
            if channel.sight == sight and channel.delivery is not _POLL:
                if channel not in self.behind:
                    return channel.body
                break
        return status_body(person.user, seen(person.record.presence, sight, self.today), stale=self._says_stale(person))

    def as_answered(self, sights: Mapping[str, ViewScope]) -> Mapping[str, ViewScope]:
        """The scopes for an answer: users above the push ceiling are shown without times, however they are read."""
        if DeliveryMode.POLL not in self.deliveries.values():
            return sights
        return {user: coarse(sight) if self.deliveries.get(user) is _POLL else sight for user, sight in sights.items()}

    # Staleness

    def dated_bodies(self, channels: Sequence[Channel]) -> list[tuple[bytes, int]]:
        """Returns (body as sent to viewers, as-of time) of each channel."""
        now = self._clock.now()
        if self._stale:
            return [(channel.sent_body, self.as_of(channel.person.shard, now)) for channel in channels]
        return [(c.body if c.delivery is None else c.sent_body, now) for c in channels]

    def as_of(self, shard: int, now: int | None = None) -> int:
        """Time (ms) as of which views of this shard are true: now, unless stale. `now`: if the caller knows it."""
        return self._stale.get(shard) or now or self._clock.now()

    def is_stale(self, shard: int) -> bool:
        return shard in self._stale

    def set_stale(self, shard: int, *, stale: bool) -> None:
        if stale:
            self._stale[shard] = self._clock.now()
        else:
            del self._stale[shard]

    @property
    def stale_shards(self) -> int:
        return len(self._stale)

    @property
    def stale_views(self) -> int:
        if not self._stale:
            return 0
        stale = [person for person in self._people if person.watchers.channels and self._says_stale(person)]
        return sum(len(channel.outboxes) for person in stale for channel in person.watchers.channels)

    def _says_stale(self, person: Person) -> bool:
        return person.record.guessed or person.shard in self._stale

    def new_day(self) -> list[Channel]:
        """Call regularly. After midnight UTC: channels with approximate last seens, which may differ; otherwise none."""
        today = day_of(self._clock.now())
        if today == self.today:
            return []
        self.today = today
        return [c for person in self._people for c in person.watchers.channels if self._sight(c).blurred]


def is_news(channel: Channel, had: bytes) -> bool:
    """True if a viewer that last got `had` must be sent the body. `ASKS`: not if it must still poll."""
    return channel.body != had and not (had == ASKS and channel.delivery is _POLL)


def watched_by(outbox: Outbox, person: Person) -> Channel:
    """The channel through which this outbox watches the user, which it must do: a single channel is that one."""
    channels = person.watchers.channels
    if len(channels) == 1:  # nearly always
        return channels[0]
    return next(channel for channel in channels if outbox in channel.outboxes)


def viewers(person: Person) -> int:
    """Number of viewers on this node, without the user's own devices and services."""
    if len(person.watchers.channels) == 1:  # nearly always
        [channel] = person.watchers.channels
        return 0 if channel.sight.kind is _TRUTH else len(channel.outboxes)
    return sum([len(c.outboxes) for c in person.watchers.channels if c.sight.kind is not _TRUTH])
