"""Decodes client frames: strictly, and for the most common ones by looking up their exact bytes.

Unknown fields are ignored. Values are checked later, by `frame.command(now)`.
"""

from __future__ import annotations

import json
import typing

import msgspec

from herenow.errors import ProtocolError
from herenow.wire.frames import MAX_ECHO, Active, Away, Command, Frame, FrameId, HeartbeatCommand
from herenow.wire.inputs import Activity
from herenow.wire.json_text.nesting import is_too_deep
from herenow.wire.json_text.strict_json import StrictDecoder

MAX_ID = 64  # characters of a frame's `id` when printed
COMMON_LENGTH = 80  # bytes; no key of COMMON is longer, so that large frames need not be hashed


def decode_frame(payload: bytes) -> Frame:
    """Decode a client's frame, without checking its values; `frame.command(now)` checks them. Raises `ProtocolError`
    (`bad_json`, `bad_shape`, `unknown_type`) and nothing else, whatever the bytes are."""
    frame = _decoder.decode(payload)
    if not _is_frame_id(frame.id):
        raise ProtocolError("bad_shape", f"The id of a frame has at most {MAX_ID} characters.")
    return frame


def readable_id(payload: bytes) -> FrameId:
    """Return the `id` of a frame that could not be decoded, for the error frame that answers it; None if no valid id is
    found."""
    if is_too_deep(payload):
        return None
    try:
        value = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    return found if _is_frame_id(found) else None


def _is_frame_id(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        return False
    return value is None or len(str(value)) <= MAX_ID


def _misfit(value: object, why: str) -> ProtocolError:
    """Return the error for JSON that fits no frame: an unknown type, or the wrong shape for its type. `why`: the
    reason, for the message."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return ProtocolError("bad_shape", "A frame is a JSON object with a type, which is a string.")
    kind = value["type"]
    if kind not in TYPES:
        return ProtocolError("unknown_type", f"There is no frame of type {kind[:MAX_ECHO]!r}.")
    return ProtocolError("bad_shape", f"This is not a valid {kind}: {why}.")


def _common() -> dict[bytes, Command]:
    beat = "presence.heartbeat"
    known: list[tuple[dict[str, str], Command]] = [
        ({"type": beat}, HeartbeatCommand()),
        ({"type": beat, "activity_type": "active"}, HeartbeatCommand(Activity.ACTIVE)),
        ({"type": beat, "activity_type": "idle"}, HeartbeatCommand(Activity.IDLE)),
        ({"type": "presence.active"}, Active()),
        ({"type": "presence.away"}, Away()),
    ]
    return {payload: command for frame, command in known for payload in _spellings(frame)}


def _spellings(frame: dict[str, str]) -> tuple[bytes, bytes]:
    """Encode a frame twice: as JavaScript writes JSON, and as Python does (with spaces)."""
    return json.dumps(frame, separators=(",", ":")).encode(), json.dumps(frame).encode()


TYPES = frozenset(str(kind.__struct_config__.tag) for kind in typing.get_args(Frame))
COMMON = _common()
"""Commands of the frames that are nearly all of the traffic, by their exact bytes."""

BEATS = {payload: command.activity for payload, command in COMMON.items() if isinstance(command, HeartbeatCommand)}
"""The activities of the heartbeats in COMMON: handling one costs a dictionary lookup and creates no command."""

_decoder: StrictDecoder[Frame] = StrictDecoder(msgspec.json.Decoder(Frame), _misfit)
