"""Reads users from the store and, if they have no record there, from the ledger. Always many at a time.

The store drops offline users once the ledger has saved them. While the ledger is unreachable, only an old last seen is
missing: the store never drops a record with a mode or a custom status. While the store is unreachable, the ledger's values
are a guess.

Timing: reading a user that appears offline takes as long as reading an offline user, also with a session here or a record
in the store. Otherwise response times would reveal hidden users. `hidden_users`: those hidden from the requesting viewer
only.

Data loss: a missing record in a shard in recovery (unsettled) means nothing. A record older
than the known one, or none where one of our sessions must be, shows that the shard lost data. The known record is then kept
until the shard has recovered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from herenow.core.model import Presence, Status
from herenow.core.record import UnknownFormat, decode, version_of
from herenow.core.settle import droppable
from herenow.core.values import replace
from herenow.core.visibility import status_in_public
from herenow.errors import Unavailable
from herenow.kit.batcher import Batcher
from herenow.kit.deadline import read_within
from herenow.kit.lru import Lru
from herenow.node.context import Context
from herenow.node.people import Person
from herenow.node.records.cold_cache import UNKNOWN_USER, ColdCache
from herenow.node.records.record_events import RecordEvents
from herenow.ports import Loaded

DECODED = 50_000
PART = 1_000  # users per read, for callers with any number of users


class Reader:
    def __init__(self, context: Context, cold: ColdCache, events: RecordEvents) -> None:
        self._context = context
        self._cold = cold
        self.forget = cold.forget
        self.forget_all = cold.forget_all
        self._events = events
        self._decoded: Lru[str, tuple[bytes, Presence]] = Lru(DECODED)
        self._guesses: dict[Person, None] = {}
        self._batcher: Batcher[Person, None] = Batcher(self._load_all, "read")

    # Users that this node keeps

    async def load_batched(self, person: Person) -> None:
        """As `load` for one user, in one call with all other users that are requested in this event loop iteration."""
        await self._batcher.ask(person)

    async def _load_all(self, people: tuple[Person, ...]) -> dict[Person, None]:
        await self.load(people)
        return dict.fromkeys(people)

    async def load(
        self, people: Sequence[Person], *, constant_time: bool = False, hidden_users: Collection[str] = ()
    ) -> None:
        """Read the records of these users from the store, and values from the ledger if the store has no record. Users
        that are known already change only if the record is newer. `constant_time`: a viewer may measure the time, so a
        hidden user must take as long as an offline one. `hidden_users`: those hidden from this viewer only."""
        if not people:
            return
        users = [person.user for person in people]
        asked = self._context.clock.monotonic()
        loaded = await read_within(self._context.engine.load(users))
        absent = [user for user, found in zip(users, loaded, strict=True) if found.record is None]
        padding = self._padding_lookups(users, loaded, hidden_users) if constant_time else ()
        cold = await self._cold.get(absent, padding)
        for person, found in zip(people, loaded, strict=True):
            if not found.settled:
                self._events.on_loss(person.shard, None, asked)
            if found.record is not None:
                self._learn(person, found.record)
            elif not person.record.known or person.record.guessed:
                sure, was_guessed = found.settled and person.user in cold, person.record.guessed
                self._adopt_cold(person, cold.get(person.user, UNKNOWN_USER), guessed=not sure)
                if sure and was_guessed:
                    self._publish(person)

    def _learn(self, person: Person, record: bytes) -> None:
        try:
            if person.record.learn(record):
                self._publish(person)
        except UnknownFormat:  # written by a newer version; a decision about this user will fail with this error
            if not person.record.known:
                self._adopt_cold(person, UNKNOWN_USER, guessed=True)

    def _publish(self, person: Person) -> None:
        """Publish the user's record to viewers and own devices, because a read returned it before the log did: the log
        entry will be ignored as old."""
        if person.watchers.channels or person.watchers.outboxes:
            self._events.on_remote_change(person)

    async def load_from_ledger(self, people: Sequence[Person]) -> None:
        """Load unknown users from the ledger, because the store is unreachable. The values count as guesses until
        `confirm_guesses`. Raises `Unavailable`."""
        cold = await self._cold.get([person.user for person in people], sure=True)
        for person in people:
            if not person.record.known:
                self._adopt_cold(person, cold[person.user], guessed=True)

    async def confirm_guesses(self) -> list[Person]:
        """Read from the store the users with values that were guessed from the ledger; returns those that are no longer
        guesses."""
        guesses, self._guesses = self._guesses, {}
        people = [person for person in guesses if person.record.guessed and person.needed]
        try:
            for start in range(0, len(people), PART):
                await self.load(people[start : start + PART])
        finally:
            self._guesses |= dict.fromkeys(person for person in people if person.record.guessed)
        return [person for person in people if not person.record.guessed]

    def _adopt_cold(self, person: Person, presence: Presence, *, guessed: bool) -> None:
        person.record.adopt(None, presence)
        if guessed:
            person.record.guessed = True
            self._guesses[person] = None

    async def adopt_conflict(self, person: Person, expected: bytes | None, current: bytes | None) -> None:
        """Adopt the record `current`, which a commit found instead of `expected`, unless the log has delivered a change
        meanwhile. The user's next version will be above both. Raises `Unavailable` if the shard lost data."""
        if person.record.stored == expected and not await self._adopt_stored(person, expected, current):
            raise Unavailable(f"shard {person.shard} has lost data")

    async def refresh(self, people: Sequence[Person]) -> list[Person]:
        """Read the records of these known users again, because a change may have been missed; returns the users with a
        changed presence."""
        before = [(person.record.stored, person.record.presence) for person in people]
        asked = self._context.clock.monotonic()
        loaded = await read_within(self._context.engine.load([person.user for person in people]))
        for person, (expected, _), found in zip(people, before, loaded, strict=True):
            if not found.settled:
                self._events.on_loss(person.shard, None, asked)
            elif found.record != expected and person.record.stored == expected:
                try:
                    await self._adopt_stored(person, expected, found.record, asked)
                except UnknownFormat:
                    continue  # written by a newer version of herenow
        return [person for person, (_, was) in zip(people, before, strict=True) if person.record.presence is not was]

    async def _adopt_stored(
        self, person: Person, expected: bytes | None, current: bytes | None, asked: float | None = None
    ) -> bool:
        """Make `current`, the record that the store has, the user's known record in place of `expected`. Returns False,
        and reports data loss, if the store has lost the known record. `asked`: monotonic time of the read."""
        if current is None:
            return await self._adopt_absence(person, asked)
        # A version goes back only if the store dropped the record and it was created again.
        older = expected is not None and version_of(current) < version_of(expected)
        if older and not droppable(person.record.presence):
            self._events.on_loss(person.shard, None, asked)
            return False
        person.record.adopt(current, _above(decode(current), person.record.presence.version))
        return True

    async def _adopt_absence(self, person: Person, asked: float | None) -> bool:
        """As `_adopt_stored`, when the store has no record: it removed the record because the ledger has the values, or
        lost it."""
        if droppable(person.record.presence):
            person.record.adopt(None, person.record.presence)
            return True
        if any(session.must_be_in_record for session in person.held):
            self._events.on_loss(person.shard, None, asked)
            return False
        self.forget(person.user)
        presence = person.record.presence
        cold = await self._cold.get([person.user])
        if person.record.presence is presence:
            known = _above(cold.get(person.user, UNKNOWN_USER), presence.version)
            self._adopt_cold(person, known, guessed=person.user not in cold)
        return True

    # Users that are requested once

    async def read(self, users: Sequence[str], *, hidden_users: Collection[str] = ()) -> list[tuple[Presence, bool]]:
        """Return (presence, True if it is certainly current) of each user, in order, and keep no user in memory. The
        time taken does not show which users are hidden. `hidden_users`: those hidden from the requesting viewer
        only."""
        late = self._context.people.late
        if late:
            hidden_users = {*hidden_users, *(user for user in users if user in late)}
            shown = self._context.people.shown
            found = await self._read(users, hidden_users)
            return [(shown(user, each), sure) for user, (each, sure) in zip(users, found, strict=True)]
        return await self._read(users, hidden_users)

    async def _read(self, users: Sequence[str], hidden_users: Collection[str]) -> list[tuple[Presence, bool]]:
        find = self._context.people.find
        people = list(map(find, users))
        unknown = [
            user
            for user, person in zip(users, people, strict=True)
            if not is_at_hand(person, hidden=user in hidden_users)
        ]
        if not unknown:
            return [(person.record.presence, not person.record.guessed) for person in people if person is not None]
        found = await self._lookup(list(dict.fromkeys(unknown)), hidden_users)
        # Use users that became known during the lookup, and those that were known before it and released meanwhile.
        people = [_better_known(find(user), person) for user, person in zip(users, people, strict=True)]
        return [
            found[user] if person is None or not person.record.known else _known(person, found.get(user))
            for user, person in zip(users, people, strict=True)
        ]

    async def _lookup(self, users: list[str], hidden_users: Collection[str]) -> dict[str, tuple[Presence, bool]]:
        try:
            loaded = await read_within(self._context.engine.load(users))
        except Unavailable:
            self._context.metrics.engine_errors += 1
            cold = await self._cold.get(users, sure=True)
            return {user: (cold[user], False) for user in users}
        absent = [user for user, each in zip(users, loaded, strict=True) if each.record is None]
        cold = await self._cold.get(absent, self._padding_lookups(users, loaded, hidden_users))
        return {user: self._lookup_result(user, each, cold) for user, each in zip(users, loaded, strict=True)}

    def _lookup_result(self, user: str, found: Loaded, cold: dict[str, Presence]) -> tuple[Presence, bool]:
        if found.record is None:
            return cold.get(user, UNKNOWN_USER), found.settled
        try:
            return self._decode(user, found.record), found.settled
        except UnknownFormat:
            return UNKNOWN_USER, False

    def _padding_lookups(
        self, users: Sequence[str], loaded: Sequence[Loaded], hidden_users: Collection[str]
    ) -> list[str]:
        """Return the users that have a record in the store and appear offline. They are queried from the ledger too,
        only so that they take as long as users that are offline."""
        return self._cold.padding(
            user
            for user, found in zip(users, loaded, strict=True)
            if found.record is not None and (user in hidden_users or self._appears_offline(user, found.record))
        )

    def _appears_offline(self, user: str, record: bytes) -> bool:
        try:
            return status_in_public(self._decode(user, record)) is Status.OFFLINE
        except UnknownFormat:
            return True

    def _decode(self, user: str, record: bytes) -> Presence:
        kept = self._decoded.get(user)
        if kept is not None and kept[0] == record:
            return kept[1]
        presence = decode(record)
        self._decoded.put(user, (record, presence))
        return presence


def _above(presence: Presence, version: int) -> Presence:
    return replace(presence, version=max(presence.version, version))


def is_at_hand(person: Person | None, *, hidden: bool) -> bool:
    """True if the user's known presence may be shown without a lookup: the user is watched here, or publicly not
    offline. `hidden`: the user is hidden from the requesting viewer, so the answer must take as long as for an offline
    user."""
    if person is None or not person.record.known:
        return False
    if person.watchers.channels:
        return True
    return not hidden and status_in_public(person.record.presence) is not _OFFLINE


def _better_known(now: Person | None, before: Person | None) -> Person | None:
    """Return `now`, or `before` if the record of `now` is not known. Both stand for the same user, found after and
    before a read: a user that is released and created again meanwhile is a new object."""
    return before if now is None or not now.record.known else now


def _known(person: Person, found: tuple[Presence, bool] | None) -> tuple[Presence, bool]:
    """Return the known presence, and True if it is certainly current. `found`: result of a lookup, if there was one;
    then the known presence is only as current as the shard, like that of an unknown user."""
    return person.record.presence, not person.record.guessed and (found is None or found[1])


# Looking up an enum attribute costs more than everything else in `is_at_hand`.
_OFFLINE = Status.OFFLINE
