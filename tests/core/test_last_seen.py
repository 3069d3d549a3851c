"""Last seen is the last evidence of life that others may know: never a moment of detection, never earlier than before."""

from tests.core.story import M, S, Story, table


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
def test_last_seen(script, last_seen):
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
def test_last_seen_is_null_beside_any_other_status(script):
    assert Story().play(script).last_seen is None


@table(
    "script",
    {
        "an old socket is found dead": ("connect d1, 1s, vanish d1, 10s, connect d2, 10s, bye d2, 5m",),
        "a killed node's renewal": (
            "connect d1 on n2, 1s, kill n2, 10s, connect d2, 10s, bye d2, retire, 5m",
        ),
        "hidden and shown": ("connect d1, mode invisible, 10s, mode auto, 11s, bye d1, 5m",),
    },
)
def test_last_seen_never_goes_back(script):
    assert Story().play(script).last_seen == 21 * S


def test_an_old_last_seen_from_the_ledger_is_kept_until_the_next_evidence():
    story = Story(start=Story().play("connect d1, 10s, bye d1").record)
    assert story.play("1h").last_seen == 10 * S
    assert story.play("connect d1, bye d1").last_seen == 3600 * S


def test_a_sweep_never_restarts_a_running_grace():
    story = Story().play("connect d1 on n2, 10s, kill n2, retire, 5s, retire, 25s-1ms").saw("online")
    story.play("1ms").saw("offline")


@table(
    "script, shown",
    {
        "E2 who does not return": ("connect d1 on n2, kill n2, 10s, retire, 30s", "online offline"),
        "E2 grace starts where the node was found dead": (
            "connect d1 on n2, kill n2, 10s, retire, 30s-1ms",
            "online",
        ),
        "E2 who returns": ("connect d1 on n2, kill n2, 10s, retire, 10s, connect d1, 1m", "online"),
        "E2 who returned before": ("connect d1 on n2, kill n2, 5s, connect d1, 5s, retire, 1m", "online"),
        "E2 beside a living one": ("connect d1 on n2, connect d2, kill n2, 10s, retire, 1m", "online"),
        "E5 cut off for less than lease and grace": (
            "connect d1 on n2, cut n2, 10s, retire, 29s, returns n2, 1m",
            "online",
        ),
        "E5 longer": ("connect d1 on n2, cut n2, 10s, retire, 31s, returns n2, 1m", "online offline online"),
        "E5 marked, back before the sweep": (
            "connect d1 on n2, cut n2, 10s, returns n2, retire, 1m",
            "online",
        ),
        "E5 idle all along": (
            "connect d1 on n2, idle d1 on n2, cut n2, 10s, retire, 31s, returns n2, 1m",
            "online away offline away",
        ),
    },
)
def test_nodes_that_die_or_come_back(script, shown):
    Story().play(script).saw(shown)


def test_the_same_sockets_under_a_new_epoch_are_the_same_sessions():
    story = Story(max_sessions=1).play("connect d1 on n2, cut n2, 10s, returns n2")
    assert [s.holder for s in story.record.sessions] == [story.nodes["n2"].epoch]
    assert not story.ended
