"""The explanation of a status always agrees with the status."""

from tests.core.story import T0, M, S, Story, table

from herenow.core.explain import explained


@table(
    "script, status, because, device",
    {
        "never here": ("1s", "offline", "no_session", None),
        "active": ("connect d1", "online", "active", "d1"),
        "the active one of two": ("connect d1, connect d2, idle d2", "online", "active", "d1"),
        "idle": ("connect d1, 10m", "away", "idle", "d1"),
        "said to be idle": ("connect d1, idle d1", "away", "idle", "d1"),
        "busy": ("connect d1, mode busy", "busy", "mode", None),
        "away by choice": ("connect d1, mode away", "away", "mode", None),
        "invisible, and truly online": ("connect d1, mode invisible", "online", "active", "d1"),
        "in grace": ("connect d1, 1s, drop d1, 5s", "online", "all_in_grace", "d1"),
        "busy in grace": ("connect d1, mode busy, drop d1, 5s", "busy", "all_in_grace", "d1"),
        "signed out": ("connect d1, bye d1", "offline", "no_session", None),
    },
)
def test_the_explanation_of_a_status_names_its_reason(script, status, because, device):
    story = Story().play(script)
    found = explained(story.record, story.timings)
    assert (found.status.word, found.because, found.device) == (status, because, device)


def test_the_explanation_of_a_status_lists_sessions_mode_and_next_timer():
    story = Story().play("connect d1 as web, rest d2, 1m, drop d1, 5s, mode invisible for 1h")
    found = explained(story.record, story.timings)
    assert found.hidden
    assert found.mode_until == T0 + M + 5 * S + 60 * M
    assert found.look_at is not None
    by_device = {each.device: each for each in found.sessions}
    assert (by_device["d1"].state, by_device["d1"].by, by_device["d1"].platform) == ("grace", "socket", "web")
    assert (by_device["d2"].state, by_device["d2"].by, by_device["d2"].lost_at) == ("live", "rest", None)
