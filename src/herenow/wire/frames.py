"""What does a client want? From the bytes of a frame to a small command value.

Two steps with a seam between them. Decoding gives a frame: typed by msgspec, fields we do not know ignored, so that
newer clients can talk to older nodes. Understanding gives a command: ids, instants and words checked, the alternative
forms of one wish made alike. Who asks and whether they may is not known here.

Where nothing is left to check after decoding, frame and command are one type. A frame that repeats a key is refused:
two readers of it may see two wishes. A new kind of client frame is the reason to change this module.
"""

from __future__ import annotations

import json
import typing
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from herenow.core.model import Custom, Mode
from herenow.errors import ProtocolError
from herenow.wire.ids import parse_id
from herenow.wire.inputs import Activity, parse_activity, parse_custom, parse_mode
from herenow.wire.instants import parse_until

MAX_ID = 64  # characters of a frame's `id` when printed
MAX_ECHO = 128  # characters of something invalid that are sent back
COMMON_LENGTH = 80  # bytes; no key of COMMON is longer, so that large frames need not be hashed

FrameId: TypeAlias = str | int | None


# --- Commands --------------------------------------------------------------------------------------------------------


class Heartbeat(Struct, frozen=True):
    activity: Activity | None = None
    id: FrameId = None


class Targets(Struct, frozen=True):
    """Whom a subscribe or unsubscribe names: once each, in the order of their first mention."""

    targets: tuple[str, ...] = ()
    invalid: tuple[tuple[str, str], ...] = ()
    """(what was sent, cut to MAX_ECHO; the reason): denied one by one, the others go on."""
    single: bool = False
    """Asked by `target_user_id`: answered with one frame."""
    contacts: bool = False
    id: FrameId = None


class Subscribe(Targets, frozen=True):
    pass


class Unsubscribe(Targets, frozen=True):
    pass


class SetPresence(Struct, frozen=True):
    mode: Mode | None = None
    """None: not mentioned, stays as it is."""
    until: int | None = None
    has_custom: bool = False
    custom: Custom | None = None
    """With `has_custom`, None clears it."""
    id: FrameId = None


class Typing(Struct, frozen=True):
    """Exactly one of `to` and `room` is given."""

    to: str | None
    room: str | None
    typing: bool
    id: FrameId = None


class RoomOpen(Struct, frozen=True):
    room: str
    id: FrameId = None


class RoomClose(Struct, frozen=True):
    room: str
    id: FrameId = None


# --- Frames, and those that are commands as they are -----------------------------------------------------------------


class _Frame(Struct, frozen=True, tag_field="type", omit_defaults=True):
    id: FrameId = None


class Active(_Frame, frozen=True, tag="presence.active"):
    def command(self, _now: int) -> Active:
        return self


class Away(_Frame, frozen=True, tag="presence.away"):
    def command(self, _now: int) -> Away:
        return self


class Bye(_Frame, frozen=True, tag="presence.bye"):
    def command(self, _now: int) -> Bye:
        return self


class Refresh(_Frame, frozen=True, kw_only=True, tag="presence.refresh"):
    token: str

    def command(self, _now: int) -> Refresh:
        return self

    def __repr__(self) -> str:  # a token must not reach a log by way of a traceback
        return f"Refresh(token=…, id={self.id!r})"


class HeartbeatFrame(_Frame, frozen=True, tag="presence.heartbeat"):
    activity_type: str | None = None

    def command(self, _now: int) -> Heartbeat:
        return Heartbeat(parse_activity(self.activity_type), self.id)


class _TargetsFrame(_Frame, frozen=True):
    target_user_id: object | UnsetType = UNSET
    target_user_ids: list[object] | UnsetType = UNSET
    contacts: bool = False

    def named(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...], bool, bool, FrameId]:
        """The fields of `Targets`."""
        single = self.target_user_id is not UNSET
        several = self.target_user_ids is not UNSET
        if single + several + self.contacts != 1:
            raise ProtocolError(
                "bad_shape", "Name exactly one of target_user_id, target_user_ids and contacts (true)."
            )
        values = [self.target_user_id] if single else self.target_user_ids or []
        return *_user_ids(values), single, self.contacts, self.id


class SubscribeFrame(_TargetsFrame, frozen=True, tag="presence.subscribe"):
    def command(self, _now: int) -> Subscribe:
        return Subscribe(*self.named())


class UnsubscribeFrame(_TargetsFrame, frozen=True, tag="presence.unsubscribe"):
    def command(self, _now: int) -> Unsubscribe:
        return Unsubscribe(*self.named())


class SetFrame(_Frame, frozen=True, tag="presence.set"):
    mode: str | UnsetType = UNSET
    until: object | UnsetType = UNSET
    custom_status: object | UnsetType = UNSET

    def command(self, now: int) -> SetPresence:
        has_mode, has_custom = self.mode is not UNSET, self.custom_status is not UNSET
        if not has_mode and not has_custom:
            raise ProtocolError("bad_shape", "presence.set needs mode, custom_status or both.")
        if not has_mode and self.until is not UNSET:
            raise ProtocolError("bad_shape", "until belongs to a mode; a custom status has expires_at.")
        return SetPresence(
            mode=parse_mode(self.mode) if has_mode else None,
            until=parse_until(None if self.until is UNSET else self.until, "until", now),
            has_custom=has_custom,
            custom=parse_custom(self.custom_status, now) if has_custom else None,
            id=self.id,
        )


