"""What does a server say? The frames and answers of `shapes`, read from the other side.

For clients: the Python SDK and tests. Fields that are not known here are ignored, and so is a frame of an unknown type:
an older client goes on talking to a newer server. What is done with a frame is not known here.

A change of what the server says is the reason to change this module, together with `shapes`.
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
    """One denial, or a list of them."""

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
    """None: it is not of our time, or not a frame at all."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_decoder: msgspec.json.Decoder[ServerFrame] = msgspec.json.Decoder(ServerFrame)
