"""Users this node knows: those with a session or a connection here, and those that a connection here watches.

A `Person` is kept while it is needed, and the log reader updates it meanwhile; there is no cache to invalidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from herenow.core.model import UNLEASED, Presence
from herenow.core.shards import shard_of
from herenow.core.sources import as_shown
from herenow.kit.clock import Clock
from herenow.kit.lru import ExpiringLru
from herenow.node.people.local_session import LocalSession
from herenow.node.people.record_state import RecordState

if TYPE_CHECKING:
    from herenow.node.people.channel import Channel
    from herenow.node.people.outbox import Outbox

REMEMBER_RELEASED = 120_000
"""Milliseconds for which the record of a released user is kept, to be offered to a store that lost it."""

RELEASED = 100_000
"""Released users that are remembered at most: about 60 MB."""


Thing = TypeVar("Thing")


def without(things: tuple[Thing, ...], gone: Thing) -> tuple[Thing, ...]:
    """Return a copy of the tuple without the element `gone`. Such tuples mostly have one element; a list would take
    twice the memory."""
    return tuple([thing for thing in things if thing is not gone])


@dataclass(slots=True, eq=False, repr=False)
class Watchers:
    channels: tuple[Channel, ...] = ()
    outboxes: tuple[Outbox, ...] = ()
    """Outboxes of the user's own connections and streams."""
    own_view: int | None = None
    """Hash of the view that the user's own devices were last sent; None: none was sent."""
    published: int = 0
    changed_at: float = 0.0


@dataclass(slots=True, eq=False, repr=False)
class Person:
    user: str
    shard: int
    record: RecordState = field(default_factory=RecordState)
    held: tuple[LocalSession, ...] = ()
    """Sessions of this node: the live ones, and lost ones until their loss is committed."""
    watchers: Watchers = field(default_factory=Watchers)
    refs: int = 0

    @property
    def unpublished(self) -> bool:
        """True if the record changed visibly since viewers were last sent the user's status."""
        return self.record.revision != self.watchers.published

    @property
    def matches_record(self) -> bool:
        """True if the record has all live sessions that this node holds, and no value older than this node knows. If
        False, decide the user's next status before showing it."""
        if self.record.store_lacks is not None:
            return False
        return all(session.is_committed for session in self.held if session.lost_at is None)

    @property
    def heartbeats_in_record(self) -> bool:
        """True if the record has the latest REST heartbeats that this node received."""
        sessions = [session for session in self.held if session.unleased and session.lost_at is None]
        return all((known := s.in_record(UNLEASED)) is not None and known.seen_at >= s.seen_at for s in sessions)

    def session(self, device: str, *, unleased: bool = False) -> LocalSession | None:
        """Return the live session of this device on this node, or None. `unleased`: the session by REST heartbeats,
        otherwise the one by connections."""
        for session in self.held:
            if session.device == device and session.unleased is unleased and session.lost_at is None:
                return session
        return None

    @property
    def unfinished(self) -> bool:
        """True if a change of this user is not committed yet, or a session that must end with this node is still held.
        Sessions by REST heartbeats outlive the node."""
        record = self.record
        return record.dirty or record.deciding or any(not session.unleased for session in self.held)

    @property
    def needed(self) -> bool:
        watchers, record = self.watchers, self.record
        return bool(self.refs or watchers.channels or self.held or watchers.outboxes or record.dirty or record.deciding)


class People:
    def __init__(self, shards: int, clock: Clock) -> None:
        self._shards = shards
        self._clock = clock
        self._people: dict[str, Person] = {}
        self.find: Callable[[str], Person | None] = self._people.get
        """The known user of this id, or None. Not a method of ours because a bulk read calls it a thousand times."""
        self._released: ExpiringLru[str, Person] = ExpiringLru(RELEASED)
        self.late: dict[str, Presence] = {}  # user → choices from the ledger that the store may lack; of `late_choices`

    def shown(self, user: str, presence: Presence) -> Presence:
        """Return the presence of this user to show: the one from the store, with newer modes and custom statuses from
        the ledger. Call it for everything that viewers or own devices get."""
        return as_shown(presence, self.late.get(user), self._clock.now()) if self.late else presence

    def __len__(self) -> int:
        return len(self._people)

    def __iter__(self) -> Iterator[Person]:
        return iter(list(self._people.values()))

    @property
    def remembered(self) -> int:
        return len(self._released)

    def get(self, user: str) -> Person:
        """Return the user with this id, created if unknown. Before the next await, use `keeping` or make the user
        `needed`, otherwise it may be dropped."""
        person = self._people.get(user)
        if person is None:
            released = self._released.peek(user)  # the last known values apply until the user is read
            known = None if released is None else released.record.presence
            person = self._people[user] = Person(user, self.shard_of(user), RecordState(store_lacks=known))
        return person

    def keeping(self, *people: Person) -> Keeping:
        return Keeping(self, people)

    def shard_of(self, user: str) -> int:
        return shard_of(user, self._shards)

    def spelled(self, users: Iterable[str]) -> list[str]:
        """Return each id once, as the string object that this node already has for it, so that storing it makes no copy."""
        people = self._people
        return [people[user].user if user in people else user for user in dict.fromkeys(users)]

    def release(self, person: Person) -> None:
        """Drop the user from memory unless it is needed. Its record is kept for `REMEMBER_RELEASED` milliseconds, to be
        offered to a store that lost it."""
        if person.needed or self._people.get(person.user) is not person:
            return
        del self._people[person.user]
        if person.record.stored is not None:
            self._released.put(person.user, person, self._clock.now() + REMEMBER_RELEASED)
        self.forget_old()

    def in_shard(self, shard: int) -> list[Person]:
        return [person for person in self._people.values() if person.shard == shard]

    def to_offer(self, shard: int) -> Iterable[Person]:
        """Yield the users whose records this node can give back to a shard that lost data: watched users first, then
        others that it knows, then released ones."""
        self.forget_old()
        here = [person for person in self.in_shard(shard) if person.record.stored is not None]
        yield from sorted(here, key=lambda person: not person.watchers.channels)
        for user, person in self._released.items():
            # A user that was released during a read has no record if that read found none.
            if person.shard == shard and person.record.stored is not None and user not in self._people:
                yield person

    def forget_old(self) -> None:
        """Drop records of users that were released more than `REMEMBER_RELEASED` milliseconds ago. Call every few
        seconds, since `release` may not be called for long."""
        self._released.expire(self._clock.now())


@dataclass(slots=True, eq=False, repr=False)
class Keeping:
    """Holds a reference to each user during a `with` block, then releases them."""

    _people: People
    _persons: tuple[Person, ...]

    def __enter__(self) -> None:
        for person in self._persons:
            person.refs += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for person in self._persons:
            person.refs -= 1
            self._people.release(person)