class TypingFrame(_Frame, frozen=True, tag="presence.typing"):
    to: object | UnsetType = UNSET
    room: object | UnsetType = UNSET
    typing: bool = True

    def command(self, _now: int) -> Typing:
        has_to, has_room = self.to is not UNSET, self.room is not UNSET
        if has_to == has_room:
            raise ProtocolError("bad_shape", "presence.typing names exactly one of to and room.")
        return Typing(
            to=_user_id(self.to) if has_to else None,
            room=parse_id(self.room) if has_room else None,
            typing=self.typing,
            id=self.id,
        )


class RoomOpenFrame(_Frame, frozen=True, kw_only=True, tag="room.open"):
    room: object

    def command(self, _now: int) -> RoomOpen:
        return RoomOpen(parse_id(self.room), self.id)


class RoomCloseFrame(_Frame, frozen=True, kw_only=True, tag="room.close"):
    room: object

    def command(self, _now: int) -> RoomClose:
        return RoomClose(parse_id(self.room), self.id)


Frame: TypeAlias = (
    HeartbeatFrame
    | Active
    | Away
    | SubscribeFrame
    | UnsubscribeFrame
    | SetFrame
    | TypingFrame
    | RoomOpenFrame
    | RoomCloseFrame
    | Refresh
    | Bye
)
Command: TypeAlias = (
    Heartbeat
    | Active
    | Away
    | Subscribe
    | Unsubscribe
    | SetPresence
    | Typing
    | RoomOpen
    | RoomClose
    | Refresh
    | Bye
)


# --- From bytes ------------------------------------------------------------------------------------------------------


def decode_frame(payload: bytes) -> Frame:
    """The frame, not yet understood: `frame.command(now)` checks its values.

    Raises `ProtocolError` with `bad_json`, `bad_shape` or `unknown_type`, and nothing else, whatever the bytes are.
    """
    try:
        frame = _decoder.decode(payload)
        _refuse_repeated_keys(payload.decode())
    except msgspec.ValidationError as error:
        raise _misfit(payload, error) from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(error) from None
    if not _is_frame_id(frame.id):
        raise ProtocolError("bad_shape", f"The id of a frame has at most {MAX_ID} characters.")
    return frame


def readable_id(payload: bytes) -> FrameId:
    """The `id` of a frame that could not be decoded, if it can be read all the same."""
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


def _refuse_repeated_keys(text: str) -> None:
    # msgspec keeps the last of two equal keys and cannot be told otherwise. A second reading costs 2 µs for a small
    # frame; beats do not come here.
    _key_checker.raw_decode(text.lstrip())


def _no_repetition(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise ProtocolError("bad_json", "A key is repeated in this JSON object.")


def _unreadable(error: Exception) -> ProtocolError:
    match error:
        case RecursionError():
            return ProtocolError("bad_json", "This JSON is nested too deeply.")
        case UnicodeDecodeError():
            return ProtocolError("bad_json", "This JSON is not UTF-8.")
        case msgspec.DecodeError():
            return ProtocolError("bad_json", f"This is not JSON that can be read: {error}.")
        case _:
            return ProtocolError("bad_json", "This JSON has a number that is too large.")


def _misfit(payload: bytes, mismatch: msgspec.ValidationError) -> ProtocolError:
    """Why JSON that fits no frame does not: a type we do not know, or a shape that is not its type's."""
    try:
        value = msgspec.json.decode(payload)
    except (ValueError, RecursionError) as error:
        return _unreadable(error)
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return ProtocolError("bad_shape", "A frame is a JSON object with a type, which is a string.")
    kind = value["type"]
    if kind not in TYPES:
        return ProtocolError("unknown_type", f"There is no frame of type {kind[:MAX_ECHO]!r}.")
    return ProtocolError("bad_shape", f"This is not the shape of {kind}: {mismatch}.")


def _user_ids(values: list[object]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    targets: dict[str, None] = {}
    invalid: dict[str, str] = {}
    for value in values:
        try:
            targets[parse_id(value)] = None
        except ProtocolError:
            invalid[_echo(value)] = "invalid_user_id"
    return tuple(targets), tuple(invalid.items())


def _user_id(value: object) -> str:
    try:
        return parse_id(value)
    except ProtocolError as error:
        raise ProtocolError("invalid_user_id", error.message) from None


def _echo(value: object) -> str:
    match value:
        case str():
            return value[:MAX_ECHO]
        case list():
            return "[…]"
        case dict():
            return "{…}"
        case int() if not isinstance(value, bool):
            return str(value)[:MAX_ECHO]
        case _:
            return msgspec.json.encode(value).decode()


def _spellings(frame: dict[str, str]) -> tuple[bytes, bytes]:
    """As JavaScript writes it, and as Python does."""
    return json.dumps(frame, separators=(",", ":")).encode(), json.dumps(frame).encode()


def _common() -> dict[bytes, Command]:
    beat = "presence.heartbeat"
    known: list[tuple[dict[str, str], Command]] = [
        ({"type": beat}, Heartbeat()),
        ({"type": beat, "activity_type": "active"}, Heartbeat(Activity.ACTIVE)),
        ({"type": beat, "activity_type": "idle"}, Heartbeat(Activity.IDLE)),
        ({"type": "presence.active"}, Active()),
        ({"type": "presence.away"}, Away()),
    ]
    return {payload: command for frame, command in known for payload in _spellings(frame)}


TYPES = frozenset(str(kind.__struct_config__.tag) for kind in typing.get_args(Frame))
COMMON = _common()
"""The frames that make up nearly all traffic, by their exact bytes: a beat costs one look into a dict."""

_decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)
_key_checker = json.JSONDecoder(object_pairs_hook=_no_repetition)
