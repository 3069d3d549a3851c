"""The checker can fail: here it gets false reports and must find the contradiction."""

import asyncio

import pytest
from tests.faults.fleet import LATE, LEASE, TIMINGS
from tests.faults.lab import wrongs
from tests.faults.people import Client
from tests.faults.stages import on_one_server

from herenow.core.model import Mode
from herenow.ports import Remembered
from herenow_testing.checker.checker import Checker
from herenow_testing.world.scene import Shown
from herenow_testing.world.truth import Bounds


async def test_the_fault_checker_reports_a_user_shown_online_or_offline_contrary_to_what_happened(tmp_path):
    async with on_one_server(tmp_path, 1) as lab:
        fleet, checker = lab.fleet, lab.checker
        await fleet.befriend("vera", "mute", "ghost")
        n1, n2, _ = fleet.members.values()
        vera, mute, ghost = (Client(fleet, user, "d1", checker) for user in ("vera", "mute", "ghost"))
        await lab.until(lab.is_settled)  # earlier the checker would not expect users to be shown
        for client, node in ((mute, n1), (ghost, n1), (vera, n2)):
            assert await client.open(node)
        await vera.say("presence.subscribe", target_user_ids=["mute", "ghost"], id="watch")
        await asyncio.sleep(checker.bounds.late / 1000 + 1)
        assert checker.problems == []
        assert mute.link is not None
        assert mute.link.tunnel is not None
        checker.asks_mode("mute", Mode.BUSY)
        checker.has_mode("mute", Mode.BUSY)  # not requested by the client
        mute.link.tunnel.silent = True  # the checker is not informed and takes the device for connected
        checker.ended(ghost, "closed")  # the checker gets a false report
        await lab.until(lambda: _found(lab, " false offline: vera"))
        await lab.until(lambda: _found(lab, " ghost: vera"))
        assert [each for each in checker.differences() if "ghost d1 has gone" in each]
        assert all("mute" in problem or "ghost" in problem for problem in checker.problems)
        await checker.conclude()
        assert await _found(lab, "mute chose one of")
        assert await _found(lab, "the ledger has <Mode.AUTO")
        assert [each for each in wrongs(lab) if "blocks were made" in each]


async def _found(lab, what):
    """Reconnect the viewer if a busy machine cost it its socket, then wait for the problem."""
    [vera] = [client for client in lab.fleet.clients if client.user == "vera"]
    if vera.link is None and await vera.open(lab.fleet.members["n2"]):
        await vera.say("presence.subscribe", target_user_ids=["mute", "ghost"], id="watch")
    if await lab.fleet.look():
        lab.checker.look_around()
    return any(what in problem for problem in lab.checker.problems)


# A story without processes: connections and frames at invented times.


class Node:
    frozen = False
    epochs = frozenset()

    def __init__(self, name):
        self.name = name

    def version(self, user):
        return 0

    async def answers(self, viewer, users):
        return []


class Way:
    silent = False

    def __init__(self, node):
        self.node = node


class Somebody:
    device = "d1"

    def __init__(self, user, node):
        self.user = user
        self.link: Way | None = Way(node)


class Story:
    """ana is on n1 and watched by vera on n2; the store contains only what a test sets."""

    timings, lease, late = TIMINGS, LEASE, LATE

    def __init__(self):
        self.now = 1_000_000
        self.ana, self.vera = Somebody("ana", Node("n1")), Somebody("vera", Node("n2"))
        self.clients = [self.ana, self.vera]
        self.nodes = {}
        self.ledger = {}
        self.checker = Checker(self, ["vera"])
        for each in self.clients:
            self.checker.opened(each)
            self.checker.greeted(each)
        self.passes(60)
        self.shows("online")

    def lateness(self, begin, end):
        return 0

    def everybody_stored(self):
        return {}

    async def remembered(self, users):
        return self.ledger

    def passes(self, seconds):
        self.now += round(seconds * 1000)
        if self.ana.link is not None:
            self.checker.lived(self.ana)

    def shows(self, status, last_seen=None):
        self.checker.shown(self.vera, Shown(self.now, "ana", status, last_seen=last_seen, as_of=self.now))

    def leaves(self, how="closed"):
        self.checker.ended(self.ana, how)
        self.ana.link = None

    def comes(self, node="n1", *, greeted=True):
        self.ana.link = Way(Node(node))
        self.checker.opened(self.ana)
        if greeted:
            self.checker.greeted(self.ana)

    async def concludes(self, last_seen):
        """Problems found at the end if the ledger has this last seen."""
        self.ledger["ana"] = Remembered(last_seen=last_seen)
        await self.checker.conclude()
        return [each for each in self.checker.problems if "was last seen between" in each]

    def found(self, what):
        return [problem for problem in self.checker.problems if f" {what}: " in problem]


