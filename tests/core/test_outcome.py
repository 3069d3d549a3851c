"""The outcome of `settle` besides the presence: news for viewers, the next wake-up, and whether to settle again."""

from tests.core.story import T0, H, M, S, Story, table

from herenow.core.edits import act, lose, set_custom, set_mode, sign_out
from herenow.core.model import Custom, Mode, Presence
from herenow.core.settle import Held, Timings, droppable, settle

N1 = "epoch-n1"
T = Timings()


@table(
    "script, wake",
    {
        "nothing to wait for": ("1s", None),
        "idleness": ("connect d1", 5 * M),
        "idleness of the first that acted": ("connect d1, 1s, connect d2", 5 * M),
        "idle already": ("connect d1, idle d1", None),
        "a REST deadline": ("rest d1", 90 * S),
        "the end of grace": ("connect d1, 1m, drop d1", 90 * S),
        "no idleness while all are in grace": ("connect d1, 5m-1s, drop d1", 5 * M + 29 * S),
        "a mode's end": ("mode busy for 1h", 1 * H),
        "a text's end": ("text tea for 2h", 2 * H),
        "the earliest of all": ("mode busy for 1h, text tea for 2m, connect d1", 2 * M),
        "gone": ("connect d1, bye d1", None),
        "hidden": ("connect d1, mode invisible for 1m", 1 * M),
    },
)
def test_recomputing_a_record_returns_the_time_of_the_next_timer(script, wake):
    assert Story().play(script).next_wake == wake


@table(
    "script, then, news, unsaved",
    {
        "connecting": ("1s", "connect d1", True, False),
        "a second device is news for the first": ("connect d1", "connect d2", True, False),
        "a second node is not": ("connect d1", "connect d1 on n2", False, False),
        "activity of one who is active": ("connect d1, 1m", "act d1", False, False),
        "activity of one who rested": ("connect d1, idle d1, 1ms", "act d1", True, False),
        "a loss is for the ledger": ("connect d1, 1m", "drop d1", False, True),
        "a return is for nobody": ("connect d1, drop d1, 10s", "connect d1", False, False),
        "offline is for everybody": ("connect d1, drop d1", "30s", True, False),
        "a mode": ("connect d1", "mode busy", True, True),
        "a mode while offline": ("1s", "mode busy", True, True),
        "a mode longer": ("mode busy for 1m", "mode busy for 2m", True, True),
        "another idle_after": ("connect d1", "idle-after 1m", False, False),
        "a sign-out elsewhere": ("connect d1, connect d1 on n2, connect d1 on n3", "bye d1", True, True),
    },
)
def test_recomputing_a_record_tells_what_is_news_for_viewers_and_what_the_ledger_must_save(script, then, news, unsaved):
    story = Story().play(script)
    before = len(story.outcomes)
    outcomes = story.play(then).outcomes[before:]
    assert any(o.news for o in outcomes) is news
    assert any(o.unsaved for o in outcomes) is unsaved


def test_an_offline_change_that_was_due_before_a_new_mode_is_committed_before_the_mode():
    """B2: the grace ended before the user chose; the choice is applied by the next settle."""
    story = Story().play("connect d1, drop d1, asleep 1m")
    outcome = settle(story.record, story.now, T, epoch=N1, edits=[set_mode(Mode.BUSY, None)])
    assert (outcome.applied, outcome.more, outcome.presence.mode) == (False, True, Mode.AUTO)
    outcome = settle(outcome.presence, story.now, T, epoch=N1, edits=[set_mode(Mode.BUSY, None)])
    assert (outcome.applied, outcome.more, outcome.presence.mode) == (True, False, Mode.BUSY)


def test_a_sign_out_is_committed_before_another_device_that_connects_at_the_same_time():
    """Sign-out of one device and connect of another: offline, then online."""
    story = Story().play("connect d1")
    held = [Held("d2", N1, T0, T0)]
    first = settle(story.record, story.now, T, epoch=N1, held=held, edits=[sign_out("d1", [N1])])
    assert (first.applied, first.more, first.presence.sessions) == (True, True, ())
    second = settle(first.presence, story.now, T, epoch=N1, held=held)
    assert (second.more, [s.device for s in second.presence.sessions]) == (False, ["d2"])


def test_edits_of_a_record_are_applied_one_after_the_other_in_the_given_order():
    """`lose` freezes the status as changed by the edits before it."""
    story = Story().play("rest d1, kill n1")
    outcome = settle(story.record, story.now, T, edits=[set_mode(Mode.BUSY, None), lose("d1")])
    assert outcome.presence.status.word == "busy"


def test_applying_the_same_edit_to_a_record_twice_gives_the_same_record():
    """After an unknown outcome the record is read again and the edit applied again."""
    edits = [
        set_mode(Mode.BUSY, T0 + H),
        set_mode(Mode.INVISIBLE, None),
        set_custom(Custom("tea", "🍵", T0 + H)),
        sign_out("d1"),
        lose("d2"),
        act(),
    ]
    for edit in edits:
        story = Story().play("connect d1, connect d3 on n2, rest d2 on n3")
        once = settle(story.record, story.now, T, edits=[edit])
        twice = settle(once.presence, story.now, T, edits=[edit])
        assert twice.presence == once.presence


@table(
    "script, may_go",
    {
        "a stranger": ("1s", True),
        "gone": ("connect d1, bye d1", True),
        "here": ("connect d1", False),
        "in grace": ("connect d1, drop d1", False),
        "a mode": ("connect d1, mode busy, bye d1", False),
        "invisible": ("mode invisible", False),
        "a text": ("connect d1, text tea, bye d1", False),
        "chose and cleared": ("mode busy, text tea, mode auto, no-text", True),
        "an idle_after, which the ledger has": ("idle-after 1m", True),
    },
)
def test_a_record_without_sessions_mode_and_text_may_be_dropped_from_the_store(script, may_go):
    assert droppable(Story().play(script).record) is may_go


def test_a_record_dropped_from_the_store_and_written_anew_has_a_higher_version_than_before():
    """E14: the record is dropped from the store and the user returns; every viewer must see it."""
    story = Story().play("connect d1, 1s, bye d1")
    before = story.record.version
    story.record = Presence(last_seen=story.record.last_seen)
    story.play("1s, connect d1")
    assert story.record.version > before


def test_record_versions_increase_within_a_millisecond_and_after_a_clock_step_back():
    story = Story().play("connect d1, connect d2, connect d3")
    version = story.record.version
    assert version == T0 + 2
    outcome = settle(story.record, T0 - H, T, edits=[set_mode(Mode.BUSY, None)])
    assert outcome.presence.version == version + 1


def test_an_unchanged_record_keeps_its_version():
    story = Story().play("connect d1, 1m")
    outcome = story._settled(story.nodes["n1"])
    assert outcome.presence is story.record
    assert (outcome.news, outcome.unsaved, outcome.more, outcome.change) == (False, False, False, None)
