"""A hidden user looks offline, byte for byte, in every output: random histories, every operation and frame, one planted
leak per output.

`HERENOW_TWINS=500 pytest tests/twins` runs more histories.
"""

import json
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.twins.leaks import LEAKS

from herenow.api.application import CONTRACT
from herenow.api.description.page import Description
from herenow.core.limits import FanoutLimits
from herenow.core.visibility import Block, Kind
from herenow.wire import shapes
from herenow.wire.shapes import SERVER_TYPES
from herenow_testing.twins import (
    CASES,
    FRAMES,
    TOUR,
    Blocked,
    Case,
    Exempt,
    History,
    Invisible,
    Nobody,
    Stage,
    Twins,
    missing,
    stage,
)
from herenow_testing.twins.history import Act, Beat, Choose, Connect, Drop, FriendBlocks, Rest, Write
from herenow_testing.twins.strategies import histories
from herenow_testing.world.settings import node_settings

EXAMPLES = int(os.environ.get("HERENOW_TWINS", "7"))
DOCUMENT = json.loads(Description(CONTRACT, max_bulk=1000).document)
OPERATIONS = {f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods}


SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not os.environ.get("HERENOW_TWINS"),
    suppress_health_check=[HealthCheck.too_slow],
)
DROPPED = History(shared=((Connect("d1"), 1), (Drop("d1"), 1)), hidden=((Connect("d1"), 61),))
FRIEND_BLOCKED = History(
    shared=((Connect("d1"), 1), (FriendBlocks(), 9)), hidden=((FriendBlocks(), 1), (Act("d1"), 1), (FriendBlocks(), 1))
)
"""The viewer blocks the target before it hides and afterwards, and lifts the block each time."""


@SETTINGS
@given(histories())
@example(TOUR)
@example(History())
@example(DROPPED)
@example(History(shared=((Beat("active"), 1),), hidden=((Beat("active"), 120), (Beat("idle"), 120))))
@example(
    History(
        shared=((Connect("d1"), 1), (Connect("d2"), 1), (Rest("d2"), 1), (Choose("busy", 9), 1), (Write(), 1)),
        hidden=((Write(None), 1), (Drop("d1", vanish=True), 61)),
    )
)
def test_viewers_cannot_distinguish_an_invisible_user_from_one_who_left(history):
    Twins(Invisible()).check(history)


def made_up(hiding):
    return given(histories(modes=hiding.modes))


@SETTINGS
@made_up(Blocked)
@example(TOUR)
@example(History())
@example(DROPPED)
@example(FRIEND_BLOCKED)
def test_a_blocked_viewer_cannot_distinguish_the_block_from_a_sign_out(history):
    Twins(Blocked()).check(history)


@SETTINGS
@made_up(Nobody)
@example(TOUR)
@example(History())
@example(DROPPED)
@example(FRIEND_BLOCKED)
def test_viewers_cannot_distinguish_visibility_nobody_from_a_sign_out(history):
    Twins(Nobody()).check(history)


# --- Coming back

TWO_DEVICES = ((Connect("d1"), 1), (Connect("d2"), 1), (Choose("busy"), 1), (Choose("auto"), 1))
DELAYED = node_settings(stage.SETTINGS, timings=replace(stage.TIMINGS, online_delay=5_000))


class InvisibleUntil(Invisible):
    """The mode ends by itself, about when the target would end it."""

    def __init__(self, ends_in):
        self.ends_in = ends_in

    async def hide(self, stage):
        body = {"mode": "invisible", "until": stage.clock.now() + 1000 * self.ends_in}
        answer = await stage.rest("PUT", "/api/v1/presence/mode", by="tea", body=body)
        assert answer.status == 200, answer

    async def show(self, stage):
        pass


