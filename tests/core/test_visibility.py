"""Visibility: the rules in their order, the one projection behind every output, and what hiding freezes."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.story import T0, M, Story, table

from herenow.core.model import NOBODY_HERE, Bucket, Presence, Status, View, public, truth
from herenow.core.values import replace as altered
from herenow.core.visibility import (
    DAY,
    RULES,
    SHARED_FOR,
    Block,
    Facts,
    Kind,
    Preferences,
    PreferencesEdit,
    ViewScope,
    Visibility,
    bucket_of,
    day_of,
    edited,
    judge,
    last_seen_if_gone,
    last_seen_if_shown,
    last_seen_when_blocked,
    last_seen_when_lifted,
    may_hear_typing,
    seen,
    seen_by_oneself,
    status_in_public,
)

EVERYONE = Preferences(Visibility.EVERYONE)
NOBODY = Preferences(Visibility.NOBODY, hidden_at=50, hidden_last_seen=40)
SECRETIVE = Preferences(share_last_seen=False)
BLOCKED = Block(last_seen=30)
LIFTED = Block(last_seen=30, lifted_at=60)
ENDED = Preferences(shown_at=70, shown_last_seen=40)
TODAY = day_of(T0)


def frozen(last_seen, *, blurred=False):
    return ViewScope(Kind.FROZEN, blurred=blurred, last_seen=last_seen)


def since(floor, last_seen, *, blurred=False):
    return ViewScope(Kind.SHOWN, blurred=blurred, last_seen=last_seen, floor=floor)


@table(
    "facts, sight, rule",
    {
        "strangers": (Facts(), ViewScope.NONE, "not_related"),
        "they follow each other": (Facts(mutual_follow=True), ViewScope.FULL, "contacts"),
        "they are in contact": (Facts(contact=True), ViewScope.FULL, "contacts"),
        "they share a room": (Facts(shares_room=True), ViewScope.FULL, "contacts"),
        "oneself": (Facts(same_user=True), ViewScope.TRUTH, "self"),
        "oneself, related by mistake": (Facts(same_user=True, contact=True), ViewScope.TRUTH, "self"),
        "oneself, hidden in every way": (
            Facts(same_user=True, block=BLOCKED, target=NOBODY, invisible=True),
            ViewScope.TRUTH,
            "self",
        ),
        "a service": (Facts(service=True), ViewScope.TRUTH, "service"),
        "a service that is related": (Facts(service=True, contact=True), ViewScope.TRUTH, "service"),
        "a service sees who hides": (
            Facts(service=True, block=BLOCKED, target=NOBODY, invisible=True),
            ViewScope.TRUTH,
            "service",
        ),
        # Blocks
        "blocked": (Facts(contact=True, block=BLOCKED), frozen(30), "blocked"),
        "blocked, never seen before": (Facts(contact=True, block=Block()), frozen(None), "blocked"),
        "a blocked stranger is a stranger": (Facts(block=BLOCKED), ViewScope.NONE, "blocked"),
        "a blocked stranger of one who is shown to everyone": (
            Facts(block=BLOCKED, target=EVERYONE),
            frozen(30),
            "blocked",
        ),
        "a blocked stranger of one who hides": (Facts(block=BLOCKED, target=NOBODY), ViewScope.NONE, "blocked"),
        "blocked by one who does not share": (
            Facts(contact=True, block=BLOCKED, target=SECRETIVE),
            frozen(30, blurred=True),
            "blocked",
        ),
        "blocked and not sharing": (
            Facts(contact=True, block=BLOCKED, viewer_shares=False),
            frozen(30, blurred=True),
            "blocked",
        ),
        "blocked, then hidden from everybody": (
            Facts(contact=True, block=BLOCKED, target=NOBODY),
            frozen(30),
            "blocked",
        ),
        "a lifted block is only a floor": (Facts(contact=True, block=LIFTED), since(60, 30), "contacts"),
        "the viewer's own block": (Facts(contact=True, own_block=BLOCKED), frozen(30), "blocked"),
        "the viewer's own block counts before that of the target": (
            Facts(contact=True, own_block=Block(20), block=BLOCKED),
            frozen(20),
            "blocked",
        ),
        "the target's block after the viewer's own one was lifted": (
            Facts(contact=True, own_block=None, block=BLOCKED),
            frozen(30),
            "blocked",
        ),
        "nobody has ended": (Facts(contact=True, target=ENDED), since(70, 40), "contacts"),
        "nobody has ended, the viewer does not share": (
            Facts(contact=True, target=ENDED, viewer_shares=False),
            since(70, 40, blurred=True),
            "blurred",
        ),
        "nobody ended after a block: not seen since the block began": (
            Facts(contact=True, target=ENDED, block=LIFTED),
            since(70, 30),
            "contacts",
        ),
        "nobody ended after a block: seen at its end": (
            Facts(contact=True, target=replace(ENDED, shown_last_seen=70), block=LIFTED),
            since(70, 70),
            "contacts",
        ),
        "nobody ended before a block did": (
            Facts(contact=True, target=ENDED, block=replace(LIFTED, lifted_at=80)),
            since(80, 30),
            "contacts",
        ),
        "a lifted block of strangers": (Facts(block=LIFTED), ViewScope.NONE, "not_related"),
        # Nobody
        "nobody": (Facts(contact=True, target=NOBODY), frozen(40), "nobody"),
        "nobody, for a stranger": (Facts(target=NOBODY), ViewScope.NONE, "not_related"),
        "nobody, not sharing": (
            Facts(contact=True, target=replace(NOBODY, share_last_seen=False)),
            frozen(40, blurred=True),
            "nobody",
        ),
        "nobody, since before a block was lifted: hidden since the block": (
            Facts(contact=True, target=NOBODY, block=LIFTED),
            frozen(30),
            "nobody",
        ),
        "nobody, since after a block was lifted: not seen in between": (
            Facts(contact=True, target=NOBODY, block=replace(LIFTED, lifted_at=49)),
            frozen(30),
            "nobody",
        ),
        "nobody, since after a block was lifted: seen in between": (
            Facts(contact=True, target=NOBODY, block=replace(LIFTED, lifted_at=39)),
            frozen(40),
            "nobody",
        ),
        # Other rules
        "invisible": (Facts(contact=True, invisible=True), ViewScope.FULL, "invisible"),
        "invisible, for a stranger": (Facts(invisible=True), ViewScope.NONE, "not_related"),
        "invisible and not sharing": (
            Facts(contact=True, invisible=True, target=SECRETIVE),
            ViewScope.BLURRED,
            "invisible",
        ),
        "invisible and blocked": (Facts(contact=True, invisible=True, block=BLOCKED), frozen(30), "blocked"),
        "the target does not share": (Facts(contact=True, target=SECRETIVE), ViewScope.BLURRED, "blurred"),
        "the viewer does not share": (Facts(contact=True, viewer_shares=False), ViewScope.BLURRED, "blurred"),
        "a stranger who does not share": (Facts(viewer_shares=False), ViewScope.NONE, "not_related"),
        "everyone, for a stranger": (Facts(target=EVERYONE), ViewScope.FULL, "everyone"),
        "everyone, for a contact": (Facts(contact=True, target=EVERYONE), ViewScope.FULL, "contacts"),
        "everyone, not sharing": (Facts(target=replace(EVERYONE, share_last_seen=False)), ViewScope.BLURRED, "blurred"),
        "public is about the profile alone": (Facts(target=Preferences(public=True)), ViewScope.NONE, "not_related"),
    },
)
def test_the_first_visibility_rule_that_applies_decides_what_a_viewer_sees(facts, sight, rule):
    verdict = judge(facts)
    assert (verdict.scope, verdict.rule) == (sight, rule)


def test_the_visibility_rules_have_the_documented_order():
    assert [name for name, _ in RULES] == [
        "self",
        "service",
        "blocked",
        "not_related",
        "nobody",
        "invisible",
        "blurred",
        "contacts",
        "everyone",
    ]


# --- Properties for all facts

times = st.one_of(st.none(), st.sampled_from([0, 29, 30, 31, 49, 50, 51, T0]))


@st.composite
def some_preferences(draw):
    preferences = Preferences(share_last_seen=draw(st.booleans()), public=draw(st.booleans()))
    edit = PreferencesEdit(draw(st.sampled_from(Visibility)))
    return edited(preferences, edit, draw(st.sampled_from([49, 50, 51])), draw(times))


blocks = st.one_of(st.none(), st.builds(Block, times, st.sampled_from([None, 49, 50, 51])))
others = st.builds(
    Facts,
    mutual_follow=st.booleans(),
    contact=st.booleans(),
    shares_room=st.booleans(),
    block=blocks,
    own_block=st.one_of(st.none(), st.builds(Block, times)),
    target=some_preferences(),
    viewer_shares=st.booleans(),
    invisible=st.booleans(),
)
presences = st.sampled_from(
    [
        Story().play(script).record
        for script in (
            "1s",
            "connect d1 as web, text tea, 1s",
            "connect d1, mode busy, 1m",
            "connect d1, mode invisible, 1m, act d1",
            "connect d1, 1m, bye d1",
            "connect d1, 1m, drop d1, 1s",
            "connect d1, mode invisible, 1m, bye d1",
        )
    ]
)


@given(others)
def test_for_every_viewer_and_target_a_named_visibility_rule_decides(facts):
    assert judge(facts).rule in [name for name, _ in RULES[2:]]


@given(others, presences)
def test_only_the_user_and_services_see_the_true_status_of_a_hidden_user(facts, presence):
    sight = judge(facts).scope
    assert sight.kind is not Kind.TRUTH
    if presence.hidden:
        assert seen(presence, sight, TODAY).status is Status.OFFLINE
        assert not may_hear_typing(presence, sight)


@given(others, presences, presences)
def test_the_view_of_a_blocking_or_hidden_user_is_the_same_whatever_the_user_does(facts, one, other):
    if facts.blocked or facts.target.visibility is Visibility.NOBODY:
        sight = judge(facts).scope
        assert seen(one, sight, TODAY) == seen(other, sight, TODAY)
        assert seen(one, sight, TODAY).status is Status.OFFLINE
        assert not may_hear_typing(one, sight)


@given(others)
def test_a_block_between_strangers_does_not_change_what_the_viewer_sees(facts):
    facts = replace(facts, mutual_follow=False, contact=False, shares_room=False)
    if facts.target.visibility is not Visibility.EVERYONE:
        alone = replace(facts, block=None, own_block=None)
        assert judge(facts).scope == judge(alone).scope == ViewScope.NONE


@given(others, presences)
def test_a_blocked_viewer_sees_exactly_what_a_sign_out_at_that_moment_would_show(facts, presence):
    """The viewer gets exactly the view of a user who signed out at that moment, in the usual shape."""
    unblocked = replace(facts, block=None, own_block=None)
    block = Block(last_seen_when_blocked(last_seen_if_gone(presence, T0 + 60 * M), None, facts.target))
    hidden = seen(presence, judge(replace(unblocked, block=block)).scope, TODAY)
    assert hidden == seen(presence, judge(replace(unblocked, own_block=block)).scope, TODAY)
    gone = altered(presence, sessions=(), status=Status.OFFLINE, since=None, custom=None, platforms=frozenset())
    gone = altered(gone, last_seen=last_seen_if_gone(presence, T0 + 60 * M))
    assert hidden == seen(gone, judge(unblocked).scope, TODAY)


@given(others, presences)
def test_visibility_nobody_shows_viewers_exactly_what_a_sign_out_would_show(facts, presence):
    shown = replace(facts.target, visibility=Visibility.CONTACTS, hidden_at=None, hidden_last_seen=None)
    facts = replace(facts, block=None, own_block=None, target=shown)
    gone_at = last_seen_if_gone(presence, T0 + 60 * M)
    hiding = edited(shown, PreferencesEdit(Visibility.NOBODY), T0 + 60 * M, gone_at)
    gone = altered(presence, sessions=(), status=Status.OFFLINE, since=None, custom=None, platforms=frozenset())
    gone = altered(gone, last_seen=gone_at)
    hidden = seen(presence, judge(replace(facts, target=hiding)).scope, TODAY)
    assert hidden == seen(gone, judge(facts).scope, TODAY)


@given(others)
def test_becoming_invisible_does_not_change_which_kind_of_view_a_viewer_gets(facts):
    """The record already says so; therefore views need not be evaluated again when a user becomes invisible."""
    seen_by_all, hidden = judge(replace(facts, invisible=False)), judge(replace(facts, invisible=True))
    assert seen_by_all.scope == hidden.scope


@given(others, presences)
def test_if_viewer_or_target_hides_last_seen_the_view_contains_no_times(facts, presence):
    if facts.blurred:
        view = seen(presence, judge(facts).scope, TODAY)
        assert (view.since, view.last_seen) == (None, None)


@given(others)
def test_a_block_in_addition_to_other_hiding_never_shows_the_viewer_more(facts):
    more = replace(facts, block=Block(5))
    if judge(facts).scope.kind in (Kind.NONE, Kind.FROZEN):
        assert judge(more).scope.kind in (Kind.NONE, Kind.FROZEN)


# --- Coming back

LATER = T0 + 90 * M


@table(
    "script, platforms",
    {
        "one device": ("connect d1 as web, 1m", ["web"]),
        "two devices": ("connect d1 as web, 1s, connect d2 as mobile, mode busy, 1m", ["web"]),
        "an idle device": ("connect d1 as web, 30m", ["web"]),
        "in grace": ("connect d1 as web, 1m, drop d1, 1s", ["web"]),
        "invisible before": ("connect d1 as web, 1s, connect d2 as mobile, mode invisible, 1m, mode auto, 1s", ["web"]),
    },
)
@pytest.mark.parametrize(
    "ended",
    [
        Facts(contact=True, target=replace(ENDED, shown_at=LATER)),
        Facts(contact=True, block=replace(LIFTED, lifted_at=LATER)),
    ],
)
def test_a_user_whose_hiding_ends_looks_as_if_arriving_then_on_one_device(script, platforms, ended):
    record = Story().play(script).record
    view = seen(record, judge(ended).scope)
    assert (view.status, view.since, view.custom) == (record.status, LATER, record.custom)
    assert [platform.word for platform in view.platforms] == platforms


def test_a_change_of_status_after_hiding_ended_is_shown_as_to_all_viewers():
    record = Story().play("connect d1 as web, 1s, connect d2 as mobile, 1m, mode busy, 1m").record
    assert record.since is not None
    ended = Facts(contact=True, block=replace(LIFTED, lifted_at=record.since - 1))
    assert seen(record, judge(ended).scope) == seen(record, ViewScope.FULL)


def test_the_end_of_invisibility_shows_one_platform_of_two():
    story = Story().play("connect d1 as web, 1s, connect d2 as mobile, mode busy, mode invisible, 1m, mode auto")
    assert [platform.word for platform in seen(story.record, ViewScope.FULL).platforms] == ["web"]


@pytest.mark.parametrize(
    "script", ["connect d1, 1m, bye d1", "connect d1, 1m, drop d1, 1h", "connect d1, 1m, mode invisible"]
)
def test_a_user_who_left_while_hidden_keeps_the_last_seen_from_before_when_hiding_ends(script):
    record = Story().play(script).record
    scope = judge(Facts(contact=True, block=Block(T0, LATER))).scope
    assert seen(record, scope) == View(since=T0, last_seen=T0)
    assert last_seen_if_shown(record, LATER) is None


def test_a_user_who_is_lost_just_after_hiding_ended_was_last_seen_when_it_ended():
    lost = Story().play("connect d1, 1m, drop d1, 1s").record
    block = Block(last_seen_when_lifted(T0, Preferences(), last_seen_if_shown(lost, LATER)), LATER)
    gone = Story().play("connect d1, 1m, drop d1, 1h").record
    assert seen(gone, judge(Facts(contact=True, block=block)).scope).last_seen == LATER


def test_a_block_lifted_while_the_visibility_is_nobody_keeps_its_last_seen():
    assert last_seen_when_lifted(30, NOBODY, LATER) == 30
    assert last_seen_when_lifted(30, Preferences(), LATER) == LATER
    assert last_seen_when_lifted(30, Preferences(), None) == 30


def test_a_second_block_after_a_lifted_one_keeps_the_last_seen_of_the_first_if_the_user_was_not_here_since():
    assert last_seen_when_blocked(55, LIFTED, Preferences()) == 30
    assert last_seen_when_blocked(61, LIFTED, Preferences()) == 61


# --- Reciprocity


def test_sharing_last_seen_again_lets_the_user_see_times_only_after_a_minute():
    hides = edited(Preferences(), PreferencesEdit(share_last_seen=False), 5, None)
    shares = edited(hides, PreferencesEdit(share_last_seen=True), 7, None)
    assert (hides.shared_at, shares.shared_at) == (None, 7)
    assert not shares.may_see_times(7 + SHARED_FOR - 1)
    assert shares.may_see_times(7 + SHARED_FOR)
    assert edited(shares, PreferencesEdit(share_last_seen=True), 9, None) == shares
    assert Preferences().may_see_times(0)
    assert not hides.may_see_times(7 + SHARED_FOR)


# --- Two ways of hiding at once

HERE = Story().play("connect d1, 1s").record
NOW = T0 + 60 * M


def test_a_second_block_keeps_the_last_seen_that_the_first_block_froze():
    assert last_seen_when_blocked(NOW, Block(30), Preferences()) == 30


def test_a_viewer_blocked_while_a_user_hid_still_sees_the_earlier_last_seen_when_the_hiding_ends():
    block = Block(last_seen_when_blocked(NOW, None, NOBODY))
    assert block == Block(40)
    assert judge(Facts(contact=True, block=block)).scope == frozen(40)


def test_blocked_strangers_who_become_friends_see_the_last_seen_of_the_time_of_the_block():
    block = Block(last_seen_when_blocked(last_seen_if_gone(HERE, NOW), None, Preferences()))
    assert judge(Facts(contact=True, block=block)).scope == frozen(NOW)


@table(
    "script, last_seen",
    {
        "never here": ("1s", None),
        "here": ("connect d1", NOW),
        "signed out": ("connect d1, 1m, bye d1", T0 + M),
        "in grace: the close": ("connect d1, 1m, drop d1, 10s", T0 + M),
        "invisible": ("connect d1, 1m, mode invisible, 1m, act d1", T0 + M),
    },
)
def test_a_user_who_hides_gets_the_last_seen_of_a_user_who_leaves_at_that_moment(script, last_seen):
    assert last_seen_if_gone(Story().play(script).record, NOW) == last_seen


@table(
    "before, visibility, after",
    {
        "to nobody": (
            Preferences(),
            Visibility.NOBODY,
            Preferences(Visibility.NOBODY, hidden_at=7, hidden_last_seen=5),
        ),
        "to nobody again": (NOBODY, Visibility.NOBODY, NOBODY),
        "from nobody": (NOBODY, Visibility.EVERYONE, replace(EVERYONE, shown_at=7, shown_last_seen=5)),
        "from nobody to nobody again, not seen in between": (
            Preferences(shown_at=6, shown_last_seen=3),
            Visibility.NOBODY,
            Preferences(Visibility.NOBODY, hidden_at=7, hidden_last_seen=3),
        ),
        "from nobody to nobody again, seen in between": (
            Preferences(shown_at=4, shown_last_seen=3),
            Visibility.NOBODY,
            Preferences(Visibility.NOBODY, hidden_at=7, hidden_last_seen=5),
        ),
        "everything else stays": (
            replace(NOBODY, public=True, share_last_seen=False),
            Visibility.CONTACTS,
            Preferences(public=True, share_last_seen=False, shown_at=7, shown_last_seen=5),
        ),
    },
)
def test_choosing_visibility_nobody_saves_the_time_of_hiding_and_any_other_choice_clears_it(before, visibility, after):
    assert edited(before, PreferencesEdit(visibility), 7, 5) == after


# --- Contents of a view scope

PRESENT = "connect d1 as web, text tea, 1s"


@table(
    "script, full, own",
    {
        "here": (PRESENT, "online", "online"),
        "hidden": (PRESENT + ", mode invisible", "offline", "online"),
        "gone": (PRESENT + ", bye d1", "offline", "offline"),
        "never here": ("1s", "offline", "offline"),
    },
)
def test_a_user_themselves_friends_and_strangers_each_see_the_right_fields_of_a_status(script, full, own):
    presence = Story().play(script).record
    assert seen(presence, ViewScope.FULL) == public(presence)
    assert seen(presence, ViewScope.FULL).status.word == status_in_public(presence).word == full
    assert seen(presence, ViewScope.TRUTH) == truth(presence)
    assert seen(presence, ViewScope.TRUTH).status.word == seen_by_oneself(presence).status.word == own
    assert seen(presence, ViewScope.NONE) == NOBODY_HERE == seen(Presence(), ViewScope.FULL)
    blurred = seen(presence, ViewScope.BLURRED, TODAY)
    assert (blurred.since, blurred.last_seen) == (None, None)
    assert (blurred.status, blurred.custom, blurred.platforms) == (
        public(presence).status,
        public(presence).custom,
        public(presence).platforms,
    )
    assert blurred.bucket == (Bucket.RECENTLY if public(presence).last_seen else None)


def test_the_view_of_an_offline_user_has_a_last_seen_time_but_no_text_and_no_platforms():
    for script in (PRESENT + ", bye d1", PRESENT + ", mode invisible", PRESENT + ", mode busy, drop d1, 1m"):
        view = Story().play(script).view
        assert (view.status, view.custom, view.platforms) == (Status.OFFLINE, None, ())
        assert view.since == view.last_seen is not None


@table(
    "sight, word",
    {
        "truth": (ViewScope.TRUTH, "truth"),
        "full": (ViewScope.FULL, "full"),
        "blurred": (ViewScope.BLURRED, "blurred"),
        "frozen": (frozen(1), "offline"),
        "none": (ViewScope.NONE, "offline"),
    },
)
def test_each_kind_of_view_of_a_user_such_as_full_or_blurred_has_its_documented_name(sight, word):
    assert sight.word == word


def test_an_approximate_last_seen_cannot_be_computed_without_the_current_day():
    with pytest.raises(ValueError, match="day"):
        seen(Presence(), ViewScope.BLURRED)


MIDNIGHT = 20_000 * DAY


@table(
    "ago, bucket",
    {
        "now": (0, Bucket.RECENTLY),
        "in the future, by another node's clock": (-5 * M, Bucket.RECENTLY),
        "three days": (3 * DAY, Bucket.RECENTLY),
        "more than three whole days": (3 * DAY + 1, Bucket.WITHIN_WEEK),
        "a week": (7 * DAY, Bucket.WITHIN_WEEK),
        "more than a week": (7 * DAY + 1, Bucket.WITHIN_MONTH),
        "a month": (30 * DAY, Bucket.WITHIN_MONTH),
        "more than a month": (30 * DAY + 1, Bucket.LONG_AGO),
        "ever": (MIDNIGHT, Bucket.LONG_AGO),
    },
)
def test_a_last_seen_time_is_shown_as_recently_within_week_within_month_or_long_ago(ago, bucket):
    assert bucket_of(MIDNIGHT - ago, day_of(MIDNIGHT)) is bucket


@given(st.integers(0, 40 * DAY), st.integers(0, DAY - 1), st.integers(0, DAY - 1))
def test_an_approximate_last_seen_depends_on_the_day_and_not_on_the_time_of_day(ago, one, other):
    """A viewer who watches a bucket change learns the day of the last seen, but not the time of day."""
    last_day = (MIDNIGHT - ago) // DAY * DAY
    today = day_of(MIDNIGHT)
    assert bucket_of(last_day + one, today) is bucket_of(last_day + other, today)


@table(
    "script, sight, hears",
    {
        "a friend": ("connect d1", ViewScope.FULL, True),
        "a friend who gets no times": ("connect d1", ViewScope.BLURRED, True),
        "a stranger": ("connect d1", ViewScope.NONE, False),
        "somebody blocked": ("connect d1", frozen(5), False),
        "of one who hides": ("connect d1, mode invisible", ViewScope.FULL, False),
        "of one who is shown again": ("connect d1, mode invisible, mode auto", ViewScope.FULL, True),
        "of one who is busy": ("connect d1, mode busy", ViewScope.FULL, True),
        "oneself needs no telling": ("connect d1", ViewScope.TRUTH, False),
    },
)
def test_typing_is_delivered_only_to_viewers_who_see_the_current_status_of_the_typist(script, sight, hears):
    assert may_hear_typing(Story().play(script).record, sight) is hears


@pytest.mark.parametrize("flags", list(product([False, True], repeat=3)))
def test_a_mutual_follow_a_contact_or_a_shared_room_lets_a_viewer_see_a_user(flags):
    mutual, contact, room = flags
    facts = Facts(mutual_follow=mutual, contact=contact, shares_room=room)
    assert facts.related is any(flags)
    assert (judge(facts).scope == ViewScope.FULL) is any(flags)
