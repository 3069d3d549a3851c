"""Mode and custom status come from sources: the highest counts, its end reveals the next, and none erases another."""

from itertools import pairwise

import pytest
from tests.core.story import T0, H, M, S, Story, table

from herenow.core.edits import restore_choices, set_mode
from herenow.core.explain import explained
from herenow.core.model import Custom, Mode, Presence, Source, Sourced, own
from herenow.core.settle import Timings, droppable, settle
from herenow.core.sources import as_shown, choice_of, choices
from herenow.core.values import replace

ORDER = ["user", "call", "service", "calendar", "schedule"]


def word(source: Source | None) -> str | None:
    return None if source is None else source.word


def test_sources_of_a_status_rank_user_call_service_calendar_schedule():
    assert [source.word for source in sorted(Source)] == ORDER


@pytest.mark.parametrize(("higher", "lower"), list(pairwise(ORDER)))
@pytest.mark.parametrize("lower_first", [True, False], ids=["lower first", "higher first"])
def test_of_modes_set_by_user_call_service_calendar_and_schedule_the_highest_ranked_is_shown(
    higher, lower, lower_first
):
    steps = [f"mode away by {lower}, text low by {lower}", f"mode busy by {higher}, text high by {higher}"]
    story = Story().play("connect d1").play(", ".join(steps if lower_first else reversed(steps)))
    view = own(story.record)
    assert (view.status.word, view.mode.word, view.custom) == ("busy", "busy", Custom("high"))
    assert (word(view.mode_source), word(view.custom_source)) == (higher, higher)
    story.play(f"mode auto by {higher}, no-text by {higher}")
    view = own(story.record)
    assert (view.status.word, view.mode.word, view.custom) == ("away", "away", Custom("low"))
    assert (word(view.mode_source), word(view.custom_source)) == (lower, lower)


@table(
    "script, shown",
    {
        "a service while the user chose": ("connect d1, mode away, 1s, mode busy by service", "online away"),
        "the user clears": ("connect d1, mode away, mode busy by service, mode auto", "online away busy"),
        "auto is no choice": ("connect d1, mode busy by service, mode auto", "online busy"),
        "auto of a service is none either": ("connect d1, mode busy by calendar, mode auto by call", "online busy"),
        "the end of the user's own": (
            "connect d1, mode busy by calendar, mode away for 1m, 2m",
            "online busy away busy",
        ),
        "the end of a call": (
            "connect d1, mode away by calendar, mode busy by call for 1m, 2m",
            "online away busy away",
        ),
        "the end of the last": ("connect d1, mode busy by call for 1m, 2m", "online busy online"),
        "one after the other": (
            "connect d1, mode busy by calendar for 3m, mode away by call for 2m, mode busy for 1m, 4m",
            "online busy away busy away busy online",
        ),
        "the next one is the same": ("connect d1, mode busy by calendar, mode busy for 1m, 2m", "online busy"),
        "two ends at once": (
            "connect d1, mode busy by call for 1m, mode away by calendar for 1m, 2m",
            "online busy online",
        ),
        "its node is dead": (
            "connect d2 on n2, connect d1, mode busy by call for 4m, kill n1, 4m",
            "online busy online",
        ),
        "overdue": ("connect d1, mode busy by call for 4m, asleep 4m, asleep 30s, look", "online busy online"),
        "exactly once": ("connect d1, mode busy by call for 4m, 4m, look, look, 30s", "online busy online"),
        "while offline": ("connect d1, bye d1, mode busy by call for 1m, 2m, connect d1", "online offline online"),
        "prolonged": ("connect d1, mode busy by call for 1m, mode busy by call for 4m, 2m", "online busy"),
    },
)
def test_when_a_mode_set_by_a_call_ends_the_mode_set_by_the_calendar_is_shown(script, shown):
    Story().play(script).saw(shown)


@table(
    "script, mode, text",
    {
        "one source each": ("mode busy by call, text tea by schedule", "call", "schedule"),
        "the mode of one, the text of another": ("mode busy by call, text a by call, text b", "call", "user"),
        "the mode ends, the text stays": ("mode busy by call for 1m, text a by call, 1m", None, "call"),
        "the text ends, the mode stays": ("mode busy by call, text a by call for 1m, 1m", "call", None),
        "the user clears the text": ("text a by call, text b, no-text", None, "call"),
        "nothing": ("1s", None, None),
    },
)
@pytest.mark.parametrize("before", ["", "connect d1,", "connect d1, drop d1,"], ids=["offline", "here", "in grace"])
def test_mode_and_custom_text_of_a_user_may_be_set_by_different_sources_such_as_call_and_schedule(
    before, script, mode, text
):
    record = Story().play(before + script).record
    assert (word(record.mode_source), word(record.custom_source)) == (mode, text)


