"""Which users may see which: cached facts, and queries for those that are missing.

Relations come from a `Relations` source, blocks and preferences from the ledger; both are queried in batches and cached
(`pair_facts`). Facts are dropped when the ledger's change table has a change (polled every second, so that a dropped message
never leaves a forbidden view), when this node writes one, and when a contact ends by its own time. Without the change table
the cache is trusted for `TRUST` seconds; then it fails closed, and no user may see another.

A source outside the ledger may fail to report a change, so its facts expire (`refresh`). If a source is unreachable, unknown
pairs look offline and are retried (`unanswered`).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import structlog

from herenow.core.visibility import Facts, Preferences, Verdict, ViewScope
from herenow.errors import Unavailable
from herenow.kit.deadline import read_within
from herenow.kit.lru import Lru
from herenow.node.access.change_feed import ChangeFeed
from herenow.node.access.pair_facts import CONTACTS, FOREVER, ONESELF, PairFact, PairFacts, pair_fact
from herenow.node.access.refresh import RefreshSchedule
from herenow.node.access.unanswered import UnansweredLookups
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.ports import IN_CONTACT, BlockRow, LedgerChange, Relation, Relations, block_between

TRUST = 30.0
"""Seconds for which facts are trusted while the change table cannot be read."""

MEMBERS = 200_000
TRIES = 3
"""Queries at most, if facts change meanwhile. After that the lookup is left to `resolve`, which repeats it every second."""

ANYBODY = "*"
"""Beside a user in a changed pair: all pairs of this user. If a user has this id, facts are at worst queried again."""

EVERYTHING = (ANYBODY, ANYBODY)

WHOLE = ("relations", "members")
"""Kinds of changes that search all cached facts."""

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)


class ChangeEvents(Protocol):
    """Implemented by `admin`, whose copy of revoked tokens follows the same change table."""

    def on_ledger_change(self, change: LedgerChange) -> None:
        """A row of the change table, or a change that another node or the application reported."""

    def on_trust_change(self, *, trusted: bool) -> None:
        """Facts are trusted again, or no longer: the change table could not be read for `TRUST` seconds."""


class AccessEvents(ChangeEvents, Protocol):
    """Implemented by `viewing`, which shows viewers what they may see."""

    def on_facts_old(self, viewer: str) -> None:
        """Query the facts about this viewer again (`RelationCache.renew`)."""

    def on_facts_expired(self, viewer: str) -> None:
        """The facts about this viewer were not queried again in time, and are forgotten."""

    async def on_answers(self, viewers: list[str] | None) -> None:
        """Facts about these viewers (None: all) were unknown, and may be available now."""


class RelationCache:
    def __init__(self, context: Context, source: Relations | None) -> None:
        """`source` None: relations are in the ledger."""
        self._clock = context.clock
        self._metrics = context.metrics
        self._ledger = context.ledger
        self._source = source or context.ledger
        self.rooms_relate = context.settings.rooms_relate
        self._facts = PairFacts()
        self._members: Lru[tuple[str, str], bool] = Lru(MEMBERS)
        self._ends: list[tuple[int, str, str]] = []
        self._changes = _Changes()
        limit = context.settings.relations_ttl if context.settings.asks_the_application else None
        self._refresh: RefreshSchedule[str | tuple[str, str]] = RefreshSchedule(limit, context.clock.monotonic)
        """Keys: a viewer, or a (room, user)."""
        self._unanswered = UnansweredLookups(self._is_answered, lambda viewers: self._viewing.on_answers(viewers))
        self._feed = ChangeFeed(context)
        self.start, self.resolve, self.among_ids = self._feed.start, self._unanswered.resolve, self._facts.among_ids
        self._trusted = True
        self._listeners: list[ChangeEvents] = []
        self._viewing: AccessEvents

    def subscribe_changes(self, listener: ChangeEvents) -> None:
        self._listeners.append(listener)

    def subscribe(self, listener: AccessEvents) -> None:
        self._viewing = listener
        self._listeners.append(listener)

    @property
    def trusted(self) -> bool:
        """False: the change table could not be read for too long; all facts count as unknown."""
        return self._trusted

    @property
    def trouble(self) -> str | None:
        """Why the change table cannot be read; None: it can."""
        return self._feed.trouble

    async def view_scopes(self, viewer: str, targets: Sequence[str]) -> dict[str, ViewScope]:
        """Scope by target. Unknown counts as `NONE`."""
        await self.relate(viewer, targets)
        return self.sights(viewer, targets)

    async def view_scopes_of(self, target: str, viewers: Sequence[str]) -> dict[str, ViewScope]:
        await self.relate_to(target, viewers)
        return self.sights_of(target, viewers)

    # Query

    async def relate(self, viewer: str, targets: Sequence[str]) -> None:
        """Query the missing facts that `verdict` needs. Those without an answer stay unknown."""
        for _ in range(TRIES):
            untied = self._facts.untied(viewer, targets)
            unasked = self._facts.unasked([viewer, *targets])
            if not (untied or unasked):
                return
            if not await self._try([(viewer, _first(untied))], self._ask(viewer, untied, unasked)):
                return
        if self._facts.untied(viewer, targets) or self._facts.unasked([viewer, *targets]):
            self._leave_unanswered([(viewer, _first(targets))])

    async def relate_to(self, target: str, viewers: Sequence[str]) -> None:
        """The same for one target and many viewers, as one query."""
        for _ in range(TRIES):
            untied = self._facts.untied_to(target, viewers)
            unasked = self._facts.unasked([target, *viewers])
            if not (untied or unasked):
                return
            concerned = [(viewer, target) for viewer in viewers]
            if not await self._try(concerned, self._ask(target, untied, unasked, as_target=True)):
                return
        unknown = {*self._facts.untied_to(target, viewers), *self._facts.unasked([target, *viewers])}
        if unknown:
            concerned = [(viewer, target) for viewer in viewers if target in unknown or viewer in unknown]
            self._leave_unanswered(concerned)

    async def renew(self, viewer: str, targets: Sequence[str]) -> None:
        """Query all facts about this viewer and these targets again; until there is an answer, the cached ones count."""
        await self._try([(viewer, _first(targets))], self._ask(viewer, targets, (), anew=True))

    async def _try(
        self, pairs: Sequence[tuple[str, str]], ask: Coroutine[object, object, list[tuple[str, str]]]
    ) -> bool:
        """Run a query and record the pairs without an answer. True: there are none. `pairs`: recorded if the query fails."""
        try:
            unanswered: Sequence[tuple[str, str]] = await ask
        except Unavailable:
            unanswered = pairs
        if unanswered:
            self._leave_unanswered(unanswered)
        return not unanswered

    def _leave_unanswered(self, pairs: Sequence[tuple[str, str]]) -> None:
        """There was no answer about these (viewer, target), or each answer was out of date when it came, because the facts
        changed meanwhile. The viewers see the targets offline until `resolve` has an answer."""
        self._metrics.unknown_pairs += 1
        for viewer, target in pairs:
            self._unanswered.add("between", viewer, target)

    async def _ask(
        self, one: str, others: Sequence[str], users: Sequence[str], *, as_target: bool = False, anew: bool = False
    ) -> list[tuple[str, str]]:
        """Query and learn facts. Returns the (viewer, target) pairs without an answer. Facts that change during the query
        are not learned: the answer may be older. `as_target`: `one` is the target. `anew`: forget the old facts of `one`."""
        with self._changes.watched() as changed:
            asked = self._clock.monotonic()
            ties, preferences = await self._facts_of(one, others, users, as_target=as_target)
            before: dict[str, PairFact] = {}
            if anew:
                before = self._facts.forget_sights_of(one)
                self._refresh.asked_anew(one, asked)
            learned = ties
            if changed:
                learned = {other: what for other, what in ties.items() if not _is_among(changed, one, other)}
            if as_target:
                for viewer, what in learned.items():
                    self._facts.learn_facts(viewer, {one: what})
                    self._refresh.asked(viewer, asked)
            elif learned:
                self._facts.learn_facts(one, learned)
                self._refresh.asked(one, asked)
            for other in [other for other, what in learned.items() if 0 < what.until < FOREVER]:
                viewer, target = (other, one) if as_target else (one, other)
                until, known_before = learned[other].until, before.get(other)
                if known_before is None or known_before.until != until:
                    heapq.heappush(self._ends, (until, viewer, target))
            if changed:
                users = [user for user in users if changed.isdisjoint(((user, ""), EVERYTHING))]
            self._facts.learn_all_preferences(users, preferences)
            unanswered = [other for other in others if other not in ties] if len(ties) < len(others) else ()
            return [(other, one) if as_target else (one, other) for other in unanswered]

    async def _facts_of(
        self, one: str, others: Sequence[str], users: Sequence[str], *, as_target: bool = False
    ) -> tuple[dict[str, PairFact], Mapping[str, Preferences]]:
        """Facts about pairs, without those that the source cannot answer; and preferences other than the defaults."""
        now, related = self._clock.now(), self._source is self._ledger
        found: Sequence[Relation | None] = ()
        if others and not related:
            found = await self._from_source(self._source.between(one, others, now))
        known = await self._from_ledger(
            self._ledger.pair_facts(one, others, users, now, related=related, rooms=self.rooms_relate)
        )
        rows: dict[str, list[BlockRow]] = defaultdict(list)
        for row in known.blocks:
            rows[row.blocked if row.blocker == one else row.blocker].append(row)
        nothing_else = not rows and not known.mates
        ties = {
            # `pair_fact` inlined for the most common case.
            other: CONTACTS
            if relation is IN_CONTACT and nothing_else
            else pair_fact(
                relation,
                shares_room=other in known.mates,
                block=block_between(rows[other], one if as_target else other) if other in rows else None,
            )
            for other, relation in zip(others, known.relations if related else found, strict=True)
            if relation is not None
        }
        return ties, known.preferences

    async def _from_source(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        if self._source is self._ledger:
            return await self._from_ledger(call)
        return await read_within(call, LEDGER_DEADLINE)  # it counts its failures itself

    async def _from_ledger(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return await read_within(call, LEDGER_DEADLINE)
        except Unavailable:
            self._metrics.ledger_errors += 1
            raise

    # Unanswered lookups

    @property
    def in_doubt(self) -> bool:
        """True if there are unanswered lookups and `resolve` is not running."""
        return self._unanswered.waiting

    async def _is_answered(self, question: str, user: str, other: str) -> bool:
        try:
            match question:
                case "between":
                    ties, _ = await self._facts_of(user, [other] if other else (), [user])
                    return not other or other in ties
                case "contacts":
                    await self._from_source(self._source.contacts(user, self._clock.now()))
                case _:
                    await self._from_source(self._source.is_member(other, user))
        except Unavailable:
            return False
        return True

    # Read

    def verdict(self, viewer: str, target: str) -> Verdict | None:
        """The scope and the rule for this pair. None: unknown, which must be treated as `NONE`. Call `relate` first."""
        if viewer == target:
            return ONESELF
        return self._facts.verdict(viewer, target, self._clock.now()) if self._trusted else None

    def known_sights(self, viewer: str, targets: Sequence[str]) -> Sequence[ViewScope | None]:
        """Scope of each target, in order; None: unknown."""
        if not self._trusted:
            return [ONESELF.scope if target == viewer else None for target in targets]
        return self._facts.known_sights(viewer, targets, self._clock.now())

    def sights(self, viewer: str, targets: Sequence[str]) -> dict[str, ViewScope]:
        """Scope by target; unknown counts as `NONE`. Call `relate` first."""
        if not self._trusted:
            return {target: ONESELF.scope if target == viewer else ViewScope.NONE for target in targets}
        return self._facts.sights(viewer, targets, self._clock.now())

    def sights_of(self, target: str, viewers: Sequence[str]) -> dict[str, ViewScope]:
        """Scope of one target by viewer. Call `relate_to` first."""
        if not self._trusted:
            return {viewer: ONESELF.scope if target == viewer else ViewScope.NONE for viewer in viewers}
        return self._facts.sights_of(target, viewers, self._clock.now())

    async def facts(self, viewer: str, target: str, *, invisible: bool = False) -> Facts:
        """All facts about two different users, for an explanation. Raises `Unavailable`."""
        await self.relate(viewer, [target])
        facts = self._facts.facts(viewer, target, self._clock.now(), invisible=invisible)
        if facts is None or not self._trusted:
            raise Unavailable("The relations cannot be read at the moment.")
        return facts

    async def preferences(self, user: str) -> Preferences:
        await self.relate(user, [])
        preferences = self._facts.preferences(user)
        if preferences is None or not self._trusted:
            raise Unavailable("The preferences cannot be read at the moment.")
        return preferences

    async def contacts(self, user: str) -> list[str]:
        """Fails closed: raises `Unavailable`."""
        if not self._trusted:
            raise Unavailable("The relations cannot be read at the moment.")
        try:
            return await self._from_source(self._source.contacts(user, self._clock.now()))
        except Unavailable:
            self._unanswered.add("contacts", user, "")
            raise

    def membership(self, room: str, user: str) -> bool | None:
        """None: unknown, call `is_member`."""
        known = self._members.get((room, user))
        return None if known is None else known and self._trusted

    async def is_member(self, room: str, user: str) -> bool:
        known = self.membership(room, user)
        if known is not None:
            return known
        with self._changes.watched() as changed:
            asked = self._clock.monotonic()
            try:
                member = await self._from_source(self._source.is_member(room, user))
            except Unavailable:
                self._unanswered.add("member", user, room)
                raise
            if changed.isdisjoint(((room, user), (room, ""), (ANYBODY, user), EVERYTHING)):
                self._members.put((room, user), member)
                self._refresh.asked_anew((room, user), asked)
        return member

    # Changes

    async def poll(self) -> None:
        """Call every `POLL` seconds: read what changed, end contacts whose time is over, refresh old facts."""
        await self._feed.poll(self._apply)
        self._end_contacts()
        self._update_trust()
        self._refresh_old()

    async def _apply(self, changes: Sequence[LedgerChange]) -> None:
        for change in changes:
            if change.kind == "everything":
                log.warning("relations.anew")
                self._forget_all()
            else:
                self.changed(change)
            if change.kind in WHOLE or (change.kind == "member" and self.rooms_relate):
                await asyncio.sleep(0)  # it searched all cached facts

    def changed(self, change: LedgerChange) -> None:
        """Forget the old facts, and notify the listeners, which update views."""
        self.forget(change)
        for listener in self._listeners:
            listener.on_ledger_change(change)

    def forget(self, change: LedgerChange) -> None:
        self._changes.add((change.a, change.b), (change.b, change.a))
        if change.kind == "relation":
            self._facts.forget_pair(change.a, change.b)
        elif change.kind == "preferences":
            self._facts.forget_preferences(change.a)
        elif change.kind == "member":
            self._members.pop((change.a, change.b), None)
            if self.rooms_relate:
                self._changes.add((ANYBODY, change.b))
                self._facts.forget_facts_of(change.b)
        elif change.kind == "relations":
            self._changes.add((ANYBODY, change.a))
            self._facts.forget_facts_of(change.a)
            self._forget_members(lambda _, user: user == change.a)
        elif change.kind == "members":  # rooms that relate are in the ledger, which names the member
            self._forget_members(lambda room, _: room == change.a)

    def _forget_members(self, which: Callable[[str, str], bool]) -> None:
        for member in [member for member in self._members if which(*member)]:
            del self._members[member]

    def _end_contacts(self) -> None:
        now = self._clock.now()
        while self._ends and self._ends[0][0] <= now:
            _, viewer, target = heapq.heappop(self._ends)
            self.changed(LedgerChange("relation", viewer, target))

    def _refresh_old(self) -> None:
        old, over = self._refresh.turns()
        for key in old:
            if isinstance(key, str):
                self._viewing.on_facts_old(key)
        for key in over:
            if isinstance(key, str):
                self._facts.forget_sights_of(key)
                self._viewing.on_facts_expired(key)
            else:
                self.changed(LedgerChange("member", *key))

    def _update_trust(self) -> None:
        trusted = self._clock.monotonic() - self._feed.read_at < TRUST
        if trusted != self._trusted:
            self._trusted = trusted
            log.warning("relations.trust", trusted=trusted)
            self._forget_all()  # rows of changes since may be deleted already

    def _forget_all(self) -> None:
        self._changes.add(EVERYTHING)
        self._facts.forget_all()
        self._members.clear()
        for listener in self._listeners:
            listener.on_trust_change(trusted=self._trusted)


class _Changes:
    """Collects pairs that change during a query."""

    def __init__(self) -> None:
        self._watchers: list[set[tuple[str, str]]] = []

    @contextmanager
    def watched(self) -> Iterator[set[tuple[str, str]]]:
        changed: set[tuple[str, str]] = set()
        self._watchers.append(changed)
        try:
            yield changed
        finally:
            self._watchers = [watcher for watcher in self._watchers if watcher is not changed]

    def add(self, *pairs: tuple[str, str]) -> None:
        for changed in self._watchers:
            changed.update(pairs)


def _is_among(changed: set[tuple[str, str]], one: str, other: str) -> bool:
    return not changed.isdisjoint(((one, other), (ANYBODY, one), (ANYBODY, other), EVERYTHING))


def _first(users: Sequence[str]) -> str:
    return users[0] if users else ""
