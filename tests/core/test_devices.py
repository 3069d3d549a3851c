"""Several devices and tabs: one combined status, and platforms that agree with it."""

from tests.core.story import M, S, Story, table

from herenow.core.model import own


@table(
    "script, shown, since",
    {
        "C1 one active, one idle": ("connect d1, 1s, connect d2, idle d2", "online", 0),
        "C1 the active one signs out: away since the other's activity": (
            "connect d1, 1s, connect d2, idle d2, 1m, act d1, bye d1",
            "online away",
            1 * S,
        ),
        "C1 the active one drops: nothing in its grace": (
            "connect d1, 1s, connect d2, idle d2, drop d1, 30s-1ms",
            "online",
            0,
        ),
        "C1 the active one drops: away after its grace": (
            "connect d1, 1s, connect d2, idle d2, drop d1, 30s",
            "online away",
            1 * S,
        ),
        "C2 a second device comes and dies": ("connect d1, 1s, connect d2, 1s, drop d2, 1m", "online", 0),
        "C2 it signs out": ("connect d1, 1s, connect d2, 1s, bye d2, 1m", "online", 0),
        "C2 it comes by REST and dies": ("connect d1, 1s, rest d2, 3m", "online", 0),
        "C2 of another platform": ("connect d1 as web, 1s, connect d2 as mobile, 1s, drop d2, 1m", "online", 0),
        "C2 while busy": ("connect d1, mode busy, connect d2, 1s, drop d2, 1m", "online busy", 0),
        "the idle one drops": ("connect d1, connect d2, idle d2, drop d2, 1m", "online", 0),
        "an idle second device": ("connect d1, 5m, rest d2 idle, 1m", "online away", 0),
        "a second device wakes": ("connect d1, 5m, connect d2", "online away online", 5 * M),
        "activity of nobody in particular": ("connect d1, connect d2, 5m, user-acts", "online away online", 5 * M),
        "activity through another node outlives an older word of idleness": (
            "connect d1, 10s, idle d1, 10s, user-acts via n2, 10s, look",
            "online away online",
            20 * S,
        ),
        "until it is said again": (
            "connect d1, 10s, idle d1, 10s, user-acts via n2, 10s, idle d1",
            "online away online away",
            20 * S,
        ),
    },
)
def test_the_status_of_a_user_combines_all_their_devices(script, shown, since):
    story = Story().play(script)
    story.saw(shown)
    assert story.since == since


@table(
    "script, shown",
    {
        "C3 two tabs are one device": ("connect d1, connect d1, 1m", "online"),
        "C3 closing one changes nothing": ("connect d1, connect d1, 1m, drop d1, 3m", "online"),
        "C3 closing both": ("connect d1, connect d1, drop d1, drop d1, 30s", "online offline"),
        "C3 nothing counts up and down": (
            "connect d1, connect d1, connect d1, drop d1, connect d1, drop d1, drop d1, drop d1, 30s",
            "online offline",
        ),
        "C3 tabs on two nodes": ("connect d1, connect d1 on n2, drop d1, 1m", "online"),
        "C3 tabs on two nodes, both closed": (
            "connect d1, connect d1 on n2, drop d1, drop d1 on n2, 30s",
            "online offline",
        ),
    },
)
def test_several_tabs_with_one_device_id_are_one_device(script, shown):
    story = Story().play("connect d1")
    assert story.devices == "d1"
    Story().play(script).saw(shown)


@table(
    "script, devices",
    {
        "a device on two nodes is one row": ("connect d1, connect d1 on n2, connect d0", "d0 d1"),
        "a device in grace is still listed": ("connect d1, connect d2, drop d2, 29s", "d1 d2"),
        "until its grace is over": ("connect d1, connect d2, drop d2, 30s", "d1"),
        "or it signs out": ("connect d1, connect d2, bye d2", "d1"),
    },
)
def test_a_user_sees_their_own_devices(script, devices):
    assert Story().play(script).devices == devices


def test_a_user_sees_which_of_their_devices_is_active_and_since_when():
    story = Story().play("1s, connect d1, 1s, connect d2 as mobile, idle d2, 1s, connect d2 on n2")
    rows = [(d.device, d.platform.word, d.active, d.since - story.now) for d in own(story.record).devices]
    assert rows == [("d1", "other", True, -2 * S), ("d2", "mobile", False, -1 * S)]


@table(
    "script, platforms",
    {
        "C8 of the device": ("connect d1 as web", "web"),
        "C8 offline: none": ("connect d1 as web, bye d1", ""),
        "C8 hidden: none": ("connect d1 as web, mode invisible", ""),
        "C8 a second one is no news by itself": ("connect d1 as web, connect d2 as mobile", "web"),
        "C8 but is told with the next change": ("connect d1 as web, connect d2 as mobile, mode busy", "web mobile"),
        "C8 in grace": ("connect d1 as web, drop d1, 29s", "web"),
        "C8 the announced one is gone": ("connect d1 as web, connect d2 as mobile, bye d1", "mobile"),
        "C8 the announced one is gone after its grace": (
            "connect d1 as web, connect d2 as mobile, drop d1, 30s",
            "mobile",
        ),
        "C8 the announced one in grace": ("connect d1 as web, connect d2 as mobile, drop d1, 29s", "web"),
        "C8 one of two announced is gone": ("connect d1 as web, connect d2 as mobile, mode busy, bye d2", "web"),
        "C8 the same platform twice": ("connect d1 as web, connect d2 as web, mode busy, bye d2", "web"),
        "C8 shown again": (
            "connect d1 as web, mode invisible, connect d2 as mobile, bye d1, connect d3 as desktop, mode auto",
            "desktop",
        ),
        "C8 frozen in grace": (
            "connect d1 as web, connect d2 as mobile, mode busy, drop d1, 10s, drop d2, 25s",
            "web mobile",
        ),
        "C8 the device comes back as another": ("connect d1 as web, drop d1, connect d1 as mobile", "mobile"),
    },
)
def test_the_shown_platforms_agree_with_the_shown_status(script, platforms):
    assert Story().play(script).platforms == platforms


def test_when_the_only_device_of_a_shown_platform_leaves_viewers_see_one_change():
    story = Story().play("connect d1 as web, connect d2 as mobile, bye d1").saw("online online")
    assert story.since == 0, "since moves only with the status"
