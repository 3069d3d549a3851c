"""Protocol state of one connection, without the connection: messages in, commands or rejections out.

No bytes cause an exception. Frames that a correct client never sends (bad JSON, unknown type, wrong shape, binary) are
answered and counted; more than LIMIT within a minute close the connection. A well-formed command that is refused does not
count. The caller sends the frame of a rejection, and closes if it has a close code.
"""

from __future__ import annotations

import sys
from collections import deque

from msgspec import Struct

from herenow.errors import ProtocolError
from herenow.wire.codes import MALFORMED, Close
from herenow.wire.decode import COMMON, COMMON_LENGTH, decode_frame, readable_id
from herenow.wire.frames import Command, FrameId, TargetsFrame
from herenow.wire.shapes import error_frame

LIMIT = 20  # malformed frames within WINDOW that are forgiven
WINDOW = 60_000  # ms


class Rejection(Struct, frozen=True):
    """A refused message: the error frame that answers it."""

    frame: bytes
    code: str
    close: int | None = None
    """Send the frame, then close with this code."""


class Peer:
    """Protocol state of one connection. It needs every message of the connection, in the order of receipt."""

    __slots__ = ("_malformed_at",)

    def __init__(self) -> None:
        # Receipt times of the last malformed frames; None saves memory on most connections, which never have one.
        self._malformed_at: deque[int] | None = None

    def receive(self, payload: bytes, now: int, max_ids: int = sys.maxsize) -> Command | Rejection:
        """Decode a text message. Returns its command, or the rejection to send back. `max_ids`: users that one message
        may list."""
        if len(payload) <= COMMON_LENGTH:
            known = COMMON.get(payload)
            if known is not None:
                return known
        try:
            frame = decode_frame(payload)
        except ProtocolError as error:
            return self._reject(error, readable_id(payload), now)
        try:
            if isinstance(frame, TargetsFrame) and frame.names_more_than(max_ids):
                raise ProtocolError("too_many_ids", f"A frame may contain at most {max_ids} ids.")
            return frame.command(now)
        except ProtocolError as error:
            return self._reject(error, frame.id, now)

    def binary(self, now: int) -> Rejection:
        """Reject a binary message, whatever its content."""
        return self._reject(ProtocolError("binary_frame", "Frames are JSON in text messages."), None, now)

    def _reject(self, error: ProtocolError, frame_id: FrameId, now: int) -> Rejection:
        close = Close.BAD_FRAMES if error.code in MALFORMED and self._is_one_too_many(now) else None
        return Rejection(error_frame(error.code, error.message, frame_id), error.code, close)

    def _is_one_too_many(self, now: int) -> bool:
        if self._malformed_at is None:
            self._malformed_at = deque(maxlen=LIMIT + 1)
        times = self._malformed_at
        times.append(now)
        return len(times) > LIMIT and now - times[0] < WINDOW
