"""Parses instants, alike for frames and REST: integers of epoch milliseconds, or RFC 3339 text with a zone.

A time without a zone is refused: a guess would be wrong by hours for most users. `now` is an argument; no clock is read.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from herenow.errors import ProtocolError

HORIZON = 366 * 24 * 3600 * 1000  # ms: how far ahead an end may lie; a year, leap years included

_FARTHEST = 253_402_300_799_999  # ms: the end of the year 9999, the last that RFC 3339 can write
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ](?P<hour>[0-9]{2}):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,32})?"
    r"(?P<zone>[Zz]|[+-][0-9]{2}:[0-5][0-9])?"
)


def parse_instant(value: object, field: str) -> int:
    """Parse a time (epoch milliseconds, or RFC 3339 with a zone) into epoch milliseconds; fractions are cut off.
    `field`: its name, for the error. Raises `ProtocolError` (`invalid_instant`)."""
    if isinstance(value, bool):
        raise _invalid(field, "a boolean is not a time")
    if isinstance(value, int):
        return _in_calendar(value, field)
    if isinstance(value, str):
        return _from_text(value, field)
    raise _invalid(field, "it must be an integer or a string")


def parse_until(value: object, field: str, now: int) -> int | None:
    """Parse the time at which something ends, as `parse_instant` does; None: no end. Also raises `ProtocolError` for a
    time in the past (`instant_in_past`) or more than 366 days ahead (`instant_too_far`)."""
    if value is None:
        return None
    instant = parse_instant(value, field)
    if instant <= now:
        hint = " Integers are milliseconds, not seconds." if isinstance(value, int) else ""
        raise ProtocolError("instant_in_past", f"{field} must be in the future.{hint}")
    if instant > now + HORIZON:
        raise ProtocolError("instant_too_far", f"{field} may be at most 366 days ahead.")
    return instant


def _from_text(text: str, field: str) -> int:
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise _invalid(field, "this text is not RFC 3339, such as 2026-01-31T09:30:00Z")
    if match["zone"] is None:
        raise _invalid(field, "it has no zone: end it with Z or an offset such as +02:00")
    if match["hour"] == "24":  # valid in ISO 8601 and newer versions of Python, but not in RFC 3339
        raise _no_such_moment(field)
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise _no_such_moment(field) from None
    return (moment - _EPOCH) // _MILLISECOND


def _in_calendar(number: int, field: str) -> int:
    if abs(number) > _FARTHEST:
        raise _invalid(field, "this number is beyond the year 9999")
    return number


def _no_such_moment(field: str) -> ProtocolError:
    return _invalid(field, "there is no such date or time")


def _invalid(field: str, reason: str) -> ProtocolError:
    return ProtocolError("invalid_instant", f"{field} is epoch milliseconds or RFC 3339 with a zone; {reason}.")
