"""`online_delay`: a user who leaves before it has passed is never shown."""

from tests.core.story import M, S, Story, table

from herenow.core.visibility import ViewScope, may_hear_typing, seen

DELAY = 5 * S


@table(
    "script, shown, last_seen",
    {
        "B9 not yet": ("connect d1, 5s-1ms", "", None),
        "B9 shown": ("connect d1, 5s", "online", None),
        "B9 found late": ("connect d1, asleep 1m, look", "online", None),
        "B9 leaves after 3 s": ("connect d1, 3s, drop d1, 1m", "", None),
        "B9 signs out after 3 s": ("connect d1, 3s, bye d1, 1m", "", None),
        "B9 is found dead": ("rest d1, gone d1, 1m", "", None),
        "B9 its node dies": ("connect d1 on n2, kill n2, 1s, retire, 1m", "", None),
        "B9 it had been here before": (
            "connect d1, 10s, bye d1, 1m, connect d1, 3s, bye d1, 1m",
            "online offline",
            10 * S,
        ),
        "gone and back in its grace: from the start": ("connect d1, 3s, drop d1, 1s, connect d1, 5s-1ms", "", None),
        "gone and back, long enough": ("connect d1, 3s, drop d1, 1s, connect d1, 5s", "online", None),
        "another device instead": ("connect d1, 3s, bye d1, connect d2, 5s-1ms", "", None),
        "a second device beside it": ("connect d1, 3s, connect d2, 2s", "online", None),
        "a return within grace is no arrival": ("connect d1, 10s, drop d1, 10s, connect d1, 1s", "online", None),
        "a second device is no arrival": ("connect d1, 10s, connect d2, 1s, bye d1, 1s", "online", None),
        "busy from the first": ("mode busy, connect d1, 5s", "busy", None),
        "invisible meanwhile": ("connect d1, 1s, mode invisible, 10s, mode auto", "online", None),
        "invisible and back before it is over": ("connect d1, 1s, mode invisible, 1s, mode auto, 3s-1ms", "", None),
        "a text meanwhile": ("connect d1, text tea, 1s, no-text, 1s, bye d1", "", None),
    },
)
def test_a_user_who_connects_is_shown_after_the_online_delay_and_never_if_they_leave_before(script, shown, last_seen):
    story = Story(online_delay=DELAY).play(script)
    story.saw(shown)
    assert story.last_seen == last_seen


def test_until_the_online_delay_ends_a_connected_user_looks_like_an_unknown_user():
    story = Story(online_delay=DELAY).play("connect d1 as web, text tea, 4s")
    stranger = Story()
    assert story.view == stranger.view == seen(story.record, ViewScope.FULL)
    assert not may_hear_typing(story.record, ViewScope.FULL)
    assert story.truth == "online"
    story.play("1s")
    assert (story.platforms, may_hear_typing(story.record, ViewScope.FULL)) == ("web", True)


def test_a_user_shown_after_the_online_delay_has_the_platforms_of_all_devices_connected_by_then():
    story = Story(online_delay=DELAY).play("connect d1 as web, connect d2 as mobile, 5s")
    assert story.platforms == "web mobile"


def test_a_session_that_replaces_one_in_its_reconnect_window_is_shown_without_an_online_delay():
    """A session in grace is replaced by another device: the user was already online."""
    story = Story(online_delay=DELAY, max_sessions=1).play("connect d1, 1m, drop d1, 10s, connect d2, 1s")
    story.saw("online")
    assert story.since == 0


def test_a_user_idle_before_the_online_delay_ends_is_first_shown_as_away():
    story = Story(online_delay=DELAY, idle_after=2 * S).play("connect d1, 1m").saw("away")
    assert story.next_wake is None
    assert story.time == 1 * M
