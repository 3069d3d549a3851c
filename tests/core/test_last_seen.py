"""Last seen is the last sign of life that others may know: never the time of detection, and it never decreases."""

from tests.core.story import T0, M, S, Story, table


@table(
    "script, last_seen",
    {
        "H1 clean close: close time": ("connect d1, 10s, drop d1, 1m", 10 * S),
        "H1 lost socket: last evidence": ("connect d1, 10s, vanish d1, 5m", 10 * S),
        "H1 lost socket: a beat was evidence": ("connect d1, vanish d1, 40s, beat d1, 5m", 40 * S),
        "H1 sign-out: its time": ("connect d1, 10s, bye d1", 10 * S),
        "H1 signed out through another node": ("connect d1, 10s, sign-out d1 via n2", 10 * S),
        "H1 signed out in grace: the close": ("connect d1, 10s, drop d1, 5s, bye d1", 10 * S),
        "H1 node killed: its last renewal": ("connect d1 on n2, 10s, kill n2 for 3s, 10s, retire, 1m", 7 * S),
        "H1 node killed: the later of stamp and renewal": (
            "connect d1 on n2, 10s, act d1 on n2, 2s, kill n2 for 5s, 10s, retire, 1m",
            10 * S,
        ),
        "H1 by REST: the last beat": ("rest d1, 80s, rest d1, 5m", 80 * S),
        "H1 by REST, gone": ("rest d1, 10s, gone d1, 1m", 10 * S),
        "H1 node killed: a later REST beat of that device": (
            "connect d1 on n2, 10s, kill n2, 1s, rest d1 active, 10s, retire, 1m",
            11 * S,
        ),
        "H2 never seen": ("1h", None),
        "H2 never seen, but chose": ("mode busy, text tea, 1h, mode auto", None),
        "maximum over devices": ("connect d1, connect d2, 10s, drop d1, 10s, drop d2, 1m", 20 * S),
        "maximum over devices, found in the other order": (
            "connect d1, connect d2, vanish d2, 70s, drop d1, 5m",
            70 * S,
        ),
        "a device that came and went": ("connect d1, connect d2, drop d1, 1m, drop d2, 1m", 1 * M),
        "a return": ("connect d1, drop d1, 10s, connect d1, 10s, drop d1, 1m", 20 * S),
    },
)
def test_last_seen_is_the_last_sign_of_life(script, last_seen):
    story = Story().play(script)
    assert (story.status, story.last_seen) == ("offline", last_seen)
    assert story.since == last_seen, "offline since the last evidence"


@table(
    "script",
    {
        "online": ("connect d1",),
        "online again": ("connect d1, bye d1, 1m, connect d1",),
        "away": ("connect d1, 10m",),
        "busy": ("connect d1, mode busy",),
        "in grace": ("connect d1, drop d1, 29s",),
    },
)
def test_last_seen_is_null_unless_the_user_is_offline(script):
    assert Story().play(script).last_seen is None


@table(
    "script",
    {
        "an old socket is found dead": ("connect d1, 1s, vanish d1, 10s, connect d2, 10s, bye d2, 5m",),
        "a killed node's renewal": ("connect d1 on n2, 1s, kill n2, 10s, connect d2, 10s, bye d2, retire, 5m",),
        "hidden and shown": ("connect d1, mode invisible, 10s, mode auto, 11s, bye d1, 5m",),
    },
)
def test_last_seen_never_decreases(script):
    assert Story().play(script).last_seen == 21 * S


def test_last_seen_from_the_ledger_is_kept_until_the_next_sign_of_life():
    story = Story(start=Story().play("connect d1, 10s, bye d1").record)
    assert story.play("1h").last_seen == 10 * S
    assert story.play("connect d1, bye d1").last_seen == 3600 * S


CUT = "connect d1 on n2, cut n2, 10s, "


@table(
    "script",
    {
        "others do not know yet": (CUT + "10s, leaves d1 on n2, returns n2, 1m",),
        "it is in grace": (CUT + "retire, 10s, leaves d1 on n2, returns n2, 1m",),
        "it is gone": (CUT + "retire, 10s, leaves d1 on n2, 1m, returns n2",),
        "it is gone, and so are the others": (
            "connect d2, " + CUT + "retire, bye d2, 10s, leaves d1 on n2, 1m, returns n2",
        ),
        "who hid before": (
            "connect d1 on n2, mode invisible, mode auto, cut n2, 10s, retire, 10s, leaves d1 on n2, 1m, returns n2",
        ),
    },
)
def test_last_seen_of_a_user_who_leaves_a_node_wrongly_declared_dead_is_the_time_of_leaving(script):
    story = Story().play(script)
    assert (story.status, story.last_seen) == ("offline", 20 * S)


