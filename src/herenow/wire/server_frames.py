"""Decodes the frames of a server, for clients: the Python SDK and tests. The counterpart of `shapes`; change both together.

Unknown fields and frames of unknown type are ignored, so that an older client works with a newer server.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from herenow.wire.answers import StatusAnswer
from herenow.wire.shapes import (
    Denied,
    ErrorFrame,
    OkFrame,
    SelfShape,
    StatusShape,
    TypingNoticeFrame,
    UnsubscribedFrame,
    WelcomeFrame,
)

_Echo = str | int | UnsetType


class StatusFrame(StatusShape, frozen=True, kw_only=True, tag_field="type", tag="presence.status"):
    as_of: int
    id: _Echo = UNSET


class StatusesFrame(Struct, frozen=True, tag_field="type", tag="presence.statuses"):
    statuses: tuple[StatusAnswer, ...]
    id: _Echo = UNSET


class SelfFrame(SelfShape, frozen=True, tag_field="type", tag="presence.self"):
    pass


class AnyDeniedFrame(Struct, frozen=True, tag_field="type", tag="presence.subscribe.denied"):
    target_user_id: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    denied: tuple[Denied, ...] = ()
    id: _Echo = UNSET

    @property
    def all(self) -> tuple[Denied, ...]:
        if self.target_user_id is UNSET or self.reason is UNSET:
            return self.denied
        return (Denied(self.target_user_id, self.reason), *self.denied)


ServerFrame: TypeAlias = (
    WelcomeFrame
    | SelfFrame
    | StatusFrame
    | StatusesFrame
    | AnyDeniedFrame
    | UnsubscribedFrame
    | TypingNoticeFrame
    | ErrorFrame
    | OkFrame
)


def read_frame(payload: bytes | str) -> ServerFrame | None:
    """Decode a frame from a server; None if its type is unknown, or if it is not a frame."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_decoder: msgspec.json.Decoder[ServerFrame] = msgspec.json.Decoder(ServerFrame)
