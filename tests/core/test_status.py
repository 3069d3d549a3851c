"""The rules of docs/what-a-status-means.md: the status of a record, its `since`, and what is shown of it."""

from tests.core.story import M, S, Story, ms, table


@table(
    "script, status, since",
    {
        # 1. no session live or in grace
        "never here": ("10s", "offline", None),
        "a mode does not make anybody visible": ("mode busy", "offline", None),
        "nor does a text": ("text hello", "offline", None),
        "grace is over": ("connect d1, 1s, drop d1, 30s", "offline", 1 * S),
        # 2. all in grace: frozen
        "in grace": ("connect d1, 1s, drop d1, 30s-1ms", "online", 0),
        "away in grace": ("connect d1, 10s, idle d1, 1s, drop d1, 20s", "away", 0),
        "idleness that falls due in grace": ("connect d1, 5m-1s, drop d1, 20s", "online", 0),
        "a mode chosen in grace": ("connect d1, 1s, drop d1, mode busy, 20s", "online", 0),
        "a mode that ends in grace": ("connect d1, mode busy for 9s, 1s, drop d1, 20s", "busy", 0),
        "activity of nobody in particular in grace": ("connect d1, idle d1, drop d1, user-acts, 1s", "away", 0),
        "a shorter idle_after in grace": ("connect d1, 1m, drop d1, idle-after 30s, 20s", "online", 0),
        "a longer idle_after in grace": ("connect d1, 5m, drop d1, idle-after 1h, 20s", "away", 0),
        "the first of two graces is over": ("connect d1, connect d2, idle d2, drop d2, 10s, drop d1, 25s", "online", 0),
        "the grace of the active one is over": (
            "connect d1, connect d2, idle d2, drop d1, 10s, drop d2, 25s",
            "online",
            0,
        ),
        # 3. modes
        "busy": ("connect d1, 1s, mode busy", "busy", 1 * S),
        "busy before connecting": ("mode busy, 1s, connect d1", "busy", 1 * S),
        "busy and idle": ("connect d1, 1s, mode busy, 10m", "busy", 1 * S),
        "away though active": ("connect d1, 1s, mode away, act d1", "away", 1 * S),
        "away by choice while idle": ("connect d1, 5m, mode away", "away", 0),
        "busy after idle": ("connect d1, 5m, mode busy", "busy", 5 * M),
        "auto again while active": ("connect d1, 1s, mode busy, 1s, mode auto", "online", 2 * S),
        "auto again while idle": ("connect d1, 1s, mode busy, 10m, mode auto", "away", 0),
        "from busy to away": ("connect d1, mode busy, 1s, mode away", "away", 1 * S),
        # 4. any session active within idle_after
        "just connected": ("1s, connect d1", "online", 1 * S),
        "a moment before idle": ("connect d1, 5m-1ms", "online", 0),
        "activity keeps": ("connect d1, 4m, act d1, 5m-1ms", "online", 0),
        "activity wakes": ("connect d1, 10m, act d1", "online", 10 * M),
        "one of two is active": ("connect d1, connect d2, 4m, act d2, 4m", "online", 0),
        "an active one in grace counts": ("connect d1, connect d2, idle d2, drop d1, 29s", "online", 0),
        "an idle phone joins": ("connect d1, 1s, rest d2 idle", "online", 0),
        # 5. otherwise away
        "idle": ("connect d1, 5m", "away", 0),
        "since the latest activity": ("connect d1, 2m, act d1, 10m", "away", 2 * M),
        "since the latest over all": ("connect d1, 1m, connect d2, 1m, act d1, 10m", "away", 2 * M),
        "idle by its own word": ("connect d1, 10s, idle d1", "away", 0),
        "both idle by their word": ("connect d1, 10s, connect d2, idle d1, idle d2", "away", 10 * S),
        "its own word outlives a longer idle_after": ("connect d1, idle d1, idle-after 1h", "away", 0),
        "an active one in grace falls idle": ("connect d1, connect d2, idle d2, 5m-1s, drop d1, 2s", "away", 0),
        "a new device is idle from the first": ("1s, rest d1 idle", "away", 1 * S),
    },
)
def test_a_status_and_its_since_time_follow_from_sessions_activity_and_mode(script, status, since):
    story = Story().play(script)
    assert (story.status, story.since) == (status, since)


