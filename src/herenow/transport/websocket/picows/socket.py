"""How do WebSocket frames reach a handler fast? By picows, made strict.

picows parses and writes frames in C: several times the frames per CPU second of other stacks. Left alone it is not a
strict server, so this module adds what it leaves out: whole messages out of fragments, their cap, UTF-8, reserved
bits, close codes, and an end in bounded time. The opening handshake is read by `handshake.UpgradeCheck`; picows gets to see
a canonical one, so that nothing of the client's headers stays in memory.

picows' protocol class is not public: its constructor is positional and undocumented. `picows.self_test` therefore tries
what we lean on when the server starts, and says so when it is not as we know it. A new picows is the reason to
change this module.
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

# picows' buffers grow with a larger frame and never shrink: a list of contacts to watch, said once, would cost every
# socket several KB for life. So such frames go around the write buffer, and the read buffer is replaced after them.
_FITS = 1000  # bytes; what the write buffer of 1024 holds beside a frame header
_HEADER_ROOM = 14  # bytes; what send_reuse_external_bytearray asks for before the payload
_LARGE = 4096  # bytes; from here on a new read buffer is worth its 40 µs


@lru_cache(maxsize=4)
def _with_header_room(payload: bytes) -> bytearray:
    """One for all viewers of a frame: picows writes the same header each time, and keeps no reference."""
    return bytearray(_HEADER_ROOM) + payload


class PicowsSocket(WebSocketConnection):
    """The `Socket`: frames go out through picows' transport."""

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
        """Bytes that are no frame. picows parses one frame ahead: the one before them has not been delivered yet.

        If that was a CLOSE it counts, and what came behind it does not. Any other is dropped with its sender.
        """
        handshake = self._transport.close_handshake
        if handshake is None or handshake.recv is None:
            self.fail(fault)
        else:
            code, reason = handshake.recv.code.value or NORMAL, handshake.recv.reason or ""
            self.on_frame(Opcode.CLOSE, code.to_bytes(2, "big") + reason.encode(), fin=True, reserved=False)

    def renew(self) -> None:
        """Go on with a new protocol, whose read buffer is small; only between frames, with nothing left unread."""
        if self.is_open:
            self._tcp.set_protocol(PicowsProtocol.in_the_middle(self._check, self._tcp, self))

    def send_text(self, payload: bytes) -> None:
        # A fan-out calls this for every viewer.
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
            # send_close() and no other: behind it picows sends no CLOSE of its own. Its enum lacks private codes.
            code = int.from_bytes(payload[:2], "big")
            self._transport.send_close(code, payload[2:])  # type: ignore[arg-type]
        else:
            self._transport.send(CLOSE, None)  # send_close() without a code would send the invalid code 0

    def hang_up(self) -> None:
        # Not a flag: send_text stays as short as it is.
        self._transport = NULL_TRANSPORT


class NullTransport:
    """Takes the place of picows' transport while nothing may be sent: every method is a no-op."""

    __slots__ = ()
    close_handshake = None

    def send(self, *_frame: object) -> None: ...
    def send_reuse_external_bytearray(self, *_frame: object) -> None: ...
    def send_ping(self) -> None: ...
    def send_pong(self, _payload: bytes) -> None: ...
    def send_close(self, *_frame: object) -> None: ...


NULL_TRANSPORT = NullTransport()


