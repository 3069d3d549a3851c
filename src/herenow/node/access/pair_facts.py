"""Cached facts about pairs of users, and the verdicts that follow. Queries are made elsewhere (`relation_cache`).

A `PairFact` describes the relation of a viewer to a target; preferences are cached once per user. Thousands of pairs have
equal facts, mostly one of three. So verdicts are cached per class of equal facts, and a viewer's facts take little memory:
the ids of targets with the usual fact, and a dictionary of the others. A pair without a verdict is unknown: it counts as not
visible.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from herenow.core.visibility import Block, Facts, Preferences, Verdict, ViewScope, judge
from herenow.kit.idset import MANY, NO_IDS, Ids, having, holds, lacking
from herenow.kit.lru import Lru
from herenow.ports import IN_CONTACT, MUTUAL, Relation
from herenow.ports import STRANGERS as UNRELATED

VIEWERS = 50_000
TARGETS_PER_VIEWER = 20_000
USERS = 200_000
CLASSES = 10_000

USUAL = 512
"""Targets with the usual fact that are kept as ids at most: their tuple is copied for each change. Others have an entry."""

FOREVER = 1 << 62

Key = TypeVar("Key")
Hide = TypeVar("Hide")


@dataclass(frozen=True, slots=True)
class PairFact:
    until: int = 0
    """Time (ms) until which viewer and target are related; 0: they are not."""
    relation: Relation = UNRELATED
    shares_room: bool = False
    block: Block | None = None
    """The target's block of the viewer, lifted or not."""
    own_block: Block | None = None
    """The viewer's own block of the target, if it is in force."""

    def facts(self, target: Preferences, viewer: Preferences, now: int, *, invisible: bool = False) -> Facts:
        ends = self.relation.contact_until
        return Facts(
            mutual_follow=self.relation.mutual_follow,
            contact=self.relation.contact and (ends is None or ends > now),
            shares_room=self.shares_room,
            block=self.block,
            own_block=self.own_block,
            target=target,
            viewer_shares=viewer.may_see_times(now),
            invisible=invisible,
        )


def pair_fact(
    relation: Relation, *, shares_room: bool, block: Block | None, own_block: Block | None = None
) -> PairFact:
    """Combine relation, shared room and blocks of a viewer and a target into a `PairFact`. Plain strangers, mutual
    followers and contacts share one object each."""
    if block is None and own_block is None and not shares_room:
        if relation is IN_CONTACT or relation == IN_CONTACT:
            return CONTACTS
        if relation is MUTUAL or relation == MUTUAL:
            return FRIENDS
        if relation == UNRELATED:
            return STRANGERS
    until = _related_until(relation)
    return PairFact(FOREVER if shares_room else until, relation, shares_room, block, own_block)


STRANGERS = PairFact()
FRIENDS = PairFact(FOREVER, MUTUAL)
CONTACTS = PairFact(FOREVER, IN_CONTACT)
UNDECIDED = Preferences()
"""The defaults, which nearly all users have. Compared by identity: all users with the defaults get this object."""

ONESELF = judge(Facts(same_user=True))


PLAIN = (CONTACTS, FRIENDS, STRANGERS)


