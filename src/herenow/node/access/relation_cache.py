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
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import structlog

from herenow.core.visibility import SHARED_FOR, Block, Facts, Preferences, Verdict, ViewScope, last_seen_when_blocked
from herenow.errors import Unavailable
from herenow.kit.deadline import read_within
from herenow.kit.lru import Lru
from herenow.node.access.change_feed import ChangeFeed
from herenow.node.access.pair_facts import CONTACTS, FOREVER, ONESELF, UNDECIDED, PairFact, PairFacts, pair_fact
from herenow.node.access.refresh import RefreshSchedule
from herenow.node.access.unanswered import UnansweredLookups
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.ports import IN_CONTACT, BlockRow, LedgerChange, Relation, Relations, blocks_between

TRUST = 30.0
"""Seconds for which facts are trusted while the change table cannot be read."""

MEMBERS = 200_000
TRIES = 3
"""Times that a query is made if facts change meanwhile. After that it is left to `resolve`, which repeats it each second."""

ANYBODY = "*"
"""In place of the other user in a changed pair: all pairs of the user changed. If a user has this id, facts are at worst
queried again."""

EVERYTHING = (ANYBODY, ANYBODY)

NO_BLOCKS = (None, None)

WHOLE = ("relations", "members")
"""Kinds of changes that search all cached facts."""

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)


class ChangeEvents(Protocol):
    """Implemented by `admin`, whose copy of revoked tokens follows the same change table."""

    def on_ledger_change(self, change: LedgerChange) -> None:
        """Called with each row of the ledger's change table, and each change that another node or the application
        reports."""

    def on_trust_change(self, *, trusted: bool) -> None:
        """Called when the cache was emptied: the change table could not be read for `TRUST` seconds (then `trusted` is
        False), is readable again, or reports that the ledger went back in time."""


class AccessEvents(ChangeEvents, Protocol):
    """Implemented by `viewing`, which shows viewers what they may see."""

    def on_facts_old(self, viewer: str) -> None:
        """Called when the cached relations and blocks of this viewer are old: query them again (`RelationCache.renew`)."""

    def on_facts_expired(self, viewer: str) -> None:
        """Called when the relations and blocks of this viewer were dropped because they were not queried again in time."""

    async def on_answers(self, viewers: list[str] | None) -> None:
        """Called when relations of these viewers (None: all viewers), which could not be queried before, may be
        available now."""