def test_a_mode_set_by_a_call_whose_end_is_processed_late_has_ended_at_its_own_time():
    story = Story().play("connect d1, mode away by calendar, mode busy by call for 4m, asleep 10m, look")
    assert (story.status, story.since) == ("away", 4 * M)


def test_mode_and_text_set_by_a_calendar_end_on_time_even_while_the_users_own_mode_is_shown():
    story = Story().play("connect d1, mode busy, mode away by calendar for 2m, text tea by calendar for 3m")
    assert story.next_wake == 2 * M
    story.play("2m")
    assert choices(story.record) == (
        Sourced(Source.USER, Mode.BUSY),
        Sourced(Source.CALENDAR, custom=Custom("tea", until=T0 + 3 * M), gives_custom=True),
    )
    story.play("1m")
    assert story.record.sources == ()


def test_setting_the_same_mode_of_a_call_again_does_not_change_the_record():
    story = Story().play("connect d1, mode busy by call for 1h, text tea by call")
    commits, chosen = story.commits, story.record.chosen
    outcome = settle(story.record, T0, Timings(), edits=[set_mode(Mode.BUSY, T0 + H, Source.CALL)], held=())
    assert outcome.presence is story.record
    assert (story.commits, story.record.chosen) == (commits, chosen)


def test_a_mode_set_by_a_call_that_arrives_after_its_own_end_time_is_ignored():
    story = Story().play("connect d1, mode away by call")
    outcome = settle(story.record, T0 + S, Timings(), edits=[set_mode(Mode.BUSY, T0, Source.CALL)])
    assert choice_of(outcome.presence, Source.CALL).mode is Mode.AWAY


@table(
    "script, chosen",
    {
        "a mode": ("1s, mode busy by call, 1s, connect d1", 1000),
        "one that does not count": ("mode busy, 1s, mode away by calendar", 1000),
        "the end of one that does not count": ("mode busy, mode away by calendar for 2s, 3s", 2000),
    },
)
def test_every_mode_change_by_a_service_gives_the_saved_modes_of_a_user_a_higher_version(script, chosen):
    assert Story().play(script).record.chosen == T0 + chosen


@table(
    "script",
    {
        "a source": ("mode busy by call",),
        "a text": ("text tea by schedule",),
        "a source below the user's own": ("mode busy, mode away by call",),
    },
)
def test_a_record_with_a_mode_or_text_set_by_a_service_is_kept_in_the_store(script):
    story = Story().play(script)
    assert not droppable(replace(story.record, mode=Mode.AUTO, custom=None))
    for source in ORDER:
        story.play(f"mode auto by {source}, no-text by {source}")
    assert droppable(story.record)


def test_deleting_a_user_removes_modes_and_texts_set_by_services():
    story = Story().play("connect d1, mode busy by call, text tea by schedule, deleted")
    assert choices(story.record) == ()


# Hiding


@table(
    "script, shown, since",
    {
        "a service hides": ("connect d1, 1m, mode invisible by service, 1m", "online offline", 1 * M),
        "it ends": ("connect d1, 1m, mode invisible by service for 1m, 2m", "online offline online", 2 * M),
        "it is cleared": (
            "connect d1, 1m, mode invisible by service, 1m, mode auto by service",
            "online offline online",
            2 * M,
        ),
        "the user's own choice shows the user": (
            "connect d1, mode invisible by service, 1m, mode busy",
            "online offline busy",
            1 * M,
        ),
        "and its end hides again": (
            "connect d1, mode invisible by service, 1m, mode busy for 1m, 2m",
            "online offline busy offline",
            2 * M,
        ),
        "no service shows a user who hides": (
            "connect d1, 1m, mode invisible, 1m, mode busy by call",
            "online offline",
            1 * M,
        ),
        "hidden by one, then by the next": (
            "connect d1, 1m, mode invisible by calendar, 1m, mode invisible for 1m, 2m",
            "online offline",
            1 * M,
        ),
    },
)
def test_mode_invisible_set_by_a_service_hides_the_user_like_the_users_own_choice(script, shown, since):
    story = Story().play(script).saw(shown)
    assert story.since == since


def test_activity_of_a_user_whom_a_calendar_made_invisible_never_changes_last_seen():
    story = Story().play(
        "connect d1, 1m, mode invisible by calendar, 1m, act d1, 1m, drop d1, 1m, mode auto by calendar"
    )
    assert (story.status, story.last_seen) == ("offline", 1 * M)


def test_a_user_who_becomes_invisible_when_a_timed_mode_ends_was_last_seen_at_that_end():
    story = Story().play("connect d1, mode invisible by schedule, mode busy for 1m, asleep 5m, look")
    assert (story.status, story.last_seen) == ("offline", 1 * M)


# Nodes without sources


def old_node(record: Presence, **changes: object) -> Presence:
    """A node of a version without sources changes mode and text, and keeps the sources as they are."""
    return replace(record, version=record.version + 1, **changes)


