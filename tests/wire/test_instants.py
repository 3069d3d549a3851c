"""An instant is epoch milliseconds or RFC 3339 with a zone; nothing is guessed."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.errors import ProtocolError
from herenow.wire.instants import HORIZON, parse_instant, parse_until

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (-1, -1),
        (1_731_700_000_000, 1_731_700_000_000),
        ("1970-01-01T00:00:00Z", 0),
        ("2024-11-15T19:46:40Z", 1_731_700_000_000),
        ("2024-11-15T19:46:40.123Z", 1_731_700_000_123),
        ("2024-11-15T19:46:40.1239999Z", 1_731_700_000_123),
        ("2024-11-15T19:46:40.5Z", 1_731_700_000_500),
        ("2024-11-15t19:46:40z", 1_731_700_000_000),
        ("2024-11-15 19:46:40Z", 1_731_700_000_000),
        ("2024-11-15T21:46:40+02:00", 1_731_700_000_000),
        ("2024-11-15T14:16:40-05:30", 1_731_700_000_000),
        ("2024-11-15T19:46:40-00:00", 1_731_700_000_000),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
    ],
)
def test_a_time_is_parsed_from_epoch_milliseconds_or_rfc_3339(value, ms):
    assert parse_instant(value, "until") == ms


@pytest.mark.parametrize(
    "value",
    [
        True,
        1.0,
        1e12,
        None,
        [],
        {},
        b"0",
        "",
        "0",
        "1731700000000",
        "tomorrow",
        "2024-11-15",
        "2024-11-15T19:46Z",
        "2024-11-15T19:46:40",
        "2024-11-15T19:46:40.Z",
        "2024-11-15T19:46:40,5Z",
        "2024-11-15T19:46:40+0200",
        "2024-11-15T19:46:40+02",
        "2024-11-15T19:46:40+24:00",
        "2024-11-15T19:46:40+01:60",
        "2024-11-15T19:46:40 Z",
        "2024-11-15T19:46:40Z ",
        "2024-11-15T19:46:40Z\n",
        "2024-11-15T24:00:00Z",
        "2024-11-15T24:00:00+02:00",
        "2024-11-15T24:00:01Z",
        "2024-11-15t24:00:00.000z",
        "9999-12-31T24:00:00Z",
        "2024-11-15T25:00:00Z",
        "2024-11-15T19:60:00Z",
        "2023-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2024-W46-5T19:46:40Z",
        "20241115T194640Z",
        "٢٠٢٤-11-15T19:46:40Z",
        253_402_300_800_000,
        -253_402_300_800_000,
        10**400,
    ],
)
def test_an_invalid_time_is_refused_with_an_error_that_names_the_field(value):
    with pytest.raises(ProtocolError) as refusal:
        parse_instant(value, "expires_at")
    assert refusal.value.code == "invalid_instant"
    assert refusal.value.message.startswith("expires_at is epoch milliseconds or RFC 3339 with a zone; ")
    assert refusal.value.message.endswith(".")


def test_a_time_without_a_time_zone_is_refused_with_that_reason():
    with pytest.raises(ProtocolError) as refusal:
        parse_instant("2024-11-15T19:46:40", "until")
    assert "no zone" in refusal.value.message


@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_rfc_3339_times_are_parsed_like_python_datetimes(naive, offset):
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset)))
    exact = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_instant(moment.isoformat(), "until") == exact


def test_an_absent_end_time_is_accepted():
    assert parse_until(None, "until", NOW) is None


@pytest.mark.parametrize("value", [NOW + 1, NOW + 1000, NOW + HORIZON])
def test_an_end_time_within_a_year_is_accepted(value):
    assert parse_until(value, "until", NOW) == value


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (NOW, "instant_in_past"),
        (NOW - 1, "instant_in_past"),
        (0, "instant_in_past"),
        (-5, "instant_in_past"),
        ("1950-01-01T00:00:00Z", "instant_in_past"),
        (NOW + HORIZON + 1, "instant_too_far"),
        ("9999-12-31T23:59:59Z", "instant_too_far"),
        ("2027-01-01T00:00:00", "invalid_instant"),
        (True, "invalid_instant"),
    ],
)
def test_an_end_time_is_refused_if_it_is_past_or_over_a_year_ahead_or_has_no_time_zone(value, code):
    with pytest.raises(ProtocolError) as refusal:
        parse_until(value, "expires_at", NOW)
    assert refusal.value.code == code
    assert "expires_at" in refusal.value.message


def test_an_end_time_in_seconds_is_refused_with_a_hint_at_milliseconds():
    with pytest.raises(ProtocolError) as refusal:
        parse_until(NOW // 1000 + 60, "until", NOW)
    assert "milliseconds, not seconds" in refusal.value.message
