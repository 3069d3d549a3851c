"""Look, then watch: who may watch whom, the snapshot they start from, and the graph they follow.

Register, read, let versions decide: a person is in `People` (and so followed by the log) before it is read, so nothing
that happens between the snapshot and the first update can be missed. Permission is judged when it is used: a subscription
once granted is remembered while its connection lives, and what it shows follows the rules of the moment.

What cannot be known (the relations are out of reach) is not denied, for that would be an answer: it is granted and looks
like somebody who was never here, until it is known.
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
"""Targets that are looked at in one iteration of the event loop, about 15 µs each: below the 20 ms of a tick."""

MUTED = 10_000
"""People one socket that follows contacts may have said it does not want. Beyond them, one may come back when the graph
changes: where everybody may look at everybody, names cost nothing."""


@dataclass(slots=True)
class Granted:
    """What a subscribe comes to: statuses in the order asked, and who was denied why."""

    statuses: list[tuple[bytes, int]] = field(default_factory=list)
    """(body, as of)"""
    denied: list[tuple[str, str]] = field(default_factory=list)
    news: list[tuple[bytes, int]] = field(default_factory=list)
    """Those of the statuses that were not watched before."""


class Subscriptions:
    def __init__(self, context: Context, delivery: Delivery, records: Records, access: RelationCache) -> None:
        self._people = context.people
        self._metrics = context.metrics
        self._max = context.settings.max_subscriptions
        self._delivery = delivery
        self._records = records
        self._access = access
        self.budget = LoopBudget(BUDGET)
        """Targets that may be looked at per iteration of the event loop, by subscribes and reevaluations together."""

    async def _relate(self, outbox: Outbox, targets: Sequence[str]) -> None:
        if not outbox.truth:
            await self._access.relate(outbox.user, targets)

    async def subscribe(self, outbox: Outbox, targets: Sequence[str]) -> Granted:
        """The caller sends the answer before it next awaits: the first update may follow at once."""
        if outbox.muted:
            outbox.muted -= frozenset(targets)
        return await self.grant(outbox, targets)

    async def grant(self, outbox: Outbox, targets: Sequence[str], *, following: bool = False) -> Granted:
        """`following`: nobody asked for these targets, they are contacts now."""
        granted = Granted()
        targets = self._people.spelled(targets)
        await self.budget.take(len(targets))
        await self._relate(outbox, targets)
        admitted = self._admit(outbox, targets, self._known_sights(outbox, targets), granted)
        unknown = [
            person
            for person, sight in admitted
            if not (person.record.known and person.watchers.channels)  # as `is_at_hand` says, without a call
            and not is_at_hand(person, hidden=_is_frozen(sight))
        ]
        if unknown:
            hidden = {person.user for person, sight in admitted if _is_frozen(sight)}
            people = [person for person, _ in admitted]
            with self._people.keeping(*people):
                await self._get_to_know(unknown, hidden)
                await self.budget.take(len(people))
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
        self, outbox: Outbox, targets: Sequence[str], sights: Sequence[ViewScope | None], granted: Granted
    ) -> list[tuple[Person, ViewScope | None]]:
        """Who may be watched, as things stand, and is worth being read."""
        admitted: list[tuple[Person, ViewScope | None]] = []
        watching, get, full = among(outbox.watching, targets), self._people.get, ViewScope.FULL
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

    async def _get_to_know(self, unknown: list[Person], hidden: set[str]) -> None:
        """Whatever can be known of them: while the store is away, what the ledger says."""
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
        room, wanted = self._max - len(outbox.watching), list[tuple[Person, ViewScope]]()
        for person, sight in admitted:
            if following and not wants_contact(outbox, person.user):
                continue  # as wanted now, not as it was when we began to read
            if person.user not in watching:
                if _is_nothing(sight):
                    granted.denied.append((person.user, "not_mutual_followers"))  # taken back while we read
                    continue
                if room <= 0:  # others were granted while we read
                    granted.denied.append((person.user, "too_many_subscriptions"))
                    continue
                room -= 1
            wanted.append((person, ViewScope.NONE if sight is None else sight))
        self._watch(outbox, wanted, granted)

    def _watch(self, outbox: Outbox, wanted: list[tuple[Person, ViewScope]], granted: Granted) -> None:
        watching = among(outbox.watching, [person.user for person, _ in wanted])
        channels = self._delivery.watch(outbox, wanted)  # which may have told another just now
        granted.statuses = granted.news = self._delivery.said_now(channels)
        if watching:
            granted.news = [
                status
                for status, (person, _) in zip(granted.statuses, wanted, strict=True)
                if person.user not in watching
            ]
        outbox.watching = self._access.among_ids(outbox.user, outbox.watching)

    async def subscribe_contacts(self, outbox: Outbox) -> Granted:
        outbox.muted = NOBODY
        before, outbox.follows_contacts = (outbox.follows_contacts, True)  # at once: nobody is missed while we read
        try:
            contacts = await self._access.contacts(outbox.user)
        except Unavailable:
            outbox.follows_contacts = before
            raise
        return await self.subscribe(outbox, contacts)

    def unsubscribe(self, outbox: Outbox, targets: Sequence[str]) -> list[str]:
        """Nothing for those targets after this."""
        if outbox.follows_contacts and len(outbox.muted) < MUTED:
            outbox.muted |= {target for target in targets if self._may_come_back(outbox, target)}
        self._delivery.unwatch(outbox, targets)
        return list(targets)

    def _may_come_back(self, outbox: Outbox, target: str) -> bool:
        """By following contacts. Others need not be remembered, so that rubbish takes no room."""
        return holds(outbox.watching, target) or self.scope(outbox.user, target) != ViewScope.NONE

    async def unsubscribe_contacts(self, outbox: Outbox) -> list[str]:
        """Those who are contacts, and those who were: the graph may bring them back."""
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
        """Of each, in order. None: we do not know it, which is no reason to deny anything."""
        if outbox.truth:
            return [ViewScope.TRUTH] * len(targets)
        return self._access.known_sights(outbox.user, targets)


_NONE = ViewScope.NONE


def _is_nothing(sight: ViewScope | None) -> bool:
    return sight is not None and sight.kind is Kind.NONE


def _is_frozen(sight: ViewScope | None) -> bool:
    return sight is not None and sight.kind is Kind.FROZEN


def wants_contact(outbox: Outbox, contact: str) -> bool:
    """Does it want to hear of a contact it has not named?"""
    return outbox.follows_contacts and contact not in outbox.muted
