"""Sets of viewers are shared between users with the same viewers, and freed when unused."""

import pytest

from herenow.core.visibility import ViewScope
from herenow.node.delivery import viewer_sets
from herenow.node.delivery.viewer_sets import SharedViewerSets
from herenow.node.people import Channel, Outbox, People
from herenow_testing.world.manual_clock import LoopClock

MANY, MOST = 3, 2


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(viewer_sets, "MANY", MANY)
    monkeypatch.setattr(viewer_sets, "MOST", MOST)


@pytest.fixture
def viewers():
    return [Outbox(f"v{number}", lambda _frame: None, lambda: None) for number in range(6)]


def channel(user, viewers):
    made = Channel(People(shards=1, clock=LoopClock()).get(user), ViewScope.FULL)
    made.outboxes = dict.fromkeys(viewers)
    return made


def test_two_users_watched_by_the_same_viewers_share_one_set_of_viewers_in_memory(viewers):
    known = SharedViewerSets()
    first, second = channel("ana", viewers), channel("bob", reversed(viewers))
    assert known.of(first) is known.of(second)
    assert known.of(first) == frozenset(viewers)


def test_two_users_watched_by_different_viewers_have_different_sets_of_viewers(viewers):
    known = SharedViewerSets()
    first, second = channel("ana", viewers), channel("bob", viewers[1:])
    assert known.of(first) != known.of(second)


def test_a_user_who_loses_a_viewer_gets_a_new_set_of_viewers(viewers):
    known = SharedViewerSets()
    ana = channel("ana", viewers)
    known.of(ana)
    del ana.outboxes[viewers[0]]
    known.changed(ana)
    assert known.of(ana) == frozenset(viewers[1:])
    assert len(known) == 1


def test_a_user_with_few_viewers_has_no_shared_set_of_viewers(viewers):
    assert SharedViewerSets().of(channel("ana", viewers[: MANY - 1])) is None


def test_the_number_of_shared_sets_of_viewers_is_bounded(viewers):
    known = SharedViewerSets()
    channels = [channel(f"user{number}", viewers[number:]) for number in range(MOST + 1)]
    assert [known.of(each) is None for each in channels] == [False] * MOST + [True]
    assert len(known) == MOST
    known.changed(channels[0])
    assert known.of(channels[-1]) == frozenset(viewers[MOST:])


def test_a_shared_set_of_viewers_is_freed_when_no_user_has_exactly_these_viewers_any_more(viewers):
    known = SharedViewerSets()
    ana, bob = channel("ana", viewers), channel("bob", viewers)
    known.of(ana)
    known.of(bob)
    known.changed(ana)
    assert len(known) == 1
    known.changed(bob)
    assert len(known) == 0
