"""An invisible user looks exactly like a user who signed out at the moment of hiding, for as long as it lasts."""

import pytest
from tests.core.story import T0, M, S, Story, table

from herenow.core.model import own, truth
from herenow.core.visibility import ViewScope, seen

BEFORE = {
    "never here": "1s",
    "online": "connect d1 as web, 1m",
    "away": "connect d1, 10m",
    "busy": "connect d1, mode busy, 1m",
    "with a text": "connect d1, text tea, 1m",
    "two devices": "connect d1 as web, connect d2 as mobile, mode away, 1m",
    "one device in grace": "connect d1, connect d2, 1m, drop d2, 10s",
    "all in grace": "connect d1, 1m, drop d1, 10s",
    "half-open": "connect d1, 1m, vanish d1, 10s",
    "by REST": "rest d1, 1m",
    "left before": "connect d1, 1m, bye d1, 10s",
    "left long ago, back": "connect d1, bye d1, 10m, connect d1, 1m",
    "hidden once before": "connect d1, mode invisible, 1m, mode auto, 1m",
}
HIDDEN = {
    "nothing": "1m",
    "acting": "1m, act d1, user-acts",
    "falling idle": "1m, idle d1, 10m",
    "new devices": "1m, connect d3 as desktop, connect d4 on n2 as mobile, 10m",
    "leaving by sign-out": "1m, bye d1, bye d2",
    "leaving by drop": "1m, drop d1, drop d2, 1m",
    "leaving and coming back": "1m, bye d1, bye d2, 10s, connect d1, 1m, connect d2",
    "a text": "1m, text secret, 1m, no-text, text more for 1m, 2m",
    "invisible again": "1m, mode invisible, 1m, mode invisible for 1h, 1m",
    "found dead": "10m",
    "its node dies": "1m, kill n1, 10s, retire, 1m",
    "another idle_after": "1m, idle-after 30s, 1m, idle-after 1h",
    "REST beats": "1m, rest d5, 1m, rest d5 active, 1m, gone d5, 1m",
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN)
def test_a_hidden_user_looks_to_others_like_one_who_signed_out_at_the_moment_of_hiding(before, hidden):
    """G4, whatever the user does while hidden; no frame is sent."""
    signed_out = Story().play(before).play("bye-all")
    story = Story().play(before).play("mode invisible")
    assert story.view == signed_out.view
    shown = len(story.changes)
    assert shown == len(signed_out.changes), "the same number of frames"
    story.play(hidden)
    assert story.view == signed_out.view
    assert seen(story.record, ViewScope.FULL) == seen(signed_out.record, ViewScope.FULL)
    assert len(story.changes) == shown


@table(
    "script, truth",
    {
        "online": ("connect d1, mode invisible", "online"),
        "away": ("connect d1, mode invisible, 10m", "away"),
        "left": ("connect d1, mode invisible, bye d1", "offline"),
    },
)
def test_a_hidden_user_sees_their_own_true_status(script, truth):
    story = Story().play(script)
    assert story.truth == truth
    assert own(story.record).mode.word == "invisible"
    assert own(story.record).status.word == truth


def test_the_true_status_of_a_hidden_user_includes_custom_text_and_platforms():
    story = Story().play("connect d1 as web, text tea, mode invisible")
    view = truth(story.record)
    assert (view.status.word, view.custom and view.custom.text, view.last_seen) == ("online", "tea", None)
    assert [p.word for p in view.platforms] == ["web"]


@table(
    "script, shown, since",
    {
        "G5 shown again: one change, and it begins now": (
            "connect d1, 1m, mode invisible, 1m, mode auto, 1m",
            "online offline online",
            2 * M,
        ),
        "G5 into busy": ("connect d1, mode invisible, 1m, mode busy", "online offline busy", 1 * M),
        "G5 into away by choice": ("connect d1, mode invisible, 1m, mode away", "online offline away", 1 * M),
        "G5 at its end": ("connect d1, mode invisible for 1m, 2m", "online offline online", 1 * M),
        "G5 at its end, found late": (
            "connect d1, mode invisible for 1m, asleep 2m, look",
            "online offline online",
            1 * M,
        ),
        "G5 idle since it was hidden": (
            "connect d1, mode invisible, 1m, act d1, 10m, mode auto",
            "online offline away",
            11 * M,
        ),
        "G5 idle since hidden activity, falling due later": (
            "connect d1, mode invisible, 3m, act d1, 1m, mode auto, 5m",
            "online offline online away",
            4 * M,
        ),
        "G5 activity after that is nobody's secret": (
            "connect d1, mode invisible, 3m, mode auto, 1m, act d1, 5m",
            "online offline online away",
            4 * M,
        ),
        "arrived while hidden": ("mode invisible, connect d1, 1m, mode auto", "online", 1 * M),
        "shown while offline": ("connect d1, 1s, mode invisible, bye d1, 1m, mode auto", "online offline", 1 * S),
        "its end while offline": ("connect d1, 1s, mode invisible for 1m, bye d1, 2m", "online offline", 1 * S),
        "hidden, shown, hidden": (
            "connect d1, mode invisible, 1m, mode auto, 1m, mode invisible",
            "online offline online offline",
            2 * M,
        ),
        "shown in grace": ("connect d1, mode invisible, 1m, drop d1, 10s, mode auto", "online offline online", 70 * S),
    },
)
def test_a_hidden_user_who_becomes_visible_again_is_announced_with_a_single_change(script, shown, since):
    story = Story().play(script)
    story.saw(shown)
    assert story.since == since


@table(
    "script, last_seen",
    {
        "G5 hidden activity": ("connect d1, 1m, mode invisible, 1m, act d1, bye d1, 1m, mode auto", 1 * M),
        "G5 a hidden visit": ("connect d1, bye d1, mode invisible, 1m, connect d1, 1m, drop d1, 1m, mode auto", 0),
        "G5 a hidden first visit": ("mode invisible, connect d1, 1m, bye d1, mode auto", None),
        "G5 last evidence was hidden: seen when shown": (
            "connect d1, mode invisible for 1m, 30s, vanish d1, 10m",
            1 * M,
        ),
        "G5 lost while hidden, shown in grace": (
            "connect d1, 1s, mode invisible, 1m, drop d1, 10s, mode auto, 1m",
            1 * S,
        ),
        "G5 and hidden again in grace": (
            "connect d1, 1s, mode invisible, 1m, drop d1, 10s, mode auto, 5s, mode invisible",
            1 * S,
        ),
        "hidden in grace: the close": ("connect d1, 10s, drop d1, 10s, mode invisible", 10 * S),
        "hidden while half-open: the moment of hiding": ("connect d1, vanish d1, 10s, mode invisible, 1h", 10 * S),
        "visible evidence after it": ("connect d1, mode invisible, 1m, mode auto, 1m, drop d1, 1m", 2 * M),
    },
)
def test_activity_of_a_hidden_user_never_changes_their_last_seen(script, last_seen):
    assert Story().play(script).last_seen == last_seen


def test_becoming_invisible_is_published_to_own_devices_and_flagged_for_saving_to_the_ledger():
    story = Story().play("connect d1")
    story.play("1s, mode invisible")
    assert (story.outcomes[-1].news, story.outcomes[-1].unsaved) == (True, True)
    assert story.record.last_seen == T0 + 1 * S
    assert story.record.chosen == story.record.version
