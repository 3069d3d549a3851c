"""Hidden is offline, byte for byte, on every exit: histories made up, every operation and frame, one leak per way out.

`HERENOW_TWINS=500 pytest tests/twins` makes up more of them.
"""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.twins.leaks import LEAKS

from herenow.api.application import CONTRACT
from herenow.api.description.page import Description
from herenow.core.limits import FanoutLimits
from herenow.core.visibility import Kind
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
from herenow_testing.twins.history import Beat, Choose, Connect, Drop, Rest, Write
from herenow_testing.twins.strategies import histories
from herenow_testing.world.settings import node_settings

EXAMPLES = int(os.environ.get("HERENOW_TWINS", "10"))
DOCUMENT = json.loads(Description(CONTRACT, max_bulk=1000).document)
OPERATIONS = {f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods}


SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not os.environ.get("HERENOW_TWINS"),
    suppress_health_check=[HealthCheck.too_slow],
)
DROPPED = History(shared=((Connect("d1"), 1), (Drop("d1"), 1)), hidden=((Connect("d1"), 61),))


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
def test_nobody_can_tell_the_invisible_from_the_gone(history):
    Twins(Invisible()).check(history)


def made_up(hiding):
    return given(histories(modes=hiding.modes))


@SETTINGS
@made_up(Blocked)
@example(TOUR)
@example(History())
@example(DROPPED)
def test_who_is_blocked_cannot_tell_it_from_the_others_leaving(history):
    Twins(Blocked()).check(history)


@SETTINGS
@made_up(Nobody)
@example(TOUR)
@example(History())
@example(DROPPED)
def test_nobody_can_tell_who_shows_themselves_to_nobody_from_the_gone(history):
    Twins(Nobody()).check(history)


# --- Beside a crowd --------------------------------------------------------------------------------------------------

PACED, ON_DEMAND = FanoutLimits(pace_above=1), FanoutLimits(pace_above=1, push_ceiling=2)
CROWDS = (
    PACED,
    ON_DEMAND,
    FanoutLimits(pace_above=4),
    FanoutLimits(pace_above=6),
    FanoutLimits(pace_above=2, push_ceiling=6),
)
"""The target has five viewers, and newcomers come and go: they make the last two change the way of delivery."""


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
def test_nobody_can_tell_by_the_way_a_popular_person_is_delivered(hiding, crowds, history):
    beside(crowds, hiding()).check(history)


@pytest.mark.parametrize(("crowds", "delivery"), [(PACED, b"paced"), (ON_DEMAND, b"poll")])
def test_the_crowd_is_one(crowds, delivery):
    friend = beside(crowds, Blocked()).record(TOUR, hides=True)["friend", "socket"]
    assert b'"delivery":"%b"' % delivery in b"".join(friend)


def at_once(self, outbox, channel, _before):
    self._flush.send(channel, [outbox])


def viewers_by(kinds):
    return lambda person: sum(len(c.outboxes) for c in person.watchers.channels if c.sight.kind in kinds)


@pytest.mark.parametrize(
    ("name", "spoiled", "crowds", "hiding"),
    [
        ("FanoutPolicy.offer", at_once, PACED, Blocked),  # a block is told sooner than a leaving
        ("FanoutPolicy.offer", at_once, ON_DEMAND, Blocked),  # and where a leaving is not
        ("viewers", viewers_by({Kind.SHOWN}), CROWDS[2], Blocked),  # who is blocked is not in the crowd
        ("viewers", viewers_by({*Kind}), CROWDS[3], Invisible),  # the hidden one's own devices are
    ],
)
def test_a_leak_beside_a_crowd_is_found(monkeypatch, name, spoiled, crowds, hiding):
    monkeypatch.setattr(f"herenow.node.delivery.fanout.{name}", spoiled)
    assert beside(crowds, hiding()).differences(TOUR)


# --- Nothing is left out ---------------------------------------------------------------------------------------------


def test_every_operation_and_every_frame_has_a_case_or_a_reason():
    assert missing(OPERATIONS, SERVER_TYPES) == []
    assert all(row.because for row in CASES.values() if isinstance(row, Exempt))


def test_a_new_endpoint_or_frame_is_noticed():
    assert missing({*OPERATIONS, "GET /api/v1/new"}, {*SERVER_TYPES, "presence.new"}) == [
        "GET /api/v1/new",
        "presence.new",
    ]


def test_the_types_of_frames_are_all_there_are_in_the_source():
    source = Path(shapes.__file__).read_text(encoding="utf-8")
    written = set(re.findall(r'"type":"([\w.]+)"', source)) | set(re.findall(r'tag="([\w.]+)"', source))
    assert written == SERVER_TYPES


@pytest.fixture(scope="module")
def tour():
    return Twins(Invisible()).record(TOUR, hides=True)


def test_the_tour_sees_every_frame_and_asks_every_case(tour):
    came = b"".join(entry for entries in tour.values() for entry in entries).decode()
    assert set(re.findall(r'"type":"([\w.]+)"', came)) == set(FRAMES)
    asked = {way.removesuffix(" for a service") for _, way in tour}
    assert {name for name, row in CASES.items() if isinstance(row, Case) and row.requests} <= asked
    assert {("fan", "socket"), ("pal", "stream"), ("pal", "contacts"), ("friend", "stream for a service")} <= {*tour}


def test_the_tour_is_a_story_worth_hiding(tour):
    """Before the moment the target is seen to come, write, type and be busy; else equality would say nothing."""
    friend = b"\n".join(tour["friend", "socket"])
    for word in (b'"status":"online"', b'"status":"busy"', b'"text":"here"', b'"user_id":"tea","expires_in":6'):
        assert word in friend
    assert b"secret" not in b"".join(entry for entries in tour.values() for entry in entries)


def test_the_same_history_is_the_same_record(tour):
    assert Twins(Invisible()).record(TOUR, hides=True) == tour


# --- And it can fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEAKS)
def test_a_planted_leak_is_found(name):
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
    """What was planted in one world is taken back before the next begins."""

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


def test_what_differs_is_said_in_words():
    class Loud(Invisible):
        """Does not hide at all."""

        async def hide(self, stage):
            pass

    with pytest.raises(AssertionError, match=r"(?s)friend, socket: entry \d+ of .*hidden: .*gone: "):
        Twins(Loud()).check(History(shared=((Connect("d1"), 1),)))


def test_who_is_not_hidden_from_is_not_compared():
    class FromStrangers(Invisible):
        public = False

        async def hide(self, stage):
            pass

        def hides_from(self, viewer):
            return viewer in ("stranger", "mate")

    Twins(FromStrangers()).check(TOUR)
