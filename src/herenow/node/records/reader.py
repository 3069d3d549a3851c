"""What do the store, and behind it the ledger, say of these users? Always many at a time.

Offline users leave the store once the ledger has them, so "not in the store" means: ask the ledger. When the ledger is
away the store's answer must do: a record with a mode or a custom status never leaves the store, so an absent user hides
nothing; only an old last seen is missing until the ledger is back. When the store is away the ledger's answer must do,
and is called a guess.

Who looks offline costs what an offline one costs, whoever we hold and whatever is in the store: otherwise the time that an
answer takes would tell the hidden from the gone. The record says who is invisible to all; who is hidden from the one viewer
who asks (`frozen`), the caller says.

Everything that is read is also evidence about the store itself. Absence in an unsettled shard says nothing; a record that
is older than one we know was there before, or none where a session that we hold stood, says that the shard lost
something (see `healing`). What we know then stays as it is until the shard has healed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from herenow.core.model import Presence, Status
from herenow.core.record import UnknownFormat, decode, version_of
from herenow.core.settle import droppable
from herenow.core.values import replace
from herenow.core.visibility import status_in_public
from herenow.errors import Unavailable
from herenow.kit.batcher import Batcher
from herenow.kit.clock import Clock
from herenow.kit.deadline import read_within
from herenow.kit.lru import ExpiringLru, Lru
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.metrics import Metrics
from herenow.node.people import People, Person
from herenow.node.records.authority import OnLoss
from herenow.ports import Engine, Ledger, Loaded, Remembered

KEEP_COLD = 60_000
"""Milliseconds what the ledger said of a user who is not in the store is believed; it can only change by being in it."""

COLD_USERS = 50_000
DECODED = 50_000
PART = 1_000
"""People who are read from the store at a time, where there may be any number."""


class Reader:
    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        people: People,
        clock: Clock,
        metrics: Metrics,
        on_loss: OnLoss,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._people = people
        self._clock = clock
        self._metrics = metrics
        self._on_loss = on_loss
        self._cold: ExpiringLru[str, Presence] = ExpiringLru(COLD_USERS)
        self._asking: dict[str, object] = {}
        """Whom the ledger is being asked about, as long as nothing was heard of them meanwhile, and by which question."""
        self._asked: ExpiringLru[str, bool] = ExpiringLru(COLD_USERS)
        """Who is in the store and looks offline, as long as the ledger need not be asked for them all the same. What
        happens to them does not shorten it: somebody hidden may be busy."""
        self._decoded: Lru[str, tuple[bytes, Presence]] = Lru(DECODED)
        self._guesses: dict[Person, None] = {}
        self.on_news: Callable[[Person], None] = _nothing
        """Called with somebody who was known and is watched here, of whom a read said something that the log has not yet:
        when it comes there, it is no news any more, and those who look would never hear of it."""
        self._together: Batcher[Person, None] = Batcher(self._learn_together, "read")

    # People we follow

    async def learn_one(self, person: Person) -> None:
        """As `learn`, together with everybody else who is asked for in this turn of the loop: a storm of arrivals is a
        few reads."""
        await self._together.ask(person)

    async def _learn_together(self, people: tuple[Person, ...]) -> dict[Person, None]:
        await self.learn(people)
        return dict.fromkeys(people)

    async def learn(
        self, people: Sequence[Person], *, discreetly: bool = False, frozen: Collection[str] = ()
    ) -> None:
        """Read them for the first time; whoever is known, or became so by the log meanwhile, stays so. `discreetly`: for
        a viewer, who may measure how long it takes, and from whom some are hidden (`frozen`)."""
        if not people:
            return
        users = [person.user for person in people]
        asked = self._clock.monotonic()
        loaded = await read_within(self._engine.load(users))
        absent = [user for user, found in zip(users, loaded, strict=True) if found.record is None]
        decoys = self._decoys(users, loaded, frozen) if discreetly else ()
        cold = await self._remembered(absent, decoys)
        for person, found in zip(people, loaded, strict=True):
            if not found.settled:
                self._on_loss(person.shard, None, asked)
            if found.record is not None:
                self._learn(person, found.record)
            elif not person.known or person.guessed:
                sure, doubted = found.settled and person.user in cold, person.guessed
                self._adopt_cold(person, cold.get(person.user, _STRANGER), guessed=not sure)
                if sure and doubted:
                    self._tell(person)

    def _learn(self, person: Person, record: bytes) -> None:
        try:
            if person.learn(record):
                self._tell(person)
        except UnknownFormat:  # of a newer version: whoever would write over it is told so then
            if not person.known:
                self._adopt_cold(person, _STRANGER, guessed=True)

    def _tell(self, person: Person) -> None:
        """Whoever looked before this was read, and the user's own devices: the log will have no news of it."""
        if person.channels or person.outboxes:
            self.on_news(person)

    async def guess(self, people: Sequence[Person]) -> None:
        """The store is out of reach: what the ledger says must do until `confirm`. Raises `Unavailable` without it."""
        cold = await self._remembered([person.user for person in people], sure=True)
        for person in people:
            if not person.known:
                self._adopt_cold(person, cold[person.user], guessed=True)

    async def confirm(self) -> list[Person]:
        """Read those we had to guess; answers whom we know now."""
        guesses, self._guesses = self._guesses, {}
        people = [person for person in guesses if person.guessed and person.needed]
        try:
            for start in range(0, len(people), PART):
                await self.learn(people[start : start + PART])
        finally:
            self._guesses |= dict.fromkeys(person for person in people if person.guessed)
        return [person for person in people if not person.guessed]

    def _adopt_cold(self, person: Person, presence: Presence, *, guessed: bool) -> None:
        person.adopt(None, presence)
        if guessed:
            person.guessed = True
            self._guesses[person] = None

    async def relearn(self, person: Person, expected: bytes | None, current: bytes | None) -> None:
        """A commit over `expected` found `current`. The store is right, unless it has lost something (`Unavailable`) or
        the log was faster than the answer; our next version is above both."""
        if person.record == expected and not await self._take(person, expected, current):
            raise Unavailable(f"shard {person.shard} has lost something")

    async def refresh(self, people: Sequence[Person]) -> list[Person]:
        """Read them again, because something may have been missed; answers who is different."""
        before = [(person.record, person.presence) for person in people]
        asked = self._clock.monotonic()
        loaded = await read_within(self._engine.load([person.user for person in people]))
        for person, (expected, _), found in zip(people, before, loaded, strict=True):
            if not found.settled:
                self._on_loss(person.shard, None, asked)
            elif found.record != expected and person.record == expected:
                try:
                    await self._take(person, expected, found.record, asked)
                except UnknownFormat:
                    continue  # written by a newer version, and left alone
        return [person for person, (_, was) in zip(people, before, strict=True) if person.presence is not was]

    async def _take(
        self, person: Person, expected: bytes | None, current: bytes | None, asked: float | None = None
    ) -> bool:
        """Believe the store. False: it has lost what we know."""
        if current is None:
            return await self._take_absence(person, asked)
        # A record we knew never becomes an older one, except by leaving the store and beginning anew.
        older = expected is not None and version_of(current) < version_of(expected)
        if older and not droppable(person.presence):
            self._on_loss(person.shard, None, asked)
            return False
        person.adopt(current, _above(decode(current), person.presence.version))
        return True

    async def _take_absence(self, person: Person, asked: float | None) -> bool:
        """It left the store because the ledger has it; or it should be there, and the shard has lost it."""
        if droppable(person.presence):
            person.adopt(None, person.presence)
            return True
        if any(session.must_stand for session in person.sessions):
            self._on_loss(person.shard, None, asked)
            return False
        self.forget(person.user)
        presence = person.presence
        cold = await self._remembered([person.user])
        if person.presence is presence:
            known = _above(cold.get(person.user, _STRANGER), presence.version)
            self._adopt_cold(person, known, guessed=person.user not in cold)
        return True

    # People others ask for

    async def look(
        self, users: Sequence[str], *, frozen: Collection[str] = ()
    ) -> list[tuple[Presence, bool]]:
        """(presence, is it known to be fresh) of each, in order, for an answer; keeps nobody. `frozen`: who of them is
        hidden from who asks."""
        find = self._people.find
        people = list(map(find, users))
        unknown = [
            user
            for user, person in zip(users, people, strict=True)
            if not is_at_hand(person, frozen=user in frozen)
        ]
        if not unknown:
            return [(person.presence, not person.guessed) for person in people if person is not None]
        found = await self._look_up(list(dict.fromkeys(unknown)), frozen)
        # Whoever became known meanwhile is known better; whoever left us was known until now.
        people = [_better_known(find(user), person) for user, person in zip(users, people, strict=True)]
        return [
            found[user] if person is None or not person.known else _known(person, found.get(user))
            for user, person in zip(users, people, strict=True)
        ]

    async def _look_up(self, users: list[str], frozen: Collection[str]) -> dict[str, tuple[Presence, bool]]:
        try:
            loaded = await read_within(self._engine.load(users))
        except Unavailable:
            self._metrics.engine_errors += 1
            cold = await self._remembered(users, sure=True)
            return {user: (cold[user], False) for user in users}
        absent = [user for user, each in zip(users, loaded, strict=True) if each.record is None]
        cold = await self._remembered(absent, self._decoys(users, loaded, frozen))
        return {user: self._looked_up(user, each, cold) for user, each in zip(users, loaded, strict=True)}

    def _looked_up(self, user: str, found: Loaded, cold: dict[str, Presence]) -> tuple[Presence, bool]:
        if found.record is None:
            return cold.get(user, _STRANGER), found.settled
        try:
            return self._decode(user, found.record), found.settled
        except UnknownFormat:
            return _STRANGER, False

    def forget(self, user: str) -> None:
        """Something happened to this user: what the ledger said is old."""
        self._cold.pop(user)
        self._asking.pop(user, None)

    def forget_all(self) -> None:
        """We may have missed something, of whom we do not know."""
        self._cold.clear()
        self._asking.clear()

    # How

    def _decoys(self, users: Sequence[str], loaded: Sequence[Loaded], frozen: Collection[str]) -> list[str]:
        """Who looks offline and is in the store all the same: the ledger is asked for them as often as for the others, and
        what it says is not needed."""
        now = self._clock.now()
        decoys = [
            user
            for user, found in zip(users, loaded, strict=True)
            if found.record is not None
            and self._asked.get(user, now) is None
            and (user in frozen or self._looks_offline(user, found.record))
        ]
        for user in decoys:
            self._asked.put(user, value=True, until=now + KEEP_COLD)
        return decoys

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

    async def _remembered(
        self, users: Sequence[str], decoys: Sequence[str] = (), *, sure: bool = False
    ) -> dict[str, Presence]:
        """`sure`: everybody, or `Unavailable`; otherwise those of whom something is known. `decoys` are asked for too."""
        now = self._clock.now()
        known: dict[str, Presence] = {}
        missing: list[str] = []
        for user in users:
            kept = self._cold.get(user, now)
            if kept is not None:
                known[user] = kept
            else:
                missing.append(user)
        if not missing and not decoys:
            return known
        question = object()
        self._asking.update(dict.fromkeys(missing, question))
        try:
            rows = await read_within(self._ledger.remembered([*missing, *decoys]), LEDGER_DEADLINE)
        except Unavailable:
            self._metrics.ledger_errors += 1
            if sure:
                raise
            return known
        finally:
            latest = [user for user in missing if self._asking.get(user) is question]
            for user in latest:
                self._asking.pop(user, None)
        known |= {user: from_ledger(rows.get(user)) for user in missing}
        for user in latest:
            self._cold.put(user, known[user], now + KEEP_COLD)
        return known


