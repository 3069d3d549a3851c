"""Whom this node knows, and what it truly holds of them.

Answers: for a user somebody here is, or somebody here looks at: what is their record as far as we know, which sessions
do we hold, who here looks, what was asked for and is not committed yet?
Does not decide anything (see `decide`) and sends nothing (see `hub`). A person is kept while somebody needs it: there is
no cache to invalidate, only people that are followed by the tail or forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from herenow.core.model import UNLEASED, Platform, Presence, Session
from herenow.core.record import decode
from herenow.core.settle import Edit, Held
from herenow.core.shards import shard_of
from herenow.core.values import replace
from herenow.kit.lru import ExpiringLru

if TYPE_CHECKING:
    from herenow.node.delivery.channels import Channel
    from herenow.node.delivery.connection import Connection
    from herenow.node.delivery.outbox import Outbox

REMEMBER_ENDED = 120_000
"""Milliseconds we keep the record of somebody who left us: what we can offer when the store loses it."""

RECENT = 100_000
"""How many such people at the most: about 60 MB. The oldest give way."""


Thing = TypeVar("Thing")


def without(things: tuple[Thing, ...], gone: Thing) -> tuple[Thing, ...]:
    """What somebody has is kept in tuples: nearly always one of it, for which a list takes twice the room."""
    return tuple([thing for thing in things if thing is not gone])


class HeldSession:
    """One session as its node knows it: stamps in memory, fresher than any record. A beat moves two of them; the end."""

    __slots__ = (
        "active_at",
        "asserted",
        "asserted_by",
        "barred",
        "beat_at",
        "connections",
        "device",
        "fresh_until",
        "idle",
        "idle_at",
        "issued_at",
        "look_at",
        "lost_at",
        "person",
        "platform",
        "seen_at",
        "since",
        "unleased",
    )

    def __init__(
        self, person: Person, device: str, platform: Platform, now: int, *, unleased: bool = False
    ) -> None:
        self.person = person
        self.device = device
        self.platform = platform
        self.unleased = unleased
        self.since = now
        self.seen_at = now
        self.active_at = 0
        self.beat_at = 0
        self.idle = False
        self.idle_at = 0
        """When the device last said that it is idle."""
        self.lost_at: int | None = None
        self.fresh_until = 0
        """Until when activity is no news to the record. 0: it is at once, the record says that this device is idle."""
        self.look_at: int | None = None
        """When its turn in the wheel comes."""
        self.asserted = 0
        self.asserted_by = ""
        self.connections: tuple[Connection, ...] = ()
        self.issued_at = 0
        """When the latest token it was shown was issued."""
        self.barred = False
        """It was ended because the user was deleted after that."""

    def facts(self, epoch: str) -> Held:
        """A loss is that of the session as it stands in the record, which may be under an earlier epoch."""
        holder = self.asserted_by if self.lost_at is not None and self.asserted_by else epoch
        return Held(
            device=self.device,
            holder=UNLEASED if self.unleased else holder,
            since=self.since,
            seen_at=self.seen_at,
            active_at=self.active_at,
            platform=self.platform,
            idle=self.idle,
            lost_at=self.lost_at,
            asserted=self.asserted,
            asserted_by=self.asserted_by,
            idle_at=self.idle_at if self.idle else None,
        )

    def in_record(self, epoch: str) -> Session | None:
        holder = UNLEASED if self.unleased else epoch
        for session in self.person.presence.sessions:
            if session.device == self.device and session.holder == holder:
                return session
        return None

    @property
    def stands(self) -> bool:
        """It is live in the record as we asserted it; one that was never asserted has nothing to miss there, except that a
        beat by REST is about to be."""
        if not self.asserted_by and not self.unleased:
            return True
        found = self.in_record(self.asserted_by)
        return found is not None and found.live

    @property
    def must_stand(self) -> bool:
        """Nobody but us can have ended it without our epoch being retired, or leaving a note."""
        return not self.unleased and self.lost_at is None and self.asserted > 0 and self.stands

    def doubt(self) -> None:
        """The store may have lost what we asserted: that it is missing there no longer means that it was ended."""
        self.asserted = 0


class Ask:
    """Something a user asked for, until it is committed."""

    __slots__ = ("done", "doubtful", "edit", "in_flight")

    def __init__(self, edit: Edit, done: asyncio.Future[None]) -> None:
        self.edit = edit
        self.done = done
        self.in_flight = False
        """It is being written."""
        self.doubtful = False
        """It was in a commit of which we do not know what became."""


class Writing:
    """A commit under way."""

    __slots__ = ("news", "presence", "record")

    def __init__(self, record: bytes, presence: Presence, *, news: bool) -> None:
        self.record = record
        self.presence = presence
        self.news = news
        """Somebody who looks sees a difference."""


class Person:
    """One user as this node knows them."""

    __slots__ = (
        "asks",
        "changed_at",
        "channels",
        "committing",
        "deciding",
        "dirty",
        "guessed",
        "known",
        "lost",
        "outboxes",
        "own_view",
        "pins",
        "presence",
        "record",
        "sessions",
        "shard",
        "unpublished",
        "user",
    )

    def __init__(self, user: str, shard: int) -> None:
        self.user = user
        self.shard = shard
        self.known = False
        """Something was read; until then `presence` says nothing."""
        self.guessed = False
        """The store was out of reach: what we say is the ledger's word, and stale."""
        self.record: bytes | None = None
        """The bytes in the store, as far as we know: what the next commit expects."""
        self.presence = _NOTHING
        self.lost: Presence | None = None
        """What the user chose last and when they were last seen, where we know better than the store, which has lost it."""
        self.sessions: tuple[HeldSession, ...] = ()
        """What we hold: live ones, and lost ones until their loss is committed."""
        self.asks: tuple[Ask, ...] = ()
        self.dirty = False
        self.deciding = False
        self.unpublished = False
        """What we know has changed since those who look were told."""
        self.committing: Writing | None = None
        """What we are writing now: the log may be faster than the answer."""
        self.changed_at = 0.0
        """Monotonic time of the last change, for the latency histogram."""
        self.channels: tuple[Channel, ...] = ()
        self.outboxes: tuple[Outbox, ...] = ()
        """Of the viewers this user is, not of those who look at them."""
        self.own_view: int | None = None
        """A hash of what their own devices were last told; None: none of them is here."""
        self.pins = 0

    def learn(self, record: bytes) -> bool:
        """Something was read or came by the log. Versions decide; answers whether it was news."""
        if self.known and record == self.record:
            return False
        ours = self.committing if self.is_ours(record) else None
        presence = decode(record) if ours is None else ours.presence
        if self.known and presence.version <= self.presence.version:
            return False
        self.adopt(record, presence, news=ours is None or ours.news)
        return True

    def is_ours(self, record: bytes) -> bool:
        """We are writing it ourselves, and need not be told what it says."""
        return self.committing is not None and record == self.committing.record

    def adopt(self, record: bytes | None, presence: Presence, *, news: bool = True) -> None:
        """A choice is never taken back by an older one, nor is anybody seen earlier than before: where it is so, the store
        lost something and was written over. Only with the user it goes. `news` False: nobody who looks sees a difference."""
        was = self.presence
        earlier = presence.chosen < was.chosen or (presence.last_seen or 0) < (was.last_seen or 0)
        if earlier or self.lost is not None:
            deleted = (presence.erased_at or 0) > (was.erased_at or 0)
            sure = self.known and not (self.guessed or deleted)
            self.lost = lacking(presence, was if sure else None, self.lost)
        self.unpublished = self.unpublished or news or self.guessed or not self.known
        self.known = True
        self.guessed = False
        self.record = record
        self.presence = presence

    @property
    def stands(self) -> bool:
        """Everything we hold and have asserted is live in the record, and what we know better is there; otherwise deciding
        comes before showing."""
        if self.lost is not None:
            return False
        return all(session.stands for session in self.sessions if session.lost_at is None)

    def session(self, device: str, *, unleased: bool = False) -> HeldSession | None:
        """The live one we hold."""
        for session in self.sessions:
            if session.device == device and session.unleased is unleased and session.lost_at is None:
                return session
        return None

    @property
    def unfinished(self) -> bool:
        """Something here is not committed yet, or a session that ends with this node is not handed over."""
        return self.dirty or self.deciding or any(not session.unleased for session in self.sessions)

    @property
    def needed(self) -> bool:
        return bool(
            self.pins or self.channels or self.sessions or self.outboxes or self.dirty or self.deciding
        )


