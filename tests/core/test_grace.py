"""Online at once, offline late: what a loss, a return and a late close show, and when."""

from dataclasses import replace

from tests.core.story import T0, H, M, S, Story, table


@table(
    "script, shown",
    {
        "B1 back on the same node": ("connect d1, 1m, drop d1, 10s, connect d1, 1m", "online"),
        "B1 back on another node": ("connect d1, 1m, drop d1, 10s, connect d1 on n2, 1m", "online"),
        "B1 back by REST": ("connect d1, 1m, drop d1, 10s, rest d1, 1m", "online"),
        "B1 back as busy": ("mode busy, connect d1, 1m, drop d1, 10s, connect d1, 1m", "busy"),
        "B1 back as away": ("connect d1, idle d1, 1m, drop d1, 10s, connect d1, 1m", "online away"),
        "B2 1 ms before the end": ("connect d1, drop d1, 30s-1ms, connect d1", "online"),
        "B2 at the end": ("connect d1, drop d1, 30s, connect d1", "online offline online"),
        "B2 1 ms after the end": ("connect d1, drop d1, 30s, 1ms, connect d1", "online offline online"),
        "B2 before the end, nobody looked": ("connect d1, drop d1, asleep 30s-1ms, connect d1", "online"),
        "B2 after the end, nobody looked": ("connect d1, drop d1, asleep 1m, connect d1", "online offline online"),
        "B4 only the second grace fires": ("connect d1, drop d1, 20s, connect d1, 1s, drop d1, 30s-1ms", "online"),
        "B4 and it does": ("connect d1, drop d1, 20s, connect d1, 1s, drop d1, 30s", "online offline"),
        "B4 the grace of a return elsewhere": (
            "connect d1, drop d1, 20s, connect d1 on n2, 1s, drop d1 on n2, 29s",
            "online",
        ),
        "B5 back within grace, idle meanwhile": ("connect d1, 5m-1s, drop d1, 10s, connect d1", "online away"),
        "B5 back within grace on another node": ("connect d1, 5m-1s, drop d1, 10s, connect d1 on n2", "online away"),
        "B5 back after a mode ended in grace": (
            "connect d1, mode busy for 5m, 5m-1s, drop d1, 10s, connect d1",
            "online busy away",
        ),
        "B5 back with activity": ("connect d1, 5m-1s, drop d1, 10s, connect d1, act d1, 1m", "online away online"),
        "another device instead": ("connect d1, 5m-1s, drop d1, 10s, connect d2, 1m", "online"),
        "it comes back, the other does not": (
            "connect d1, connect d2, drop d1, drop d2, 20s, connect d2, 1m",
            "online",
        ),
        "all gone, at different times": ("connect d1, connect d2, drop d1, 20s, drop d2, 30s-1ms", "online"),
        "all gone, the last grace over": ("connect d1, connect d2, drop d1, 20s, drop d2, 30s", "online offline"),
        "offline once": ("connect d1, drop d1, 30s, look, look, 1h", "online offline"),
    },
)
def test_a_lost_session_is_kept_until_its_reconnect_window_ends(script, shown):
    Story().play(script).saw(shown)


def test_a_reconnect_window_of_zero_ends_a_lost_session_at_once():
    Story(grace=0).play("connect d1, 1s, drop d1").saw("online offline").play("connect d1").saw("online")


def test_a_disconnect_processed_late_shows_the_user_offline_since_the_disconnect():
    """B2: offline first, then online, with true times."""
    story = Story().play("connect d1, 10s, drop d1, asleep 1h, connect d1")
    story.saw("online offline online")
    offline, online = story.changes[1:]
    assert offline.last_seen == offline.since
    assert offline.last_seen is not None
    assert online.since is not None
    assert online.since - offline.last_seen == 1 * H


@table(
    "script, status",
    {
        "A2 lost, a moment before the end of grace": ("connect d1, 1m, vanish d1, 2m-1ms", "online"),
        "A2 lost, grace over": ("connect d1, 1m, vanish d1, 2m", "offline"),
        "A2 a beat in between": ("connect d1, 1m, vanish d1, 89s, beat d1, 2m-1ms", "online"),
        "A2 dead_after and grace from that beat": ("connect d1, 1m, vanish d1, 89s, beat d1, 2m", "offline"),
    },
)
def test_a_half_open_socket_is_lost_at_the_dead_after_timeout_counted_from_its_last_sign_of_life(script, status):
    assert Story().play(script).status == status


def test_last_seen_of_a_user_with_a_half_open_socket_is_the_last_sign_of_life():
    story = Story().play("connect d1, 1m, vanish d1, 10m").saw("online offline")
    assert (story.last_seen, story.since) == (1 * M, 1 * M)


@table(
    "script, shown",
    {
        "A4 a reaper that comes late finds somebody who is back": (
            "connect d1, drop d1, asleep 29s, connect d1, asleep 5s, look",
            "online",
        ),
        "A5 a second reaper": ("connect d1, drop d1, 30s, look, look", "online offline"),
        "A5 a second reaper for idleness": ("connect d1, 5m, look, look", "online away"),
    },
)
def test_a_session_reaper_ends_an_overdue_session_once_and_not_after_the_user_returned(script, shown):
    Story().play(script).saw(shown)