def _nothing(person: Person) -> None:
    pass


def from_ledger(remembered: Remembered | None) -> Presence:
    """The presence somebody starts from who is not in the store."""
    if remembered is None:
        return _STRANGER
    presence = Presence(last_seen=remembered.last_seen, idle_after=remembered.idle_after)
    choice = remembered.choice
    if choice is None:
        return presence
    return replace(
        presence, mode=choice.mode, mode_until=choice.mode_until, custom=choice.custom, chosen=choice.version
    )


def _above(presence: Presence, version: int) -> Presence:
    return replace(presence, version=max(presence.version, version))


def is_at_hand(person: Person | None, *, frozen: bool) -> bool:
    """What we know of them may be shown without asking anybody: they are watched here, or seen to be here. `frozen`: not
    by who asks."""
    if person is None or not person.known:
        return False
    if person.channels:
        return True
    return not frozen and status_in_public(person.presence) is not _OFFLINE


def _better_known(now: Person | None, before: Person | None) -> Person | None:
    """Whoever left us and came back within a read is another person to us, of whom nothing may be known yet."""
    return before if now is None or not now.known else now


def _known(person: Person, found: tuple[Presence, bool] | None) -> tuple[Presence, bool]:
    """Whoever was looked up though we hold them is as fresh as the store is: as somebody whom we do not hold."""
    return person.presence, not person.guessed and (found is None or found[1])


_STRANGER = Presence()
# An attribute of an enum costs more than all else that is asked of somebody at hand.
_OFFLINE = Status.OFFLINE