@dataclass(slots=True, eq=False, repr=False)
class ViewerFacts:
    """The facts between one viewer and the targets."""

    usual: PairFact = CONTACTS
    """The most common fact of this viewer."""
    users: Ids = NO_IDS
    """Targets that have the usual fact."""
    others: dict[str, PairFact] | None = None

    def __len__(self) -> int:
        return len(self.users) + len(self.others or ())

    def get(self, target: str) -> PairFact | None:
        users = self.users
        at = bisect_left(users, target)  # `holds` inlined
        if at < len(users) and users[at] == target:
            return self.usual
        return None if self.others is None else self.others.get(target)

    def unusual(self, targets: Sequence[str]) -> frozenset[str]:
        """Return those of the targets with which the viewer does not have the most common relation (`usual`). If
        `users` was full once, the result may include some with which the viewer has it."""
        users, others, usual = self.users, self.others, self.usual
        if len(users) > MANY * len(targets):  # then a search for each is faster
            unusual = frozenset([target for target in targets if not holds(users, target)])
        else:
            unusual = frozenset(targets).difference(users)
        if others is None or len(users) < USUAL:
            return unusual
        return frozenset([target for target in unusual if others.get(target) is not usual])

    def all(self) -> dict[str, PairFact]:
        known = dict.fromkeys(self.users, self.usual)
        if self.others is not None:
            known.update(self.others)
        return known

    def learn(self, ties: Mapping[str, PairFact]) -> None:
        if sum([what is not self.usual for what in ties.values()]) > len(self.users):
            ties = self._reconsidered(ties)
        for target in ties if self else ():
            self.forget(target)
        usual = [target for target, what in ties.items() if what is self.usual][: USUAL - len(self.users)]
        self.users = having(self.users, usual)
        if len(usual) < len(ties):
            kept = frozenset(usual)
            others = {target: what for target, what in ties.items() if target not in kept}
            if self.others is None:
                self.others = others
            else:
                self.others.update(others)

    def _reconsidered(self, ties: Mapping[str, PairFact]) -> Mapping[str, PairFact]:
        """Choose another most common relation (`usual`) for this viewer if it occurs more often in `ties`, the new
        relations by target. Returns the relations to store: `ties`, and all old ones too if `usual` changed."""
        counts = [sum([what is plain for what in ties.values()]) for plain in PLAIN]
        if max(counts) <= len(self.users):
            return ties
        ties = {**self.all(), **ties}
        self.usual, self.users, self.others = PLAIN[counts.index(max(counts))], NO_IDS, None
        return ties

    def forget(self, target: str) -> None:
        self.users = lacking(self.users, (target,))
        if self.others is not None:
            self.others.pop(target, None)


class _HiddenPairs(dict[tuple[str, str], Callable[[PairFact], PairFact]]):
    """(viewer, target) → what a block that is being written makes of their facts."""


class _HiddenUsers(dict[str, Callable[[Preferences], Preferences]]):
    """User → what an edit that is being written makes of the preferences."""