class FrameListener(WSListener):
    """The listener that picows calls with every frame."""

    __slots__ = ("_socket",)

    def __init__(self, socket: PicowsSocket) -> None:
        self._socket = socket

    def on_ws_connected(self, transport: WSTransport) -> None:
        # picows keeps it for life; nobody needs it any more, and it is 1 KB.
        request = transport.request
        request.headers = _NO_HEADERS
        request.method = request.version = b""
        self._socket.connect(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        socket = self._socket
        try:
            # The way of a heartbeat: no call, copy or allocation that can be spared.
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
    """picows' protocol, entered the way uvicorn hands over: the handshake comes as bytes, once.

    It overrides nothing that is called per frame.
    """

    __slots__ = ("_check", "_socket", "_tcp")

    def __init__(self, check: UpgradeCheck) -> None:
        # picows' own constructor waits until the check has said yes: who is refused costs no buffers.
        self._check = check
        self._socket: PicowsSocket | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._tcp = transport

    def data_received(self, data: bytes) -> None:
        """The handshake; a second time, what came with it in one segment."""
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
    def in_the_middle(cls, check: UpgradeCheck, tcp: asyncio.Transport, socket: PicowsSocket) -> "PicowsProtocol":
        """A protocol for a connection that is open already: its handshake is for picows alone."""
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
        # By name, although picows itself goes by position: a change of order or meaning cannot slip through.
        super().__init__(
            host_port=None,  # for clients
            ws_path=None,  # for clients
            is_client_side=False,
            ws_listener_factory=lambda _request: welcome,
            logger=ParserErrorTap(socket),
            disconnect_on_exception=True,  # none gets out of our listener
            websocket_handshake_timeout=None,  # the handshake is here already
            enable_auto_ping=False,  # it costs a task per connection; see pinger.py
            auto_ping_idle_timeout=1.0,
            auto_ping_reply_timeout=1.0,
            auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
            enable_auto_pong=False,  # a ping is a sign of life: we want to see it
            max_frame_size=self._check.limits.max_message,  # the whole message is checked by us
            extra_headers=None,  # for clients
            read_buffer_init_size=self._check.limits.read_buffer,
        )


class SwitchingResponse:
    """The 101 that picows gets in place of its own response object; `to_bytes` makes it in one piece.

    Connections with the same subprotocol share one, because picows keeps it as long as the connection lives. picows puts
    the proof into the headers and asks for the bytes right behind that.
    """

    __slots__ = ("_subprotocol", "headers")

    status = HTTPStatus.SWITCHING_PROTOCOLS

    def __init__(self, subprotocol: str | None) -> None:
        self._subprotocol = subprotocol
        self.headers: dict[str, str] = {}

    def to_bytes(self) -> bytearray:
        return bytearray(switching(self.headers["Sec-WebSocket-Accept"], self._subprotocol))


_switching = lru_cache(maxsize=8)(SwitchingResponse)


class TransportGuard:
    """The transport that picows gets: it can write to the connection but not end it.

    After an error of its own it would close gracefully, which a peer that does not read can delay for ever. `muted`,
    it also keeps picows' 101 to itself; frames take the method that picows has looked up before.
    """

    __slots__ = ("_tcp", "muted")

    def __init__(self, tcp: asyncio.Transport) -> None:
        self._tcp = tcp
        self.muted = False

    # Properties that hand out the transport's own methods: picows looks up what it needs often once, and for good.

    @property
    def write(self) -> Callable[[bytes], None]:
        return _to_nobody if self.muted else self._tcp.write

    @property
    def writelines(self) -> Callable[[list[bytes]], None]:
        return self._tcp.writelines

    @property
    def get_write_buffer_size(self) -> Callable[[], int]:
        return self._tcp.get_write_buffer_size

    def get_extra_info(self, name: str) -> object:
        """What is asked for a line in the log that nobody reads is not looked up."""
        if name == "socket":
            return self
        return self._tcp.get_extra_info(name) if name == "ssl_object" else None

    # As a socket: picows needs its number. The options it would set are set (uvloop: TCP_NODELAY) or cost a segment of their
    # own (TCP_QUICKACK: the handshake is acknowledged alone, and not by the 101); those it asks for are for its log.

    def fileno(self) -> int:
        number: int = self._tcp.get_extra_info("socket").fileno()
        return number

    def setsockopt(self, *_option: int) -> None: ...
    def getsockopt(self, *_option: int) -> int:
        return 0

    def close(self) -> None: ...
    def abort(self) -> None: ...


def _to_nobody(_answer: bytes) -> None:
    pass


class ParserErrorTap:
    """The logger that picows gets: picows reports a malformed frame to its logger only, before it acts.

    So the socket fails in our way first, and picows' own CLOSE, being the second, is not sent. The text of a logged
    line is not used, only that there was an error and the close code in its arguments.
    """

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
