"""Updates what viewers see after a relation, a block or a preference changed.

A subscription that was granted is kept while its connection lives; its content follows the rules of the moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from herenow.core.model import NOBODY_HERE
from herenow.core.visibility import Kind, ViewScope
from herenow.errors import Unavailable
from herenow.kit.idset import among
from herenow.node.access import RelationCache
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.people import Person
from herenow.node.viewing.subscriptions import Subscriptions, wants_contact
from herenow.ports import LedgerChange
from herenow.wire.shapes import dated_statuses_frame, status_body

HIDE_AFTER = 0.5
"""Seconds for which a view that may be forbidden now is kept while the source of relations does not answer."""

AT_A_TIME = 100
"""Viewers that are reevaluated together after an outage: each may request a list of contacts."""


class Reevaluation:
    def __init__(
        self, context: Context, delivery: Delivery, access: RelationCache, subscriptions: Subscriptions
    ) -> None:
        self._people = context.people
        self._tasks = context.tasks
        self._delivery = delivery
        self._access = access
        self._subscriptions = subscriptions

    def on_ledger_change(self, change: LedgerChange) -> None:
        if change.kind == "relations" or any(self._concerns(user) for user in (change.a, change.b)):
            self._tasks.spawn(self.apply_change(change), change.kind)

    def _concerns(self, user: str) -> bool:
        person = self._people.find(user)
        return person is not None and bool(person.watchers.outboxes or person.watchers.channels)

    async def apply_change(self, change: LedgerChange) -> None:
        """Update what viewers of this node see after a relation, block, preference or membership changed. Returns when
        all views follow the changed rules."""
        if change.kind == "relation":
            await self.reevaluate(change.a, [change.b])
            await self.reevaluate(change.b, [change.a])
        elif change.kind == "preferences":
            await self.reevaluate_viewers_of(change.a)
            await self.reevaluate(change.a, None)  # a user that does not share their last seen gets none
        elif change.kind == "member" and self._access.rooms_relate:
            await self.reevaluate_viewers_of(change.b)
            await self.reevaluate(change.b, None)
        elif change.kind == "relations":
            await self._reevaluate_all_about(change.a)

    def apply_cached(self, change: LedgerChange) -> None:
        """Update what viewers of this node see after a block or preference changed in the cache, without a query. Views of
        which the facts are not cached stay as they are."""
        if change.kind == "preferences":
            person = self._people.find(change.a)
            if person is not None:
                self._change_scopes_of(person, known_only=True)
            return
        for viewer, target in ((change.a, change.b), (change.b, change.a)):
            person = self._people.find(viewer)
            if person is not None and self._access.verdict(viewer, target) is not None:
                self._change_scopes(person, {target})

    async def _reevaluate_all_about(self, user: str) -> None:
        """Update what this user sees, and what viewers see of this user. Contacts that do not watch the user yet may
        begin to."""
        await asyncio.gather(self.reevaluate(user, None), self.reevaluate_viewers_of(user))
        try:
            contacts = await self._access.contacts(user)
        except Unavailable:
            return
        for contact in contacts:
            await self.reevaluate(contact, [user])

    def on_facts_old(self, viewer: str) -> None:
        """Query the relations and blocks of this viewer again, and update what the viewer sees. If the viewer has no
        connection here, they may expire."""
        person = self._people.find(viewer)
        if person is not None and person.watchers.outboxes:
            self._tasks.spawn(self._renew(viewer), "renew")

    def on_facts_expired(self, viewer: str) -> None:
        self._tasks.spawn(self.reevaluate(viewer, None), "facts-over")

    async def _renew(self, viewer: str) -> None:
        person = self._people.find(viewer)
        if person is not None:
            await self._access.renew(viewer, sorted(_watched(person) - {viewer}))
            await self.reevaluate(viewer, None)

    def on_trust_change(self) -> None:
        for person in self._people:
            if person.watchers.outboxes:
                self._tasks.spawn(self.reevaluate(person.user, None), "trust")

    async def reevaluate_all(self, viewers: Sequence[str] | None) -> None:
        """Update what these viewers (None: all) see, in groups of `AT_A_TIME`. It is not urgent: targets without an
        answer were hidden until now."""
        if viewers is None:
            viewers = [person.user for person in self._people if person.watchers.outboxes]
        for start in range(0, len(viewers), AT_A_TIME):
            some = viewers[start : start + AT_A_TIME]
            await asyncio.wait([self._tasks.spawn(self.reevaluate(v, None), "look-again") for v in some])

    def reevaluate_soon(self, viewer: str, targets: Sequence[str]) -> None:
        self._tasks.spawn(self.reevaluate(viewer, targets), "soon")

    async def reevaluate(self, viewer: str, targets: Sequence[str] | None) -> None:
        """Apply the current rules to what the viewer's connections see of these targets (None: all that they watch).
        Contacts, and targets that a stream named earlier, are added if the viewer may see them by now."""
        if targets is None:
            await self._subscriptions.budget.take(self._watched_count(viewer))  # all viewers may be reevaluated at once
        person = self._people.find(viewer)
        if person is None or not person.watchers.outboxes:
            return
        watched = _watched(person)
        wanted = watched if targets is None else watched.intersection(targets)
        await _learn_and_show(
            lambda: self._access.relate(viewer, sorted(wanted)), lambda: self._change_scopes(person, wanted)
        )
        await self._follow_contacts(person)
        await self._grant_pending(person, targets)

    def _watched_count(self, viewer: str) -> int:
        person = self._people.find(viewer)
        return 0 if person is None else sum(len(outbox.watching) for outbox in person.watchers.outboxes)

    def _change_scopes(self, person: Person, targets: set[str]) -> None:
        for outbox in list(person.watchers.outboxes):
            for target in targets.intersection(outbox.watching):
                sight = self._subscriptions.scope(person.user, target)
                self._delivery.change_scope(outbox, self._people.get(target), sight)

    async def reevaluate_viewers_of(self, target: str) -> None:
        person = self._people.find(target)
        if person is None or not person.watchers.channels:
            return
        await _learn_and_show(
            lambda: self._access.relate_to(target, _viewers(person)), lambda: self._change_scopes_of(person)
        )

    def _change_scopes_of(self, person: Person, *, known_only: bool = False) -> None:
        sights = self._access.sights_of(person.user, _viewers(person))
        unknown: set[str] = set()
        if known_only:
            hidden = [viewer for viewer, sight in sights.items() if sight.kind is Kind.NONE]
            unknown.update(viewer for viewer in hidden if self._access.verdict(viewer, person.user) is None)
        for channel in person.watchers.channels:
            for outbox in tuple(channel.outboxes):
                sight = channel.sight if outbox.truth else sights[outbox.user]
                if sight != channel.sight and outbox.user not in unknown:
                    self._delivery.change_scope(outbox, person, sight)

    async def _follow_contacts(self, person: Person) -> None:
        followers = [outbox for outbox in person.watchers.outboxes if outbox.follows_contacts]
        if not followers:
            return
        try:
            contacts = await self._access.contacts(person.user)
        except Unavailable:
            return
        for outbox in followers:
            watching = among(outbox.watching, contacts)
            new = [c for c in contacts if c not in watching and wants_contact(outbox, c)]
            granted = await self._subscriptions.grant(outbox, new, following=True) if new else None
            # The same change may arrive twice: targets that it watches by now were sent then.
            if granted is not None and granted.new_statuses and not outbox.closed:
                outbox.send(dated_statuses_frame(granted.new_statuses))

    async def _grant_pending(self, person: Person, targets: Sequence[str] | None) -> None:
        """Subscribe this user's streams to targets that they named at their start and that are visible only now: a
        stream cannot subscribe again itself. `targets` None: to all such targets."""
        for outbox in list(person.watchers.outboxes):
            pending = sorted(
                outbox.pending_targets if targets is None else outbox.pending_targets.intersection(targets)
            )
            sights = await self._access.view_scopes(person.user, pending) if pending else {}
            visible = [user for user in pending if sights[user] != ViewScope.NONE]
            if not visible:
                continue
            granted = await self._subscriptions.subscribe(outbox, visible)
            outbox.pending_targets = outbox.pending_targets.difference(outbox.watching)
            unseen = {status_body(user, NOBODY_HERE) for user in visible}  # as they were shown until now
            new_statuses = [status for status in granted.new_statuses if status[0] not in unseen]
            if new_statuses and not outbox.closed:
                outbox.send(dated_statuses_frame(new_statuses))


async def _learn_and_show(learn: Callable[[], Awaitable[None]], show: Callable[[], None]) -> None:
    """Call `learn`, which queries relations, then `show`, which updates views. If `learn` takes longer than
    `HIDE_AFTER`, `show` is also called before it ends, and hides targets with unknown relations."""
    try:
        async with asyncio.timeout(HIDE_AFTER):
            await learn()
    except TimeoutError:
        show()
        await learn()
    show()


def _watched(person: Person) -> set[str]:
    return {user for outbox in person.watchers.outboxes for user in outbox.watching}


def _viewers(person: Person) -> list[str]:
    return list({o.user for channel in person.watchers.channels for o in channel.outboxes if not o.truth})
