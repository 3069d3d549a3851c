"""Verdicts are kept per class of equal facts; whichever way they are asked for, they are those of the rules."""

from hypothesis import given
from hypothesis import strategies as st

from herenow.core.visibility import Block, Facts, Preferences, Sight, Visibility, judge
from herenow.ports import BlockRow, Relation
from herenow.service import facts
from herenow.service.facts import Known, block_between, tie

NOW = 1_000
relations = st.builds(
    Relation,
    mutual_follow=st.booleans(),
    contact=st.booleans(),
    contact_until=st.sampled_from([None, NOW - 1, NOW, NOW + 1]),
)
blocks = st.one_of(
    st.none(), st.builds(Block, st.sampled_from([None, 5, 6]), st.sampled_from([None, 10, 11]))
)
preferences = st.builds(
    Preferences,
    visibility=st.sampled_from(Visibility),
    share_last_seen=st.booleans(),
    public=st.booleans(),
    hidden_at=st.sampled_from([None, 10, 11]),
    hidden_last_seen=st.sampled_from([None, 7]),
)
pairs = st.lists(st.tuples(relations, st.booleans(), blocks, preferences), min_size=1, max_size=12)


@given(pairs, preferences)
def test_every_way_to_ask_gives_the_verdict_of_the_rules(pairs, theirs):
    known = Known()
    known.learn_preferences("target", theirs)
    expected = {"target": Sight.TRUTH, "unknown": Sight.NONE}
    for number, (relation, room, block, mine) in enumerate(pairs):
        viewer = f"v{number}"
        known.learn_preferences(viewer, mine)
        known.learn_tie(viewer, "target", tie(relation, shares_room=room, block=block))
        ends = relation.contact_until
        verdict = judge(
            Facts(
                mutual_follow=relation.mutual_follow,
                contact=relation.contact and (ends is None or ends > NOW),
                shares_room=room,
                block=block,
                target=theirs,
                viewer_shares=mine.share_last_seen,
            )
        )
        assert known.verdict(viewer, "target", NOW) == verdict
        assert known.sights(viewer, ["target", viewer], NOW) == {
            "target": verdict.sight,
            viewer: Sight.TRUTH,
        }
        explained = known.facts(viewer, "target", NOW)
        assert explained is not None
        assert judge(explained) == verdict
        expected[viewer] = verdict.sight
    assert known.sights_of("target", list(expected), NOW) == expected


def test_what_is_not_known_gives_no_verdict():
    known = Known()
    known.learn_tie("bob", "ana", facts.FRIENDS)
    known.learn_preferences("ana", None)
    assert known.verdict("bob", "ana", NOW) is None  # bob's own preferences are missing
    assert known.facts("bob", "ana", NOW) is None
    assert known.sights("bob", ["ana"], NOW) == {"ana": Sight.NONE}
    assert known.sights_of("ana", ["bob"], NOW) == {"bob": Sight.NONE}
    assert known.unasked(["ana", "bob", "bob"]) == ["bob"]
    known.learn_preferences("bob", None)
    assert known.sights("bob", ["ana"], NOW) == {"ana": Sight.FULL}
    for forget in (
        lambda: known.forget_pair("ana", "bob"),
        lambda: known.forget_ties_of("ana"),
        lambda: known.forget_preferences("ana"),
        known.forget_all,
    ):
        known.learn_tie("bob", "ana", facts.FRIENDS)
        known.learn_preferences("ana", None)
        known.learn_preferences("bob", None)
        assert known.verdict("bob", "ana", NOW) is not None
        forget()
        assert known.verdict("bob", "ana", NOW) is None


def test_what_is_kept_is_bounded(monkeypatch):
    for name in ("VIEWERS", "TARGETS_PER_VIEWER", "USERS", "CLASSES"):
        monkeypatch.setattr(facts, name, 10)
    known = Known()
    for number in range(100):
        known.learn_tie(f"v{number}", "t", facts.FRIENDS)
        known.learn_tie("v", f"t{number}", facts.FRIENDS)
        known.learn_preferences(f"u{number}", Preferences(share_last_seen=False))
        known.learn_preferences("t", Preferences(hidden_at=number))
        known.learn_preferences("v99", None)
        known.learn_tie("v99", "t", facts.FRIENDS)
        assert known.verdict("v99", "t", NOW)
    assert len(known._ties) <= 11
    assert max(map(len, known._ties.values())) <= 11
    assert len(known._preferences) <= 11
    assert len(known._classes) <= 10


def test_a_block_freezes_the_side_that_is_looked_at():
    rows = [BlockRow("ana", "bob", 5, blocker_seen=1, blocked_seen=2)]
    assert block_between(rows, "ana") == Block(1)
    assert block_between(rows, "bob") == Block(2)
    rows.append(BlockRow("bob", "ana", 4, blocker_seen=3, blocked_seen=4))
    assert block_between(rows, "ana") == Block(4)  # the earlier one
    assert block_between([], "ana") is None
