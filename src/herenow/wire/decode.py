"""Which frame do these bytes hold? Read strictly, refused with a code, and for nearly all of them looked up.

Fields that are not known are ignored. What a frame asks for is not looked at: `frame.command(now)` does that. A stricter
or faster way to read is the reason to change this module; a new kind of frame is none.
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
    """The frame, not yet understood: `frame.command(now)` checks its values.

    Raises `ProtocolError` with `bad_json`, `bad_shape` or `unknown_type`, and nothing else, whatever the bytes are.
    """
    frame = _decoder.decode(payload)
    if not _is_frame_id(frame.id):
        raise ProtocolError("bad_shape", f"The id of a frame has at most {MAX_ID} characters.")
    return frame


def readable_id(payload: bytes) -> FrameId:
    """The `id` of a frame that could not be decoded, if it can be read all the same."""
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
    """Why JSON that fits no frame does not: a type we do not know, or a shape that is not its type's."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return ProtocolError("bad_shape", "A frame is a JSON object with a type, which is a string.")
    kind = value["type"]
    if kind not in TYPES:
        return ProtocolError("unknown_type", f"There is no frame of type {kind[:MAX_ECHO]!r}.")
    return ProtocolError("bad_shape", f"This is not the shape of {kind}: {why}.")


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
    """As JavaScript writes it, and as Python does."""
    return json.dumps(frame, separators=(",", ":")).encode(), json.dumps(frame).encode()


TYPES = frozenset(str(kind.__struct_config__.tag) for kind in typing.get_args(Frame))
COMMON = _common()
"""The frames that make up nearly all traffic, by their exact bytes."""

BEATS = {payload: command.activity for payload, command in COMMON.items() if isinstance(command, HeartbeatCommand)}
"""The beats among them: one costs a look into a dict, and no command is looked at."""

_decoder: StrictDecoder[Frame] = StrictDecoder(msgspec.json.Decoder(Frame), _misfit)
