"""Who may see whom, as far as this node has asked, and until it hears otherwise.

Who is connected with whom comes from a `Relations` source, blocks and preferences from the ledger; both are read in
batches and kept (`facts`). They are dropped when the ledger's change table says so (polled every second: a lost message
never lets somebody see who may not), when this node itself writes one, and when a contact ends by its own time. A node
that cannot read the change table believes what it knows for `TRUST`, then nobody may see anybody: it fails closed.

A source outside of the ledger may forget to tell us of a change: its facts have an age (`ages`). Either may be away: whoever
could not be asked about looks offline, and is looked at again as soon as there are answers (`doubts`).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog

from herenow.core.visibility import Facts, Preferences, Sight, Verdict
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.clock import Clock
from herenow.kit.deadline import read_within, write_within
from herenow.kit.idset import Ids
from herenow.kit.lru import Lru
from herenow.node.access.pair_facts import CONTACTS, FOREVER, ONESELF, Known, Tie, block_between, tie
from herenow.node.access.refresh import Ages
from herenow.node.access.unanswered import Doubts
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.metrics import Metrics
from herenow.ports import IN_CONTACT, BlockRow, Ledger, LedgerChange, Relation, Relations

POLL = 1.0
TRUST = 30.0
"""Seconds that facts are believed without hearing what has changed."""

KEEP_CHANGES = 600.0
"""Seconds that rows of the change table are kept: twenty times `TRUST`, after which a node that missed them believes
nothing it knew."""

MEMBERS = 200_000
CHANGES = 2_000

TRIES = 3
"""How often we ask again because what we asked about has changed meanwhile, or because we stood still."""

STOOD_STILL = 2 * LEDGER_DEADLINE
"""Seconds in vain that are our own fault: the time limit is half of it, so this process was not running. The answer came,
and nobody was there to take it: that says nothing about the ledger, which is asked again before anything is concluded."""

ANYBODY = "*"
"""Beside a user in a list of changed pairs: everything between them and whomever. No id is changed by looking like it:
at worst something is asked for again."""

EVERYTHING = (ANYBODY, ANYBODY)

WHOLE = ("relations", "members")
"""Kinds of changes that make us look through all that we know."""

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)


class Acquaintances:
    def __init__(
        self,
        source: Relations,
        ledger: Ledger,
        clock: Clock,
        metrics: Metrics,
        on_change: Callable[[LedgerChange], None],
        on_trust: Callable[[], None],
        *,
        on_old: Callable[[str], None],
        on_over: Callable[[str], None],
        on_answers: Callable[[list[str] | None], Awaitable[None]],
        ttl: float | None = None,
        rooms_relate: bool = False,
    ) -> None:
        """`on_change`: something about these two is different now. `on_trust`: we stopped or resumed believing, or
        begin anew. `on_old`: what this viewer may see should be asked anew (`renew`). `on_over`: it was not, and is
        forgotten.
        `on_answers`: of what these viewers (None: all) look at, something could not be learned; now it may be.
        `ttl`: seconds that a fact of the source is believed; None: until we hear otherwise.
        `rooms_relate`: members of one room may see each other."""
        self._source = source
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._on_change = on_change
        self._on_trust = on_trust
        self._on_old = on_old
        self._on_over = on_over
        self.rooms_relate = rooms_relate
        self._known = Known()
        self._members: Lru[tuple[str, str], bool] = Lru(MEMBERS)
        self._ends: list[tuple[int, str, str]] = []
        self._changes = _Changes()
        self._ages: Ages[str | tuple[str, str]] = Ages(ttl, clock.monotonic)
        """Of what stands between a viewer and others, and of a (room, user)."""
        self._doubts = Doubts(self._is_answered, on_answers)
        self._cursor = 0
        """Up to where we have read the change table."""
        self._heard = float("-inf")
        self.trouble: str | None = None
        """A sentence while the ledger cannot be asked what has changed."""
        self._trusted = True
        self._old: tuple[float, int] | None = None
        """A cursor that everybody will have passed, and the monotonic time at which we were there."""

    @property
    def trusted(self) -> bool:
        """False: the ledger could not be read for too long, and nobody is taken to know anybody."""
        return self._trusted

    async def start(self) -> None:
        self._cursor = await read_within(self._ledger.changes_head(), LEDGER_DEADLINE)
        self._heard = self._clock.monotonic()

    # Getting to know

    async def relate(self, viewer: str, targets: Sequence[str]) -> None:
        """Get to know what `verdict` needs. What cannot be said is left unknown."""
        for _ in range(TRIES):
            untied = self._known.untied(viewer, targets)
            unasked = self._known.unasked([viewer, *targets])
            if not (untied or unasked):
                return
            if not await self._try([(viewer, _first(untied))], self._ask(viewer, untied, unasked)):
                return

    async def relate_to(self, target: str, viewers: Sequence[str]) -> None:
        """The other way round, as one question: what stands between two has no direction."""
        for _ in range(TRIES):
            untied = self._known.untied_to(target, viewers)
            unasked = self._known.unasked([target, *viewers])
            if not (untied or unasked):
                return
            concerned = [(viewer, target) for viewer in viewers]
            if not await self._try(concerned, self._ask(target, untied, unasked, looked_at=True)):
                return

    async def renew(self, viewer: str, targets: Sequence[str]) -> None:
        """Ask all that stands between this viewer and others anew; until there is an answer, what is known holds."""
        await self._try([(viewer, _first(targets))], self._ask(viewer, targets, (), anew=True))

    async def _try(
        self, pairs: Sequence[tuple[str, str]], ask: Coroutine[object, object, list[tuple[str, str]]]
    ) -> bool:
        """`pairs`: (viewer, target) of those who stay in doubt if there is no answer at all."""
        try:
            unsaid: Sequence[tuple[str, str]] = await ask
        except Unavailable:
            unsaid = pairs
        if unsaid:
            self._metrics.unknown_pairs += 1
        for viewer, target in unsaid:
            self._doubts.add("between", viewer, target)
        return not unsaid

    async def _ask(
        self,
        one: str,
        others: Sequence[str],
        users: Sequence[str],
        *,
        looked_at: bool = False,
        anew: bool = False,
    ) -> list[tuple[str, str]]:
        """Answers the (viewer, target) of whom nothing could be said. What changes while we ask is not known afterwards:
        the answer may be from before."""
        with self._changes.watched() as changed:
            asked = self._clock.monotonic()
            ties, preferences = await self._facts_of(one, others, users, looked_at=looked_at)
            before: dict[str, Tie] = {}
            if anew:
                before = self._known.forget_sights_of(one)
                self._ages.asked_anew(one, asked)
            learned = ties
            if changed:
                learned = {other: what for other, what in ties.items() if not _is_among(changed, one, other)}
            if looked_at:
                for viewer, what in learned.items():
                    self._known.learn_ties(viewer, {one: what})
                    self._ages.asked(viewer, asked)
            elif learned:
                self._known.learn_ties(one, learned)
                self._ages.asked(one, asked)
            for other in [other for other, what in learned.items() if 0 < what.until < FOREVER]:
                viewer, target = (other, one) if looked_at else (one, other)
                until, noted = learned[other].until, before.get(other)
                if noted is None or noted.until != until:
                    heapq.heappush(self._ends, (until, viewer, target))
            if changed:
                users = [user for user in users if changed.isdisjoint(((user, ""), EVERYTHING))]
            self._known.learn_all_preferences(users, preferences)
            unsaid = [other for other in others if other not in ties] if len(ties) < len(others) else ()
            return [(other, one) if looked_at else (one, other) for other in unsaid]

    async def _facts_of(
        self, one: str, others: Sequence[str], users: Sequence[str], *, looked_at: bool = False
    ) -> tuple[dict[str, Tie], Mapping[str, Preferences]]:
        """What stands between one and the others, without those of whom the source cannot say anything; and what those
        users who decided something prefer."""
        now, related = self._clock.now(), self._source is self._ledger
        found: Sequence[Relation | None] = ()
        if others and not related:
            found = await self._from_source(self._source.between(one, others, now))
        known = await self._from_ledger(
            self._ledger.acquaintance(one, others, users, now, related=related, rooms=self.rooms_relate)
        )
        rows: dict[str, list[BlockRow]] = defaultdict(list)
        for row in known.blocks:
            rows[row.blocked if row.blocker == one else row.blocker].append(row)
        nothing_else = not rows and not known.mates
        ties = {
            # Plain contacts as `tie` says, which is called for whoever is less common.
            other: CONTACTS
            if relation is IN_CONTACT and nothing_else
            else tie(
                relation,
                shares_room=other in known.mates,
                block=block_between(rows[other], one if looked_at else other) if other in rows else None,
            )
            for other, relation in zip(others, known.relations if related else found, strict=True)
            if relation is not None
        }
        return ties, known.preferences

    async def _from_source(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        if self._source is self._ledger:
            return await self._from_ledger(call)
        return await read_within(call, LEDGER_DEADLINE)  # it keeps its own count of failures

    async def _from_ledger(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return await read_within(call, LEDGER_DEADLINE)
        except Unavailable:
            self._metrics.ledger_errors += 1
            raise

    # What nobody answered

    @property
    def in_doubt(self) -> bool:
        """Somebody could not be asked about, and nobody is about to `resolve` it."""
        return self._doubts.waiting

    async def resolve(self) -> None:
        """Is there an answer now? Then whoever is in doubt looks again."""
        await self._doubts.resolve()

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

    # What is known

    def verdict(self, viewer: str, target: str) -> Verdict | None:
        """What this user may see of that one, and why. None: not known (any more), which must be treated as nothing:
        `relate` them first."""
        if viewer == target:
            return ONESELF
        return self._known.verdict(viewer, target, self._clock.now()) if self._trusted else None

    def known_sights(self, viewer: str, targets: Sequence[str]) -> Sequence[Sight | None]:
        """As `verdict`, of many and in their order."""
        if not self._trusted:
            return [ONESELF.sight if target == viewer else None for target in targets]
        return self._known.known_sights(viewer, targets, self._clock.now())

    def among_ids(self, viewer: str, users: Ids) -> Ids:
        """The same users, if it can be in room that is taken already."""
        return self._known.among_ids(viewer, users)

    def sights(self, viewer: str, targets: Sequence[str]) -> dict[str, Sight]:
        """Unknown is nothing; `relate` them first."""
        if not self._trusted:
            return {target: ONESELF.sight if target == viewer else Sight.NONE for target in targets}
        return self._known.sights(viewer, targets, self._clock.now())

    def sights_of(self, target: str, viewers: Sequence[str]) -> dict[str, Sight]:
        """What each of these may see of one; `relate_to` them first."""
        if not self._trusted:
            return {viewer: ONESELF.sight if target == viewer else Sight.NONE for viewer in viewers}
        return self._known.sights_of(target, viewers, self._clock.now())

    async def facts(self, viewer: str, target: str, *, invisible: bool = False) -> Facts:
        """All that is known about two different users, for whoever wants to know why. Raises `Unavailable`."""
        await self.relate(viewer, [target])
        facts = self._known.facts(viewer, target, self._clock.now(), invisible=invisible)
        if facts is None or not self._trusted:
            raise Unavailable("The relations are out of reach.")
        return facts

    async def preferences(self, user: str) -> Preferences:
        """Raises `Unavailable`."""
        await self.relate(user, [])
        preferences = self._known.preferences(user)
        if preferences is None or not self._trusted:
            raise Unavailable("The preferences are out of reach.")
        return preferences

    async def contacts(self, user: str) -> list[str]:
        """Fails closed: raises `Unavailable`."""
        if not self._trusted:
            raise Unavailable("The relations are out of reach.")
        try:
            return await self._from_source(self._source.contacts(user, self._clock.now()))
        except Unavailable:
            self._doubts.add("contacts", user, "")
            raise

    def membership(self, room: str, user: str) -> bool | None:
        """None: not known (any more): ask `is_member`."""
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
                self._doubts.add("member", user, room)
                raise
            if changed.isdisjoint(((room, user), (room, ""), (ANYBODY, user), EVERYTHING)):
                self._members.put((room, user), member)
                self._ages.asked_anew((room, user), asked)
        return member

    # Hearing otherwise

    async def poll(self) -> None:
        """Hear what has changed, from whomever."""
        for _ in range(TRIES):
            asked = self._clock.monotonic()
            await self._poll()
            if self.trouble is None or self._clock.monotonic() - asked < STOOD_STILL:
                break
        self._end_contacts()
        self._judge_trust()
        self._grow_old()

    async def _poll(self) -> None:
        try:
            while True:
                changes, cursor = await read_within(
                    self._ledger.changes(self._cursor, CHANGES), LEDGER_DEADLINE
                )
                self._heard = self._clock.monotonic()
                await self._hear(changes)
                self._cursor = cursor
                if len(changes) < CHANGES:
                    break
            self._hear_again()
            await self._forget_old()
        except (Unavailable, UnknownOutcome) as error:
            self._metrics.ledger_errors += 1
            self._hear_nothing(str(error))

    def _hear_nothing(self, trouble: str) -> None:
        if self.trouble is None:
            log.warning("ledger.unread", error=trouble)
        self.trouble = trouble

    def _hear_again(self) -> None:
        if self.trouble is not None:
            log.info("ledger.read")
        self.trouble = None

    async def _hear(self, changes: Sequence[LedgerChange]) -> None:
        for change in changes:
            if change.kind == "everything":
                log.warning("relations.anew")
                self._begin_anew()
            else:
                self.changed(change)
            if change.kind in WHOLE or (change.kind == "member" and self.rooms_relate):
                await asyncio.sleep(0)  # it looked through all that we know

    async def _forget_old(self) -> None:
        """The change table is a bell, not a history: what is older than every node's patience is removed."""
        if self._old is None:
            self._old = self._heard, self._cursor
        elif self._heard - self._old[0] > KEEP_CHANGES:
            await write_within(self._ledger.forget_changes(self._old[1]), LEDGER_DEADLINE)
            self._old = None

    def changed(self, change: LedgerChange) -> None:
        """From somewhere else: forget, and let those who look see what is true now."""
        self.forget(change)
        self._on_change(change)

    def forget(self, change: LedgerChange) -> None:
        """What we knew of these two (or this one) is not true any more."""
        self._changes.note((change.a, change.b), (change.b, change.a))
        if change.kind == "relation":
            self._known.forget_pair(change.a, change.b)
        elif change.kind == "preferences":
            self._known.forget_preferences(change.a)
        elif change.kind == "member":
            self._members.pop((change.a, change.b), None)
            if self.rooms_relate:
                self._changes.note((ANYBODY, change.b))
                self._known.forget_ties_of(change.b)
        elif change.kind == "relations":
            self._changes.note((ANYBODY, change.a))
            self._known.forget_ties_of(change.a)
            self._forget_members(lambda _, user: user == change.a)
        elif (
            change.kind == "members"
        ):  # not of a room that relates: those are the ledger's, which names the member
            self._forget_members(lambda room, _: room == change.a)

    def _forget_members(self, which: Callable[[str, str], bool]) -> None:
        for member in [member for member in self._members if which(*member)]:
            del self._members[member]

    def _end_contacts(self) -> None:
        now = self._clock.now()
        while self._ends and self._ends[0][0] <= now:
            _, viewer, target = heapq.heappop(self._ends)
            self.changed(LedgerChange("relation", viewer, target))

    def _grow_old(self) -> None:
        old, over = self._ages.turns()
        for key in old:
            if isinstance(key, str):
                self._on_old(key)
        for key in over:
            if isinstance(key, str):
                self._known.forget_sights_of(key)
                self._on_over(key)
            else:
                self.changed(LedgerChange("member", *key))

    def _judge_trust(self) -> None:
        trusted = self._clock.monotonic() - self._heard < TRUST
        if trusted != self._trusted:
            self._trusted = trusted
            log.warning("relations.trust", trusted=trusted)
            self._begin_anew()  # the rows that told of what changed meanwhile may be forgotten already

    def _begin_anew(self) -> None:
        """Nothing of what we know can be relied on."""
        self._changes.note(EVERYTHING)
        self._known.forget_all()
        self._members.clear()
        self._on_trust()


class _Changes:
    """What changed while somebody was asking."""

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

    def note(self, *pairs: tuple[str, str]) -> None:
        for changed in self._watchers:
            changed.update(pairs)


def _is_among(changed: set[tuple[str, str]], one: str, other: str) -> bool:
    return not changed.isdisjoint(((one, other), (ANYBODY, one), (ANYBODY, other), EVERYTHING))


def _first(users: Sequence[str]) -> str:
    return users[0] if users else ""
