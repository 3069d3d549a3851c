"""Verdicts are cached per class of equal facts; every lookup returns the verdict of the rules."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.core.visibility import SHARED_FOR, Block, Facts, Preferences, ViewScope, Visibility, judge
from herenow.node.access import pair_facts
from herenow.node.access.pair_facts import PairFacts, pair_fact
from herenow.ports import BlockRow, Relation, blocks_between

NOW = 1_000_000
relations = st.builds(
    Relation,
    mutual_follow=st.booleans(),
    contact=st.booleans(),
    contact_until=st.sampled_from([None, NOW - 1, NOW, NOW + 1]),
)
blocks = st.one_of(st.none(), st.builds(Block, st.sampled_from([None, 5, 6]), st.sampled_from([None, 10, 11])))
preferences = st.builds(
    Preferences,
    visibility=st.sampled_from(Visibility),
    share_last_seen=st.booleans(),
    public=st.booleans(),
    hidden_at=st.sampled_from([None, 10, 11]),
    hidden_last_seen=st.sampled_from([None, 7]),
    shown_at=st.sampled_from([None, 12]),
    shared_at=st.sampled_from([None, NOW - SHARED_FOR, NOW]),
)
own_blocks = st.one_of(st.none(), st.builds(Block, st.sampled_from([None, 8])))
pairs = st.lists(st.tuples(relations, st.booleans(), blocks, own_blocks, preferences), min_size=1, max_size=12)


@given(pairs, preferences)
def test_every_lookup_in_the_relation_cache_agrees_with_the_visibility_rules(pairs, theirs):
    known = PairFacts()
    known.learn_preferences("target", theirs)
    expected = {"target": ViewScope.TRUTH, "unknown": ViewScope.NONE}
    for number, (relation, room, block, own_block, mine) in enumerate(pairs):
        viewer = f"v{number}"
        known.learn_preferences(viewer, mine)
        known.learn_facts(viewer, {"target": pair_fact(relation, shares_room=room, block=block, own_block=own_block)})
        ends = relation.contact_until
        verdict = judge(
            Facts(
                mutual_follow=relation.mutual_follow,
                contact=relation.contact and (ends is None or ends > NOW),
                shares_room=room,
                block=block,
                own_block=own_block,
                target=theirs,
                viewer_shares=mine.may_see_times(NOW),
            )
        )
        assert known.verdict(viewer, "target", NOW) == verdict
        assert known.sights(viewer, ["target", viewer], NOW) == {"target": verdict.scope, viewer: ViewScope.TRUTH}
        explained = known.facts(viewer, "target", NOW)
        assert explained is not None
        assert judge(explained) == verdict
        expected[viewer] = verdict.scope
    assert known.sights_of("target", list(expected), NOW) == expected


def test_the_relation_cache_gives_no_answer_while_a_relation_or_preference_is_unknown():
    known = PairFacts()
    known.learn_facts("bob", {"ana": pair_facts.FRIENDS})
    known.learn_preferences("ana", None)
    assert known.verdict("bob", "ana", NOW) is None  # bob's own preferences are missing
    assert known.facts("bob", "ana", NOW) is None
    assert known.sights("bob", ["ana"], NOW) == {"ana": ViewScope.NONE}
    assert known.sights_of("ana", ["bob"], NOW) == {"bob": ViewScope.NONE}
    assert known.unasked(["ana", "bob", "bob"]) == ["bob"]
    known.learn_preferences("bob", None)
    assert known.sights("bob", ["ana"], NOW) == {"ana": ViewScope.FULL}
    for forget in (
        lambda: known.forget_pair("ana", "bob"),
        lambda: known.forget_facts_of("ana"),
        lambda: known.forget_preferences("ana"),
        known.forget_all,
    ):
        known.learn_facts("bob", {"ana": pair_facts.FRIENDS})
        known.learn_preferences("ana", None)
        known.learn_preferences("bob", None)
        assert known.verdict("bob", "ana", NOW) is not None
        forget()
        assert known.verdict("bob", "ana", NOW) is None


def test_the_number_of_cached_relations_is_bounded(monkeypatch):
    monkeypatch.setattr(pair_facts, "USUAL", 5)
    for name in ("VIEWERS", "TARGETS_PER_VIEWER", "USERS", "CLASSES"):
        monkeypatch.setattr(pair_facts, name, 10)
    known = PairFacts()
    for number in range(100):
        known.learn_facts(f"v{number}", {"t": pair_facts.FRIENDS})
        known.learn_facts("v", {f"t{number}": pair_facts.FRIENDS})
        known.learn_preferences(f"u{number}", Preferences(share_last_seen=False))
        known.learn_preferences("t", Preferences(hidden_at=number))
        known.learn_preferences("v99", None)
        known.learn_facts("v99", {"t": pair_facts.FRIENDS})
        assert known.verdict("v99", "t", NOW)
    assert len(known._ties) <= 11
    assert max(map(len, known._ties.values())) <= 11
    assert len(known._preferences) <= 11
    assert len(known._classes) <= 10


def test_the_most_frequent_relation_of_a_viewer_is_cached_compactly_even_if_learned_later():
    """The compact form is used for the fact that most pairs have."""
    known = PairFacts()
    known.learn_facts("bob", {"stranger": pair_facts.STRANGERS})
    contacts = {f"c{number}": pair_facts.CONTACTS for number in range(50)}
    known.learn_facts("bob", contacts)
    ties = known._ties["bob"]
    assert ties.users == tuple(sorted(contacts))
    assert ties.all() == {"stranger": pair_facts.STRANGERS, **contacts}
    users = ties.users
    known.learn_facts("bob", {"friend": pair_facts.FRIENDS})
    assert ties.users is users  # others may share it
    assert ties.get("friend") is pair_facts.FRIENDS


def test_each_user_of_a_block_sees_the_frozen_last_seen_of_the_other():
    rows = [BlockRow("ana", "bob", 5, blocker_seen=1, blocked_seen=2)]
    assert blocks_between(rows, "ana") == (Block(1), None)
    assert blocks_between(rows, "bob") == (None, Block(2))
    rows.append(BlockRow("bob", "ana", 4, blocker_seen=3, blocked_seen=4))
    assert blocks_between(rows, "ana") == (Block(1), Block(4))
    rows[1] = BlockRow("bob", "ana", 4, blocker_seen=3, blocked_seen=4, lifted_at=6)
    assert blocks_between(rows, "ana") == (Block(1), None)  # the viewer's own one leaves no trace
    assert blocks_between(rows, "bob") == (Block(3, 6), Block(2))
    assert blocks_between([], "ana") == (None, None)


class Remembered:
    """A simple model: (viewer, target) → fact."""

    def __init__(self):
        self.ties = {}

    def learn_facts(self, viewer, ties):
        self.ties |= {(viewer, target): what for target, what in ties.items()}

    def forget_pair(self, a, b):
        self._forget(lambda viewer, target: {viewer, target} == {a, b})

    def forget_facts_of(self, user):
        self._forget(lambda viewer, target: user in (viewer, target))

    def forget_sights_of(self, viewer):
        self._forget(lambda who, _: who == viewer)

    def _forget(self, whether):
        self.ties = {pair: what for pair, what in self.ties.items() if not whether(*pair)}


users = st.sampled_from([f"u{number}" for number in range(12)])
ties = st.sampled_from(
    [*pair_facts.PLAIN, pair_facts.PairFact(), pair_fact(Relation(contact=True), shares_room=True, block=Block(5))]
)
verbs = st.one_of(
    st.tuples(st.just("learn_facts"), users, st.dictionaries(users, ties, min_size=1)),
    st.tuples(st.just("forget_pair"), users, users),
    st.tuples(st.just("forget_facts_of"), users),
    st.tuples(st.just("forget_sights_of"), users),
)


@pytest.mark.parametrize("usual", [0, 3, pair_facts.USUAL])
@pytest.mark.parametrize("many", [1, 4, 100])
@given(st.lists(verbs, max_size=30))
def test_the_relation_cache_returns_the_last_learned_relation_unless_it_was_invalidated(many, usual, verbs):
    known, remembered = PairFacts(), Remembered()
    names = [f"u{number}" for number in range(12)]
    with mock.patch.multiple(pair_facts, MANY=many, USUAL=usual):
        for verb, *arguments in verbs:
            getattr(known, verb)(*arguments)
            getattr(remembered, verb)(*arguments)
        for name in names:
            known.learn_preferences(name, None)
        for viewer in names:
            others = [name for name in names if name != viewer]
            expected = {target: remembered.ties.get((viewer, target)) for target in others}
            untied = [target for target, what in expected.items() if what is None]
            sights = [
                None if what is None else judge(what.facts(pair_facts.UNDECIDED, pair_facts.UNDECIDED, NOW)).scope
                for what in expected.values()
            ]
            assert known.untied(viewer, others) == untied
            assert known.known_sights(viewer, others, NOW) == sights
            assert known.sights(viewer, others, NOW) == {
                target: sight or ViewScope.NONE for target, sight in zip(others, sights, strict=True)
            }
            for target, sight in zip(others, sights, strict=True):
                assert known.sights_of(target, [viewer], NOW) == {viewer: sight or ViewScope.NONE}
                assert known.untied_to(target, [viewer]) == ([viewer] if sight is None else [])
                verdict = known.verdict(viewer, target, NOW)
                assert (verdict and verdict.scope) == sight


def test_equal_sets_of_watched_ids_share_memory():
    known = PairFacts()
    known.learn_facts("bob", {"cem": pair_facts.CONTACTS, "ana": pair_facts.CONTACTS, "dora": pair_facts.FRIENDS})
    shared = known.among_ids("bob", ("ana", "cem"))
    assert shared == ("ana", "cem")
    assert shared is known.among_ids("bob", tuple(sorted({"ana", "cem"})))
    for others in (("ana",), ("ana", "cem", "dora"), ()):
        assert known.among_ids("bob", others) == others  # not if another fact is known for one of them
    known.forget_pair("bob", "ana")
    assert shared == ("ana", "cem")  # a tuple in use stays valid when facts change
    assert known.untied("bob", ["ana", "cem"]) == ["ana"]


@given(
    st.lists(st.tuples(st.one_of(st.none(), relations), blocks, st.one_of(st.none(), preferences)), max_size=30),
    st.one_of(st.none(), preferences),
    st.sampled_from([1, 3, 512]),
)
def test_visibility_evaluated_for_many_targets_at_once_equals_single_evaluations(others, mine, room):
    known, targets = PairFacts(), ["viewer", *[f"u{number}" for number in range(len(others))]]
    known.learn_preferences("viewer", mine)
    with mock.patch.object(pair_facts, "USUAL", room):
        for target, (relation, block, theirs) in zip(targets[1:], others, strict=True):
            known.learn_preferences(target, theirs)
            if relation is not None:
                known.learn_facts("viewer", {target: pair_fact(relation, shares_room=False, block=block)})
        alone = [known.verdict("viewer", target, NOW) for target in targets]
        expected = [None if verdict is None else verdict.scope for verdict in alone]
        assert known.known_sights("viewer", targets, NOW) == expected
        assert known.sights("viewer", targets, NOW) == {
            target: sight or ViewScope.NONE for target, sight in zip(targets, expected, strict=True)
        }
        assert known.untied("viewer", targets) == [
            target for target, (relation, *_) in zip(targets[1:], others, strict=True) if relation is None
        ]


@pytest.mark.parametrize("hides", ["nobody does", "by a block", "by visibility"])
def test_a_bulk_read_evaluates_visibility_equally_often_with_and_without_a_hidden_user(hides):
    """Otherwise a bulk read would reveal by its time that one of many users hides."""
    known, targets = PairFacts(), [f"u{number}" for number in range(20)]
    blocked = pair_fact(Relation(contact=True), shares_room=False, block=Block(5))
    known.learn_all_preferences(["viewer", *targets], {})
    known.learn_facts("viewer", dict.fromkeys(targets, pair_facts.CONTACTS))
    if hides == "by a block":
        known.learn_facts("viewer", {"u7": blocked})
    elif hides == "by visibility":
        known.learn_preferences("u7", Preferences(visibility=Visibility.NOBODY, hidden_at=5))
    with mock.patch.object(known, "verdict", wraps=known.verdict) as verdict:
        sights = known.known_sights("viewer", targets, NOW)
    assert verdict.call_count == 1
    assert (sights[7] == ViewScope.FULL) == (hides == "nobody does")
    assert sights.count(ViewScope.FULL) == 20 - (hides != "nobody does")
