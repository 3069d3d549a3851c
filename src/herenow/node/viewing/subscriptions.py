"""Subscriptions: which targets a viewer may watch, and the snapshot that it starts from.

A user is added to `People`, and so updated by the log, before the record is read: no change between the snapshot and the
first update is missed. A granted subscription is kept while its connection lives; its content follows the rules of the
moment. While relations cannot be read, a target is not denied, which would be an answer: it is granted and looks offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from herenow.core.visibility import Kind, ViewScope
from herenow.errors import Unavailable
from herenow.kit.idset import among, holds
from herenow.kit.loop_budget import LoopBudget
from herenow.node.access import RelationCache
from herenow.node.context import Context
from herenow.node.delivery import Delivery, watched_by
from herenow.node.people import NOBODY, Outbox, Person
from herenow.node.records import Records, is_at_hand

BUDGET = 500
"""Targets per iteration of the event loop, about 15 µs each: less than the flush interval of 20 ms."""

MUTED = 10_000
"""Muted contacts per connection, to bound memory. Beyond that one may come back when relations change."""


@dataclass(slots=True)
class Granted:
    """Result of a subscribe: statuses in the order of the targets, and (target, reason) of the denied ones."""

    statuses: list[tuple[bytes, int]] = field(default_factory=list)
    """(encoded status, time in ms as of which it is true)"""
    denied: list[tuple[str, str]] = field(default_factory=list)
    new_statuses: list[tuple[bytes, int]] = field(default_factory=list)
    """Only of targets that were not watched before."""


class Subscriptions:
    def __init__(self, context: Context, delivery: Delivery, records: Records, access: RelationCache) -> None:
        self._people = context.people
        self._metrics = context.metrics
        self._max = context.settings.max_subscriptions
        self._delivery = delivery
        self._records = records
        self._access = access
        self.budget = LoopBudget(BUDGET)
        """Shared by subscribes and reevaluations."""

    async def _relate(self, outbox: Outbox, targets: Sequence[str]) -> None:
        if not outbox.truth:
            await self._access.relate(outbox.user, targets)

    async def subscribe(self, outbox: Outbox, targets: Sequence[str]) -> Granted:
        """Let this connection watch those of the targets that rules and limits permit. Returns their statuses, and the
        denied targets. The caller must send this before it next awaits: the first update may follow at once."""
        if outbox.muted:
            outbox.muted -= frozenset(targets)
        return await self.grant(outbox, targets)

    async def grant(self, outbox: Outbox, targets: Sequence[str], *, following: bool = False) -> Granted:
        """Do the same as `subscribe`, but leave muted contacts muted. `following`: the client did not name these
        targets, they are new contacts."""
        granted = Granted()
        targets = self._people.spelled(targets)
        await self.budget.take(len(targets))
        await self._relate(outbox, targets)
        admitted = self._admit(outbox, targets, self._known_sights(outbox, targets), granted)
        unknown = [
            person
            for person, sight in admitted
            if not (person.record.known and person.watchers.channels)  # `is_at_hand` inlined
            and not is_at_hand(person, hidden=_is_frozen(sight) or person.user in self._people.late)
        ]
        if unknown:
            hidden = {person.user for person, sight in admitted if _is_frozen(sight)}
            people = [person for person, _ in admitted]
            with self._people.keeping(*people):
                await self._load(unknown, hidden)
                await self.budget.take(len(people))
                users = [person.user for person in people]
                await self._relate(outbox, users)  # relations may have changed meanwhile
                admitted = list(zip(people, self._known_sights(outbox, users), strict=True))
                self._grant(outbox, admitted, granted, following=following)
        elif following:
            self._grant(outbox, admitted, granted, following=True)
        elif not outbox.closed:  # there was no await since the scopes were judged
            self._watch(outbox, [(p, _NONE if sight is None else sight) for p, sight in admitted], granted)
        for _, reason in granted.denied:
            self._metrics.refusals[reason] += 1
        return granted

    def _admit(
        self, outbox: Outbox, targets: Sequence[str], sights: Sequence[ViewScope | None], granted: Granted
    ) -> list[tuple[Person, ViewScope | None]]:
        """Return the targets that rules and limits permit, each with its view scope, and add the others to
        `granted.denied`. `sights`: the view scope of each target, in order."""
        admitted: list[tuple[Person, ViewScope | None]] = []
        watching, get, full = among(outbox.watching, targets), self._people.get, ViewScope.FULL
        free = self._max - len(outbox.watching)
        denied = [sight for sight in sights if sight is not full and _is_nothing(sight)]
        if not watching and len(targets) <= free and not denied:
            return list(zip(map(get, targets), sights, strict=True))  # nearly always
        for target, sight in zip(targets, sights, strict=True):
            if target not in watching:
                if _is_nothing(sight):
                    granted.denied.append((target, "not_mutual_followers"))
                    continue
                if free <= 0:
                    granted.denied.append((target, "too_many_subscriptions"))
                    continue
                free -= 1
            admitted.append((get(target), sight))
        return admitted

    async def _load(self, unknown: list[Person], hidden: set[str]) -> None:
        """Read the records of these users from the store, or from the ledger while the store is unreachable. `hidden`:
        users that hide from the viewer."""
        try:
            await self._records.load(unknown, constant_time=True, hidden_users=hidden)
        except Unavailable:
            await self._records.load_from_ledger(unknown)

    def _grant(
        self, outbox: Outbox, admitted: list[tuple[Person, ViewScope | None]], granted: Granted, *, following: bool
    ) -> None:
        if outbox.closed:
            return
        watching = among(outbox.watching, [person.user for person, _ in admitted])
        free, wanted = self._max - len(outbox.watching), list[tuple[Person, ViewScope]]()
        for person, sight in admitted:
            if following and not wants_contact(outbox, person.user):
                continue  # the client may have changed this during the read
            if person.user not in watching:
                if _is_nothing(sight):
                    granted.denied.append((person.user, "not_mutual_followers"))  # the permission ended during the read
                    continue
                if free <= 0:  # others were granted during the read
                    granted.denied.append((person.user, "too_many_subscriptions"))
                    continue
                free -= 1
            wanted.append((person, ViewScope.NONE if sight is None else sight))
        self._watch(outbox, wanted, granted)

    def _watch(self, outbox: Outbox, wanted: list[tuple[Person, ViewScope]], granted: Granted) -> None:
        watching = among(outbox.watching, [person.user for person, _ in wanted])
        channels = self._delivery.watch(outbox, wanted)
        granted.statuses = granted.new_statuses = self._delivery.dated_bodies(channels)
        if watching:
            granted.new_statuses = [
                status
                for status, (person, _) in zip(granted.statuses, wanted, strict=True)
                if person.user not in watching
            ]
        outbox.watching = self._access.among_ids(outbox.user, outbox.watching)

    async def subscribe_contacts(self, outbox: Outbox) -> Granted:
        outbox.muted = NOBODY
        before, outbox.follows_contacts = (
            outbox.follows_contacts,
            True,
        )  # before the read, so that no new contact is missed
        try:
            contacts = await self._access.contacts(outbox.user)
        except Unavailable:
            outbox.follows_contacts = before
            raise
        return await self.subscribe(outbox, contacts)

    def unsubscribe(self, outbox: Outbox, targets: Sequence[str]) -> list[str]:
        if outbox.follows_contacts and len(outbox.muted) < MUTED:
            outbox.muted |= {target for target in targets if self._may_come_back(outbox, target)}
        self._delivery.unwatch(outbox, targets)
        return list(targets)

    def _may_come_back(self, outbox: Outbox, target: str) -> bool:
        """True if this target would be added again because the connection follows its user's contacts, so it must be
        muted. Others are not muted, so that arbitrary names take no memory."""
        return holds(outbox.watching, target) or self.scope(outbox.user, target) != ViewScope.NONE

    async def unsubscribe_contacts(self, outbox: Outbox) -> list[str]:
        """Unsubscribe from contacts, and from targets that are not visible any more, which may become contacts again.
        Returns their ids."""
        outbox.follows_contacts = False
        outbox.muted = NOBODY
        contacts = set(await self._access.contacts(outbox.user))
        return self.unsubscribe(
            outbox,
            [
                user
                for user in outbox.watching
                if user in contacts or watched_by(outbox, self._people.get(user)).sight == ViewScope.NONE
            ],
        )

    def scope(self, viewer: str, target: str) -> ViewScope:
        verdict = self._access.verdict(viewer, target)
        return ViewScope.NONE if verdict is None else verdict.scope

    def _known_sights(self, outbox: Outbox, targets: Sequence[str]) -> Sequence[ViewScope | None]:
        """Return how much the viewer may see of each target (its view scope), in order. None: unknown, which is no
        reason to deny the target."""
        if outbox.truth:
            return [ViewScope.TRUTH] * len(targets)
        return self._access.known_sights(outbox.user, targets)


_NONE = ViewScope.NONE


def _is_nothing(sight: ViewScope | None) -> bool:
    return sight is not None and sight.kind is Kind.NONE


def _is_frozen(sight: ViewScope | None) -> bool:
    return sight is not None and sight.kind is Kind.FROZEN


def wants_contact(outbox: Outbox, contact: str) -> bool:
    """True if this connection follows all contacts of its user and has not muted this one."""
    return outbox.follows_contacts and contact not in outbox.muted
