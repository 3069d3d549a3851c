"""What is there to see of somebody here, in which bytes, and since when is that known?

Viewers with the same sight of a target see the same bytes, so they share a `Channel`, which is encoded once. Answers take
what they say from here too, so that nobody learns more by asking than by waiting: the same day, the same doubts, and as
coarse where changes are not pushed.

Does not know who is told of a change, nor when (`hub`, `ticks`), nor why a viewer may see it: a `ViewScope` is given.
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
"""What a viewer had who was told to ask: we do not know."""


class Channels:
    def __init__(self, people: People, clock: Clock) -> None:
        self._people = people
        self._clock = clock
        self._stale: dict[int, int] = {}
        """Shards that may show what was, and since when."""
        self.today = day_of(clock.now())
        """What buckets are counted from, here and in every answer: it moves for all at once, with `new_day`."""
        self.deliveries: dict[str, DeliveryMode] = {}
        """Who has so many viewers that changes are not told at once (`popular` decides)."""
        self.behind: dict[Channel, None] = {}
        """Whose body is old on purpose: the difference waits until the node has caught up (`hub`)."""

    # Bytes

    def open(self, person: Person, sight: ViewScope) -> Channel:
        """The first one looks at this person through these eyes."""
        channel = Channel(person, sight)
        channel.delivery = None if sight.kind is _TRUTH else self.deliveries.get(person.user)
        self.encode(channel)
        person.watchers.channels = (*person.watchers.channels, channel)
        return channel

    def drop(self, channel: Channel) -> None:
        """Nobody does any more."""
        self.behind.pop(channel, None)
        person = channel.person
        person.watchers.channels = tuple(c for c in person.watchers.channels if c is not channel)
        self._people.release(person)

    def encode(self, channel: Channel) -> None:
        """The body is what there is to see now."""
        person = channel.person
        self.behind.pop(channel, None)
        channel.shown = person.record.presence
        view = seen(person.record.presence, self._sight(channel), self.today)
        channel.body = status_body(person.user, view, stale=self._says_stale(person))
        if channel.delivery is _POLL:
            channel.body = with_delivery(channel.body, channel.delivery)

    def frame(self, channel: Channel) -> bytes:
        return status_frame(channel.said, self.as_of(channel.person.shard))

    def joint_frame(self, channels: list[Channel]) -> bytes:
        """Of several in one."""
        if len(channels) == 1:
            return self.frame(channels[0])
        if self._stale:  # then each is as of a time of its own
            return closed_statuses_frame([with_as_of(c.said, self.as_of(c.person.shard)) for c in channels])
        return statuses_frame([channel.said for channel in channels], self._clock.now())

    def change(self, channel: Channel) -> tuple[View, View]:
        """What the viewers were shown last, and what there is to see."""
        sight = self._sight(channel)
        return seen(channel.shown, sight, self.today), seen(channel.person.record.presence, sight, self.today)

    def _sight(self, channel: Channel) -> ViewScope:
        return coarse(channel.sight) if channel.delivery is _POLL else channel.sight

    # Answers

    def body(self, person: Person, sight: ViewScope) -> bytes:
        """A status body for an answer: the channel's if there is one. An answer says nothing about delivery."""
        for channel in person.watchers.channels:
            if channel.sight == sight and channel.delivery is not _POLL:
                if channel not in self.behind:
                    return channel.body
                break
        return status_body(person.user, seen(person.record.presence, sight, self.today), stale=self._says_stale(person))

    def as_answered(self, sights: Mapping[str, ViewScope]) -> Mapping[str, ViewScope]:
        """What is on demand is told less exactly, whoever asks by whichever way."""
        if DeliveryMode.POLL not in self.deliveries.values():
            return sights
        return {user: coarse(sight) if self.deliveries.get(user) is _POLL else sight for user, sight in sights.items()}

    # Since when

    def said_now(self, channels: Sequence[Channel]) -> list[tuple[bytes, int]]:
        """What viewers are told of each, and as of when."""
        now = self._clock.now()
        if self._stale:
            return [(channel.said, self.as_of(channel.person.shard, now)) for channel in channels]
        return [(c.body if c.delivery is None else c.said, now) for c in channels]

    def as_of(self, shard: int, now: int | None = None) -> int:
        """Since when what we say of this shard is known to be true; `now` for who has asked the clock already."""
        return self._stale.get(shard) or now or self._clock.now()

    def is_stale(self, shard: int) -> bool:
        return shard in self._stale

    def set_stale(self, shard: int, *, stale: bool) -> None:
        """It was the other way until now."""
        if stale:
            self._stale[shard] = self._clock.now()
        else:
            del self._stale[shard]

    @property
    def stale_shards(self) -> int:
        return len(self._stale)

    @property
    def stale_views(self) -> int:
        """How many views that somebody here has open say that they are stale. Counted while there are any."""
        if not self._stale:
            return 0
        stale = [person for person in self._people if person.watchers.channels and self._says_stale(person)]
        return sum(len(channel.outboxes) for person in stale for channel in person.watchers.channels)

    def _says_stale(self, person: Person) -> bool:
        return person.record.guessed or person.shard in self._stale

    def new_day(self) -> list[Channel]:
        """Buckets grow old at midnight, for those who hide as for those who are gone: whose may. Called now and then."""
        today = day_of(self._clock.now())
        if today == self.today:
            return []
        self.today = today
        return [c for person in self._people for c in person.watchers.channels if self._sight(c).blurred]


def is_news(channel: Channel, had: bytes) -> bool:
    """For who had this, and knows whether to ask."""
    return channel.body != had and not (had == ASKS and channel.delivery is _POLL)


def watched_by(outbox: Outbox, person: Person) -> Channel:
    """The channel through which it watches this person, which it does: where there is one, it is that."""
    channels = person.watchers.channels
    if len(channels) == 1:  # nearly everybody
        return channels[0]
    return next(channel for channel in channels if outbox in channel.outboxes)


def viewers(person: Person) -> int:
    """Who looks at this person here; own devices and services are not counted."""
    if len(person.watchers.channels) == 1:  # nearly everybody
        [channel] = person.watchers.channels
        return 0 if channel.sight.kind is _TRUTH else len(channel.outboxes)
    return sum([len(c.outboxes) for c in person.watchers.channels if c.sight.kind is not _TRUTH])