class RelationCache:
    """Relations, blocks, preferences and memberships: cached, or queried. `source`: the source of relations; None: the
    ledger."""

    def __init__(self, context: Context, source: Relations | None) -> None:
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
        """Keys: a viewer for relations and blocks, (room, user) for a membership."""
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
        """False if the change table could not be read for `TRUST` seconds. Then nothing in the cache is used."""
        return self._trusted

    @property
    def trouble(self) -> str | None:
        """The error of the last attempt to read the change table; None: it succeeded."""
        return self._feed.trouble

    async def view_scopes(self, viewer: str, targets: Sequence[str]) -> dict[str, ViewScope]:
        """Return how much the viewer may see of each target, as view scopes by target. Missing relations and
        preferences are queried; without an answer the scope is `NONE`."""
        await self.relate(viewer, targets)
        return self.sights(viewer, targets)

    async def view_scopes_of(self, target: str, viewers: Sequence[str]) -> dict[str, ViewScope]:
        await self.relate_to(target, viewers)
        return self.sights_of(target, viewers)

    # Hide before the ledger has it

    @contextmanager
    def hiding_by_block(self, row: BlockRow) -> Iterator[None]:
        """Hide two users from each other as this block does, from now on and before the ledger has it. Facts that are
        cached meanwhile follow it, too. At the end they are forgotten: query them again."""
        (one, theirs), (other, mine) = ((row.blocker, row.blocker_seen), (row.blocked, row.blocked_seen))

        def blocks(what: PairFact) -> PairFact:
            """What `blocked` knows of the blocker."""
            if what.block is not None and what.block.in_force:
                return what
            preferences = self._facts.preferences(one) or UNDECIDED
            return replace(what, block=Block(last_seen_when_blocked(theirs, what.block, preferences)))

        def is_blocked(what: PairFact) -> PairFact:
            """What the blocker knows of `blocked`."""
            preferences = self._facts.preferences(other) or UNDECIDED
            own = what.own_block or Block(last_seen_when_blocked(mine, what.block, preferences))
            return replace(what, own_block=own)

        self._changes.add((one, other), (other, one))
        with self._facts.hiding_pairs({(other, one): blocks, (one, other): is_blocked}):
            yield

    @contextmanager
    def hiding_by_preferences(self, user: str, hide: Callable[[Preferences], Preferences]) -> Iterator[None]:
        """Let these changed preferences of a user count, from now on and before the ledger has them. At the end they are
        forgotten: query them again."""
        self._changes.add((user, ""))
        with self._facts.hiding_user(user, hide):
            yield

    # Query

    async def relate(self, viewer: str, targets: Sequence[str]) -> None:
        """Query the relations, blocks and preferences of the viewer and these targets that are not cached. Those
        without an answer stay unknown. Call before `verdict` or `sights`."""
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
        """Query the relations, blocks and preferences of one target and many viewers that are not cached, as one query.
        Those without an answer stay unknown."""
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
        """Query the relations and blocks between this viewer and these targets again. Until there is an answer, the
        cached ones count."""
        await self._try([(viewer, _first(targets))], self._ask(viewer, targets, (), anew=True))

    async def _try(
        self, pairs: Sequence[tuple[str, str]], ask: Coroutine[object, object, list[tuple[str, str]]]
    ) -> bool:
        """Await the query `ask`, and record the (viewer, target) pairs without an answer for a retry. Returns True if
        there are none. `pairs`: recorded if the query fails as a whole."""
        try:
            unanswered: Sequence[tuple[str, str]] = await ask
        except Unavailable:
            unanswered = pairs
        if unanswered:
            self._leave_unanswered(unanswered)
        return not unanswered

    def _leave_unanswered(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Record these (viewer, target) pairs for a retry, because there was no answer about them, or their relations
        changed during each query. The viewers see the targets offline until `resolve` has an answer."""
        self._metrics.unknown_pairs += 1
        for viewer, target in pairs:
            self._unanswered.add("between", viewer, target)

    async def _ask(
        self, one: str, others: Sequence[str], users: Sequence[str], *, as_target: bool = False, anew: bool = False
    ) -> list[tuple[str, str]]:
        """Query and cache the relations and blocks of `one` with `others`, and the preferences of `users`. Returns the
        (viewer, target) pairs without an answer. What changes during the query is not cached: the answer may be older.
        `as_target`: `one` is the target, not the viewer. `anew`: drop all relations of `one` that were cached before."""
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
            self._plan_times(preferences)
            unanswered = [other for other in others if other not in ties] if len(ties) < len(others) else ()
            return [(other, one) if as_target else (one, other) for other in unanswered]

    def _plan_times(self, preferences: Mapping[str, Preferences]) -> None:
        """Plan to reevaluate those of these users that may see times only later (`Preferences.may_see_times`)."""
        for user, own in preferences.items():
            if own.shared_at is not None and own.shared_at + SHARED_FOR > self._clock.now():
                heapq.heappush(self._ends, (own.shared_at + SHARED_FOR, user, ""))

    async def _facts_of(
        self, one: str, others: Sequence[str], users: Sequence[str], *, as_target: bool = False
    ) -> tuple[dict[str, PairFact], Mapping[str, Preferences]]:
        """Query the relations and blocks of `one` with `others`, and the preferences of `users`. Returns both by user,
        without users for which the source has no answer, and without default preferences. `as_target`: `one` is the
        target, not the viewer."""
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
        blocks = {other: blocks_between(between, one if as_target else other) for other, between in rows.items()}
        ties = {
            # `pair_fact` inlined for the most common case.
            other: CONTACTS
            if relation is IN_CONTACT and nothing_else
            else pair_fact(
                relation,
                shares_room=other in known.mates,
                block=blocks.get(other, NO_BLOCKS)[0],
                own_block=blocks.get(other, NO_BLOCKS)[1],
            )
            for other, relation in zip(others, known.relations if related else found, strict=True)
            if relation is not None
        }
        return ties, known.preferences

    async def _from_source(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        if self._source is self._ledger:
            return await self._from_ledger(call)
        return await read_within(call, LEDGER_DEADLINE)  # the source counts its failures itself

    async def _from_ledger(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return await read_within(call, LEDGER_DEADLINE)
        except Unavailable:
            self._metrics.ledger_errors += 1
            raise

    # Unanswered lookups

    @property
    def in_doubt(self) -> bool:
        """True if relations that could not be queried wait for a retry, and `resolve`, which retries them, is not
        running."""
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
        """Return how much the viewer may see of the target, and the rule that decides it, from the cache. None:
        unknown, which must be treated as `NONE`. Call `relate` first."""
        if viewer == target:
            return ONESELF
        return self._facts.verdict(viewer, target, self._clock.now()) if self._trusted else None

    def known_sights(self, viewer: str, targets: Sequence[str]) -> Sequence[ViewScope | None]:
        """Return how much the viewer may see of each target (its view scope), in order, from the cache. None: not cached."""
        if not self._trusted:
            return [ONESELF.scope if target == viewer else None for target in targets]
        return self._facts.known_sights(viewer, targets, self._clock.now())

    def sights(self, viewer: str, targets: Sequence[str]) -> dict[str, ViewScope]:
        """Return how much the viewer may see of each target, as view scopes by target, from the cache. Unknown counts
        as `NONE`. Call `relate` first."""
        if not self._trusted:
            return {target: ONESELF.scope if target == viewer else ViewScope.NONE for target in targets}
        return self._facts.sights(viewer, targets, self._clock.now())

    def sights_of(self, target: str, viewers: Sequence[str]) -> dict[str, ViewScope]:
        """Return how much each viewer may see of one target, as view scopes by viewer, from the cache. Unknown counts
        as `NONE`. Call `relate_to` first."""
        if not self._trusted:
            return {viewer: ONESELF.scope if target == viewer else ViewScope.NONE for viewer in viewers}
        return self._facts.sights_of(target, viewers, self._clock.now())

    async def facts(self, viewer: str, target: str, *, invisible: bool = False) -> Facts:
        """Return all that decides what the viewer may see of another user (relation, block, preferences), to explain
        it. Raises `Unavailable` if it is not cached and cannot be queried."""
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
        """Query the ids of the user's contacts. Raises `Unavailable` without an answer, or while changes of relations
        cannot be read."""
        if not self._trusted:
            raise Unavailable("The relations cannot be read at the moment.")
        try:
            return await self._from_source(self._source.contacts(user, self._clock.now()))
        except Unavailable:
            self._unanswered.add("contacts", user, "")
            raise

    def membership(self, room: str, user: str) -> bool | None:
        """Return from the cache whether the user is a member of the room. None: not cached, call `is_member`."""
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
        """Read the ledger's change table, end contacts whose time is over, and query again or drop old cache entries.
        Call every `POLL` seconds."""
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
        """Forget the cached relations or preferences that this change concerns, and notify the listeners, which update
        views."""
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
        """Apply what is over now in `_ends`, a heap of (time in ms, viewer, target): contacts and, without a target, the
        time after which the viewer may see times."""
        now = self._clock.now()
        while self._ends and self._ends[0][0] <= now:
            _, viewer, target = heapq.heappop(self._ends)
            self.changed(LedgerChange("relation" if target else "preferences", viewer, target))

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
            self._forget_all()  # rows that were not read may be deleted already

    def _forget_all(self) -> None:
        self._changes.add(EVERYTHING)
        self._facts.forget_all()
        self._members.clear()
        for listener in self._listeners:
            listener.on_trust_change(trusted=self._trusted)


class _Changes:
    """Collects the pairs of users for which facts change during a query."""

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