@pytest.fixture
def story():
    return Story()


@pytest.mark.parametrize(
    ("kind", "where", "what"),
    [
        ("slow consumer", "n3", {}),
        ("kill node", "n3", {"kills": True}),
        ("cut off", "n3", {"cuts": True}),
        ("slow consumer", "n1", {}),
        ("freeze the store", None, {}),
        ("empty the store", None, {"loses": True}),
        ("the ledger is locked", None, {"blinds": True}),
    ],
)
def test_the_fault_checker_reports_a_user_still_shown_online_25_seconds_after_leaving_between_faults(
    story, kind, where, what
):
    story.leaves()
    gone = story.now
    while story.now < gone + 180_000 and not story.found("ghost"):
        trouble = story.checker.trouble(kind, where, **what)
        for _ in range(3):
            story.passes(1)
            story.checker.look_around()
        story.checker.over(trouble)
        story.passes(1)
        story.checker.all_right()
        for _ in range(2):
            story.passes(1)
            story.checker.look_around()
    assert story.found("ghost")
    assert story.now - gone <= 25_000


def test_the_fault_checker_accepts_a_user_still_shown_online_if_the_live_store_was_frozen(story):
    trouble = story.checker.trouble("freeze the store")
    story.leaves()
    story.passes(6)
    story.checker.over(trouble)
    story.passes(4)
    story.checker.look_around()
    assert not story.found("ghost")


@pytest.mark.parametrize(
    ("kind", "where", "what", "seconds"),
    [
        ("the ledger is locked", None, {"blinds": True}, 6),
        ("freeze the database", None, {"blinds": True}, 60),
        ("the disk is full", None, {"blinds": True}, 20),
        ("kill the master", None, {"loses": True}, 20),
        ("freeze the store", None, {}, 20),
        ("cut off", "n2", {"cuts": True}, 20),
        ("cut off briefly", "n1", {"cuts": True}, 6),
        ("kill node", "n3", {"kills": True}, 20),
        ("slow consumer", "n1", {}, 20),
    ],
)
def test_the_fault_checker_reports_a_connected_user_shown_offline_unless_the_node_was_cut_off_for_long(
    story, kind, where, what, seconds
):
    trouble = story.checker.trouble(kind, where, **what)
    story.passes(seconds)
    story.checker.over(trouble)
    story.passes(0.1)
    story.shows("offline", last_seen=story.now - 2_000)
    assert story.found("false offline")


def test_the_fault_checker_accepts_a_connected_user_shown_offline_only_until_a_cut_off_node_recovered(story):
    trouble = story.checker.trouble("cut off", "n1", cuts=True)
    story.passes(11)
    story.checker.over(trouble)
    story.shows("offline", last_seen=story.now - 12_000)
    assert not story.found("false offline")
    story.passes(2)
    story.shows("online")
    story.checker.all_right()
    story.passes(2)
    story.shows("offline", last_seen=story.now - 14_000)
    assert story.found("false offline")


@pytest.mark.parametrize(
    ("how", "off", "right"),
    [
        ("closed", 0, True),
        ("closed", -5_000, False),
        ("closed", 5_000, False),
        ("vanished", -1_500, True),
        ("vanished", -8_000, False),
        ("vanished", 8_000, False),
        ("by node: 1006", -1_300, True),
        ("by node: 1006", -4_000, False),
    ],
)
async def test_the_fault_checker_reports_a_wrong_last_seen_shown_to_viewers_or_stored_in_the_database(
    story, how, off, right
):
    story.leaves(how)
    told = story.now + off
    story.passes(30)
    story.shows("offline", last_seen=told)
    assert bool(story.found("last seen")) is not right
    story.checker.problems.clear()
    story.ledger["ana"] = Remembered(last_seen=told)
    await story.checker.conclude()
    assert bool([each for each in story.checker.problems if "was last seen between" in each]) is not right


@pytest.mark.parametrize(
    ("how", "where", "after", "right"),
    [
        ("vanished", "n1", 2, True),  # another tab of a session that continues
        ("vanished", "n2", 2, False),
        ("vanished", "n1", 15, False),  # silent for so long that it had ended
        ("closed", "n1", 0.1, False),
        ("closed", "n2", 0.1, False),
    ],
)
async def test_the_fault_checker_requires_a_saved_last_seen_for_a_user_who_returned_with_a_new_session(
    story, how, where, after, right
):
    before = story.now - 60_000
    story.leaves(how)
    story.passes(after)
    story.comes(where)
    story.passes(60)
    assert bool(await story.concludes(before)) is not right


async def test_the_fault_checker_requires_no_saved_last_seen_for_a_tab_replaced_within_the_reconnect_window(story):
    before = story.now - 60_000
    story.leaves("vanished")
    story.passes(2)
    story.comes()
    story.passes(20)
    story.leaves("closed")
    story.passes(1)
    story.comes()
    story.passes(60)
    assert not await story.concludes(before)
    story.leaves("closed")
    story.passes(60)
    assert await story.concludes(before)


