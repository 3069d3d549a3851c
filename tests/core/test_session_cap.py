"""C5: a cap on the sessions of one user. Sessions in grace are replaced first, oldest first; live ones stay."""

from tests.core.story import Story, table


@table(
    "script, devices, refused",
    {
        "C5 up to the cap": ("connect d1, connect d2, connect d3", "d1 d2 d3", ""),
        "C5 one too many": ("connect d1, connect d2, connect d3, connect d4", "d1 d2 d3", "d4"),
        "C5 on other nodes too": ("connect d1, connect d2 on n2, connect d3 on n2, connect d4 on n3", "d1 d2 d3", "d4"),
        "C5 by REST": ("connect d1, connect d2, connect d3, rest d4", "d1 d2 d3", "d4"),
        "C5 one in grace gives way": ("connect d1, connect d2, connect d3, drop d2, connect d4", "d1 d3 d4", ""),
        "C5 the oldest gives way": (
            "connect d1, connect d2, connect d3, drop d3, 1s, drop d1, 1s, connect d4",
            "d1 d2 d4",
            "",
        ),
        "C5 as many as needed": (
            "connect d1, connect d2, connect d3, drop d1, drop d2, connect d4, connect d5",
            "d3 d4 d5",
            "",
        ),
        "C5 the same device again": ("connect d1, connect d2, connect d3, connect d3", "d1 d2 d3", ""),
        "C5 back from grace": ("connect d1, connect d2, connect d3, drop d3, connect d3", "d1 d2 d3", ""),
        "C5 back from grace elsewhere": (
            "connect d1, connect d2, connect d3, drop d3, connect d3 on n2",
            "d1 d2 d3",
            "",
        ),
        "C5 a socket instead of REST": ("connect d1, connect d2, rest d3, connect d3", "d1 d2 d3", ""),
        "C5 a place is free again": (
            "connect d1, connect d2, connect d3, connect d4, bye d1, connect d4",
            "d2 d3 d4",
            "d4",
        ),
        "C5 under a new epoch": (
            "connect d1 on n2, connect d2 on n2, connect d3 on n2, cut n2, 10s, returns n2",
            "d1 d2 d3",
            "",
        ),
    },
)
def test_a_session_over_the_limit_replaces_one_in_its_reconnect_window_or_is_refused(script, devices, refused):
    story = Story(max_sessions=3).play(script)
    assert story.devices == devices
    assert " ".join(device for device, why in story.ended if why == "refused") == refused
    story.saw("online")


def test_a_session_that_replaces_one_in_its_reconnect_window_shows_viewers_no_change():
    story = Story(max_sessions=1).play("connect d1 as web, drop d1, 10s, connect d2 as web, 1m").saw("online")
    assert story.devices == "d2"


def test_a_user_may_have_fifty_sessions_by_default():
    story = Story()
    for number in range(51):
        story.connect(f"d{number}", on=f"n{1 + number % 3}")
    assert len(story.record.sessions) == 50
    assert story.ended == [("d50", "refused")]