class PairFacts:
    def __init__(self) -> None:
        self._ties: Lru[str, ViewerFacts] = Lru(VIEWERS)
        self._preferences: Lru[str, Preferences] = Lru(USERS)
        self._hidden_pairs, self._hidden_users = _HiddenPairs(), _HiddenUsers()
        self._classes: Lru[tuple[bool, Block | None, Block | None, Preferences, bool], Verdict] = Lru(CLASSES)

    # Unknown facts

    def untied(self, viewer: str, targets: Sequence[str]) -> list[str]:
        ties = self._ties.get(viewer)
        unknown = frozenset(targets) if ties is None else ties.unusual(targets).difference(ties.others or ())
        return _once([t for t in targets if t in unknown and t != viewer]) if unknown else []

    def untied_to(self, target: str, viewers: Iterable[str]) -> list[str]:
        ties = self._ties
        return _once([v for v in viewers if v != target and (v not in ties or ties[v].get(target) is None)])

    def unasked(self, users: Sequence[str]) -> list[str]:
        preferences = self._preferences
        if all(map(preferences.__contains__, users)):
            return []
        return _once([user for user in users if user not in preferences])

    # Hide before the ledger has it

    @contextmanager
    def hiding_pairs(self, hides: Mapping[tuple[str, str], Callable[[PairFact], PairFact]]) -> Iterator[None]:
        """Apply blocks that the ledger does not have yet, by (viewer, target), to the cached facts and to those that are
        cached meanwhile. At the end the pairs are forgotten."""
        with _added(self._hidden_pairs, hides):
            for viewer, target in hides:
                ties = self._ties.get(viewer)
                what = None if ties is None else ties.get(target)
                if what is not None:
                    self.learn_facts(viewer, {target: what})
            try:
                yield
            finally:
                for viewer, target in hides:
                    self.forget_pair(viewer, target)

    @contextmanager
    def hiding_user(self, user: str, hides: Callable[[Preferences], Preferences]) -> Iterator[None]:
        """Apply an edit of a user's preferences that the ledger does not have yet, as `hiding_pairs` does."""
        with _added(self._hidden_users, {user: hides}):
            before = self._preferences.get(user)
            if before is not None:
                self.learn_preferences(user, before)
            try:
                yield
            finally:
                self.forget_preferences(user)

    # Learn

    def learn_facts(self, viewer: str, what: Mapping[str, PairFact]) -> None:
        if self._hidden_pairs:
            hides = self._hidden_pairs
            what = {t: hides[viewer, t](fact) if (viewer, t) in hides else fact for t, fact in what.items()}
        ties = self._ties.get(viewer)
        if ties is None or len(ties) > TARGETS_PER_VIEWER:
            ties = ViewerFacts()
            self._ties.put(viewer, ties)
        ties.learn(what)

    def learn_preferences(self, user: str, preferences: Preferences | None) -> None:
        if user in self._hidden_users:
            preferences = self._hidden_users[user](preferences or UNDECIDED)
        undecided = preferences is None or preferences == UNDECIDED
        self._preferences.put(user, UNDECIDED if undecided or preferences is None else preferences)

    def learn_all_preferences(self, users: Sequence[str], decided: Mapping[str, Preferences]) -> None:
        """Cache the preferences of these users. `decided`: preferences by user; users that are not in it have the
        defaults."""
        if decided or self._hidden_users:
            for user in users:
                self.learn_preferences(user, decided.get(user))
        else:
            self._preferences.put_all(dict.fromkeys(users, UNDECIDED))

    # Forget

    def forget_pair(self, a: str, b: str) -> None:
        for viewer, target in ((a, b), (b, a)):
            ties = self._ties.get(viewer)
            if ties is not None:
                ties.forget(target)

    def forget_preferences(self, user: str) -> None:
        self._preferences.pop(user, None)

    def forget_facts_of(self, user: str) -> None:
        """Forget the relations and blocks of this user, as viewer and as target. It is slow: it searches all viewers."""
        self._ties.pop(user, None)
        for ties in self._ties.values():
            if ties.get(user) is not None:
                ties.forget(user)

    def forget_sights_of(self, viewer: str) -> dict[str, PairFact]:
        """Forget the relations and blocks of this viewer with all targets, and return them by target."""
        ties = self._ties.pop(viewer, None)
        return {} if ties is None else ties.all()

    def forget_all(self) -> None:
        self._ties.clear()
        self._preferences.clear()

    # Judge

    def among_ids(self, viewer: str, users: Ids) -> Ids:
        """Return these user ids, if possible as the equal tuple that is cached for this viewer: sharing one tuple saves
        memory."""
        ties = self._ties.get(viewer)
        return users if ties is None or ties.users != users else ties.users

    def preferences(self, user: str) -> Preferences | None:
        return self._preferences.get(user)

    def facts(self, viewer: str, target: str, now: int, *, invisible: bool = False) -> Facts | None:
        """Return all that decides what the viewer may see of the target (relation, block, preferences), to explain it.
        None: not all is cached. `invisible`: the target's mode is invisible."""
        ties = self._ties.get(viewer)
        what = None if ties is None else ties.get(target)
        theirs, mine = self._preferences.get(target), self._preferences.get(viewer)
        if what is None or theirs is None or mine is None:
            return None
        return what.facts(theirs, mine, now, invisible=invisible)

    def verdict(self, viewer: str, target: str, now: int) -> Verdict | None:
        if viewer == target:
            return ONESELF
        ties = self._ties.get(viewer)
        what = None if ties is None else ties.get(target)
        theirs, mine = self._preferences.get(target), self._preferences.get(viewer)
        if what is None or theirs is None or mine is None:
            return None
        return self._judged(what, theirs, mine, now)

    def known_sights(self, viewer: str, targets: Sequence[str], now: int) -> list[ViewScope | None]:
        """Return how much the viewer may see of each target (its view scope), in order; None: relation or preferences
        are not cached. The time it takes must not reveal that a target hides: a target with unusual rules costs no more
        than its own judgement, and at least one target is judged in any case."""
        ties, mine = self._ties.get(viewer), self._preferences.get(viewer)
        if len(targets) < MANY or ties is None or mine is None:
            return [self._known_sight(viewer, target, now) for target in targets]
        preferences, usual = self._preferences.get, self._judged(ties.usual, UNDECIDED, mine, now).scope
        odd = ties.unusual(targets).union([t for t in targets if preferences(t) is not UNDECIDED])
        judged = odd or targets[:1]
        return [usual if t not in judged else self._known_sight(viewer, t, now) for t in targets]

    def _known_sight(self, viewer: str, target: str, now: int) -> ViewScope | None:
        verdict = self.verdict(viewer, target, now)
        return None if verdict is None else verdict.scope

    def sights(self, viewer: str, targets: Sequence[str], now: int) -> dict[str, ViewScope]:
        """Return how much the viewer may see of each target, as view scopes by target. `NONE` if relation or
        preferences are not cached."""
        known, none = self.known_sights(viewer, targets, now), ViewScope.NONE
        return {t: none if sight is None else sight for t, sight in zip(targets, known, strict=True)}

    def sights_of(self, target: str, viewers: Iterable[str], now: int) -> dict[str, ViewScope]:
        """Return how much each viewer may see of one target, as view scopes by viewer. `NONE` if relation or
        preferences are not cached."""
        theirs = self._preferences.get(target)
        if theirs is None:
            return {viewer: ONESELF.scope if viewer == target else ViewScope.NONE for viewer in viewers}
        ties, preferences = self._ties.get, self._preferences.get
        plain: list[ViewScope | None] = [None] * 4
        """View scopes of viewers without a block. Index: 2 if related to the target, plus 1 if they may see times."""
        sights: dict[str, ViewScope] = {}
        usual = self._judged(FRIENDS, theirs, UNDECIDED, now).scope
        for viewer in viewers:
            known, mine, what = ties(viewer), preferences(viewer), None
            if known is not None:
                users = known.users  # `ViewerFacts.get` inlined
                at = bisect_left(users, target)
                if at < len(users) and users[at] == target:
                    what = known.usual
                elif known.others is not None:
                    what = known.others.get(target)
            if mine is UNDECIDED and (what is FRIENDS or what is CONTACTS):
                sights[viewer] = usual
            elif what is None or mine is None:
                sights[viewer] = ONESELF.scope if viewer == target else ViewScope.NONE
            elif what.block is not None or what.own_block is not None:
                sights[viewer] = self._judged(what, theirs, mine, now).scope
            else:
                kind = 2 * (what.until > now) + mine.may_see_times(now)
                sight = plain[kind]
                if sight is None:
                    sight = plain[kind] = self._judged(what, theirs, mine, now).scope
                sights[viewer] = sight
        return sights

    def _judged(self, what: PairFact, theirs: Preferences, mine: Preferences, now: int) -> Verdict:
        key = what.until > now, what.block, what.own_block, theirs, mine.may_see_times(now)
        verdict = self._classes.get(key)
        if verdict is None:
            verdict = judge(what.facts(theirs, mine, now))
            self._classes.put(key, verdict)
        return verdict


@contextmanager
def _added(hides: dict[Key, Hide], new: Mapping[Key, Hide]) -> Iterator[None]:
    """Add entries to `hides` for the duration of the context. An entry of another context that has replaced one is kept."""
    hides.update(new)
    try:
        yield
    finally:
        for key, hide in new.items():
            if hides.get(key) is hide:
                del hides[key]


def _once(users: list[str]) -> list[str]:
    return list(dict.fromkeys(users))


def _related_until(relation: Relation) -> int:
    if relation.mutual_follow:
        return FOREVER
    if not relation.contact:
        return 0
    return FOREVER if relation.contact_until is None else relation.contact_until
