"""What do the store, and behind it the ledger, say of these users? Always many at a time.

Offline users leave the store once the ledger has them, so "not in the store" means: ask the ledger. When the ledger is
away the store's answer must do: a record with a mode or a custom status never leaves the store, so an absent user hides
nothing; only an old last seen is missing until the ledger is back. When the store is away the ledger's answer must do,
and is called a load_from_ledger.

Who looks offline costs what an offline one costs, whoever we hold and whatever is in the store: otherwise the time that an
answer takes would tell the hidden from the gone. The record says who is invisible to all; who is hidden from the one viewer
who asks (`hidden_users`), the caller says.

Everything that is read is also evidence about the store itself. Absence in an unsettled shard says nothing; a record that
is older than one we know was there before, or none where a session that we hold stood, says that the shard lost
something (see `healing`). What we know then stays as it is until the shard has healed.
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
PART = 1_000
"""People who are read from the store at a time, where there may be any number."""


class Reader:
    def __init__(self, context: Context, cold: ColdCache, events: RecordEvents) -> None:
        self._context = context
        self._cold = cold
        self._events = events
        self._decoded: Lru[str, tuple[bytes, Presence]] = Lru(DECODED)
        self._guesses: dict[Person, None] = {}
        self._batcher: Batcher[Person, None] = Batcher(self._load_all, "read")

    # People we follow

    async def load_batched(self, person: Person) -> None:
        """As `load`, together with all users that are asked for in this iteration of the event loop."""
        await self._batcher.ask(person)

    async def _load_all(self, people: tuple[Person, ...]) -> dict[Person, None]:
        await self.load(people)
        return dict.fromkeys(people)

    async def load(
        self, people: Sequence[Person], *, constant_time: bool = False, hidden_users: Collection[str] = ()
    ) -> None:
        """Read them for the first time; whoever is known, or became so by the log meanwhile, stays so. `constant_time`: for
        a viewer, who may measure how long it takes, and from whom some are hidden (`hidden_users`)."""
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
                sure, doubted = found.settled and person.user in cold, person.record.guessed
                self._adopt_cold(person, cold.get(person.user, UNKNOWN_USER), guessed=not sure)
                if sure and doubted:
                    self._tell(person)

    def _learn(self, person: Person, record: bytes) -> None:
        try:
            if person.record.learn(record):
                self._tell(person)
        except UnknownFormat:  # of a newer version: whoever would write over it is told so then
            if not person.record.known:
                self._adopt_cold(person, UNKNOWN_USER, guessed=True)

    def _tell(self, person: Person) -> None:
        """Whoever looked before this was read, and the user's own devices: the log will have no news of it."""
        if person.watchers.channels or person.watchers.outboxes:
            self._events.on_remote_change(person)

    async def load_from_ledger(self, people: Sequence[Person]) -> None:
        """The store is unreachable: use what the ledger says until `confirm_guesses`. Raises `Unavailable` without it."""
        cold = await self._cold.get([person.user for person in people], sure=True)
        for person in people:
            if not person.record.known:
                self._adopt_cold(person, cold[person.user], guessed=True)

    async def confirm_guesses(self) -> list[Person]:
        """Read those we had to load_from_ledger; answers whom we know now."""
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
        """A commit over `expected` found `current`. The store is right, unless it has lost something (`Unavailable`) or
        the log was faster than the answer; our next version is above both."""
        if person.record.stored == expected and not await self._take(person, expected, current):
            raise Unavailable(f"shard {person.shard} has lost something")

    async def refresh(self, people: Sequence[Person]) -> list[Person]:
        """Read them again, because something may have been missed; answers who is different."""
        before = [(person.record.stored, person.record.presence) for person in people]
        asked = self._context.clock.monotonic()
        loaded = await read_within(self._context.engine.load([person.user for person in people]))
        for person, (expected, _), found in zip(people, before, loaded, strict=True):
            if not found.settled:
                self._events.on_loss(person.shard, None, asked)
            elif found.record != expected and person.record.stored == expected:
                try:
                    await self._take(person, expected, found.record, asked)
                except UnknownFormat:
                    continue  # written by a newer version, and left alone
        return [person for person, (_, was) in zip(people, before, strict=True) if person.record.presence is not was]

    async def _take(
        self, person: Person, expected: bytes | None, current: bytes | None, asked: float | None = None
    ) -> bool:
        """Believe the store. False: it has lost what we know."""
        if current is None:
            return await self._take_absence(person, asked)
        # A record we knew never becomes an older one, except by leaving the store and beginning anew.
        older = expected is not None and version_of(current) < version_of(expected)
        if older and not droppable(person.record.presence):
            self._events.on_loss(person.shard, None, asked)
            return False
        person.record.adopt(current, _above(decode(current), person.record.presence.version))
        return True

    async def _take_absence(self, person: Person, asked: float | None) -> bool:
        """It left the store because the ledger has it; or it should be there, and the shard has lost it."""
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

    # People others ask for

    async def read(self, users: Sequence[str], *, hidden_users: Collection[str] = ()) -> list[tuple[Presence, bool]]:
        """(presence, is it known to be fresh) of each, in order, for an answer; keeps nobody. `hidden_users`: who of them is
        hidden from who asks."""
        find = self._context.people.find
        people = list(map(find, users))
        unknown = [
            user
            for user, person in zip(users, people, strict=True)
            if not is_at_hand(person, hidden=user in hidden_users)
        ]
        if not unknown:
            return [(person.record.presence, not person.record.guessed) for person in people if person is not None]
        found = await self._look_up(list(dict.fromkeys(unknown)), hidden_users)
        # Whoever became known meanwhile is known better; whoever left us was known until now.
        people = [_better_known(find(user), person) for user, person in zip(users, people, strict=True)]
        return [
            found[user] if person is None or not person.record.known else _known(person, found.get(user))
            for user, person in zip(users, people, strict=True)
        ]

    async def _look_up(self, users: list[str], hidden_users: Collection[str]) -> dict[str, tuple[Presence, bool]]:
        try:
            loaded = await read_within(self._context.engine.load(users))
        except Unavailable:
            self._context.metrics.engine_errors += 1
            cold = await self._cold.get(users, sure=True)
            return {user: (cold[user], False) for user in users}
        absent = [user for user, each in zip(users, loaded, strict=True) if each.record is None]
        cold = await self._cold.get(absent, self._padding_lookups(users, loaded, hidden_users))
        return {user: self._looked_up(user, each, cold) for user, each in zip(users, loaded, strict=True)}

    def _looked_up(self, user: str, found: Loaded, cold: dict[str, Presence]) -> tuple[Presence, bool]:
        if found.record is None:
            return cold.get(user, UNKNOWN_USER), found.settled
        try:
            return self._decode(user, found.record), found.settled
        except UnknownFormat:
            return UNKNOWN_USER, False

    def forget(self, user: str) -> None:
        """Something happened to this user: the ledger's answer is out of date."""
        self._cold.forget(user)

    def forget_all(self) -> None:
        """Changes were missed, and it is not known whose."""
        self._cold.forget_all()

    # How

    def _padding_lookups(
        self, users: Sequence[str], loaded: Sequence[Loaded], hidden_users: Collection[str]
    ) -> list[str]:
        """Users that are in the store and look offline: the ledger is asked for them as for users that are not."""
        return self._cold.padding(
            user
            for user, found in zip(users, loaded, strict=True)
            if found.record is not None and (user in hidden_users or self._looks_offline(user, found.record))
        )

    def _looks_offline(self, user: str, record: bytes) -> bool:
        try:
            return status_in_public(self._decode(user, record)) is Status.OFFLINE
        except UnknownFormat:
            return True

    def _decode(self, user: str, record: bytes) -> Presence:
        """Records of people who are asked for again and again are decoded once."""
        kept = self._decoded.get(user)
        if kept is not None and kept[0] == record:
            return kept[1]
        presence = decode(record)
        self._decoded.put(user, (record, presence))
        return presence


def _above(presence: Presence, version: int) -> Presence:
    return replace(presence, version=max(presence.version, version))


def is_at_hand(person: Person | None, *, hidden: bool) -> bool:
    """True if what is known of this user may be shown without a lookup: it is watched here, or visibly online. `hidden`: the
    viewer who asks may not see it, so it must cost what an offline user costs."""
    if person is None or not person.record.known:
        return False
    if person.watchers.channels:
        return True
    return not hidden and status_in_public(person.record.presence) is not _OFFLINE


def _better_known(now: Person | None, before: Person | None) -> Person | None:
    """Whoever left us and came back within a read is another person to us, of whom nothing may be known yet."""
    return before if now is None or not now.record.known else now


def _known(person: Person, found: tuple[Presence, bool] | None) -> tuple[Presence, bool]:
    """Whoever was looked up though we hold them is as fresh as the store is: as somebody whom we do not hold."""
    return person.record.presence, not person.record.guessed and (found is None or found[1])


# An attribute of an enum costs more than all else that is asked of somebody at hand.
_OFFLINE = Status.OFFLINE
