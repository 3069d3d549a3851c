"""The `presence.set` frame for a mode and custom status. Pure; tested by `spec/vectors/choices.json`."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from msgspec import UNSET, UnsetType

from herenow.wire.frames import SetFrame

Until: TypeAlias = int | str | datetime | None
"""An end time: epoch milliseconds, an RFC 3339 string with a time zone, or an aware datetime. None: no end."""


def set_frame(
    *,
    mode: str | None = None,
    text: str | UnsetType | None = UNSET,
    emoji: str | UnsetType | None = UNSET,
    until: Until = None,
) -> SetFrame:
    """Make the frame that sets mode and custom status. Parameters that are left out stay unchanged on the server. Empty
    `text` and `emoji` clear the custom status."""
    end = instant(until)
    ends_mode = mode not in (None, "auto") and end is not None
    return SetFrame(
        mode=UNSET if mode is None else mode,
        until=end if ends_mode else UNSET,
        custom_status=UNSET if text is UNSET and emoji is UNSET else _custom(text or "", emoji or "", end),
    )


def instant(until: Until) -> int | str | None:
    """Convert `until` to the wire format: a datetime becomes epoch milliseconds. Raises `ValueError` if it has no
    zone."""
    if not isinstance(until, datetime):
        return until
    if until.tzinfo is None:
        raise ValueError("a datetime needs a time zone; use datetime.now(UTC) or .astimezone()")
    return round(until.timestamp() * 1000)


def _custom(text: str, emoji: str, end: int | str | None) -> dict[str, object] | None:
    return {"text": text, "emoji": emoji, "expires_at": end} if text or emoji else None