@table(
    "script, shown",
    {
        "A1 connected and silent for an hour": ("connect d1, 1h", "online away"),
        "away, back, away": ("connect d1, 5m, act d1, 5m", "online away online away"),
        "B6 activity at the instant the timer fires": ("connect d1, asleep 5m, act d1, 5m-1ms", "online"),
        "B6 a moment later": ("connect d1, 5m, 1ms, act d1", "online away online"),
        "a laptop reloads beside an idle phone": ("connect d1, connect d2, idle d2, drop d1, 1s, connect d1", "online"),
        "idleness due inside grace yields one offline": ("connect d1, 5m-1s, drop d1, 1m", "online offline"),
        "the same said twice": ("connect d1, idle d1, 1s, idle d1, act d1, 1s, act d1", "online away online"),
        "busy twice": ("connect d1, mode busy, 1s, mode busy", "online busy"),
        "waking and leaving before anybody looked": (
            "connect d1, 5m, asleep 1s, act d1, drop d1",
            "online away online",
        ),
        "nobody looked for an hour": ("connect d1, asleep 1h, beat d1", "online away"),
        "nobody looked, then somebody acted": ("connect d1, asleep 1h, act d1", "online"),
        "nobody looked, then it left": ("connect d1, asleep 1h, drop d1, 29s", "online away"),
    },
)
def test_a_viewer_sees_each_status_change_once_and_in_order(script, shown):
    Story().play(script).saw(shown)


@table(
    "script, status",
    {
        "A6 busy": ("connect d1, mode busy, 1m", "busy"),
        "A6 away by choice": ("connect d1, mode away, 1m", "away"),
        "A6 away by idleness": ("connect d1, 6m", "away"),
        "A6 away by its own word": ("connect d1, idle d1, 1m", "away"),
        "A6 invisible": ("connect d1, mode invisible, 1m", "offline"),
        "online": ("connect d1, 1m", "online"),
    },
)
def test_a_heartbeat_without_activity_changes_neither_the_status_nor_the_record_of_a_user(script, status):
    story = Story().play(script)
    before = story.record
    story.play("beat d1")
    assert story.status == status
    assert story.record == before, "and costs no write"


def test_heartbeats_without_activity_do_not_delay_the_change_to_away():
    story = Story().play("connect d1")
    for _ in range(29):
        story.play("10s, beat d1")
    story.saw("online").play("10s, beat d1").saw("away")


def test_a_status_does_not_depend_on_how_often_the_record_is_recomputed():
    """The result does not depend on which node settles, and how often."""
    one, other = Story(), Story()
    one.play("connect d1, connect d2 on n2, idle d2 on n2, 3m, drop d1, 10s")
    other.play("connect d1, connect d2 on n2, idle d2 on n2, 1m, look, 1m, look, 1m, drop d1, look, 10s, look")
    assert one.view == other.view


@table(
    "limit, before, after",
    {
        "B8 longer: idle since six minutes is not idle at ten": ("10m", "away", "online"),
        "B8 longer, but not long enough": ("6m", "away", "away"),
        "B8 not longer than the time that passed": ("6m-1ms", "away", "away"),
        "B8 a moment longer": ("6m+1ms", "away", "online"),
    },
)
def test_a_longer_idle_after_setting_counts_from_the_last_stored_activity(limit, before, after):
    story = Story().play("connect d1, 6m")
    assert story.status == before
    assert story.play(f"idle-after {limit}").status == after
    story.passes(max(ms(limit) - story.time, 0))
    assert story.status == "away"


@table(
    "script, shown, since",
    {
        "B8 shorter: away at once, since the activity": ("connect d1, 2m, idle-after 1m", "online away", 0),
        "B8 shorter, due later": ("connect d1, 30s, idle-after 1m, 30s", "online away", 0),
        "B8 not restarted": ("connect d1, 30s, idle-after 1m, 30s-1ms", "online", 0),
        "the user's own is forgotten": ("connect d1, idle-after 1m, 30s, idle-after default, 4m", "online", 0),
        "set while away": ("idle-after 1m, 1s, connect d1, 1m", "online away", 1 * S),
    },
)
def test_a_shorter_idle_after_setting_counts_from_the_last_stored_activity(script, shown, since):
    story = Story().play(script)
    story.saw(shown)
    assert story.since == since
