"""Encoders of every frame and status that leaves a node.

A status is encoded once per distinct view and sent to many, each time with another `as_of`. Therefore its *body* lacks the
end: bodies are compared and cached, and `as_of` is appended. REST uses the same bodies, so a value looks the same there. The
structs are the contract.
"""
# ruff: noqa: A002 - the protocol calls it `id`

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from herenow.core.model import Bucket, Custom, Mode, OwnView, Platform, Status, View
from herenow.wire.frames import FrameId

_encode = msgspec.json.Encoder().encode
_STATUSES = tuple(status.word for status in Status)
_MODES = tuple(mode.word for mode in Mode)
_PLATFORMS = tuple(platform.word for platform in Platform)
_BUCKETS = tuple(bucket.word for bucket in Bucket)

_Echo = str | int | UnsetType


# --- Structs: the contract, in the order of its fields ---------------------------------------------------------------


class CustomShape(Struct, frozen=True):
    text: str
    emoji: str
    """Empty: none."""
    expires_at: int | None


class StatusShape(Struct, frozen=True):
    """A status without `as_of`."""

    user_id: str
    status: str
    since: int | None
    last_seen: int | None
    custom_status: CustomShape | None
    platforms: tuple[str, ...]
    last_seen_bucket: str | UnsetType = UNSET
    stale: bool | UnsetType = UNSET
    delivery: str | UnsetType = UNSET


class DeviceShape(Struct, frozen=True):
    device_id: str
    platform: str
    active: bool
    since: int


class SelfShape(Struct, frozen=True, omit_defaults=True):
    status: str
    mode: str
    until: int | None
    custom_status: CustomShape | None
    devices: tuple[DeviceShape, ...]
    mode_source: str | None = None
    """The source of the mode: `user`, `call`, `service`, `calendar` or `schedule`. Absent: no source has a mode."""
    custom_source: str | None = None
    """The source of the custom status. Absent: there is none."""


class WelcomeLimits(Struct, frozen=True):
    subscriptions: int
    frame: int
    bulk: int


class Denied(Struct, frozen=True):
    target_user_id: str
    reason: str


class _ServerFrame(Struct, frozen=True, tag_field="type"):
    pass


class WelcomeFrame(_ServerFrame, frozen=True, tag="presence.welcome"):
    user_id: str
    device_id: str
    session_id: str
    beat_every: float
    idle_after: float
    server_time: int
    limits: WelcomeLimits


class DeniedFrame(_ServerFrame, frozen=True, tag="presence.subscribe.denied"):
    target_user_id: str
    reason: str
    id: _Echo = UNSET


class DeniedListFrame(_ServerFrame, frozen=True, tag="presence.subscribe.denied"):
    denied: tuple[Denied, ...]
    id: _Echo = UNSET


class UnsubscribedFrame(_ServerFrame, frozen=True, tag="presence.unsubscribed"):
    target_user_ids: tuple[str, ...]
    id: _Echo = UNSET


class TypingNoticeFrame(_ServerFrame, frozen=True, tag="presence.typing"):
    user_id: str
    expires_in: float
    to: str | UnsetType = UNSET
    room: str | UnsetType = UNSET


class ErrorFrame(_ServerFrame, frozen=True, tag="presence.error"):
    code: str
    message: str
    id: _Echo = UNSET


class OkFrame(_ServerFrame, frozen=True, tag="presence.ok"):
    id: _Echo = UNSET
    stale: bool | UnsetType = UNSET
    """True: the live store is unreachable. The database has the change, and viewers see it later."""


SERVER_TYPES = frozenset(
    (
        "presence.status",
        "presence.statuses",
        "presence.self",
        *(str(frame.__struct_config__.tag) for frame in _ServerFrame.__subclasses__()),
    )
)
"""Every type of frame that a node sends."""


# --- A status --------------------------------------------------------------------------------------------------------


def status_body(user_id: str, view: View, *, stale: bool = False) -> bytes:
    """Encode the status of a user as JSON without its last field `as_of` and the closing brace: the body. Bodies are
    equal if the statuses are. `with_as_of` completes it."""
    shape = StatusShape(
        user_id,
        _STATUSES[view.status],
        view.since,
        view.last_seen,
        None if view.custom is None else _custom(view.custom),
        tuple([_PLATFORMS[platform] for platform in view.platforms]),
        UNSET if view.bucket is None else _BUCKETS[view.bucket],
        True if stale else UNSET,
    )
    return _encode(shape)[:-1]


def with_delivery(body: bytes, delivery: str) -> bytes:
    """Add the field `delivery` to a body from `status_body`. It tells the viewer that changes of this user do not come
    at once."""
    return b'%b,"delivery":"%b"' % (body, delivery.encode())


def with_as_of(body: bytes, as_of: int) -> bytes:
    """Complete a body from `status_body` with the time `as_of`. The result is the status as REST returns it."""
    return body + closing_as_of(as_of)


