"""The fast WebSocket implementation: picows parses and writes frames in C, several times faster than other libraries.

picows is not strict. `framing` adds fragments, message size, UTF-8, reserved bits, close codes and an end within a bounded
time. `handshake.UpgradeCheck` reads the opening handshake; picows gets a minimal one, so that it keeps no client headers in
memory. picows' protocol class is not public: `picows.self_test` tests at start the behaviour that this module needs.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus

from multidict import CIMultiDict
from picows import WSAutoPingStrategy, WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeResponseWithListener
from picows.picows import WSProtocol  # type: ignore[attr-defined]  # not in its stubs

from herenow.transport.websocket.contract import Accept, Handler, Refuse
from herenow.transport.websocket.framing import (
    HANDLER_FAILED,
    INTERNAL_ERROR,
    NORMAL,
    NOT_UTF8,
    Fault,
    Opcode,
    WebSocketConnection,
    is_utf8,
)
from herenow.transport.websocket.handshake import UpgradeCheck, switching

log = logging.getLogger(__name__)

TEXT = WSMsgType.TEXT
CLOSE = WSMsgType.CLOSE

# picows' buffers grow with a large frame and never shrink: one subscribe with many contacts would cost each socket several
# KB for its lifetime. So large frames bypass the write buffer, and the read buffer is replaced after them.
_FITS = 1000  # bytes that fit into the write buffer of 1024 besides a frame header
_HEADER_ROOM = 14  # bytes that send_reuse_external_bytearray needs before the payload
_LARGE = 4096  # bytes; after a larger frame a new read buffer is worth its 40 µs


@lru_cache(maxsize=4)
def _with_header_room(payload: bytes) -> bytearray:
    """Return the payload after free bytes, into which picows writes the frame's header. The result is cached, so that
    all viewers of a frame share it: picows writes the same header each time and keeps no reference."""
    return bytearray(_HEADER_ROOM) + payload


class PicowsSocket(WebSocketConnection):
    __slots__ = ("_transport",)

    def __init__(self, tcp: asyncio.Transport, check: UpgradeCheck, handler: Handler) -> None:
        super().__init__(tcp, check, handler)
        self._transport: WSTransport | NullTransport = NULL_TRANSPORT

    def connect(self, transport: WSTransport) -> None:
        first = self._transport is NULL_TRANSPORT
        self._transport = transport
        if first:
            self.on_opened()

    def on_parser_error(self, fault: Fault) -> None:
        """Handle a malformed frame that picows found. It parses one frame ahead, so the frame before is not delivered
        yet: a CLOSE is handled and the malformed frame ignored; any other frame is dropped and the connection fails
        with `fault`."""
        handshake = self._transport.close_handshake
        if handshake is None or handshake.recv is None:
            self.fail(fault)
        else:
            code, reason = handshake.recv.code.value or NORMAL, handshake.recv.reason or ""
            self.on_frame(Opcode.CLOSE, code.to_bytes(2, "big") + reason.encode(), fin=True, reserved=False)

    def renew(self) -> None:
        """Continue the connection with a new protocol object that has a small read buffer. Call it only between frames,
        with no unread bytes."""
        if self.is_open:
            self._tcp.set_protocol(PicowsProtocol.for_open_connection(self._check, self._tcp, self))

    def send_text(self, payload: bytes) -> None:
        # Hot path: called for each viewer of a change.
        if len(payload) <= _FITS:
            self._transport.send(TEXT, payload)
        else:
            self._transport.send_reuse_external_bytearray(TEXT, _with_header_room(payload), _HEADER_ROOM)

    def ping(self) -> None:
        self._transport.send_ping()

    def put_pong(self, payload: bytes) -> None:
        self._transport.send_pong(payload)

    def put_close(self, payload: bytes) -> None:
        if payload:
            # After send_close(), picows sends no CLOSE of its own. Its enum lacks private codes.
            code = int.from_bytes(payload[:2], "big")
            self._transport.send_close(code, payload[2:])  # type: ignore[arg-type]
        else:
            self._transport.send(CLOSE, None)  # send_close() without a code would send the invalid code 0

    def hang_up(self) -> None:
        # Not a flag, which send_text would have to check.
        self._transport = NULL_TRANSPORT


class NullTransport:
    """Replaces picows' transport while nothing may be sent: every method does nothing."""

    __slots__ = ()
    close_handshake = None

    def send(self, *_frame: object) -> None: ...
    def send_reuse_external_bytearray(self, *_frame: object) -> None: ...
    def send_ping(self) -> None: ...
    def send_pong(self, _payload: bytes) -> None: ...
    def send_close(self, *_frame: object) -> None: ...


