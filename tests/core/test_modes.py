"""Modes and texts are kept, end once at their own time, and never affect liveness."""

import pytest
from tests.core.story import T0, M, Story, table

from herenow.core.edits import set_custom, set_mode
from herenow.core.model import Custom, Mode
from herenow.core.settle import Timings, settle


@table(
    "script, shown",
    {
        "D1 busy, gone, back": ("mode busy, connect d1, drop d1, 1m, connect d1", "busy offline busy"),
        "D1 not over": ("mode busy for 1h, connect d1, drop d1, 59m, connect d1", "busy offline busy"),
        "D1 over": ("mode busy for 1h, connect d1, drop d1, 1h, connect d1", "busy offline online"),
        "D1 away by choice": ("mode away, connect d1, drop d1, 1m, connect d1", "away offline away"),
        "D2 a moment before": ("connect d1, mode busy for 4m, 4m-1ms", "online busy"),
        "D2 into online": ("connect d1, mode busy for 4m, 4m", "online busy online"),
        "D2 into away": ("connect d1, mode busy for 30m, 30m", "online busy away"),
        "D2 into away, which it was": ("connect d1, mode away for 30m, 30m", "online away"),
        "D2 away by choice into online": ("connect d1, mode away for 4m, 4m", "online away online"),
        "D2 exactly once": ("connect d1, mode busy for 4m, 4m, look, look, 30s", "online busy online"),
        "D2 activity meanwhile": ("connect d1, mode busy for 30m, 29m, act d1, 1m", "online busy online"),
        "D3 while offline": ("connect d1, mode busy for 1m, drop d1, 1h", "online busy offline"),
        "D3 right at the next connect": (
            "connect d1, mode busy for 1m, drop d1, 1h, connect d1",
            "online busy offline online",
        ),
        "D3 right at the next connect, nobody looked": (
            "connect d1, mode busy for 1m, drop d1, asleep 1h, connect d1",
            "online busy offline online",
        ),
        "D4 its node is dead": ("connect d2 on n2, connect d1, mode busy for 4m, kill n1, 4m", "online busy online"),
        "D4 overdue": ("connect d1, mode busy for 4m, asleep 4m, asleep 30s, look", "online busy online"),
        "prolonged": ("connect d1, mode busy for 1m, mode busy for 4m, 1m", "online busy"),
        "the end of one never clears its successor": (
            "connect d1, mode busy for 1m, mode away for 4m, 1m",
            "online busy away",
        ),
        "nor one without end": ("connect d1, mode busy for 1m, mode busy, 4m", "online busy"),
        "cleared early": ("connect d1, mode busy for 4m, 1m, mode auto, 3m", "online busy online"),
        "two ends at once": ("connect d1, mode busy for 4m, text x for 4m, 4m", "online busy busy online"),
    },
)
def test_a_mode_changes_the_status_that_viewers_see_until_the_mode_ends(script, shown):
    Story().play(script).saw(shown)


def test_a_mode_whose_end_is_processed_late_has_ended_at_its_own_time():
    story = Story().play("connect d1, mode busy for 4m, asleep 4m, asleep 10s, look").saw("online busy online")
    assert story.since == 4 * M


@table(
    "script, mode, text",
    {
        "D7 clearing the mode keeps the text": ("mode busy, text tea, mode auto", "auto", "tea"),
        "D7 clearing the text keeps the mode": ("mode busy, text tea, no-text", "busy", None),
        "D7 the mode ends, the text stays": ("mode busy for 1m, text tea, 1m", "auto", "tea"),
        "D7 the text ends, the mode stays": ("mode busy, text tea for 1m, 1m", "busy", None),
        "D7 a new text": ("text tea for 1m, text more-tea, 1m", "auto", "more-tea"),
    },
)
@pytest.mark.parametrize("before", ["", "connect d1,", "connect d1, drop d1,"], ids=["offline", "here", "in grace"])
def test_mode_and_custom_text_are_set_cleared_and_ended_independently(before, script, mode, text):
    story = Story().play(before + script)
    assert story.record.mode.word == mode
    assert (story.record.custom and story.record.custom.text) == text


@table(
    "script, shown",
    {
        "D8 a text wakes nobody": ("text tea, 1m", ""),
        "D8 nor an idle one": ("connect d1, 5m, text tea", "online away away"),
        "D8 it ends no grace": ("connect d1, drop d1, 20s, text tea, 10s", "online online offline"),
        "D8 nor prolongs one": ("connect d1, drop d1, 29s, text tea, 1s", "online online offline"),
        "D8 its end kills nobody": ("connect d1, text tea for 1m, 2m", "online online online"),
        "D8 it puts off no idleness": ("connect d1, 4m, text tea, 1m", "online online away"),
        "the same text again": ("connect d1, text tea, 1s, text tea", "online online"),
        "a text while busy": ("connect d1, mode busy, text tea", "online busy busy"),
        "a text while hidden": ("connect d1, mode invisible, text tea, no-text", "online offline"),
        "it ends while hidden": ("connect d1, text tea for 1m, mode invisible, 2m", "online online offline"),
    },
)
def test_a_custom_status_makes_no_user_online_active_or_offline(script, shown):
    Story().play(script).saw(shown)


def test_a_custom_text_does_not_change_since_when_a_user_has_their_status():
    assert Story().play("connect d1, 1m, text tea").since == 0


@table(
    "script, text",
    {
        "here": ("connect d1, text tea", "tea"),
        "set before": ("text tea, connect d1", "tea"),
        "offline: none beside offline": ("connect d1, text tea, bye d1", None),
        "back": ("connect d1, text tea, bye d1, connect d1", "tea"),
        "hidden": ("connect d1, text tea, mode invisible", None),
        "ended while offline": ("connect d1, text tea for 1m, bye d1, 2m, connect d1", None),
    },
)
def test_a_custom_text_is_shown_only_while_the_user_is_not_offline(script, text):
    custom = Story().play(script).view.custom
    assert (custom and custom.text) == text


@pytest.mark.parametrize("late", [0, 1, 1000])
def test_a_mode_or_custom_text_that_arrives_after_its_own_end_time_is_ignored(late):
    """It waited for the store; its end must not clear a later choice."""
    story = Story().play("connect d1, mode away, text tea")
    edits = [set_mode(Mode.BUSY, T0), set_custom(Custom("late", until=T0))]
    outcome = settle(story.record, T0 + late, Timings(), epoch=story.nodes["n1"].epoch, edits=edits)
    assert (outcome.presence.mode, outcome.presence.custom) == (Mode.AWAY, Custom("tea"))


def test_an_end_time_given_with_mode_auto_is_ignored():
    story = Story().play("mode auto for 1m")
    assert story.record.mode_until is None
    assert story.next_wake is None


@table(
    "script, chosen",
    {
        "nothing chosen": ("connect d1", 0),
        "a mode": ("1s, mode busy, 1s, connect d1", 1000),
        "a text": ("1s, text tea, 1s, connect d1", 1000),
        "its end": ("mode busy for 2s, 3s", 2000),
        "the same again": ("1s, mode busy, 1s, mode busy", 1000),
    },
)
def test_a_record_keeps_the_version_at_which_mode_or_text_was_last_chosen(script, chosen):
    story = Story().play(script)
    assert story.record.chosen == (T0 + chosen if chosen else 0)
