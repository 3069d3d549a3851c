"""Look, then watch: who may watch whom, the snapshot they start from, and the graph they follow.

Register, read, let versions decide: a person is in `People` (and so followed by the log) before it is read, so nothing
that happens between the snapshot and the first update can be missed. Permission is judged when it is used: a subscription
once granted is remembered while its connection lives, and what it shows follows the rules of the moment.

What cannot be known (the relations are out of reach) is not denied, for that would be an answer: it is granted and looks
like somebody who was never here, until it is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from herenow.core.model import NOBODY_HERE
from herenow.core.visibility import Kind, Sight
from herenow.errors import Unavailable
from herenow.kit.clock import Clock
from herenow.kit.idset import among, holds
from herenow.kit.loop_budget import LoopBudget
from herenow.kit.tasks import Tasks
from herenow.node.access.relation_cache import Acquaintances
from herenow.node.delivery.channels import Channels, watched_by
from herenow.node.delivery.hub import Hub
from herenow.node.delivery.outbox import NOBODY, Outbox
from herenow.node.metrics import Metrics
from herenow.node.people import People, Person
from herenow.node.records.reader import Reader, is_at_hand
from herenow.ports import LedgerChange
from herenow.wire.shapes import dated_statuses_frame, status_body

HIDE_AFTER = 0.5
"""Seconds that a viewer goes on seeing what may be forbidden since, while its source takes its time to say so."""

UNWANTED = 10_000
"""People one socket that follows contacts may have said it does not want. Beyond them, one may come back when the graph
changes: where everybody may look at everybody, names cost nothing."""

BUDGET = 500
"""Targets that are looked at in one iteration of the event loop, about 15 µs each: below the 20 ms of a tick."""

AT_A_TIME = 100
"""Viewers who look again together after an outage: each may ask for a list of contacts."""


@dataclass(slots=True)
class Granted:
    """What a subscribe comes to: statuses in the order asked, and who was denied why."""

    statuses: list[tuple[bytes, int]] = field(default_factory=list)
    """(body, as of)"""
    denied: list[tuple[str, str]] = field(default_factory=list)
    news: list[tuple[bytes, int]] = field(default_factory=list)
    """Those of the statuses that were not watched before."""


class Subscriptions:
    def __init__(
        self,
        *,
        people: People,
        hub: Hub,
        channels: Channels,
        reader: Reader,
        clock: Clock,
        metrics: Metrics,
        tasks: Tasks,
        max_subscriptions: int,
    ) -> None:
        self._people = people
        self._hub = hub
        self._channels = channels
        self._reader = reader
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._max = max_subscriptions
        self._budget = LoopBudget(BUDGET)
        self._relations: Acquaintances

    def attach(self, relations: Acquaintances) -> None:
        self._relations = relations

    async def sights(self, viewer: str, targets: Sequence[str]) -> dict[str, Sight]:
        """What this user may see of each, as of now. Unknown is nothing."""
        await self._relations.relate(viewer, targets)
        return self._relations.sights(viewer, targets)

    async def sights_of(self, target: str, viewers: Sequence[str]) -> dict[str, Sight]:
        """The other way round: what each of these users may see of one."""
        await self._relations.relate_to(target, viewers)
        return self._relations.sights_of(target, viewers)

    async def _relate(self, outbox: Outbox, targets: Sequence[str]) -> None:
        if not outbox.truth:
            await self._relations.relate(outbox.user, targets)

    async def subscribe(self, outbox: Outbox, targets: Sequence[str]) -> Granted:
        """The caller sends the answer before it next awaits: the first update may follow at once."""
        if outbox.unwanted:
            outbox.unwanted -= frozenset(targets)
        return await self._subscribe(outbox, targets)

    async def _subscribe(self, outbox: Outbox, targets: Sequence[str], *, following: bool = False) -> Granted:
        """`following`: nobody asked for these targets, they are contacts now."""
        granted = Granted()
        targets = self._people.spelled(targets)
        await self._budget.take(len(targets))
        await self._relate(outbox, targets)
        admitted = self._admit(outbox, targets, self._known_sights(outbox, targets), granted)
        unknown = [
            person
            for person, sight in admitted
            if not (person.known and person.channels)  # as `is_at_hand` says, without a call
            and not is_at_hand(person, frozen=_is_frozen(sight))
        ]
        if unknown:
            frozen = {person.user for person, sight in admitted if _is_frozen(sight)}
            with self._kept([person for person, _ in admitted]) as people:
                await self._get_to_know(unknown, frozen)
                await self._budget.take(len(people))
                users = [person.user for person in people]
                await self._relate(outbox, users)  # if that changed meanwhile
                admitted = list(zip(people, self._known_sights(outbox, users), strict=True))
                self._grant(outbox, admitted, granted, following=following)
        elif following:
            self._grant(outbox, admitted, granted, following=True)
        elif not outbox.closed:  # nothing can have changed since it was judged
            self._watch(outbox, [(p, _NONE if sight is None else sight) for p, sight in admitted], granted)
        for _, reason in granted.denied:
            self._metrics.refusals[reason] += 1
        return granted

    def _admit(
        self, outbox: Outbox, targets: Sequence[str], sights: Sequence[Sight | None], granted: Granted
    ) -> list[tuple[Person, Sight | None]]:
        """Who may be watched, as things stand, and is worth being read."""
        admitted: list[tuple[Person, Sight | None]] = []
        watching, get, full = among(outbox.watching, targets), self._people.get, Sight.FULL
        room = self._max - len(outbox.watching)
        denied = [sight for sight in sights if sight is not full and _is_nothing(sight)]
        if not watching and len(targets) <= room and not denied:
            return list(zip(map(get, targets), sights, strict=True))  # nearly always
        for target, sight in zip(targets, sights, strict=True):
            if target not in watching:
                if _is_nothing(sight):
                    granted.denied.append((target, "not_mutual_followers"))
                    continue
                if room <= 0:
                    granted.denied.append((target, "too_many_subscriptions"))
                    continue
                room -= 1
            admitted.append((get(target), sight))
        return admitted

    @contextmanager
    def _kept(self, people: list[Person]) -> Iterator[list[Person]]:
        """They are not forgotten while we wait for something."""
        for person in people:
            person.pins += 1
        try:
            yield people
        finally:
            now = self._clock.now()
            for person in people:
                person.pins -= 1
                self._people.release(person, now)

    async def _get_to_know(self, unknown: list[Person], frozen: set[str]) -> None:
        """Whatever can be known of them: while the store is away, what the ledger says."""
        try:
            await self._reader.learn(unknown, discreetly=True, frozen=frozen)
        except Unavailable:
            await self._reader.guess(unknown)

    def _grant(
        self,
        outbox: Outbox,
        admitted: list[tuple[Person, Sight | None]],
        granted: Granted,
        *,
        following: bool,
    ) -> None:
        if outbox.closed:
            return
        watching = among(outbox.watching, [person.user for person, _ in admitted])
        room, wanted = self._max - len(outbox.watching), list[tuple[Person, Sight]]()
        for person, sight in admitted:
            if following and not _follows(outbox, person.user):
                continue  # as wanted now, not as it was when we began to read
            if person.user not in watching:
                if _is_nothing(sight):
                    granted.denied.append((person.user, "not_mutual_followers"))  # taken back while we read
                    continue
                if room <= 0:  # others were granted while we read
                    granted.denied.append((person.user, "too_many_subscriptions"))
                    continue
                room -= 1
            wanted.append((person, Sight.NONE if sight is None else sight))
        self._watch(outbox, wanted, granted)

    def _watch(self, outbox: Outbox, wanted: list[tuple[Person, Sight]], granted: Granted) -> None:
        watching = among(outbox.watching, [person.user for person, _ in wanted])
        channels = self._hub.watch(outbox, wanted)  # which may have told another just now
        granted.statuses = granted.news = self._channels.said_now(channels)
        if watching:
            granted.news = [
                status
                for status, (person, _) in zip(granted.statuses, wanted, strict=True)
                if person.user not in watching
            ]
        outbox.watching = self._relations.among_ids(outbox.user, outbox.watching)

    async def subscribe_contacts(self, outbox: Outbox) -> Granted:
        outbox.unwanted = NOBODY
        before, outbox.follows_contacts = (
            outbox.follows_contacts,
            True,
        )  # at once: nobody is missed while we read
        try:
            contacts = await self._relations.contacts(outbox.user)
        except Unavailable:
            outbox.follows_contacts = before
            raise
        return await self.subscribe(outbox, contacts)

    def unsubscribe(self, outbox: Outbox, targets: Sequence[str]) -> list[str]:
        """Nothing for those targets after this."""
        if outbox.follows_contacts and len(outbox.unwanted) < UNWANTED:
            outbox.unwanted |= {target for target in targets if self._may_come_back(outbox, target)}
        self._hub.unwatch(outbox, targets)
        return list(targets)

    def _may_come_back(self, outbox: Outbox, target: str) -> bool:
        """By following contacts. Others need not be remembered, so that rubbish takes no room."""
        return holds(outbox.watching, target) or self._sight(outbox.user, target) != Sight.NONE

    async def unsubscribe_contacts(self, outbox: Outbox) -> list[str]:
        """Those who are contacts, and those who were: the graph may bring them back."""
        outbox.follows_contacts = False
        outbox.unwanted = NOBODY
        contacts = set(await self._relations.contacts(outbox.user))
        return self.unsubscribe(
            outbox,
            [
                user
                for user in outbox.watching
                if user in contacts or watched_by(outbox, self._people.get(user)).sight == Sight.NONE
            ],
        )

    # When the rules change

    def changed(self, change: LedgerChange) -> None:
        """Heard from elsewhere: somebody may see more or less of somebody."""
        if change.kind == "relations" or any(self._concerns(user) for user in (change.a, change.b)):
            self._tasks.spawn(self.follow(change), change.kind)

    def _concerns(self, user: str) -> bool:
        person = self._people.find(user)
        return person is not None and bool(person.outboxes or person.channels)

    async def follow(self, change: LedgerChange) -> None:
        """Returns when everybody here sees what they may see now."""
        if change.kind == "relation":
            await self.look_again(change.a, [change.b])
            await self.look_again(change.b, [change.a])
        elif change.kind == "preferences":
            await self._look_again_at(change.a)
            await self.look_again(change.a, None)  # who does not share their last seen gets none
        elif change.kind == "member" and self._relations.rooms_relate:
            await self._look_again_at(change.b)
            await self.look_again(change.b, None)
        elif change.kind == "relations":
            await self._look_all_round(change.a)

    async def _look_all_round(self, user: str) -> None:
        """Everything about this user may be different: for them, for who watches them, for who would if they knew."""
        await asyncio.gather(self.look_again(user, None), self._look_again_at(user))
        try:
            contacts = await self._relations.contacts(user)
        except Unavailable:
            return
        for contact in contacts:
            await self.look_again(contact, [user])

    def facts_old(self, viewer: str) -> None:
        """What this viewer may see should be asked anew; if nobody looks through their eyes, it may end."""
        person = self._people.find(viewer)
        if person is not None and person.outboxes:
            self._tasks.spawn(self._renew(viewer), "renew")

    def facts_over(self, viewer: str) -> None:
        """What this viewer may see is not known any more."""
        self._tasks.spawn(self.look_again(viewer, None), "facts-over")

    async def _renew(self, viewer: str) -> None:
        person = self._people.find(viewer)
        if person is not None:
            await self._relations.renew(viewer, sorted(_watched(person) - {viewer}))
            await self.look_again(viewer, None)

    def trust_changed(self) -> None:
        """We no longer know who may see whom, or know it again."""
        for person in self._people:
            if person.outboxes:
                self._tasks.spawn(self.look_again(person.user, None), "trust")

    async def look_again_at_all(self, viewers: Sequence[str] | None) -> None:
        """What could not be known of what these viewers (None: all who are here) look at, may be known now. A few at a
        time: it was hidden from them until now, and they can wait."""
        if viewers is None:
            viewers = [person.user for person in self._people if person.outboxes]
        for start in range(0, len(viewers), AT_A_TIME):
            some = viewers[start : start + AT_A_TIME]
            await asyncio.wait([self._tasks.spawn(self.look_again(v, None), "look-again") for v in some])

    async def look_again(self, viewer: str, targets: Sequence[str] | None) -> None:
        """What this viewer's connections see of these targets (None: of all they watch), under the rules of now; whom
        they would like to watch and may by now, they get."""
        if targets is None:
            await self._budget.take(
                self._looks_at(viewer)
            )  # all who are here may look again in the same moment
        person = self._people.find(viewer)
        if person is None or not person.outboxes:
            return
        watched = _watched(person)
        wanted = watched if targets is None else watched.intersection(targets)
        await _learned(
            lambda: self._relations.relate(viewer, sorted(wanted)), lambda: self._resight(person, wanted)
        )
        await self._follow_contacts(person)
        await self._grant_wishes(person, targets)

    def _looks_at(self, viewer: str) -> int:
        person = self._people.find(viewer)
        return 0 if person is None else sum(len(outbox.watching) for outbox in person.outboxes)

    def _resight(self, person: Person, targets: set[str]) -> None:
        for outbox in list(person.outboxes):
            for target in targets.intersection(outbox.watching):
                sight = self._sight(person.user, target)
                self._hub.resight(outbox, self._people.get(target), sight)

    async def _look_again_at(self, target: str) -> None:
        """What everybody here who watches this user sees of them, under the rules of now."""
        person = self._people.find(target)
        if person is None or not person.channels:
            return
        await _learned(
            lambda: self._relations.relate_to(target, _viewers(person)), lambda: self._resight_of(person)
        )

    def _resight_of(self, person: Person) -> None:
        sights = self._relations.sights_of(person.user, _viewers(person))
        for channel in person.channels:
            for outbox in tuple(channel.outboxes):
                sight = channel.sight if outbox.truth else sights[outbox.user]
                if sight != channel.sight:
                    self._hub.resight(outbox, person, sight)

    async def _follow_contacts(self, person: Person) -> None:
        followers = [outbox for outbox in person.outboxes if outbox.follows_contacts]
        if not followers:
            return
        try:
            contacts = await self._relations.contacts(person.user)
        except Unavailable:
            return
        for outbox in followers:
            watching = among(outbox.watching, contacts)
            new = [c for c in contacts if c not in watching and _follows(outbox, c)]
            granted = await self._subscribe(outbox, new, following=True) if new else None
            # The same change may be heard of twice: whom it watches by now, it was told of.
            if granted is not None and granted.news and not outbox.closed:
                outbox.send(dated_statuses_frame(granted.news))

    async def _grant_wishes(self, person: Person, targets: Sequence[str] | None) -> None:
        """A stream cannot ask again: whom it asked for and may see by now, it gets."""
        for outbox in list(person.outboxes):
            wishes = sorted(outbox.wishes if targets is None else outbox.wishes.intersection(targets))
            sights = await self.sights(person.user, wishes) if wishes else {}
            visible = [user for user in wishes if sights[user] != Sight.NONE]
            if not visible:
                continue
            granted = await self.subscribe(outbox, visible)
            outbox.wishes = outbox.wishes.difference(outbox.watching)
            unseen = {status_body(user, NOBODY_HERE) for user in visible}  # as they looked so far
            news = [status for status in granted.news if status[0] not in unseen]
            if news and not outbox.closed:
                outbox.send(dated_statuses_frame(news))

    def _sight(self, viewer: str, target: str) -> Sight:
        verdict = self._relations.verdict(viewer, target)
        return Sight.NONE if verdict is None else verdict.sight

    def _known_sights(self, outbox: Outbox, targets: Sequence[str]) -> Sequence[Sight | None]:
        """Of each, in order. None: we do not know it, which is no reason to deny anything."""
        if outbox.truth:
            return [Sight.TRUTH] * len(targets)
        return self._relations.known_sights(outbox.user, targets)


async def _learned(learn: Callable[[], Awaitable[None]], show: Callable[[], None]) -> None:
    """Show what is known when it is learned; if that takes its time, what is unknown is hidden meanwhile."""
    try:
        async with asyncio.timeout(HIDE_AFTER):
            await learn()
    except TimeoutError:
        show()
        await learn()
    show()


_NONE = Sight.NONE


def _is_nothing(sight: Sight | None) -> bool:
    return sight is not None and sight.kind is Kind.NONE


def _is_frozen(sight: Sight | None) -> bool:
    return sight is not None and sight.kind is Kind.FROZEN


def _watched(person: Person) -> set[str]:
    return {user for outbox in person.outboxes for user in outbox.watching}


def _viewers(person: Person) -> list[str]:
    return list({o.user for channel in person.channels for o in channel.outboxes if not o.truth})


def _follows(outbox: Outbox, contact: str) -> bool:
    """Does it want to hear of a contact it has not named?"""
    return outbox.follows_contacts and contact not in outbox.unwanted
