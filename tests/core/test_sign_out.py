"""A sign-out takes effect at once, on every node, and permanently, even for a node that did not receive it."""

import pytest
from tests.core.story import Story, table

from herenow.core.edits import retire, sign_out, sign_out_all
from herenow.core.model import Presence, Session, SignedOut
from herenow.core.settle import Held, Timings, droppable, settle
from herenow.core.timeline import REMEMBER_SIGN_OUT
from herenow.core.values import replace


@table(
    "script, shown",
    {
        "B3 offline at once": ("connect d1, 1m, bye d1", "online offline"),
        "B3 other devices are unaffected": ("connect d1, connect d2, 1m, bye d1, 1m", "online"),
        "B3 out of grace": ("connect d1, drop d1, 10s, bye d1", "online offline"),
        "B3 by REST": ("rest d1, 10s, sign-out d1 via n2", "online offline"),
        "B3 all its tabs": ("connect d1, connect d1, connect d1 on n2, 10s, bye d1", "online offline"),
        "B3 with grace 30 s nothing more happens": ("connect d1, bye d1, 1h", "online offline"),
        "B3 busy": ("connect d1, mode busy, bye d1", "online busy offline"),
        "through another node": ("connect d1, 1m, sign-out d1 via n2, 1m", "online offline"),
        "a device that is not there": ("connect d1, bye d2, 1m", "online"),
        "twice": ("connect d1, bye d1, 1s, bye d1", "online offline"),
        "and back": ("connect d1, bye d1, 1s, connect d1", "online offline online"),
        "and back on the node that held it": (
            "connect d1, sign-out d1 via n2, 1s, connect d1, 1m",
            "online offline online",
        ),
        "back is activity": ("connect d1, 10m, bye d1, connect d1", "online away offline online"),
        # the last live session beside some in grace: judged without it, then frozen
        "rule 2: the last live one leaves an idle one in grace": (
            "connect d1, connect d2, idle d2, drop d2, 10s, bye d1, 19s",
            "online away",
        ),
        "rule 2: then its grace ends": (
            "connect d1, connect d2, idle d2, drop d2, 10s, bye d1, 20s",
            "online away offline",
        ),
        "rule 2: an active one in grace": ("connect d1, connect d2, drop d2, 10s, bye d1, 19s", "online"),
        "rule 2: then frozen": ("connect d1, connect d2, 5m-15s, drop d2, 10s, bye d1, 10s", "online"),
        "rule 2: under busy": ("mode busy, connect d1, connect d2, idle d2, drop d2, bye d1, 10s", "busy"),
        "rule 2: lost a moment before it signs out": (
            "connect d1, connect d2, idle d2, drop d2, 10s, quietly drop d1, bye d1, 19s",
            "online away",
        ),
        "rule 2: lost, and signed out in grace": (
            "connect d1, connect d2, idle d2, drop d2, 10s, drop d1, 5s, bye d1, 10s",
            "online away",
        ),
        "rule 2: one that was not the last live one": (
            "connect d1, connect d2, idle d2, drop d1, 10s, drop d2, 5s, bye d1, 10s",
            "online",
        ),
    },
)
def test_a_sign_out_ends_the_sessions_of_a_device_without_a_reconnect_window(script, shown):
    Story().play(script).saw(shown)


@table(
    "script, ended",
    {
        "E18 n1 missed the message": (
            "connect d1, connect d2 on n2, cut n1, sign-out d1 via n2, 1m, hears n1",
            [("d1", "signed out")],
        ),
        "E18 and was marked dead meanwhile": (
            "connect d1, connect d2 on n2, cut n1, sign-out d1 via n2, 1m, returns n1",
            [("d1", "signed out")],
        ),
        "E18 signed out in the grace its death began": (
            "connect d1, connect d2 on n2, cut n1, 10s, retire, 10s, sign-out d1 via n2, 1m, returns n1",
            [("d1", "signed out")],
        ),
        "E18 nobody else left": ("connect d1, cut n1, sign-out d1 via n2, 1m, hears n1", [("d1", "signed out")]),
        "E18 its other device lives on": (
            "connect d1, connect d3, cut n1, sign-out d1 via n2, 1m, hears n1",
            [("d1", "signed out")],
        ),
        "merely dead meanwhile": ("connect d1, connect d2 on n2, cut n1, 10s, retire, 1m, returns n1", []),
        "marked dead, never swept": ("connect d1, connect d2 on n2, cut n1, 1m, returns n1", []),
        "signed out before, connected anew, then marked dead": (
            "connect d2 on n2, connect d1, sign-out d1 via n2, 5s, connect d1, 5s, cut n1, 10s, retire, returns n1",
            [],
        ),
        "back elsewhere after the sign-out": (
            "connect d1, cut n1, sign-out d1 via n2, connect d1 on n2, 1m, hears n1",
            [("d1", "signed out")],
        ),
    },
)
def test_a_node_that_missed_a_sign_out_never_writes_the_signed_out_session_again(script, ended):
    story = Story().play(script)
    assert story.ended == ended
    holders = [s.holder for s in story.record.sessions if s.device == "d1" and s.live]
    expected = [] if ended else [story.nodes["n1"].epoch]
    assert holders == (["epoch-n2"] if "connect d1 on n2" in script else expected)
    story.play("look, 1s, look")
    assert story.ended == ended, "it is said once, and stays so"