def test_a_disconnect_reported_late_beside_other_sessions_is_saved_as_last_seen_at_once():
    story = Story().play(CUT + "retire, connect d2, 10s, leaves d1 on n2, 1m, returns n2").saw("online")
    assert story.outcomes[-1].unsaved, "the ledger hears of it at once"
    assert story.record.last_seen == T0 + 20 * S


def test_a_disconnect_reported_late_does_not_restart_a_reconnect_window_in_progress():
    story = Story().play(CUT + "retire, 10s, leaves d1 on n2, returns n2, 20s-1ms").saw("online")
    story.play("1ms").saw("offline")


@table(
    "script, last_seen",
    {
        "hidden by then": (CUT + "retire, 5s, mode invisible, 5s, leaves d1 on n2, 1m, returns n2", 0),
        "hidden then, shown again": (
            CUT + "retire, 5s, mode invisible, 5s, leaves d1 on n2, 1m, mode auto, returns n2",
            0,
        ),
        "signed out before": (CUT + "sign-out d1, 10s, leaves d1 on n2, returns n2", 10 * S),
        "deleted": (CUT + "retire, 10s, leaves d1 on n2, 1m, deleted, returns n2", None),
        "deleted long after it was retired": (
            CUT + "retire, 10s, leaves d1 on n2, connect d2, 10m, act d2, 6m, deleted, returns n2",
            None,
        ),
    },
)
def test_a_disconnect_reported_late_does_not_reveal_when_a_hidden_or_deleted_user_left(script, last_seen):
    assert Story().play(script).last_seen == last_seen


def test_a_disconnect_reported_late_sets_no_last_seen_of_a_user_who_was_never_shown_online():
    story = Story(online_delay=30 * S).play(CUT + "retire, 10s, leaves d1 on n2, 1m, returns n2")
    assert story.last_seen is None


def test_declaring_a_node_dead_twice_does_not_restart_the_reconnect_window_of_its_users():
    story = Story().play("connect d1 on n2, 10s, kill n2, retire, 5s, retire, 25s-1ms").saw("online")
    story.play("1ms").saw("offline")


@table(
    "script, shown",
    {
        "E2 who does not return": ("connect d1 on n2, kill n2, 10s, retire, 30s", "online offline"),
        "E2 grace starts where the node was found dead": ("connect d1 on n2, kill n2, 10s, retire, 30s-1ms", "online"),
        "E2 who returns": ("connect d1 on n2, kill n2, 10s, retire, 10s, connect d1, 1m", "online"),
        "E2 who returned before": ("connect d1 on n2, kill n2, 5s, connect d1, 5s, retire, 1m", "online"),
        "E2 beside a living one": ("connect d1 on n2, connect d2, kill n2, 10s, retire, 1m", "online"),
        "E5 cut off for less than lease and grace": (
            "connect d1 on n2, cut n2, 10s, retire, 29s, returns n2, 1m",
            "online",
        ),
        "E5 longer": ("connect d1 on n2, cut n2, 10s, retire, 31s, returns n2, 1m", "online offline online"),
        "E5 marked, back before the sweep": ("connect d1 on n2, cut n2, 10s, returns n2, retire, 1m", "online"),
        "E5 idle all along": (
            "connect d1 on n2, idle d1 on n2, cut n2, 10s, retire, 31s, returns n2, 1m",
            "online away offline away",
        ),
    },
)
def test_users_of_a_dead_node_go_offline_unless_they_or_the_node_return(script, shown):
    Story().play(script).saw(shown)


def test_a_node_that_returns_under_a_new_run_id_keeps_the_sessions_of_its_open_sockets():
    story = Story(max_sessions=1).play("connect d1 on n2, cut n2, 10s, returns n2")
    assert [s.holder for s in story.record.sessions] == [story.nodes["n2"].epoch]
    assert not story.ended