@table(
    "script, changes, status, source",
    {
        "the user chose there": ("mode busy by call", {"mode": Mode.AWAY}, "away", "user"),
        "the user chose auto there": ("mode away, mode busy by call", {"mode": Mode.AUTO}, "busy", "call"),
        "the user cleared a source's mode there": ("mode busy by call", {"mode": Mode.AUTO}, "busy", "call"),
        "a source that counted ended there": (
            "mode away by calendar, mode busy by call for 1s, asleep 2s",
            {"mode": Mode.AUTO, "mode_until": None},
            "away",
            "calendar",
        ),
    },
)
def test_after_a_write_by_an_older_release_the_mode_of_the_highest_ranked_source_counts(
    script, changes, status, source
):
    story = Story().play("connect d1").play(script)
    story.record = old_node(story.record, **changes)
    story.play("look")
    assert (story.status, word(story.record.mode_source)) == (status, source)


def test_after_a_write_by_an_older_release_the_text_of_the_highest_ranked_source_counts():
    story = Story().play("connect d1, text tea by call, text late by schedule")
    story.record = old_node(story.record, custom=Custom("mine"))
    story.play("look")
    assert (story.record.custom, word(story.record.custom_source)) == (Custom("mine"), "user")
    story.play("no-text")
    assert (story.record.custom, word(story.record.custom_source)) == (Custom("tea"), "call")


# Choices that the store has lost


@table(
    "lost, mode, sources",
    {
        "sources": ("mode busy by call, mode away by calendar", "busy", ["call", "calendar"]),
        "the user's own above": ("mode away, mode busy by call", "away", ["user", "call"]),
        "one that has ended": ("mode busy by call for 1m, mode away by calendar", "away", ["calendar"]),
        "the user's own that has ended": ("mode away for 1m, mode busy by call", "busy", ["call"]),
        "none": ("mode auto", "auto", []),
    },
)
@pytest.mark.parametrize("kept", ["1s", "mode invisible", "mode invisible by schedule"])
def test_modes_that_the_store_lost_are_restored_together_with_who_set_them(kept, lost, mode, sources):
    newer = Story().play(lost).record
    story = Story().play("connect d1").play(kept).play("2m")
    story.settle(story.nodes["n1"], restore_choices(newer))
    assert story.record.mode.word == mode
    assert [choice.source.word for choice in choices(story.record)] == sources


# Choices that the ledger has and the store lacks


@table(
    "record, newer, mode",
    {
        "later": ("mode away", "5s, mode busy", "busy"),
        "earlier": ("5s, mode away", "mode busy", "away"),
        "later, cleared": ("mode away", "mode busy, 5s, mode auto", "auto"),
        "an older mode that ended meanwhile": ("mode away for 7s", "5s, mode busy", "busy"),
        "later, ended": ("mode away", "5s, mode busy for 1s", "auto"),
    },
)
def test_of_the_modes_in_the_record_and_in_the_ledger_the_one_with_the_higher_version_counts(record, newer, mode):
    newer = Story().play(newer).record
    record = Story().play("connect d1").play(record).record
    now = T0 + 10_000
    assert as_shown(record, newer, now).mode.word == mode
    outcome = settle(record, now, Timings(), newer=newer)
    while outcome.more:
        outcome = settle(outcome.presence, now, Timings(), newer=newer)
    assert outcome.presence.mode.word == mode


def test_a_mode_from_the_ledger_keeps_its_version_and_hides_from_its_own_time_on():
    newer = Story().play("5s, mode invisible").record
    record = Story().play("connect d1").record
    after = settle(record, T0 + 60_000, Timings(), newer=newer).presence
    assert (after.chosen, after.last_seen) == (T0 + 5_000, T0 + 5_000)
    assert as_shown(record, newer, T0 + 6_000).last_seen == T0 + 5_000


def test_an_edit_after_a_mode_from_the_ledger_gets_a_version_of_its_own():
    newer = Story().play("5s, text tea").record
    now = T0 + 60_000
    after = settle(Presence(), now, Timings(), newer=newer, edits=[set_mode(Mode.BUSY, None)]).presence
    assert (after.mode, after.custom, after.chosen) == (Mode.BUSY, Custom("tea"), now)


def test_a_mode_from_before_the_deletion_of_the_user_is_not_shown():
    newer = Story().play("5s, mode busy").record
    record = Presence(erased_at=T0 + 6_000)
    assert as_shown(record, newer, T0 + 9_000) is record


# Explain


def test_the_explanation_of_a_status_names_who_set_the_mode_and_who_set_the_custom_text():
    story = Story().play("connect d1, mode busy by call for 1h, text tea, mode away by calendar")
    found = explained(story.record, story.timings)
    assert (found.because, word(found.mode_source), word(found.custom_source)) == ("mode", "call", "user")
    assert found.custom == Custom("tea")
    assert [(each.source.word, each.mode.word) for each in found.choices] == [
        ("user", "auto"),
        ("call", "busy"),
        ("calendar", "away"),
    ]