TAKEN_FOR_DEAD = "connect d1, {before}, cut n1, 10s, retire, {after}, "


@table(
    "script, ended",
    {
        "E18 beside another tab": (TAKEN_FOR_DEAD.format(before="connect d1 on n2", after="1m"), True),
        "E18 beside another tab, after a long time": (
            TAKEN_FOR_DEAD.format(before="connect d1 on n2", after="9m"),
            True,
        ),
        "E18 a tab came back elsewhere": (TAKEN_FOR_DEAD.format(before="1s", after="connect d1 on n2"), True),
        "E18 a tab came back when it was gone": (
            TAKEN_FOR_DEAD.format(before="1s", after="1m, connect d1 on n2"),
            True,
        ),
        "another device": (TAKEN_FOR_DEAD.format(before="connect d2 on n2", after="1m, connect d1 on n2"), False),
    },
)
def test_a_sign_out_also_ends_a_tab_on_a_node_wrongly_declared_dead(script, ended):
    device = "d1" if ended else "d2"
    story = Story().play(script + f"bye {device} on n2, 1m, returns n1, 1s, look")
    assert story.ended == ([("d1", "signed out")] if ended else [])
    holders = {s.holder for s in story.record.sessions if s.device == "d1" and s.live}
    assert holders == (set() if ended else {"epoch-n2", story.nodes["n1"].epoch})


def test_a_record_forgets_a_session_of_a_dead_node_when_the_node_returns_or_after_ten_minutes():
    story = Story().play("connect d1, connect d1 on n2, cut n1, 10s, retire")
    assert [(r.device, r.holder) for r in story.record.retired] == [("d1", "epoch-n1")]
    story.play("1m, returns n1")
    assert not story.record.retired
    story.play("cut n1, 10s, retire")
    assert story.record.retired
    story.play("10m, act d1 on n2, 6m")
    assert not story.record.retired


@table("asked", {"E18 of that device": ("sign-out d1 via n2",), "E18 of every device": ("bye-all on n2",)})
def test_a_sign_out_also_ends_a_tab_of_a_dead_node_after_its_reconnect_window_if_the_node_returns(asked):
    """Its grace is over: the record has no session of the device, but its node may still return with it."""
    story = Story().play("connect d2 on n2, connect d1, cut n1, 10s, retire, 1m")
    assert story.devices == "d2"
    story.play(f"{asked}, 1m, returns n1, 1s, look")
    assert story.ended == [("d1", "signed out")]
    assert "d1" not in story.devices


def test_old_notes_about_sessions_of_dead_nodes_do_not_pile_up_in_a_record():
    """No timer fires for an idle user for days while node after node of theirs dies."""
    story = Story().play("connect d1, 6m")
    for _ in range(3):
        story.play("kill n1, retire, connect d1 on n2, 60m, returns n1")
        story.play("kill n2, retire, connect d1, 60m, returns n2")
    assert len(story.record.retired) == 1


def test_a_note_about_a_session_of_a_dead_node_does_not_keep_a_record_in_the_store():
    story = Story().play("connect d1 on n2, cut n2, 10s, retire, 1m").saw("online offline")
    assert droppable(story.record)
    assert story.next_wake is None


def test_a_sign_out_is_noted_in_the_record_only_for_sessions_on_other_nodes():
    story = Story().play("connect d1, bye d1")
    assert not story.record.signed_out
    story.play("connect d1, connect d1 on n2, bye d1")
    assert [(n.device, n.holder) for n in story.record.signed_out] == [("d1", "epoch-n2")]