@pytest.mark.parametrize(
    ("kind", "where", "what", "seconds", "right"),
    [
        ("nothing", "n3", {}, 0.3, True),  # still being committed
        ("nothing", "n3", {}, 2.5, False),
        ("slow way", "n1", {"cuts": True}, 2.5, False),  # its node has committed it
        ("kill node", "n3", {"kills": True}, 2.5, False),
        ("cut off", "n2", {"cuts": True}, 2.5, True),
        ("fail over", None, {"loses": True}, 2.5, True),
    ],
)
@pytest.mark.parametrize("by_rest", [True, False])
def test_the_fault_checker_accepts_an_outdated_last_seen_only_as_long_as_a_change_may_take(
    story, kind, where, what, seconds, right, by_rest
):
    story.leaves()
    left = story.now
    story.passes(60)
    story.checker.trouble(kind, where, **what)
    if by_rest:
        story.checker.beat("ana", "rest", "n1")
    else:
        story.comes()
        story.passes(0.01)
        story.leaves()
    story.passes(seconds)
    story.shows("offline", last_seen=left)
    assert bool(story.found("last seen")) is not right


@pytest.mark.parametrize(("seconds", "right"), [(0.3, True), (2.5, False)])
def test_the_fault_checker_accepts_an_outdated_last_seen_only_shortly_after_a_new_rest_heartbeat(story, seconds, right):
    story.leaves()
    story.checker.beat("ana", "rest", "n1")
    before = story.now
    story.passes(60)
    story.checker.beat("ana", "rest", "n1")
    story.passes(seconds)
    story.shows("offline", last_seen=before)
    assert bool(story.found("last seen")) is not right


def test_the_fault_checker_accepts_the_time_a_rest_heartbeat_was_sent_as_last_seen(story):
    story.leaves()
    story.passes(60)
    asked_at = story.now
    story.passes(4)
    story.checker.beat("ana", "rest", "n1", asked_at)
    story.passes(60)
    story.shows("offline", last_seen=asked_at)
    assert not story.found("last seen")


async def test_the_fault_checker_requires_a_heartbeat_lost_by_the_live_store_to_be_restored(story):
    """The node that accepted the heartbeat is alive."""
    story.leaves()
    left = story.now
    story.passes(60)
    trouble = story.checker.trouble("fail over", loses=True)
    story.checker.beat("ana", "rest", "n1")
    story.passes(3)
    story.checker.over(trouble)
    story.passes(60)
    story.shows("offline", last_seen=left)
    assert story.found("last seen")
    assert await story.concludes(left)


@pytest.mark.parametrize(
    ("kind", "what", "chooses", "killed", "right"),
    [
        ("cut off", {"cuts": True}, False, False, False),  # the node reports it when it is back
        ("freeze node", {"cuts": True, "stops": True}, False, False, True),  # the node does not know
        ("cut off", {"cuts": True}, True, False, True),  # unless the user may have hidden since
        ("cut off", {"cuts": True}, False, True, True),
        ("empty the store", {"loses": True}, False, False, False),
        ("empty the store", {"loses": True}, True, False, False),
    ],
)
async def test_the_fault_checker_requires_the_last_seen_of_a_user_who_left_while_the_node_was_cut_off(
    story, kind, what, chooses, killed, right
):
    trouble = story.checker.trouble(kind, "n1" if "cuts" in what else None, **what)
    renewed = story.now
    story.passes(15)
    story.leaves()
    if killed:
        story.passes(1)
        story.checker.over(story.checker.trouble("kill node", "n1", kills=True))
    story.passes(5)
    if chooses:
        story.checker.asks_text("ana", 7)
    story.checker.over(trouble)
    story.passes(60)
    assert bool(await story.concludes(renewed)) is not right


async def test_the_fault_checker_reports_an_acknowledged_mode_that_is_missing_from_the_database(story):
    story.checker.asks_mode("ana", Mode.INVISIBLE)
    story.checker.has_mode("ana", Mode.INVISIBLE)
    story.checker.asks_text("ana", 7)
    story.checker.has_text("ana", 7)
    story.leaves()
    story.ledger["ana"] = Remembered(last_seen=story.now)
    story.passes(30)
    story.shows("offline", last_seen=story.now - 30_000)
    await story.checker.conclude()
    assert len([each for each in story.checker.problems if "ana chose one of" in each]) == 1


def test_the_fault_checker_requires_nodes_to_agree_within_10_seconds_or_15_after_data_loss():
    bounds = Bounds(TIMINGS, LEASE, LATE)
    assert (bounds.agreed(lost=False), bounds.agreed(lost=True)) == (10_000, 15_000)
