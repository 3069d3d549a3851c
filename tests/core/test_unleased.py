"""Sessions by REST heartbeats: no node leases them, the record has their deadline, and frequent heartbeats cause no
writes.
"""

from tests.core.story import T0, Line, M, S, Story, table

from herenow.core.model import UNLEASED, Platform, Presence
from herenow.core.settle import Held, Timings, settle


@table(
    "script, shown",
    {
        "it is a session": ("rest d1", "online"),
        "a moment before it is offline": ("rest d1, 2m-1ms", "online"),
        "lost after dead_after, gone after grace": ("rest d1, 2m", "online offline"),
        "beats keep it": ("rest d1, 1m, rest d1, 1m, rest d1, 2m-1ms", "online"),
        "beats through several nodes keep it": ("rest d1, 1m, rest d1 on n2, 1m, rest d1 on n3, 2m-1ms", "online"),
        "back in grace": ("rest d1, 100s, rest d1, 2m-1ms", "online"),
        "back after grace": ("rest d1, 121s, rest d1", "online offline online"),
        "back after grace, nobody looked": ("rest d1, asleep 121s, rest d1", "online offline online"),
        "A3 a beat in the same millisecond as the reaper": ("rest d1, asleep 90s, rest d1, 2m-1ms", "online"),
        "a bare beat is no activity": (
            "rest d1, 80s, rest d1, 80s, rest d1, 80s, rest d1, 80s, rest d1",
            "online away",
        ),
        "an active one is": ("rest d1, 80s, rest d1, 80s, rest d1 active, 80s, rest d1, 80s, rest d1", "online"),
        "idle by its own word": ("rest d1, 10s, rest d1 idle", "online away"),
        "active again": ("rest d1 idle, 10s, rest d1 active", "away online"),
        "an outside gateway lost it": ("rest d1, 10s, gone d1, 30s", "online offline"),
        "and it comes back": ("rest d1, 10s, gone d1, 10s, rest d1, 1m", "online"),
        "gone twice is one grace": ("rest d1, 10s, gone d1, 20s, gone d1, 10s", "online offline"),
        "gone for a device with a socket": ("connect d1, gone d1, 1m", "online"),
        "a device with a socket keeps that session": ("connect d1, 10s, rest d1, 10s, drop d1, 30s", "online offline"),
        "a socket takes over": ("rest d1, 10s, connect d1, 10m-10s", "online away"),
        "a socket takes over, which is no activity": (
            "rest d1, 80s, rest d1, 80s, rest d1, 80s, connect d1, 1m",
            "online away",
        ),
        "a beat after the socket": ("connect d1, drop d1, 10s, rest d1, 2m-1ms", "online"),
        "activity by REST for a socket elsewhere": ("connect d1, 5m, rest d1 active on n2", "online away online"),
        "idleness by REST for a socket elsewhere": ("connect d1, 10s, rest d1 idle on n2", "online away"),
        "a bare beat for a socket elsewhere": ("connect d1, 5m, rest d1 on n2, drop d1, 30s", "online away offline"),
    },
)
def test_a_rest_session_is_lost_at_the_dead_after_timeout_counted_from_its_last_heartbeat(script, shown):
    Story().play(script).saw(shown)


def test_a_rest_heartbeat_every_second_causes_one_write_every_thirty_seconds():
    """At most one write per third of dead_after (30 s); here a heartbeat every second for three minutes."""
    story = Story().play("rest d1")
    for _ in range(180):
        story.play("1s, rest d1")
    assert story.commits == 1 + 6
    story.saw("online")


def test_the_node_that_received_the_last_rest_heartbeat_ends_the_session_at_the_exact_time():
    """The heartbeat was too early to be written, but the node that received it knows it."""
    story = Story().play("rest d1, 20s, rest d1, 90s").saw("online")
    assert not story.record.sessions[0].live
    assert story.play("1m").last_seen == 20 * S


def test_a_rest_session_ended_early_by_another_node_can_return_within_the_reconnect_window():
    story = Story().play("rest d1, 29s, rest d1, kill n1, 61s")
    assert not story.record.sessions[0].live
    assert story.play("29s, rest d1 on n2, 1m").saw("online").status == "online"


def test_activity_in_a_rest_heartbeat_is_written_even_if_the_heartbeat_itself_comes_too_soon():
    story = Story().play("rest d1, 1s, rest d1 active")
    assert story.record.sessions[0].active_at == T0 + 1 * S


@table(
    "seen_at, now, joins",
    {
        "fresh": (0, 0, True),
        "about to die": (0, 90 * S - 1, True),
        "dead": (0, 90 * S, False),
        "long dead": (0, 1 * M * 60, False),
    },
)
def test_a_rest_heartbeat_older_than_the_dead_after_timeout_starts_no_session(seen_at, now, joins):
    beat = Held("d1", UNLEASED, T0 + seen_at, T0 + seen_at)
    outcome = settle(Presence(), T0 + now, Timings(), epoch="epoch-n1", held=[beat])
    assert outcome.presence.live is joins
    assert not outcome.more


@table(
    "end, again",
    {
        "it died": ("100s", ""),
        "it died, grace over": ("3m", ""),
        "it was lost by its gateway": ("10s, gone d1 via n2", ""),
        "it was lost by its gateway, grace over": ("10s, gone d1 via n2, 31s", ""),
        "it was signed out": ("10s, sign-out d1 via n2", ""),
        "a socket took over and signed out": ("10s, connect d1 on n2, 10s, bye d1 on n2", ""),
        "a new beat revives it": ("10s, sign-out d1 via n2, 1s, rest d1", "d1"),
        "a new beat in grace": ("10s, gone d1 via n2, 1s, rest d1", "d1"),
    },
)
def test_an_old_rest_heartbeat_in_the_memory_of_a_node_does_not_revive_an_ended_session(end, again):
    """The node keeps the times of REST devices; the record has what became of them."""
    story = Story().play("rest d1")
    story.play(end)
    node = story.nodes["n1"]
    if not node.lines:
        node.lines.append(_remembered())
    story.settle(node)
    assert " ".join(s.device for s in story.record.sessions if s.live) == again


def test_a_node_without_recent_rest_heartbeats_does_not_end_a_session_that_other_nodes_keep_alive():
    story = Story().play("rest d1, 80s, rest d1 on n2, 10s")
    held = Held("d1", UNLEASED, T0, T0, lost_at=T0 + 90 * S, asserted=T0, asserted_by=UNLEASED)
    outcome = settle(story.record, story.now, story.timings, epoch="epoch-n1", held=[held])
    assert outcome.presence == story.record


def _remembered():
    return Line("d1", Platform.OTHER, T0, T0, unleased=True, answers=True, asserted=T0)