@pytest.mark.parametrize("hiding", [Invisible, Blocked, Nobody])
@settings(SETTINGS, max_examples=max(1, EXAMPLES // 3))
@given(history=histories(hidden=4), delayed=st.booleans())
@example(history=History(shared=TWO_DEVICES), delayed=False)
@example(history=History(shared=TWO_DEVICES), delayed=True)
@example(history=History(shared=((Connect("d1"), 1),), hidden=((Rest("d1"), 1), (Act("d1"), 61))), delayed=False)
@example(history=History(shared=TWO_DEVICES, hidden=((Drop("d1"), 1), (Drop("d2", vanish=True), 1))), delayed=False)
def test_a_user_who_stops_hiding_looks_as_if_arriving_then(hiding, history, delayed):
    Twins(hiding(), make_stage=lambda: Stage(DELAYED if delayed else stage.SETTINGS)).check_return(history)


def test_a_user_whose_invisible_mode_ends_by_itself_looks_as_if_arriving_then():
    at_the_return = 15  # seconds from hiding to the return in a history without hidden steps
    Twins(InvisibleUntil(at_the_return)).check_return(History(shared=TWO_DEVICES))


# --- Many viewers

PACED, ON_DEMAND = FanoutLimits(pace_above=1), FanoutLimits(pace_above=1, push_ceiling=2)
CROWDS = (
    PACED,
    ON_DEMAND,
    FanoutLimits(pace_above=4),
    FanoutLimits(pace_above=6),
    FanoutLimits(pace_above=2, push_ceiling=6),
)
"""The target has five viewers, and others subscribe and unsubscribe: the last two change the kind of delivery."""


def beside(crowds, hiding):
    made = node_settings(stage.SETTINGS, crowds=crowds)
    return Twins(hiding, make_stage=lambda: Stage(made))


@pytest.mark.parametrize("hiding", [Invisible, Blocked, Nobody])
@settings(SETTINGS, max_examples=max(1, EXAMPLES // 5))
@given(crowds=st.sampled_from(CROWDS), history=histories())
@example(crowds=CROWDS[0], history=TOUR)
@example(crowds=CROWDS[1], history=TOUR)
@example(crowds=CROWDS[2], history=TOUR)
@example(crowds=CROWDS[3], history=TOUR)
@example(crowds=CROWDS[4], history=TOUR)
def test_delayed_updates_of_a_user_with_many_viewers_do_not_reveal_that_the_user_hides(hiding, crowds, history):
    beside(crowds, hiding()).check(history)


@pytest.mark.parametrize(("crowds", "delivery"), [(PACED, b"paced"), (ON_DEMAND, b"poll")])
def test_statuses_of_a_user_with_many_viewers_are_marked_as_paced_or_on_request(crowds, delivery):
    friend = beside(crowds, Blocked()).record(TOUR, hides=True)["friend", "socket"]
    assert b'"delivery":"%b"' % delivery in b"".join(friend)


def at_once(self, outbox, channel, _before):
    self._flush.send(channel, [outbox])


def viewers_by(kinds):
    return lambda person: sum(len(c.outboxes) for c in person.watchers.channels if c.sight.kind in kinds)


@pytest.mark.parametrize(
    ("name", "spoiled", "crowds", "hiding"),
    [
        ("FanoutPolicy.offer", at_once, PACED, Blocked),  # a block is delivered sooner than a sign-out
        ("FanoutPolicy.offer", at_once, ON_DEMAND, Blocked),  # also where a sign-out is not delivered
        ("viewers", viewers_by({Kind.SHOWN}), CROWDS[2], Blocked),  # a blocked viewer does not count as a viewer
        ("viewers", viewers_by({*Kind}), CROWDS[3], Invisible),  # the hidden user's own devices count
    ],
)
def test_a_deliberate_privacy_leak_in_updates_to_many_viewers_is_found(monkeypatch, name, spoiled, crowds, hiding):
    monkeypatch.setattr(f"herenow.node.delivery.fanout.{name}", spoiled)
    assert beside(crowds, hiding()).differences(TOUR)


# --- Completeness


def test_every_rest_operation_and_frame_type_has_a_privacy_test_or_a_reason_for_having_none():
    assert missing(OPERATIONS, SERVER_TYPES) == []
    assert all(row.because for row in CASES.values() if isinstance(row, Exempt))


def test_a_new_rest_operation_or_frame_type_without_a_privacy_test_is_reported():
    assert missing({*OPERATIONS, "GET /api/v1/new"}, {*SERVER_TYPES, "presence.new"}) == [
        "GET /api/v1/new",
        "presence.new",
    ]


def test_the_list_of_server_frame_types_equals_those_in_the_source_code():
    source = Path(shapes.__file__).read_text(encoding="utf-8")
    written = set(re.findall(r'"type":"([\w.]+)"', source)) | set(re.findall(r'tag="([\w.]+)"', source))
    assert written == SERVER_TYPES


@pytest.fixture(scope="module")
def tour():
    return Twins(Invisible()).record(TOUR, hides=True)


def test_the_example_history_of_the_privacy_tests_covers_every_frame_type_and_rest_operation(tour):
    came = b"".join(entry for entries in tour.values() for entry in entries).decode()
    assert set(re.findall(r'"type":"([\w.]+)"', came)) == set(FRAMES)
    asked = {way.removesuffix(" for a service") for _, way in tour}
    assert {name for name, row in CASES.items() if isinstance(row, Case) and row.requests} <= asked
    assert {("fan", "socket"), ("pal", "stream"), ("pal", "contacts"), ("friend", "stream for a service")} <= {*tour}


def test_the_example_history_of_the_privacy_tests_shows_the_user_before_hiding_and_no_secret_afterwards(tour):
    """Before hiding, the target connects, writes, types and is busy; otherwise equality would prove nothing."""
    friend = b"\n".join(tour["friend", "socket"])
    for word in (b'"status":"online"', b'"status":"busy"', b'"text":"here"', b'"user_id":"tea","expires_in":6'):
        assert word in friend
    assert b"secret" not in b"".join(entry for entries in tour.values() for entry in entries)


def test_playing_the_same_history_twice_gives_viewers_the_same_bytes(tour):
    assert Twins(Invisible()).record(TOUR, hides=True) == tour


# --- Planted leaks


@pytest.mark.parametrize("name", LEAKS)
def test_each_deliberate_privacy_leak_is_found_by_the_comparison_of_hidden_and_offline(name):
    plant, way = LEAKS[name]
    monkeypatches = []

    def spoiled():
        stage = Stage()
        monkeypatches.append(pytest.MonkeyPatch())
        plant(stage, monkeypatches[-1])
        return stage

    try:
        found = Spoiled(Invisible(), make_stage=spoiled, monkeypatches=monkeypatches).differences(TOUR)
    finally:
        undo(monkeypatches)
    assert any(way in line.partition(":")[0] for line in found), found


class Spoiled(Twins):
    """Undoes what was planted before the next world begins."""

    def __init__(self, hiding, *, make_stage, monkeypatches):
        super().__init__(hiding, make_stage=make_stage)
        self._monkeypatches = monkeypatches

    def record(self, history, *, hides):
        try:
            return super().record(history, hides=hides)
        finally:
            undo(self._monkeypatches)


def undo(monkeypatches):
    while monkeypatches:
        monkeypatches.pop().undo()


# --- Planted leaks of hiding and showing


def written_first(_events, _hiding, _change):
    return nullcontext()


def one_block(rows, target):
    """The earliest block between two users counts, whoever placed it."""
    rows = [row for row in rows if row.lifted_at is None]
    first = min(rows, key=lambda row: row.at, default=None)
    if first is None:
        return None, None
    return Block(first.blocker_seen if first.blocker == target else first.blocked_seen), None


def kept_value(row, between, preferences):
    first = one_block(between, row.blocker)[0]
    return row if first is None else replace(row, blocker_seen=first.last_seen)


HIDES_LATE = ("herenow.node.viewing.relation_events.RelationEvents._hidden_first", written_first)
OWN_BLOCK_COUNTS = ("herenow.node.access.relation_cache.blocks_between", one_block)
KEEPS_OWN_BLOCK = ("herenow_testing.world.memory_ledger.frozen_row", kept_value)


@pytest.mark.parametrize(
    ("hiding", "history", "leaks"),
    [
        (Blocked, TOUR, [HIDES_LATE]),
        (Nobody, TOUR, [HIDES_LATE]),
        (Blocked, FRIEND_BLOCKED, [OWN_BLOCK_COUNTS, KEEPS_OWN_BLOCK]),
    ],
)
def test_hiding_that_is_written_first_or_keeps_a_block_of_the_viewer_is_found(monkeypatch, hiding, history, leaks):
    for name, spoiled in leaks:
        monkeypatch.setattr(name, spoiled)
    assert Twins(hiding()).differences(history)


@pytest.mark.parametrize("hiding", [Blocked, Nobody])
def test_times_and_devices_from_before_the_end_of_hiding_are_found(monkeypatch, hiding):
    monkeypatch.setattr("herenow.core.visibility._arrived", lambda view, _floor, _last_seen: view)
    with pytest.raises(AssertionError, match="shows what was before"):
        Twins(hiding()).check_return(History(shared=TWO_DEVICES))


def test_the_error_of_a_privacy_test_describes_what_a_viewer_saw_differently():
    class Loud(Invisible):
        """Does not hide at all."""

        async def hide(self, stage):
            pass

    with pytest.raises(AssertionError, match=r"(?s)friend, socket: entry \d+ of .*hidden: .*gone: "):
        Twins(Loud()).check(History(shared=((Connect("d1"), 1),)))


def test_privacy_tests_ignore_what_viewers_see_who_may_see_the_user():
    class FromStrangers(Invisible):
        public = False

        async def hide(self, stage):
            pass

        def hides_from(self, viewer):
            return viewer in ("stranger", "mate")

    Twins(FromStrangers()).check(TOUR)