def closing_as_of(as_of: int) -> bytes:
    """Encode the end of a status, the field `as_of` and the closing brace. It is the same for all statuses of one moment."""
    return b',"as_of":%d}' % as_of


def status_frame(body: bytes, as_of: int, id: FrameId = None) -> bytes:
    return b'{"type":"presence.status",%b,"as_of":%d%b}' % (body[1:], as_of, _id_field(id))


def statuses_frame(bodies: Iterable[bytes], as_of: int, id: FrameId = None) -> bytes:
    """Encode a frame of several statuses (bodies from `status_body`) of the same moment `as_of`."""
    closing = b',"as_of":%d}' % as_of
    joined = (closing + b",").join(bodies)
    return b'{"type":"presence.statuses","statuses":[%b%b]%b}' % (joined, joined and closing, _id_field(id))


def dated_statuses_frame(statuses: Sequence[tuple[bytes, int]], id: FrameId = None) -> bytes:
    """Encode a frame of several statuses, given as pairs of body (from `status_body`) and `as_of`. Usually all have the
    same `as_of`."""
    moments = {as_of for _, as_of in statuses}
    if len(moments) == 1:
        return statuses_frame([body for body, _ in statuses], moments.pop(), id)
    return closed_statuses_frame([with_as_of(*status) for status in statuses], id)


def closed_statuses_frame(statuses: Iterable[bytes], id: FrameId = None) -> bytes:
    """Encode a frame of several statuses that `with_as_of` has completed."""
    return b'{"type":"presence.statuses","statuses":[%b]%b}' % (b",".join(statuses), _id_field(id))


# --- The user's own presence -----------------------------------------------------------------------------------------


def self_body(view: OwnView) -> bytes:
    """Encode the user's own presence, for `GET /presence/me` and the frame `presence.self`. Unlike `status_body` it is
    complete JSON: it has no `as_of`."""
    return _encode(
        SelfShape(
            _STATUSES[view.status],
            _MODES[view.mode],
            view.until,
            None if view.custom is None else _custom(view.custom),
            tuple(DeviceShape(d.device, _PLATFORMS[d.platform], d.active, d.since) for d in view.devices),
            None if view.mode_source is None else view.mode_source.word,
            None if view.custom_source is None else view.custom_source.word,
        )
    )


def self_frame(body: bytes) -> bytes:
    return b'{"type":"presence.self",' + body[1:]


# --- Answers and the rest --------------------------------------------------------------------------------------------


def welcome_frame(
    *,
    user_id: str,
    device_id: str,
    session_id: str,
    beat_every: float,
    idle_after: float,
    server_time: int,
    limits: WelcomeLimits,
) -> bytes:
    """Encode the first frame of a connection. Durations are in seconds, `server_time` is in epoch milliseconds."""
    beat_every, idle_after = _seconds(beat_every), _seconds(idle_after)
    return _encode(WelcomeFrame(user_id, device_id, session_id, beat_every, idle_after, server_time, limits))


def denied_frame(target_user_id: str, reason: str, id: FrameId = None) -> bytes:
    return _encode(DeniedFrame(target_user_id, reason, _echo(id)))


def denied_list_frame(denied: Iterable[tuple[str, str]], id: FrameId = None) -> bytes:
    """Encode a frame of users that may not be watched. `denied`: (target, reason) pairs."""
    return _encode(DeniedListFrame(tuple(Denied(target, reason) for target, reason in denied), _echo(id)))


def unsubscribed_frame(targets: Iterable[str], id: FrameId = None) -> bytes:
    return _encode(UnsubscribedFrame(tuple(targets), _echo(id)))


def typing_frame(user_id: str, *, to: str | None = None, room: str | None = None, expires_in: float) -> bytes:
    """Encode a notice that `user_id` is typing to a user or in a room, valid for `expires_in` seconds; 0: has stopped."""
    return _encode(
        TypingNoticeFrame(user_id, _seconds(expires_in), UNSET if to is None else to, UNSET if room is None else room)
    )


def error_frame(code: str, message: str, id: FrameId = None) -> bytes:
    return _encode(ErrorFrame(code, message, _echo(id)))


def ok_frame(id: FrameId = None, *, stale: bool = False) -> bytes:
    return _encode(OkFrame(_echo(id), stale or UNSET))


def _custom(custom: Custom) -> CustomShape:
    return CustomShape(custom.text, custom.emoji, custom.until)


def _echo(id: FrameId) -> _Echo:
    return UNSET if id is None else id


def _id_field(id: FrameId) -> bytes:
    return b"" if id is None else b',"id":' + _encode(id)


def _seconds(duration: float) -> float:
    """Return whole seconds as an integer, so that JSON has 30 and not 30.0."""
    return int(duration) if duration == int(duration) else duration