_NOTHING = Presence()


def lacking(record: Presence, *known: Presence | None) -> Presence | None:
    """The last choice and the last seen of what is known, if the record lacks one of them."""
    chosen, seen = record, record.last_seen
    for each in known:
        if each is not None:
            chosen = each if each.chosen > chosen.chosen else chosen
            seen = seen if each.last_seen is None else max(seen or 0, each.last_seen)
    if chosen is record and seen == record.last_seen:
        return None
    return replace(chosen, last_seen=seen)


class People:
    """Everybody this node knows."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._people: dict[str, Person] = {}
        self.find: Callable[[str], Person | None] = self._people.get
        """Who is known here; the dictionary's own method, because a bulk read asks a thousand times."""
        self._recent: ExpiringLru[str, Person] = ExpiringLru(RECENT)

    def __len__(self) -> int:
        return len(self._people)

    def __iter__(self) -> Iterator[Person]:
        return iter(list(self._people.values()))

    @property
    def remembered(self) -> int:
        """How many of those who left us are still known."""
        return len(self._recent)

    def get(self, user: str) -> Person:
        """The caller pins it, or gives it something that keeps it, before it next awaits."""
        person = self._people.get(user)
        if person is None:
            person = self._people[user] = Person(user, shard_of(user, self._shards))
            if (left := self._recent.peek(user)) is not None:
                person.lost = left.presence  # what we knew when they left us, until they are read
        return person

    def spelled(self, users: Iterable[str]) -> list[str]:
        """Each once, by the very string that we know them by: whoever keeps it keeps no copy of its own."""
        people = self._people
        return [people[user].user if user in people else user for user in dict.fromkeys(users)]

    def release(self, person: Person, now: int) -> None:
        """Forget somebody nobody here needs; remember for a while what we last showed."""
        if person.needed or self._people.get(person.user) is not person:
            return
        del self._people[person.user]
        if person.record is not None:
            self._recent.put(person.user, person, now + REMEMBER_ENDED)
        self.forget_old(now)

    def in_shard(self, shard: int) -> list[Person]:
        return [person for person in self._people.values() if person.shard == shard]

    def to_offer(self, shard: int, now: int) -> Iterable[Person]:
        """Whose record we can give back to a shard that lost it: watched first, then held, then those who left."""
        self.forget_old(now)
        here = [p for p in self.in_shard(shard) if p.record is not None]
        yield from sorted(here, key=lambda p: not p.channels)
        for user, person in self._recent.items():
            # Who left us while they were read has a record no more, if that read found none.
            if person.shard == shard and person.record is not None and user not in self._people:
                yield person

    def forget_old(self, now: int) -> None:
        """Who left us long enough ago. Called now and then, also when nobody comes or goes."""
        self._recent.expire(now)
