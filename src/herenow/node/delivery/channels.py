"""The bytes that viewers get of a user, and the time as of which they are true.

Viewers with the same view scope of a target get the same bytes: they share a `Channel`, which is encoded once. Answers to
reads have the same day, staleness and precision as pushed frames, so that a read reveals nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herenow.core.limits import DeliveryMode
from herenow.core.model import Presence, View
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
"""In place of the encoded status that a viewer last got, if the viewer polls: which one it has is not known."""


class Channels:
    def __init__(self, people: People, clock: Clock) -> None:
        self._people = people
        self._clock = clock
        self._stale: dict[int, int] = {}
        """Stale shard → time (ms) since when it is stale."""
        self.today = day_of(clock.now())
        """Day number for approximate last seens, in frames and answers. It changes for all viewers at once (`new_day`)."""
        self.deliveries: dict[str, DeliveryMode] = {}
        """Users with so many viewers that changes are not sent at once (`fanout` decides)."""
        self.behind: dict[Channel, None] = {}
        """Channels with an old status on purpose: the change waits until the node is less overloaded (`hub`)."""

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
        channel.shown = self._shown(person)
        view = seen(channel.shown, self._sight(channel), self.today)
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
        """Return the view of a user that the viewers of this channel were last shown, and the current one."""
        sight = self._sight(channel)
        return seen(channel.shown, sight, self.today), seen(self._shown(channel.person), sight, self.today)

    def _shown(self, person: Person) -> Presence:
        return self._people.shown(person.user, person.record.presence)

    def _sight(self, channel: Channel) -> ViewScope:
        return coarse(channel.sight) if channel.delivery is _POLL else channel.sight

    # Answers

    def body(self, person: Person, sight: ViewScope) -> bytes:
        """Return the encoded status of a user for the answer to a read, as viewers with the scope `sight` see it. It
        does not contain the delivery mode."""
        for channel in person.watchers.channels:
            if channel.sight == sight and channel.delivery is not _POLL:
                if channel not in self.behind:
                    return channel.body
                break
        return status_body(person.user, seen(self._shown(person), sight, self.today), stale=self._says_stale(person))

    def as_answered(self, sights: Mapping[str, ViewScope]) -> Mapping[str, ViewScope]:
        """Return these view scopes (by user) as they apply to the answer to a read: users with more viewers than the
        push ceiling are shown without times, however they are read."""
        if DeliveryMode.POLL not in self.deliveries.values():
            return sights
        return {user: coarse(sight) if self.deliveries.get(user) is _POLL else sight for user, sight in sights.items()}

    # Staleness

    def dated_bodies(self, channels: Sequence[Channel]) -> list[tuple[bytes, int]]:
        """Return for each channel the encoded status that its viewers get, and the time (ms) as of which that is true."""
        now = self._clock.now()
        if self._stale:
            return [(channel.sent_body, self.as_of(channel.person.shard, now)) for channel in channels]
        return [(c.body if c.delivery is None else c.sent_body, now) for c in channels]

    def as_of(self, shard: int, now: int | None = None) -> int:
        """Return the time (ms) as of which views of this shard's users are true: now, or when the shard became stale.
        `now`: the present time, if the caller has it."""
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
        """Begin a new day after midnight UTC, and return the channels whose viewers see an approximate last seen, which
        may have changed. On the same day it returns none. Call regularly."""
        today = day_of(self._clock.now())
        if today == self.today:
            return []
        self.today = today
        return [c for person in self._people for c in person.watchers.channels if self._sight(c).blurred]


def is_news(channel: Channel, had: bytes) -> bool:
    """True if a viewer of this channel that last got the encoded status `had` must be sent the current one. If `had` is
    `ASKS` (the viewer polls): only if the viewer need not poll any more."""
    return channel.body != had and not (had == ASKS and channel.delivery is _POLL)


def watched_by(outbox: Outbox, person: Person) -> Channel:
    """Return the user's channel (group of viewers that see the same) that contains this outbox. The outbox must watch
    the user: if the user has only one channel, that is not checked."""
    channels = person.watchers.channels
    if len(channels) == 1:  # nearly always
        return channels[0]
    return next(channel for channel in channels if outbox in channel.outboxes)


def viewers(person: Person) -> int:
    """Number of connections of this node that watch the user, without the user's own devices and services."""
    if len(person.watchers.channels) == 1:  # nearly always
        [channel] = person.watchers.channels
        return 0 if channel.sight.kind is _TRUTH else len(channel.outboxes)
    return sum([len(c.outboxes) for c in person.watchers.channels if c.sight.kind is not _TRUTH])
