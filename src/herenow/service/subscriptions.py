"""Look, then watch: who may watch whom, the snapshot they start from, and the graph they follow.

Register, read, let versions decide: a person is in `People` (and so followed by the log) before it is read, so nothing
that happens between the snapshot and the first update can be missed. Permission is judged when it is used: a subscription
once granted is remembered while its connection lives, and what it shows follows the rules of the moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from herenow.core.visibility import Facts, Sight, judge
from herenow.errors import Unavailable
from herenow.ports import LedgerChange
from herenow.service.clock import Clock
from herenow.service.hub import Hub
from herenow.service.metrics import Metrics
from herenow.service.outbox import Outbox
from herenow.service.people import People, Person
from herenow.service.reader import Reader
from herenow.service.relations import Acquaintances
from herenow.service.tasks import Tasks
from herenow.wire.shapes import closed_statuses_frame, with_as_of


@dataclass(slots=True)
class Granted:
    """What a subscribe comes to: statuses in the order asked, and who was denied why."""

    statuses: list[tuple[bytes, int]] = field(default_factory=list)
    """(body, as of)"""
    denied: list[tuple[str, str]] = field(default_factory=list)


class Subscriptions:
    def __init__(
        self,
        *,
        people: People,
        hub: Hub,
        reader: Reader,
        clock: Clock,
        metrics: Metrics,
        tasks: Tasks,
        max_subscriptions: int,
    ) -> None:
        self._people = people
        self._hub = hub
        self._reader = reader
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._max = max_subscriptions
        self._relations: Acquaintances

    def attach(self, relations: Acquaintances) -> None:
        self._relations = relations

    async def sights(self, viewer: str, targets: Sequence[str]) -> dict[str, Sight]:
        """What this user may see of each, as of now. Unknown is no."""
        await self._relations.relate(viewer, targets)
        related = self._relations.related(viewer, targets)
        return {target: _SIGHTS[target == viewer, target in related] for target in targets}

    async def sights_of(self, target: str, viewers: Sequence[str]) -> dict[str, Sight]:
        """The other way round: what each of these users may see of one. A relation has no direction."""
        return await self.sights(target, viewers)

    async def subscribe(self, outbox: Outbox, targets: Sequence[str]) -> Granted:
        """The caller sends the answer before it next awaits: the first update may follow at once."""
        granted = Granted()
        targets = list(dict.fromkeys(targets))
        sights = await self.sights(outbox.user, targets)
        people: list[Person] = []
        room = self._max - len(outbox.watching)
        for target in targets:
            watched = target in outbox.watching
            if sights[target] is Sight.NONE and not watched:
                granted.denied.append((target, "not_mutual_followers"))
            elif not watched and room <= 0:
                granted.denied.append((target, "too_many_subscriptions"))
            else:
                room -= not watched
                people.append(self._people.get(target))
                people[-1].pins += 1
        try:
            await self._get_to_know([person for person in people if not person.known])
            await self._relations.relate(
                outbox.user, [person.user for person in people]
            )  # if that changed meanwhile
            self._grant(outbox, people, granted)
        finally:
            for person in people:
                person.pins -= 1
                self._people.release(person, self._clock.now())
        for _, reason in granted.denied:
            self._metrics.refusals[reason] += 1
        return granted

    async def _get_to_know(self, people: list[Person]) -> None:
        """Whatever can be known of them: while the store is away, what the ledger says."""
        try:
            await self._reader.learn(people)
        except Unavailable:
            await self._reader.guess(people)

    def _grant(self, outbox: Outbox, people: list[Person], granted: Granted) -> None:
        if outbox.closed:
            return
        for person in people:
            sight = self._sight(outbox.user, person.user)
            if not sight and person.user not in outbox.watching:  # taken back while we read
                granted.denied.append((person.user, "not_mutual_followers"))
                continue
            channel = self._hub.watch(outbox, person, sight or Sight.NONE)
            granted.statuses.append((channel.said, self._hub.as_of(person.shard)))

    async def subscribe_contacts(self, outbox: Outbox) -> Granted:
        outbox.follows_contacts = True
        return await self.subscribe(outbox, await self._relations.contacts(outbox.user))

    def unsubscribe(self, outbox: Outbox, targets: Sequence[str]) -> list[str]:
        """Nothing for those targets after this."""
        for target in targets:
            self._hub.unwatch(outbox, target)
        return list(targets)

    async def unsubscribe_contacts(self, outbox: Outbox) -> list[str]:
        outbox.follows_contacts = False
        contacts = [c for c in await self._relations.contacts(outbox.user) if c in outbox.watching]
        return self.unsubscribe(outbox, contacts)

    # When the graph changes

    def changed(self, change: LedgerChange) -> None:
        """The edge between two users is different now: each of them may see more or less of the other."""
        if change.kind == "relation":
            for viewer, target in ((change.a, change.b), (change.b, change.a)):
                person = self._people.find(viewer)
                if person is not None and person.outboxes:
                    self._tasks.spawn(self.look_again(viewer, [target]), "relation")

    def trust_changed(self) -> None:
        """We no longer know who may see whom, or know it again."""
        for person in self._people:
            if person.outboxes:
                self._tasks.spawn(self.look_again(person.user, None), "trust")

    async def look_again(self, viewer: str, targets: Sequence[str] | None) -> None:
        """What this viewer's connections see of these targets (None: of all they watch), under the rules of now."""
        person = self._people.find(viewer)
        if person is None:
            return
        watched = {user for outbox in person.outboxes for user in outbox.watching}
        wanted = watched if targets is None else watched.intersection(targets)
        await self._relations.relate(viewer, sorted(wanted))
        for outbox in list(person.outboxes):
            for target in wanted.intersection(outbox.watching):
                sight = self._sight(viewer, target) or Sight.NONE
                self._hub.resight(outbox, outbox.watching[target].person, sight)
        await self._follow_contacts(person)

    async def _follow_contacts(self, person: Person) -> None:
        followers = [outbox for outbox in person.outboxes if outbox.follows_contacts]
        if not followers:
            return
        try:
            contacts = await self._relations.contacts(person.user)
        except Unavailable:
            return
        for outbox in followers:
            new = [contact for contact in contacts if contact not in outbox.watching]
            granted = await self.subscribe(outbox, new) if new else None
            if granted is not None and granted.statuses and not outbox.closed:
                outbox.send(closed_statuses_frame([with_as_of(*status) for status in granted.statuses]))

    def _sight(self, viewer: str, target: str) -> Sight | None:
        """None: they are not related, or we do not know."""
        related = viewer != target and bool(self._relations.are_related(viewer, target))
        sight = _SIGHTS[viewer == target, related]
        return None if sight is Sight.NONE else sight


_SIGHTS = {
    (same, related): judge(Facts(same_user=same, related=related)).sight
    for same in (False, True)
    for related in (False, True)
}
"""All that can come of the facts there are, judged once: thousands are asked for at a time."""
