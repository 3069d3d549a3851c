"""Who may see what of whom: the rules in their order, and the one projection behind every exit."""

from itertools import product

import pytest
from tests.core.story import Story, table

from herenow.core.model import NOBODY_HERE, Presence, Status, public, truth
from herenow.core.visibility import RULES, Facts, Sight, judge, may_hear_typing, seen


@table(
    "facts, sight, rule",
    {
        "strangers": (Facts(), Sight.NONE, "not_related"),
        "related": (Facts(related=True), Sight.FULL, "contacts"),
        "oneself": (Facts(same_user=True), Sight.TRUTH, "self"),
        "oneself, related by mistake": (Facts(same_user=True, related=True), Sight.TRUTH, "self"),
        "a service": (Facts(service=True), Sight.TRUTH, "service"),
        "a service that is related": (Facts(service=True, related=True), Sight.TRUTH, "service"),
    },
)
def test_the_first_rule_that_applies_decides(facts, sight, rule):
    verdict = judge(facts)
    assert (verdict.sight, verdict.rule) == (sight, rule)


@pytest.mark.parametrize("values", list(product([False, True], repeat=3)))
def test_every_pair_gets_a_verdict_by_a_rule_with_a_name(values):
    assert judge(Facts(*values)).rule in [name for name, _ in RULES]


HERE = "connect d1 as web, text tea, 1s"


@table(
    "script, full, own",
    {
        "here": (HERE, "online", "online"),
        "hidden": (HERE + ", mode invisible", "offline", "online"),
        "gone": (HERE + ", bye d1", "offline", "offline"),
        "never here": ("1s", "offline", "offline"),
    },
)
def test_what_each_sight_shows(script, full, own):
    presence = Story().play(script).record
    assert seen(presence, Sight.FULL) == public(presence)
    assert seen(presence, Sight.FULL).status.word == full
    assert seen(presence, Sight.TRUTH) == truth(presence)
    assert seen(presence, Sight.TRUTH).status.word == own
    assert seen(presence, Sight.NONE) == NOBODY_HERE == seen(Presence(), Sight.FULL)


def test_an_offline_view_says_nothing_but_when():
    for script in (HERE + ", bye d1", HERE + ", mode invisible", HERE + ", mode busy, drop d1, 1m"):
        view = Story().play(script).view
        assert (view.status, view.custom, view.platforms) == (Status.OFFLINE, None, ())
        assert view.since == view.last_seen is not None


@table(
    "script, sight, hears",
    {
        "a friend": ("connect d1", Sight.FULL, True),
        "a stranger": ("connect d1", Sight.NONE, False),
        "of one who hides": ("connect d1, mode invisible", Sight.FULL, False),
        "of one who is shown again": ("connect d1, mode invisible, mode auto", Sight.FULL, True),
        "of one who is busy": ("connect d1, mode busy", Sight.FULL, True),
        "oneself needs no telling": ("connect d1", Sight.TRUTH, False),
    },
)
def test_who_hears_typing(script, sight, hears):
    assert may_hear_typing(Story().play(script).record, sight) is hears