NULL_TRANSPORT = NullTransport()


class FrameListener(WSListener):
    __slots__ = ("_socket",)

    def __init__(self, socket: PicowsSocket) -> None:
        self._socket = socket

    def on_ws_connected(self, transport: WSTransport) -> None:
        # picows keeps the request, which is 1 KB, as long as the connection lives.
        request = transport.request
        request.headers = _NO_HEADERS
        request.method = request.version = b""
        self._socket.connect(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        socket = self._socket
        try:
            # Hot path of heartbeats: no avoidable call, copy or allocation.
            if socket.plain and frame.msg_type is TEXT and frame.fin and not (frame.rsv1 or frame.rsv2 or frame.rsv3):
                payload = frame.get_payload_as_bytes()
                if payload.isascii() or is_utf8(payload):
                    socket.handler.on_text(payload)
                else:
                    socket.fail(NOT_UTF8)
            else:
                socket.on_frame(
                    frame.msg_type.value,
                    frame.get_payload_as_bytes(),
                    fin=bool(frame.fin),
                    reserved=bool(frame.rsv1 or frame.rsv2 or frame.rsv3),
                )
            if frame.payload_size > _LARGE and not frame.tail_size:
                socket.renew()
        except Exception:
            log.exception(HANDLER_FAILED)
            socket.close(INTERNAL_ERROR, "internal error")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._socket.on_gone()

    def pause_writing(self) -> None:
        self._socket.on_write_paused()

    def resume_writing(self) -> None:
        self._socket.on_write_resumed()


_NO_HEADERS: CIMultiDict[str] = CIMultiDict()


class PicowsProtocol(WSProtocol):  # type: ignore[misc]  # not in its stubs
    """picows' protocol, started with the bytes of the handshake. It overrides no method that is called per frame."""

    __slots__ = ("_check", "_socket", "_tcp")

    def __init__(self, check: UpgradeCheck) -> None:
        # `_construct` calls picows' constructor after the check, so that refused connections get no buffers.
        self._check = check
        self._socket: PicowsSocket | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._tcp = transport

    def data_received(self, data: bytes) -> None:
        """Check and answer the opening handshake. Maybe called once more, with bytes that followed it in the same
        segment."""
        if self._tcp.is_closing():
            return
        if self._socket is not None:
            self._feed(data)
            return
        answer = self._check.decide(data, self._tcp)
        if isinstance(answer, Refuse):
            self._check.refuse(answer, self._tcp)
        else:
            self._open(*answer)

    def eof_received(self) -> bool:
        if self._socket is not None:
            self._socket.on_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._socket is not None:  # else picows' own constructor has not run
            super().connection_lost(exc)

    @classmethod
    def for_open_connection(cls, check: UpgradeCheck, tcp: asyncio.Transport, socket: PicowsSocket) -> "PicowsProtocol":
        """Return a new protocol object for a connection that is already open. picows needs a handshake, so it gets one;
        its 101 response is not sent."""
        protocol = cls(check)
        protocol._tcp = tcp
        protocol._attach(socket, None, "AAAAAAAAAAAAAAAAAAAAAA==", muted=True)
        return protocol

    def _open(self, accept: Accept, key: str) -> None:
        self._attach(PicowsSocket(self._tcp, self._check, accept.handler), accept.subprotocol, key, muted=False)

    def _attach(self, socket: PicowsSocket, subprotocol: str | None, key: str, *, muted: bool) -> None:
        guard = TransportGuard(self._tcp)
        self._socket = socket
        self._construct(socket, subprotocol)
        super().connection_made(guard)
        guard.muted = muted
        self._feed(
            b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % key.encode("ascii")
        )

    def _feed(self, data: bytes | memoryview) -> None:
        unread = memoryview(data)
        while unread:
            room = self.get_buffer(-1)
            taken = min(len(room), len(unread))
            room[:taken] = unread[:taken]
            unread = unread[taken:]
            self.buffer_updated(taken)
            successor = self._tcp.get_protocol()  # see PicowsSocket.renew
            if isinstance(successor, PicowsProtocol) and successor is not self:
                successor._feed(unread)
                return

    def _construct(self, socket: PicowsSocket, subprotocol: str | None) -> None:
        welcome = WSUpgradeResponseWithListener(_switching(subprotocol), FrameListener(socket))  # type: ignore[arg-type]
        # By keyword, although picows uses positions: a changed signature is then an error.
        super().__init__(
            host_port=None,  # for clients
            ws_path=None,  # for clients
            is_client_side=False,
            ws_listener_factory=lambda _request: welcome,
            logger=ParserErrorTap(socket),
            disconnect_on_exception=True,  # our listener raises none
            websocket_handshake_timeout=None,  # the handshake has been received
            enable_auto_ping=False,  # it costs a task per connection; see pinger.py
            auto_ping_idle_timeout=1.0,
            auto_ping_reply_timeout=1.0,
            auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
            enable_auto_pong=False,  # a ping is a sign of life, which the handler must get
            max_frame_size=self._check.limits.max_message,  # `framing` checks the size of the whole message
            extra_headers=None,  # for clients
            read_buffer_init_size=self._check.limits.read_buffer,
        )


class SwitchingResponse:
    """The 101 response for picows. Connections with the same subprotocol share one, because picows keeps it as long as the
    connection lives. Sharing is safe: picows sets the accept header and calls `to_bytes` immediately."""

    __slots__ = ("_subprotocol", "headers")

    status = HTTPStatus.SWITCHING_PROTOCOLS

    def __init__(self, subprotocol: str | None) -> None:
        self._subprotocol = subprotocol
        self.headers: dict[str, str] = {}

    def to_bytes(self) -> bytearray:
        return bytearray(switching(self.headers["Sec-WebSocket-Accept"], self._subprotocol))


_switching = lru_cache(maxsize=8)(SwitchingResponse)


class TransportGuard:
    """The transport for picows: it can write to the connection but not end it.

    After an error picows would close gracefully, which a peer that does not read can delay for ever. While `muted`, picows'
    101 is dropped; frames use the method that picows has stored before."""

    __slots__ = ("_tcp", "muted")

    def __init__(self, tcp: asyncio.Transport) -> None:
        self._tcp = tcp
        self.muted = False

    # Properties that return the transport's own methods: picows reads frequently used ones once and stores them.

    @property
    def write(self) -> Callable[[bytes], None]:
        return _discard if self.muted else self._tcp.write

    @property
    def writelines(self) -> Callable[[list[bytes]], None]:
        return self._tcp.writelines

    @property
    def get_write_buffer_size(self) -> Callable[[], int]:
        return self._tcp.get_write_buffer_size

    def get_extra_info(self, name: str) -> object:
        """Return this object as the "socket", and the transport's own "ssl_object". Other names give None: picows needs
        them only for its log."""
        if name == "socket":
            return self
        return self._tcp.get_extra_info(name) if name == "ssl_object" else None

    # Methods of a socket: picows needs its descriptor. Options that it sets are ignored: TCP_NODELAY is set by uvloop, and
    # TCP_QUICKACK would acknowledge the handshake in a segment of its own. It reads options only for its log.

    def fileno(self) -> int:
        number: int = self._tcp.get_extra_info("socket").fileno()
        return number

    def setsockopt(self, *_option: int) -> None: ...
    def getsockopt(self, *_option: int) -> int:
        return 0

    def close(self) -> None: ...
    def abort(self) -> None: ...


def _discard(_answer: bytes) -> None:
    pass


class ParserErrorTap:
    """The logger for picows, which reports a malformed frame only to its logger, before it acts.

    So the socket sends its own CLOSE first, and picows' CLOSE, the second one, is not sent. Only the close code and the
    reason in the arguments are used, not the message."""

    __slots__ = ("_socket",)

    def __init__(self, socket: PicowsSocket) -> None:
        self._socket = socket

    def error(self, _message: str, *args: object) -> None:
        match args:
            case ((int(code), str(words)),):
                self._socket.on_parser_error(Fault(int(code), words))
            case _:
                self._socket.on_parser_error(Fault(INTERNAL_ERROR, ""))

    def exception(self, message: str, *args: object) -> None:
        log.exception(message, *args)
        self._socket.fail(Fault(INTERNAL_ERROR, ""))

    def isEnabledFor(self, _level: int) -> bool:  # noqa: N802
        return False

    def log(self, *_line: object) -> None: ...
    def debug(self, *_line: object) -> None: ...
    def info(self, *_line: object) -> None: ...
    def warning(self, *_line: object) -> None: ...