def test_a_sign_out_noted_for_another_node_keeps_the_record_in_the_store_for_ten_minutes():
    story = Story().play("connect d1, sign-out d1 via n2")
    assert not droppable(story.record)
    assert story.next_wake == REMEMBER_SIGN_OUT
    story.play("10m-1ms")
    assert story.record.signed_out
    story.play("1ms").saw("online offline")
    assert droppable(story.record)
    assert story.next_wake is None


def test_a_node_that_closed_a_signed_out_session_removes_its_note_from_the_record():
    story = Story().play("connect d1, cut n1, sign-out d1 via n2")
    assert story.record.signed_out
    story.play("1s, hears n1, look")
    assert story.ended == [("d1", "signed out")]
    assert not story.record.signed_out
    assert droppable(story.record)
    assert story.next_wake is None


def test_a_note_stays_in_the_record_until_its_node_has_closed_the_session():
    """A settle that learns of the sign-out asks for another one, and only that one removes the note: if the commit of the
    first had an unknown outcome, the node would find neither session nor note, and after a loss of data write it again."""
    note = SignedOut("d1", "epoch-n1", 5)
    held = Held("d1", "epoch-n1", since=1, seen_at=9, asserted=3, asserted_by="epoch-n1")
    first = settle(Presence(version=5, signed_out=(note,)), 10, Timings(), epoch="epoch-n1", held=(held,))
    assert (first.presence.signed_out, first.signed_out, first.more) == ((note,), ("d1",), True)
    second = settle(first.presence, 10, Timings(), epoch="epoch-n1")
    assert (second.presence.signed_out, second.news, second.more) == ((), False, False)
    other = settle(first.presence, 10, Timings(), epoch="epoch-n2")
    assert other.presence.signed_out == (note,)


def test_a_record_keeps_at_most_twice_max_sessions_sign_out_notes():
    """A7: devices that connect to a node and are signed out through another one, again and again, while the first does not
    answer. The newest notes stay: those of one sign-out of all devices always fit."""
    presence = Presence()
    for number in range(1, 40):
        session = Session(f"d{number}", "epoch-n1", since=number, seen_at=number, active_at=number)
        presence = replace(presence, sessions=(session,))
        presence = sign_out(f"d{number}")(presence, number, Timings(max_sessions=5))
    assert [note.device for note in presence.signed_out] == [f"d{number}" for number in range(30, 40)]


def test_a_sign_out_of_all_devices_leaves_a_note_for_each_session_and_each_retired_one():
    sessions = tuple(Session(f"d{n}", "epoch-1", since=n, seen_at=n, active_at=n) for n in range(5))
    before = Presence(sessions=sessions, signed_out=tuple(SignedOut(f"old{n}", "epoch-1", 1) for n in range(10)))
    for number in range(8):
        lost_session = Session(f"r{number}", f"dead-{number}", since=1, seen_at=1, active_at=1)
        before = replace(before, sessions=(*sessions, lost_session))
        before = retire({f"dead-{number}": 2})(before, 3, Timings(max_sessions=5))
    before = replace(before, sessions=sessions)
    after = sign_out_all()(before, 10, Timings(max_sessions=5))
    assert {note.device for note in after.signed_out} == {*(f"d{n}" for n in range(5)), *(f"r{n}" for n in range(3, 8))}


@table("lost_epoch, ended", {"same epoch": (False, ["d1"]), "another epoch": (True, [])})
def test_a_session_whose_note_was_dropped_returns_only_if_its_node_lost_its_epoch(lost_epoch, ended):
    now_epoch = "epoch-new" if lost_epoch else "epoch-n1"
    held = Held("d1", now_epoch, since=1, seen_at=9, asserted=3, asserted_by="epoch-n1")
    notes = tuple(SignedOut(f"other{n}", "epoch-n1", 5) for n in range(100))
    outcome = settle(Presence(version=5, signed_out=notes), 10, Timings(), epoch=now_epoch, held=(held,))
    assert list(outcome.signed_out) == ended


@pytest.mark.parametrize("settled", ["yes", "no"])
def test_a_session_missing_from_a_record_counts_as_signed_out_unless_the_shard_lost_data(settled):
    """E16, E18: a session missing from a newer record was removed on purpose, unless the store lost data."""
    story = Story().play("connect d1, connect d2 on n2, 1m")
    story.loses_memory(settled=settled)
    story.play("1s, connect d2 on n2, 1s, look")
    assert story.ended == ([("d1", "signed out")] if settled == "yes" else [])