def test_two_session_reapers_compute_the_same_record_of_a_user():
    """A5: both write the same bytes over the same bytes, so the second has nothing to do."""
    story = Story().play("connect d1, drop d1, asleep 31s")
    n1, n2 = story.nodes["n1"], story.nodes["n2"]
    assert story._settled(n1).presence == story._settled(n2).presence


# E1: a device moves before its old node notices


@table(
    "script, shown",
    {
        "E1 the late close removes only its own": ("connect d1, 1m, connect d1 on n2, 5s, drop d1 on n1, 1m", "online"),
        "E1 silence on the old node": ("connect d1, 1m, vanish d1, connect d1 on n2, 3m", "online"),
        "E1 the late close after the new one went into grace": (
            "connect d1, 1m, connect d1 on n2, drop d1 on n2, 5s, drop d1 on n1, 30s-1ms",
            "online",
        ),
        "E1 no connecting twice: moving is no activity": ("connect d1, 4m, connect d1 on n2, 1m", "online away"),
        "E1 and back again": (
            "connect d1, connect d1 on n2, drop d1 on n1, connect d1 on n1, drop d1 on n2, 1m",
            "online",
        ),
    },
)
def test_a_socket_closed_late_on_the_old_node_does_not_end_the_session_on_the_new_node(script, shown):
    Story().play(script).saw(shown)


def test_activity_that_only_the_previous_node_of_a_device_has_seen_still_counts():
    """The new node knows the activity of the record; the old node knows a later one and reports it when it closes."""
    story = Story().play("connect d1, 30s, connect d1 on n2, 10s, quietly act d1 on n1, 5s, drop d1 on n1, 5m-6s")
    story.saw("online").play("1s").saw("away")
    assert story.since == 40 * S


def test_a_sign_of_life_on_the_previous_node_of_a_device_counts_for_last_seen():
    story = Story().play("connect d1, 1s, connect d1 on n2, 9s, vanish d1 on n2, 30s, drop d1 on n1, 5m")
    story.saw("online offline")
    assert story.last_seen == 40 * S


@table(
    "script, shown",
    {
        "lost and back": ("connect d1, 10s, quietly drop d1, asleep 5s, connect d1, 4m", "online"),
        "lost and back after grace": (
            "connect d1, 10s, quietly drop d1, asleep 31s, connect d1, 4m",
            "online offline online",
        ),
        "back and lost: B4, only the second grace": (
            "connect d1, 10s, drop d1, asleep 20s, quietly connect d1, asleep 1s, drop d1, 30s-1ms",
            "online",
        ),
        "back and lost: B4, and it fires": (
            "connect d1, 10s, drop d1, asleep 20s, quietly connect d1, asleep 1s, drop d1, 30s",
            "online offline",
        ),
        "back elsewhere and lost": (
            "connect d1, 10s, drop d1, asleep 20s, quietly connect d1 on n2, asleep 1s, drop d1 on n2, 30s-1ms",
            "online",
        ),
        "back, active and lost: frozen as online": (
            "connect d1, idle d1, drop d1, quietly connect d1, asleep 1s, quietly act d1, drop d1, 29s",
            "online away online",
        ),
        "active and lost: frozen as online": ("connect d1, idle d1, 1s, quietly act d1, drop d1", "online away online"),
        "come and gone: never shown, no ghost": ("quietly connect d1, asleep 1s, drop d1, 1m", ""),
        "come, gone and come": ("quietly connect d1, quietly drop d1, asleep 1s, connect d1, 1m", "online"),
        "the close overtakes the connect": ("connect d1, quietly bye d1, look, 1m", "online offline"),
    },
)
def test_connects_and_disconnects_processed_together_show_the_same_as_one_by_one(script, shown):
    Story().play(script).saw(shown)


def test_a_disconnect_reported_a_second_time_does_not_change_the_record():
    """The node still has the loss of an old connection, while the device is back in the record."""
    story = Story().play("connect d1, 10s, quietly drop d1, asleep 1s")
    [lost] = story.nodes["n1"].lines
    story.play("connect d1, 10s")
    story.nodes["n1"].lines.append(lost)
    before = story.record
    story.play("4m, look")
    story.saw("online")
    assert story.record == before


def test_a_disconnect_processed_after_the_user_returned_still_sets_last_seen():
    """Nothing is shown, but the ledger gets it like every end."""
    story = Story().play("connect d1, 10s")
    [line] = story.nodes["n1"].lines
    lost = replace(line, lost_at=story.now)
    story.play("10s")
    story.nodes["n1"].lines.append(lost)
    story.play("look").saw("online")
    assert story.record.last_seen == T0 + 10 * S
    assert story.outcomes[0].unsaved is False
    assert any(outcome.unsaved for outcome in story.outcomes)


def test_a_disconnect_of_a_hidden_user_processed_after_their_return_does_not_change_last_seen():
    story = Story().play("connect d1, mode invisible, 10s")
    [line] = story.nodes["n1"].lines
    lost = replace(line, lost_at=story.now)
    story.play("10s")
    story.nodes["n1"].lines.append(lost)
    assert story.play("look").record.last_seen == T0
