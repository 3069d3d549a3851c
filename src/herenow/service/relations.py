"""Who is connected with whom, as far as this node has asked, and until it hears otherwise.

Facts are read from a `Relations` source in batches and kept per viewer. They are dropped pair by pair when the ledger's
change table says so (polled every second: a lost message never lets somebody see who may not), when this node itself
writes an edge, and when a contact ends by its own time. A node that cannot read the change table believes what it knows
for `TRUST`, then nobody is related to anybody: it fails closed.

A source outside of the ledger may forget to tell us of a change: its facts have an age (`ages`). It may also be away while
the ledger is not: whoever could not be asked about is hidden, and looked at again as soon as the source answers.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from herenow.errors import Unavailable
from herenow.ports import Ledger, LedgerChange, Relation, Relations
from herenow.service.ages import Ages
from herenow.service.calls import LEDGER_DEADLINE, reading
from herenow.service.clock import Clock
from herenow.service.metrics import Metrics

POLL = 1.0
TRUST = 30.0
"""Seconds that facts are believed without hearing what has changed."""

KEEP_CHANGES = 600.0
"""Seconds that rows of the change table are kept: twenty times `TRUST`, after which a node that missed them believes
nothing it knew."""

VIEWERS = 50_000
PAIRS_PER_VIEWER = 20_000
MEMBERS = 200_000
CHANGES = 2_000

OVERLAP = 5
"""Polls for which a row may be late: a transaction that took its number first may commit last."""

TRIES = 3
"""How often we ask again because what we asked about has changed meanwhile."""

DOUBTS = 50_000
"""Failed questions that are remembered, to be asked again when there are answers; if there are more, about everybody."""

TRIED = 3
"""Of them, to find out whether there are answers."""

FOREVER = 1 << 62

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
        on_old: Callable[[str], None],
        on_over: Callable[[str], None],
        on_answers: Callable[[list[str] | None], Awaitable[None]],
        ttl: float | None = None,
    ) -> None:
        """`on_change`: something about these two is different now. `on_trust`: we stopped, or resumed, believing.
        `on_old`: what this viewer may see should be asked anew (`renew`). `on_over`: it was not, and is forgotten.
        `on_answers`: the source answers again, and these viewers (None: all) should look.
        `ttl`: seconds that a fact is believed; None: until we hear otherwise."""
        self._source = source
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._on_change = on_change
        self._on_trust = on_trust
        self._on_old = on_old
        self._on_over = on_over
        self._on_answers = on_answers
        self._ages: Ages[str | tuple[str, str]] = Ages(ttl, clock.monotonic)
        """Of what is known of a viewer, and of a (room, user)."""
        self._doubts: dict[tuple[str, str], str] = {}
        """Questions that nobody answered, one of each kind per user, so that nobody fills it with what is never answered:
        (`between`, viewer) → target, (`contacts`, user) → "", (`member`, user) → room."""
        self._until: OrderedDict[str, dict[str, int]] = OrderedDict()
        """viewer → target → until when they are related (0: they are not)."""
        self._members: OrderedDict[tuple[str, str], bool] = OrderedDict()
        self._ends: list[tuple[int, str, str]] = []
        self._resolving = False
        self._changes = _Changes()
        self._cursors: deque[int] = deque(maxlen=OVERLAP)
        """Where the last polls ended. We begin again at the oldest: rows appear out of the order of their ids."""
        self._heard = float("-inf")
        self._trusted = True
        self._old: tuple[float, int] | None = None
        """A cursor that everybody will have passed, and the monotonic time at which we were there."""

    @property
    def trusted(self) -> bool:
        """False: the ledger could not be read for too long, and nobody is taken to know anybody."""
        return self._trusted

    async def start(self) -> None:
        self._cursors.append(await reading(self._ledger.changes_head(), LEDGER_DEADLINE))
        self._heard = self._clock.monotonic()

    async def relate(self, viewer: str, targets: Sequence[str]) -> None:
        """Get to know what `are_related` needs. An unreachable source leaves them unknown."""
        for _ in range(TRIES):
            known = self._until.get(viewer, _NONE)
            unknown = [
                target for target in dict.fromkeys(targets) if target not in known and target != viewer
            ]
            if not unknown:
                return
            try:
                await self._ask(viewer, unknown)
            except Unavailable:
                self._doubt("between", viewer, unknown[0])
                return

    async def renew(self, viewer: str, targets: Sequence[str]) -> None:
        """Ask everything about this viewer anew; until there is an answer, what is known holds."""
        try:
            await self._ask(viewer, targets, anew=True)
        except Unavailable:
            self._doubt("between", viewer, targets[0] if targets else viewer)

    async def _ask(self, viewer: str, targets: Sequence[str], *, anew: bool = False) -> None:
        """What changes while we ask is not known afterwards: the answer may be from before."""
        with self._changes.watched() as changed:
            asked = self._clock.monotonic()
            found = await reading(self._source.between(viewer, targets, self._clock.now()), LEDGER_DEADLINE)
            known = self._until.get(viewer, _NONE)
            if anew:
                self._until.pop(viewer, None)
                self._ages.asked_anew(viewer, asked)
            self._ages.asked(viewer, asked)
            pairs = self._pairs(viewer)
            for target, relation in zip(targets, found, strict=True):
                if not changed.isdisjoint(((viewer, target), (viewer, ""), (target, ""))):
                    continue
                until = _related_until(relation)
                if 0 < until < FOREVER and known.get(target) != until:  # else its end is noted
                    heapq.heappush(self._ends, (until, viewer, target))
                pairs[target] = until

    def are_related(self, viewer: str, target: str) -> bool | None:
        """None: not known (any more): `relate` them first. Unknown must be treated as no."""
        if not self._trusted:
            return False
        until = self._until.get(viewer, _NONE).get(target)
        return None if until is None else until > self._clock.now()

    def related(self, viewer: str, targets: Iterable[str]) -> set[str]:
        """Those of the targets that are known to be related to the viewer; `relate` them first."""
        if not self._trusted:
            return set()
        now, until = self._clock.now(), self._until.get(viewer, _NONE)
        return {target for target in targets if until.get(target, 0) > now}

    async def contacts(self, user: str) -> list[str]:
        """Fails closed: raises `Unavailable`."""
        if not self._trusted:
            raise Unavailable("The relations are out of reach.")
        try:
            return await reading(self._source.contacts(user, self._clock.now()), LEDGER_DEADLINE)
        except Unavailable:
            self._doubt("contacts", user, "")
            raise

    async def is_member(self, room: str, user: str) -> bool:
        known = self._members.get((room, user))
        if known is not None:
            return known and self._trusted
        with self._changes.watched() as changed:
            asked = self._clock.monotonic()
            try:
                member = await reading(self._source.is_member(room, user), LEDGER_DEADLINE)
            except Unavailable:
                self._doubt("member", user, room)
                raise
            if changed.isdisjoint(((room, user), (room, ""), (user, ""))):
                self._members[room, user] = member
                self._ages.asked_anew((room, user), asked)
        if len(self._members) > MEMBERS:
            self._members.popitem(last=False)
        return member

    async def poll(self) -> None:
        """Hear what has changed, from whomever."""
        try:
            cursor = self._cursors[0]
            while True:
                changes, cursor = await reading(self._ledger.changes(cursor, CHANGES), LEDGER_DEADLINE)
                self._heard = self._clock.monotonic()
                for change in changes:
                    self.changed(change)
                    if change.kind in ("relations", "members"):
                        await asyncio.sleep(0)  # it looked through all that we know
                if len(changes) < CHANGES:
                    break
            self._cursors.append(cursor)
            await self._forget_old()
        except Unavailable:
            self._metrics.ledger_errors += 1
        self._end_contacts()
        self._judge_trust()
        self._grow_old()

    async def _forget_old(self) -> None:
        """The change table is a bell, not a history: what is older than every node's patience is removed."""
        if self._old is None:
            self._old = self._heard, self._cursors[0]
        elif self._heard - self._old[0] > KEEP_CHANGES:
            await reading(self._ledger.forget_changes(self._old[1]), LEDGER_DEADLINE)
            self._old = None

    def changed(self, change: LedgerChange) -> None:
        self._changes.note((change.a, change.b), (change.b, change.a))
        if change.kind == "relation":
            for viewer, target in ((change.a, change.b), (change.b, change.a)):
                self._until.get(viewer, {}).pop(target, None)
        elif change.kind == "member":
            self._members.pop((change.a, change.b), None)
        elif change.kind == "relations":
            self._until.pop(change.a, None)
            for targets in self._until.values():
                targets.pop(change.a, None)
            self._forget_members(lambda _, user: user == change.a)
        elif change.kind == "members":
            self._forget_members(lambda room, _: room == change.a)
        self._on_change(change)

    def _forget_members(self, which: Callable[[str, str], bool]) -> None:
        for member in [member for member in self._members if which(*member)]:
            del self._members[member]

    def _end_contacts(self) -> None:
        now = self._clock.now()
        while self._ends and self._ends[0][0] <= now:
            _, viewer, target = heapq.heappop(self._ends)
            self.changed(LedgerChange("relation", viewer, target))

    def _judge_trust(self) -> None:
        trusted = self._clock.monotonic() - self._heard < TRUST
        if trusted != self._trusted:
            self._trusted = trusted
            log.warning("relations.trust", trusted=trusted)
            self._until.clear()  # what changed meanwhile may be forgotten already
            self._members.clear()
            self._on_trust()

    def _grow_old(self) -> None:
        old, over = self._ages.turns()
        for key in old:
            if isinstance(key, str):
                self._on_old(key)
        for key in over:
            if isinstance(key, str):
                self._until.pop(key, None)
                self._on_over(key)
            else:
                self.changed(LedgerChange("member", *key))

    def _doubt(self, question: str, user: str, other: str) -> None:
        if self._source is self._ledger:
            self._metrics.ledger_errors += 1  # other sources keep their own count
        if len(self._doubts) < DOUBTS:
            self._doubts[question, user] = other

    @property
    def in_doubt(self) -> bool:
        """Somebody could not be asked about, and nobody is about to `resolve` it."""
        return bool(self._doubts) and not self._resolving

    async def resolve(self) -> None:
        """Is there an answer now? A few doubts are tried, by chance, for some may never be answered; then all who are
        in doubt look again."""
        self._resolving = True
        try:
            tried = random.sample(list(self._doubts.items()), min(len(self._doubts), TRIED))
            if not any(await asyncio.gather(*(self._is_answered(*key, other) for key, other in tried))):
                return
            doubts, self._doubts = self._doubts, {}
            viewers = {viewer: None for question, viewer in doubts if question != "member"}
            await self._on_answers(list(viewers) if len(doubts) < DOUBTS else None)
        finally:
            self._resolving = False

    async def _is_answered(self, question: str, user: str, other: str) -> bool:
        now = self._clock.now()
        try:
            match question:
                case "between":
                    await reading(self._source.between(user, [other], now), LEDGER_DEADLINE)
                case "contacts":
                    await reading(self._source.contacts(user, now), LEDGER_DEADLINE)
                case _:
                    await reading(self._source.is_member(other, user), LEDGER_DEADLINE)
        except Unavailable:
            return False
        return True

    def _pairs(self, viewer: str) -> dict[str, int]:
        pairs = self._until.get(viewer)
        if pairs is None or len(pairs) > PAIRS_PER_VIEWER:
            pairs = self._until[viewer] = {}
        self._until.move_to_end(viewer)
        if len(self._until) > VIEWERS:
            self._until.popitem(last=False)
        return pairs


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


_NONE: dict[str, int] = {}


def _related_until(relation: Relation) -> int:
    if relation.mutual_follow:
        return FOREVER
    if not relation.contact:
        return 0
    return FOREVER if relation.contact_until is None else relation.contact_until
