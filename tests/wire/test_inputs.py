"""Values a user may choose; each refusal says what is allowed."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.core.model import Custom, Mode, Platform
from herenow.errors import ProtocolError
from herenow.wire.inputs import (
    SOURCES,
    Activity,
    parse_activity,
    parse_custom,
    parse_mode,
    parse_platform,
    parse_source,
)

NOW = 1_790_000_000_000
FAMILY = "👩‍👩‍👧‍👦"  # seven code points, joined by U+200D
HEART = "❤️"  # with a variation selector


def refused(parse, *arguments):
    with pytest.raises(ProtocolError) as refusal:
        parse(*arguments)
    assert refusal.value.message.endswith(".")
    return refusal.value.code


@pytest.mark.parametrize(
    ("word", "mode"), [("auto", Mode.AUTO), ("busy", Mode.BUSY), ("away", Mode.AWAY), ("invisible", Mode.INVISIBLE)]
)
def test_a_mode_is_parsed_from_its_name(word, mode):
    assert parse_mode(word) is mode


@pytest.mark.parametrize("word", ["", "Busy", "online", " busy", None, 1, True, [], {}])
def test_unknown_modes_are_refused(word):
    assert refused(parse_mode, word) == "invalid_mode"


@pytest.mark.parametrize("word", [*SOURCES, None])
def test_the_source_of_a_status_set_by_a_service_is_parsed_and_defaults_to_service(word):
    assert parse_source(word).word == (word or "service")


@pytest.mark.parametrize("word", ["user", "Call", "", "meeting", 2, True, ["call"], {}])
def test_a_service_may_not_name_the_user_or_an_unknown_source_as_the_source_of_a_status(word):
    assert refused(parse_source, word) == "invalid_source"


@pytest.mark.parametrize(
    ("word", "platform"),
    [
        (None, Platform.OTHER),
        ("", Platform.OTHER),
        ("other", Platform.OTHER),
        ("web", Platform.WEB),
        ("desktop", Platform.DESKTOP),
        ("mobile", Platform.MOBILE),
    ],
)
def test_a_platform_is_parsed_and_an_absent_platform_is_other(word, platform):
    assert parse_platform(word) is platform


@pytest.mark.parametrize("word", ["Web", "ios", 0, False, []])
def test_unknown_platforms_are_refused(word):
    assert refused(parse_platform, word) == "invalid_platform"


@pytest.mark.parametrize(("word", "activity"), [(None, None), ("active", Activity.ACTIVE), ("idle", Activity.IDLE)])
def test_the_activity_in_a_heartbeat_is_parsed_and_an_absent_activity_is_none(word, activity):
    assert parse_activity(word) is activity


@pytest.mark.parametrize("word", ["", "away", "ACTIVE", 1, True, {}])
def test_unknown_activities_in_a_heartbeat_are_refused(word):
    assert refused(parse_activity, word) == "invalid_activity"


@pytest.mark.parametrize(
    ("value", "custom"),
    [
        (None, None),
        ({"text": "lunch"}, Custom("lunch")),
        ({"text": "", "emoji": "🍜"}, Custom("", "🍜")),
        ({"emoji": "🍜"}, Custom("", "🍜")),
        ({"text": None, "emoji": FAMILY, "expires_at": None}, Custom("", FAMILY)),
        ({"text": "lunch", "emoji": None}, Custom("lunch")),
        ({"text": "lunch", "emoji": ""}, Custom("lunch")),
        ({"text": "a", "expires_at": NOW + 1}, Custom("a", "", NOW + 1)),
        ({"text": "a", "expires_at": "2026-09-21T14:13:21Z"}, Custom("a", "", NOW + 1000)),
        ({"text": "x" * 100}, Custom("x" * 100)),
        ({"text": FAMILY * 14 + HEART}, Custom(FAMILY * 14 + HEART)),  # exactly 100 code points
        ({"text": "\u200e\u200fשלום"}, Custom("\u200e\u200fשלום")),  # marks order text without overriding it
        ({"text": "a", "emoji": HEART}, Custom("a", HEART)),
        ({"text": "a", "emoji": "🍜" * 16}, Custom("a", "🍜" * 16)),
        ({"text": "a", "emoji": "x" * 32}, Custom("a", "x" * 32)),
    ],
)
def test_a_custom_status_is_parsed_from_text_emoji_and_end_time(value, custom):
    assert parse_custom(value, NOW) == custom


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ([], "bad_shape"),
        ("lunch", "bad_shape"),
        (5, "bad_shape"),
        ({"text": 5}, "bad_shape"),
        ({"text": "a", "emoji": ["🍜"]}, "bad_shape"),
        ({"text": "a", "until": NOW + 1}, "bad_shape"),
        ({"text": "a", "colour": "red"}, "bad_shape"),
        ({}, "invalid_text"),
        ({"text": ""}, "invalid_text"),
        ({"text": "", "emoji": ""}, "invalid_text"),
        ({"expires_at": NOW + 1}, "invalid_text"),
        ({"text": "x" * 101}, "text_too_long"),
        ({"text": FAMILY * 14 + HEART + "!"}, "text_too_long"),
        ({"text": "a\nb"}, "invalid_text"),
        ({"text": "a\x00"}, "invalid_text"),
        ({"text": "a\x7f"}, "invalid_text"),
        ({"text": "a\x85"}, "invalid_text"),
        *[({"text": f"a{chr(c)}b"}, "invalid_text") for c in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))],
        ({"text": "\ud800"}, "invalid_text"),
        ({"text": "a\udfffb"}, "invalid_text"),
        ({"text": "a", "emoji": "\u202e"}, "invalid_emoji"),
        ({"text": "a", "emoji": "\t"}, "invalid_emoji"),
        ({"text": "a", "emoji": "\udc00"}, "invalid_emoji"),
        ({"text": "a", "emoji": "x" * 33}, "invalid_emoji"),
        ({"text": "a", "emoji": "🍜" * 17}, "invalid_emoji"),
        ({"text": "a", "expires_at": NOW}, "instant_in_past"),
        ({"text": "a", "expires_at": NOW + 367 * 86_400_000}, "instant_too_far"),
        ({"text": "a", "expires_at": "2027-01-01T00:00:00"}, "invalid_instant"),
        ({"text": "a", "expires_at": 1.5}, "invalid_instant"),
    ],
)
def test_invalid_custom_statuses_are_refused(value, code):
    assert refused(parse_custom, value, NOW) == code


@given(st.text(min_size=1, max_size=100))
def test_a_custom_text_is_accepted_exactly_if_it_has_no_forbidden_character(text):
    forbidden = any(
        unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"
        for c in text
    )
    try:
        assert parse_custom({"text": text}, NOW) == Custom(text)
        assert not forbidden
    except ProtocolError:
        assert forbidden


def test_a_custom_status_as_the_server_sends_it_is_accepted_as_input():
    sent = {"text": "lunch", "emoji": "", "expires_at": None}
    assert parse_custom(sent, NOW) == Custom("lunch")
