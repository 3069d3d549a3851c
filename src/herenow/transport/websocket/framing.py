"""What do frames mean, from the 101 to the end, whoever parses them? RFC 6455, sections 5 to 7.

Whole messages out of fragments, their cap, UTF-8, close codes, and an end in bounded time. `WebSocketConnection` is also the
`Socket`; an implementation is a subclass that only parses and writes frames. The RFC is the reason to change it.
"""

import asyncio
import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass

from herenow.transport.websocket.contract import CloseOnOpen, Handler
from herenow.transport.websocket.handshake import UpgradeCheck

log = logging.getLogger(__name__)
HANDLER_FAILED = "a handler failed; its connection is closed with 1011"

NORMAL = 1000
PROTOCOL_ERROR = 1002
NO_CODE = 1005  # the peer's CLOSE carried no code; never sent
INVALID_TEXT = 1007
TOO_BIG = 1009
INTERNAL_ERROR = 1011


class Opcode(enum.IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class ConnectionState(enum.Enum):
    OPEN = enum.auto()
    CLOSING = enum.auto()  # our CLOSE is out, the peer's has not come
    ENDING = enum.auto()  # no frame goes in or out any more; the connection is on its way down


class WebSocketConnection:
    """From the 101 to the end: what frames mean and how it ends, whoever parses them. It is also the `Socket`.

    OPEN ── close() ──► CLOSING ── the peer's CLOSE ──► ENDING: what is unsent goes out, then FIN
      ├── the peer's CLOSE, answered with its own code ──► ENDING
      ├── the peer broke the protocol: CLOSE ──► ENDING: FIN, and what it still sends is drained
      └── FIN, RST, abort ──► ENDING

    With the first step away from OPEN a deadline starts, behind which the connection is aborted. `on_gone` is the
    only exit. A subclass parses and writes frames.
    """

    __slots__ = ("_check", "_code", "_deadline", "_message", "_reason", "_state", "_tcp", "handler", "plain")

    def __init__(self, tcp: asyncio.Transport, check: UpgradeCheck, handler: Handler) -> None:
        self._tcp = tcp
        self._check = check
        self.handler = handler
        self._state = ConnectionState.OPEN
        self._message: Message | None = None  # a fragmented one under way
        self.plain = True  # open, and no fragmented message under way: an unfragmented text is in order
        self._code: int | None = None
        self._reason = ""
        self._deadline: asyncio.TimerHandle | None = None

    # What a subclass adds.

    def send_text(self, payload: bytes) -> None:
        raise NotImplementedError

    def ping(self) -> None:
        raise NotImplementedError

    def put_pong(self, payload: bytes) -> None:
        raise NotImplementedError

    def put_close(self, payload: bytes) -> None:
        raise NotImplementedError

    def hang_up(self) -> None:
        """Make `send_text` and `ping` no-ops from now on; may be called twice."""
        raise NotImplementedError

    # Beginning and end.

    @property
    def is_open(self) -> bool:
        return self._state is ConnectionState.OPEN

    def on_opened(self) -> None:
        """The 101 is out."""
        # uvloop's own low mark is 16 bytes (sic): a slow peer would have to take everything first.
        self._tcp.set_write_buffer_limits(high=self._check.limits.high_water)
        self._check.sockets.add(self)
        self._tell(lambda: self.handler.on_open(self))

    def on_gone(self) -> None:
        """The transport has said so: once."""
        self._leave(ConnectionState.ENDING)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._check.sockets.discard(self)
        # The handler holds us: let go of it, or both wait for the garbage collector.
        handler, self.handler = self.handler, _NOBODY
        try:
            handler.on_closed(self._code, self._reason)
        except Exception:
            log.exception("a handler failed in on_closed")

    # Frames.

    def on_frame(self, opcode: int, payload: bytes, *, fin: bool, reserved: bool) -> None:
        if self._state is ConnectionState.ENDING or (self._state is ConnectionState.CLOSING and opcode != Opcode.CLOSE):
            return
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

    def _on_fragment(self, opcode: int, payload: bytes, *, fin: bool) -> None:
        """A part of a message; an unfragmented one is first and last part."""
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
        said = read_close(payload)
        if isinstance(said, Fault):
            self.fail(said)
            return
        if self._state is ConnectionState.OPEN:
            self._code, self._reason = said
            self.put_close(payload[:2])  # its code, not its words
            self.handler.on_leaving()
        self._leave(ConnectionState.ENDING)
        self._end_within(self._check.limits.close_timeout)
        self._tcp.close()

    # Ends that we choose.

    def close(self, code: int, reason: str = "") -> None:
        if self._state is ConnectionState.OPEN:
            self._say_close(code, reason)
            self._leave(ConnectionState.CLOSING)
            self._end_within(self._check.limits.close_timeout)

    def abort(self) -> None:
        self._leave(ConnectionState.ENDING)
        self._tcp.abort()

    def buffered(self) -> int:
        return self._tcp.get_write_buffer_size()

    # Ends that the peer chooses.

    def fail(self, fault: "Fault") -> None:
        """It broke the protocol: say so, and listen no longer (RFC 6455, 7.1.7)."""
        if self._state is ConnectionState.ENDING:
            return
        if self._state is ConnectionState.OPEN:
            self._say_close(fault.code, fault.reason)
        self._leave(ConnectionState.ENDING)
        # Not a plain close: while data is unread that is an RST, and the peer might never see our code.
        self._tcp.set_protocol(Drain(self._tcp.get_protocol()))
        self._tcp.resume_reading()
        if self._tcp.can_write_eof():
            self._tcp.write_eof()
        self._end_within(self._check.limits.linger)

    def on_eof(self) -> None:
        """Its FIN. The transport closes itself once everything is sent; it does not get for ever."""
        self._tell(self.handler.on_leaving)
        self._leave(ConnectionState.ENDING)
        self._end_within(self._check.limits.close_timeout)

    # Its speed.

    def on_write_paused(self) -> None:
        # Who does not read our answers may not ask more, or the queue would have no bound.
        self._tcp.pause_reading()
        self._tell(self.handler.on_pause)

    def on_write_resumed(self) -> None:
        self._tcp.resume_reading()
        self._tell(self.handler.on_resume)

    def _tell(self, callback: Callable[[], None]) -> None:
        if self._state is ConnectionState.OPEN:
            try:
                callback()
            except Exception:
                log.exception(HANDLER_FAILED)
                self.close(INTERNAL_ERROR, "internal error")

    def _say_close(self, code: int, reason: str) -> None:
        self._code, self._reason = code, reason
        self.put_close(code.to_bytes(2, "big") + _cut(reason))

    def _leave(self, state: ConnectionState) -> None:
        self._state = state
        self.plain = False
        self._message = None
        self.hang_up()

    def _end_within(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._tcp.abort)


class Message:
    """The fragments so far. One buffer, not a list: a flood of empty fragments takes no room."""

    __slots__ = ("is_text", "payload")

    def __init__(self, *, is_text: bool) -> None:
        self.is_text = is_text
        self.payload = bytearray()


class Drain(asyncio.Protocol):
    """Reads on without listening until the peer has finished, so that our last words reach it."""

    __slots__ = ("_before",)

    def __init__(self, before: asyncio.BaseProtocol) -> None:
        self._before = before

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)


@dataclass(frozen=True, slots=True)
class Fault:
    """How a peer broke the protocol: the close code it gets, and the words."""

    code: int
    reason: str


NOT_UTF8 = Fault(INVALID_TEXT, "text is not UTF-8")
MESSAGE_TOO_BIG = Fault(TOO_BIG, "message too big")


def read_close(payload: bytes) -> tuple[int, str] | Fault:
    """Code and reason of a CLOSE frame."""
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
    """May it stand in a frame? RFC 6455, 7.4, and the registry it opened (1012 to 1014 came later)."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def is_utf8(payload: bytes | bytearray) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _cut(reason: str) -> bytes:
    """At most the 123 bytes that a CLOSE frame has room for, and no half character."""
    encoded = reason.encode()
    return encoded if len(encoded) <= 123 else encoded[:123].decode(errors="ignore").encode()


_NOBODY = CloseOnOpen(NORMAL)
