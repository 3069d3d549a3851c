"""What an overloaded node gives up, in which order, and what it never does."""

import pytest

from herenow.core.model import NOBODY_HERE, Custom, Platform, Status, View
from herenow.core.shedding import Shed, level, may_wait

ONLINE = View(Status.ONLINE, 1, platforms=(Platform.WEB,))
AWAY = View(Status.AWAY, 2, platforms=(Platform.WEB,))
BUSY = View(Status.BUSY, 3, platforms=(Platform.WEB,))
TEA = View(Status.ONLINE, 1, custom=Custom("tea"), platforms=(Platform.WEB,))
AWAY_TEA = View(Status.AWAY, 2, custom=Custom("tea"), platforms=(Platform.WEB,))
PHONE = View(Status.ONLINE, 1, platforms=(Platform.MOBILE,))
GONE = View(Status.OFFLINE, 4, 4)


@pytest.mark.parametrize(
    ("before", "after", "given_up_from"),
    [
        (ONLINE, AWAY, Shed.IDLENESS),
        (AWAY, ONLINE, Shed.IDLENESS),
        (ONLINE, TEA, Shed.TEXT),
        (TEA, ONLINE, Shed.TEXT),
        (ONLINE, AWAY_TEA, Shed.TEXT),
        (ONLINE, PHONE, Shed.TEXT),
        (ONLINE, BUSY, None),
        (BUSY, ONLINE, None),
        (BUSY, AWAY, None),
        (ONLINE, GONE, None),
        (GONE, ONLINE, None),
        (TEA, GONE, None),
        (GONE, AWAY, None),
        (GONE, NOBODY_HERE, None),
        (NOBODY_HERE, GONE, None),
        (ONLINE, ONLINE, None),
    ],
)
def test_which_difference_waits_from_which_level_on(before, after, given_up_from):
    levels = [shed for shed in Shed if may_wait(before, after, shed)]
    assert levels == [shed for shed in Shed if given_up_from is not None and shed >= given_up_from]


@pytest.mark.parametrize(
    ("present", "late", "expected"),
    [
        (Shed.NOTHING, 0.0, Shed.NOTHING),
        (Shed.NOTHING, 0.199, Shed.NOTHING),
        (Shed.NOTHING, 0.2, Shed.TYPING),
        (Shed.NOTHING, 0.5, Shed.IDLENESS),
        (Shed.NOTHING, 1.0, Shed.TEXT),
        (Shed.TEXT, 0.5, Shed.TEXT),
        (Shed.TEXT, 0.49, Shed.IDLENESS),
        (Shed.IDLENESS, 0.25, Shed.IDLENESS),
        (Shed.IDLENESS, 0.249, Shed.TYPING),
        (Shed.TYPING, 0.1, Shed.TYPING),
        (Shed.TYPING, 0.099, Shed.NOTHING),
        (Shed.TEXT, 0.0, Shed.NOTHING),
    ],
)
def test_a_level_begins_at_its_bound_and_is_left_at_half_of_it(present, late, expected):
    assert level(present, late) is expected
