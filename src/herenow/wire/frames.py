"""Frames that a client may send, and the commands they become.

Two steps. Decoding (`decode`) gives a frame, typed by msgspec; unknown fields are ignored, so that newer clients work with
older nodes. `frame.command(now)` gives a command: ids, instants and words are checked, and alternative forms of one request
become the same command. Where nothing is left to check, frame and command are one type. Permissions are not checked here.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from herenow.core.model import Custom, Mode
from herenow.errors import ProtocolError
from herenow.wire.ids import are_plain, parse_id
from herenow.wire.inputs import Activity, parse_activity, parse_custom, parse_mode
from herenow.wire.instants import parse_until

MAX_ECHO = 128  # characters of something invalid that are sent back

FrameId: TypeAlias = str | int | None


# --- Commands --------------------------------------------------------------------------------------------------------


class HeartbeatCommand(Struct, frozen=True):
    activity: Activity | None = None
    id: FrameId = None


class Targets(Struct, frozen=True):
    """The users that a subscribe or unsubscribe names: each once, in the order of first mention."""

    targets: tuple[str, ...] = ()
    invalid: tuple[tuple[str, str], ...] = ()
    """(what was sent, cut to MAX_ECHO; the reason). Denied one by one; the valid targets are processed."""
    single: bool = False
    """Sent as `target_user_id`: the answer is one frame."""
    contacts: bool = False
    id: FrameId = None


class Subscribe(Targets, frozen=True):
    pass


class Unsubscribe(Targets, frozen=True):
    pass


class SetPresence(Struct, frozen=True):
    mode: Mode | None = None
    """None: not mentioned, unchanged."""
    until: int | None = None
    has_custom: bool = False
    custom: Custom | None = None
    """With `has_custom`, None clears it."""
    id: FrameId = None


class TypingCommand(Struct, frozen=True):
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

    def __repr__(self) -> str:  # a token must not get into a log through a traceback
        return f"Refresh(token=…, id={self.id!r})"


class HeartbeatFrame(_Frame, frozen=True, tag="presence.heartbeat"):
    activity_type: str | None = None

    def command(self, _now: int) -> HeartbeatCommand:
        return HeartbeatCommand(parse_activity(self.activity_type), self.id)


class TargetsFrame(_Frame, frozen=True):
    target_user_id: object | UnsetType = UNSET
    target_user_ids: list[object] | UnsetType = UNSET
    contacts: bool = False

    def names_more_than(self, most: int) -> bool:
        """True if the frame lists more than `most` users, repeated ones included."""
        return self.target_user_ids is not UNSET and len(self.target_user_ids) > most

    def named(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...], bool, bool, FrameId]:
        """Check the users that the frame names, and return the fields of `Targets`."""
        single = self.target_user_id is not UNSET
        several = self.target_user_ids is not UNSET
        if single + several + self.contacts != 1:
            raise ProtocolError("bad_shape", "Name exactly one of target_user_id, target_user_ids and contacts (true).")
        values = [self.target_user_id] if single else self.target_user_ids or []
        return *_user_ids(values), single, self.contacts, self.id


class SubscribeFrame(TargetsFrame, frozen=True, tag="presence.subscribe"):
    def command(self, _now: int) -> Subscribe:
        return Subscribe(*self.named())


class UnsubscribeFrame(TargetsFrame, frozen=True, tag="presence.unsubscribe"):
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

    def command(self, _now: int) -> TypingCommand:
        has_to, has_room = self.to is not UNSET, self.room is not UNSET
        if has_to == has_room:
            raise ProtocolError("bad_shape", "presence.typing names exactly one of to and room.")
        return TypingCommand(
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
    HeartbeatCommand
    | Active
    | Away
    | Subscribe
    | Unsubscribe
    | SetPresence
    | TypingCommand
    | RoomOpen
    | RoomClose
    | Refresh
    | Bye
)


def _user_ids(values: list[object]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    if are_plain(values):
        return tuple(dict.fromkeys(values)), ()
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
