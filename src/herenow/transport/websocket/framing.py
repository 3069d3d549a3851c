"""Handling of frames after the 101 (RFC 6455, sections 5 to 7): fragments, message size, UTF-8, close codes, and an end
within a bounded time. An implementation subclasses `WebSocketConnection` and only parses and writes frames.
"""

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from herenow.transport.websocket.contract import CloseOnOpen, Handler, Pause
from herenow.transport.websocket.handshake import UpgradeCheck

log = logging.getLogger(__name__)
HANDLER_FAILED = "a handler failed; its connection is closed with 1011"

NORMAL = 1000
PROTOCOL_ERROR = 1002
NO_CODE = 1005  # the peer's CLOSE had no code; never sent
INVALID_TEXT = 1007
TOO_BIG = 1009
INTERNAL_ERROR = 1011

MOST_IGNORED = 1_000  # frames read after our CLOSE, while the peer's is awaited; then nothing is read any more
NO_PAUSE = Pause(0)


class Opcode(enum.IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class ConnectionState(enum.Enum):
    OPEN = enum.auto()
    CLOSING = enum.auto()  # our CLOSE was sent, the peer's has not come
    ENDING = enum.auto()  # frames are neither handled nor sent; the connection is about to close


class WebSocketConnection:
    """One connection after the 101, and its `Socket`.

    OPEN ── close() ──► CLOSING ── the peer's CLOSE ──► ENDING: unsent data is sent, then FIN
      ├── the peer's CLOSE, answered with its own code ──► ENDING
      ├── the peer broke the protocol: CLOSE ──► ENDING: FIN, and further input is dropped
      └── FIN, RST, abort ──► ENDING

    A deadline starts when the connection leaves OPEN; then it is aborted. Each connection ends with `on_gone`."""

    __slots__ = (
        "_check",
        "_code",
        "_deadline",
        "_ignored",
        "_kept",
        "_message",
        "_paused",
        "_reason",
        "_state",
        "_tcp",
        "handler",
        "plain",
    )

    def __init__(self, tcp: asyncio.Transport, check: UpgradeCheck, handler: Handler) -> None:
        self._tcp = tcp
        self._check = check
        self.handler = handler
        self._state = ConnectionState.OPEN
        self._message: Message | None = None  # an unfinished fragmented message
        self.plain = True  # OPEN, read, without an unfinished fragmented message: an unfragmented text is valid
        self._paused = NO_PAUSE
        self._kept: deque[tuple[int, bytes, bool, bool]] | None = None
        """Frames that were parsed but not handled, while reading is paused; None: it is not paused."""
        self._ignored = 0
        self._code: int | None = None
        self._reason = ""
        self._deadline: asyncio.TimerHandle | None = None

    # Implemented by a subclass.

    def send_text(self, payload: bytes) -> None:
        raise NotImplementedError

    def ping(self) -> None:
        raise NotImplementedError

    def put_pong(self, payload: bytes) -> None:
        raise NotImplementedError

    def put_close(self, payload: bytes) -> None:
        raise NotImplementedError

    def hang_up(self) -> None:
        """Make `send_text` and `ping` do nothing from now on. May be called twice."""
        raise NotImplementedError

    # Start and end.

    @property
    def is_open(self) -> bool:
        return self._state is ConnectionState.OPEN

    def on_opened(self) -> None:
        """Register the connection and call the handler's `on_open`. Call it when the 101 response was sent."""
        # uvloop's default low-water mark is 16 bytes: a slow peer would have to read everything before `on_resume`.
        self._tcp.set_write_buffer_limits(high=self._check.limits.high_water)
        self._check.sockets.add(self)
        self._notify(lambda: self.handler.on_open(self))

    def on_gone(self) -> None:
        """Unregister the connection and call the handler's `on_closed`. Call it once, when the transport is closed."""
        self._leave(ConnectionState.ENDING)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._check.sockets.discard(self)
        # Break the reference cycle with the handler; else both wait for the garbage collector.
        handler, self.handler = self.handler, _NO_HANDLER
        try:
            handler.on_closed(self._code, self._reason)
        except Exception:
            log.exception("a handler failed in on_closed")

    # Frames.

    def on_frame(self, opcode: int, payload: bytes, *, fin: bool, reserved: bool) -> None:
        if self._state is not ConnectionState.OPEN and self._is_ignored(opcode):
            return
        if self._kept is not None:
            self._kept.append((opcode, payload, fin, reserved))
            return
        if opcode != Opcode.TEXT or not fin:
            self.handler.on_other_frame(len(payload))
        if reserved:
            self.fail(Fault(PROTOCOL_ERROR, "reserved bits are set"))
        elif opcode == Opcode.PONG:
            self.handler.on_sign_of_life()
        elif opcode == Opcode.PING:
            self.put_pong(payload)
            self.handler.on_sign_of_life()
        elif opcode == Opcode.CLOSE:
            self._on_close(payload)
        else:
            self._on_fragment(opcode, payload, fin=fin)

    def _is_ignored(self, opcode: int) -> bool:
        if self._state is ConnectionState.CLOSING:
            if opcode == Opcode.CLOSE:
                return False
            self._ignored += 1
            if self._ignored == MOST_IGNORED and not self._tcp.is_closing():
                self._tcp.pause_reading()  # the deadline ends the connection
        return True

    def _on_fragment(self, opcode: int, payload: bytes, *, fin: bool) -> None:
        """Add a data frame to its message, and deliver the message if it is the last frame (`fin`). An unfragmented
        message is one frame with `fin`."""
        message = self._message
        if (opcode == Opcode.CONTINUATION) == (message is None):
            self.fail(Fault(PROTOCOL_ERROR, "fragments out of order"))
            return
        message = message or Message(is_text=opcode == Opcode.TEXT)
        message.payload += payload
        if len(message.payload) > self._check.limits.max_message:
            self.fail(MESSAGE_TOO_BIG)
            return
        self.plain = fin
        self._message = None if fin else message
        if fin:
            self._on_message(message)

    def _on_message(self, message: "Message") -> None:
        if not message.is_text:
            self.handler.on_binary()
        elif is_utf8(message.payload):
            self.handler.on_text(bytes(message.payload))
        else:
            self.fail(NOT_UTF8)

    def _on_close(self, payload: bytes) -> None:
        received = read_close(payload)
        if isinstance(received, Fault):
            self.fail(received)
            return
        if self._state is ConnectionState.OPEN:
            self._code, self._reason = received
            self.put_close(payload[:2])  # the peer's code without its reason
            self.handler.on_leaving()
        self._leave(ConnectionState.ENDING)
        self._end_within(self._check.limits.close_timeout)
        self._tcp.close()

    # Closed by the server.

    def close(self, code: int, reason: str = "") -> None:
        if self._state is ConnectionState.OPEN:
            self._send_close(code, reason)
            self._leave(ConnectionState.CLOSING)
            self._end_within(self._check.limits.close_timeout)

    def abort(self) -> None:
        self._leave(ConnectionState.ENDING)
        self._tcp.abort()

    def buffered(self) -> int:
        return self._tcp.get_write_buffer_size()

    # Closed by the peer.

    def fail(self, fault: "Fault") -> None:
        """Send a CLOSE with the code and reason of `fault`, because the peer broke the protocol, and ignore further
        input (RFC 6455, 7.1.7)."""
        if self._state is ConnectionState.ENDING:
            return
        if self._state is ConnectionState.OPEN:
            self._send_close(fault.code, fault.reason)
        self._leave(ConnectionState.ENDING)
        # A plain close with unread data sends RST, and the peer might never read our CLOSE.
        self._tcp.set_protocol(Drain(self._tcp.get_protocol()))
        self._tcp.resume_reading()
        if self._tcp.can_write_eof():
            self._tcp.write_eof()
        self._end_within(self._check.limits.linger)

    def on_eof(self) -> None:
        """Handle the peer's FIN: report it to the handler and set a deadline. The transport closes itself when all data
        is sent; the deadline limits the time for that."""
        self._notify(self.handler.on_leaving)
        self._leave(ConnectionState.ENDING)
        self._end_within(self._check.limits.close_timeout)

    # Back-pressure.

    @property
    def is_paused(self) -> bool:
        """True while frames of the peer are not handled."""
        return self._kept is not None or self._ignored >= MOST_IGNORED

    def pause_reading(self, why: Pause) -> None:
        if self._state is ConnectionState.OPEN:
            self._paused |= why
            if self._kept is None:
                self._kept = deque()
                self.plain = False
                self._tcp.pause_reading()

    def resume_reading(self, why: Pause) -> None:
        if self._paused & why:
            self._paused &= ~why
            if not self._paused:
                # Not at once: the caller may be inside the parser.
                asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        """Handle the frames that were kept, then read again. Stops if reading is paused meanwhile."""
        if self._paused or self._kept is None:
            return
        kept, self._kept = self._kept, None
        self.plain = self.is_open and self._message is None
        while kept and self._state is not ConnectionState.ENDING:
            opcode, payload, fin, reserved = kept.popleft()
            try:
                self.on_frame(opcode, payload, fin=fin, reserved=reserved)
            except Exception:
                log.exception(HANDLER_FAILED)
                self.close(INTERNAL_ERROR, "internal error")
            if self.is_paused:
                self._kept = kept
                return
        self.continue_reading()

    def continue_reading(self) -> None:
        """Read from the transport again; no frame is kept. A subclass may handle unparsed bytes first."""
        if not self._tcp.is_closing():
            self._tcp.resume_reading()

    def on_write_paused(self) -> None:
        # A peer that does not read answers must not send commands, or the write buffer would grow without limit.
        self.pause_reading(Pause.WRITES)
        self._notify(self.handler.on_pause)

    def on_write_resumed(self) -> None:
        self.resume_reading(Pause.WRITES)
        self._notify(self.handler.on_resume)

    def _notify(self, callback: Callable[[], None]) -> None:
        if self._state is ConnectionState.OPEN:
            try:
                callback()
            except Exception:
                log.exception(HANDLER_FAILED)
                self.close(INTERNAL_ERROR, "internal error")

    def _send_close(self, code: int, reason: str) -> None:
        self._code, self._reason = code, reason
        self.put_close(code.to_bytes(2, "big") + _cut(reason))

    def _leave(self, state: ConnectionState) -> None:
        self._state = state
        self.plain = False
        self._message = None
        self.hang_up()
        if self._kept is not None:
            self._paused = NO_PAUSE
            if state is ConnectionState.ENDING:
                self._kept = None
            else:  # the peer's CLOSE must be read; it may be among the kept frames
                asyncio.get_running_loop().call_soon(self._read_on)

    def _end_within(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._tcp.abort)


class Message:
    """The fragments received so far, in one buffer: in a list, a flood of empty fragments would take memory."""

    __slots__ = ("is_text", "payload")

    def __init__(self, *, is_text: bool) -> None:
        self.is_text = is_text
        self.payload = bytearray()


class Drain(asyncio.Protocol):
    """Reads and drops input until the peer has finished, so that our CLOSE reaches it."""

    __slots__ = ("_before",)

    def __init__(self, before: asyncio.BaseProtocol) -> None:
        self._before = before

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)


@dataclass(frozen=True, slots=True)
class Fault:
    """A violation of the protocol by the peer: close code and reason to send."""

    code: int
    reason: str


NOT_UTF8 = Fault(INVALID_TEXT, "text is not UTF-8")
MESSAGE_TOO_BIG = Fault(TOO_BIG, "message too big")


def read_close(payload: bytes) -> tuple[int, str] | Fault:
    if not payload:
        return NO_CODE, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not is_close_code(code):
        return Fault(PROTOCOL_ERROR, "invalid close code")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        return NOT_UTF8


def is_close_code(code: int) -> bool:
    """Return True if a CLOSE frame may contain this code (RFC 6455, 7.4; 1012 to 1014 were registered later)."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def is_utf8(payload: bytes | bytearray) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _cut(reason: str) -> bytes:
    """Encode a close reason, cut to the 123 bytes that fit into a CLOSE frame, without splitting a character."""
    encoded = reason.encode()
    return encoded if len(encoded) <= 123 else encoded[:123].decode(errors="ignore").encode()


_NO_HANDLER = CloseOnOpen(NORMAL)
