"""The second WebSocket implementation: parses and writes frames with the library `websockets`, without its I/O.

It is pure Python and several times slower than picows. If a release of picows is defective or incompatible, an operator can
switch by a setting. The same tests run on both. `websockets` accepts a length in more bytes than needed, which the RFC
forbids; this is checked here.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Callable, Generator
from typing import cast

from websockets.exceptions import PayloadTooBig
from websockets.exceptions import ProtocolError as BrokenFrame
from websockets.frames import Frame, Opcode

from herenow.transport.websocket.contract import Accept, Acceptor, Handler, Refuse, SocketLimits
from herenow.transport.websocket.framing import (
    HANDLER_FAILED,
    INTERNAL_ERROR,
    MESSAGE_TOO_BIG,
    PROTOCOL_ERROR,
    Fault,
    WebSocketConnection,
)
from herenow.transport.websocket.handshake import UpgradeCheck, switching
from herenow.transport.websocket.registry import Sockets

log = logging.getLogger(__name__)

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
# RFC 6455, 5.2. Length in the second byte → end of the extended length in the header, its least and greatest value.
_LENGTHS = {126: (4, 126, 2**16 - 1), 127: (10, 2**16, 2**63 - 1)}


def websockets_protocol(
    acceptor: Acceptor, limits: SocketLimits, sockets: Sockets
) -> Callable[..., asyncio.BaseProtocol]:
    """Return the function that makes an asyncio protocol for each WebSocket, for `uvicorn.Config(ws=…)`."""
    check = UpgradeCheck(acceptor, limits, sockets)

    def protocol(**_of_uvicorn: object) -> asyncio.BaseProtocol:
        return WebsocketsProtocol(check)

    return protocol


class WebsocketsSocket(WebSocketConnection):
    __slots__ = ("_may_send",)

    def __init__(self, tcp: asyncio.Transport, check: UpgradeCheck, handler: Handler) -> None:
        super().__init__(tcp, check, handler)
        self._may_send = True

    def send_text(self, payload: bytes) -> None:
        self._put(Opcode.TEXT, payload)

    def ping(self) -> None:
        self._put(Opcode.PING, b"")

    def put_pong(self, payload: bytes) -> None:
        self._put(Opcode.PONG, payload)

    def put_close(self, payload: bytes) -> None:
        self._put(Opcode.CLOSE, payload)

    def hang_up(self) -> None:
        self._may_send = False

    def continue_reading(self) -> None:
        protocol = self._tcp.get_protocol()
        if isinstance(protocol, WebsocketsProtocol):
            protocol.parse_on()
        if not self.is_paused:
            super().continue_reading()

    def _put(self, opcode: Opcode, payload: bytes) -> None:
        if self._may_send:
            self._tcp.write(Frame(opcode, payload).serialize(mask=False))


class WebsocketsProtocol(asyncio.Protocol):
    """The protocol of a connection: `data_received` gets first the whole handshake, then any pieces of frames."""

    __slots__ = ("_check", "_frames", "_socket", "_tcp", "_unread")

    def __init__(self, check: UpgradeCheck) -> None:
        self._check = check
        self._socket: WebsocketsSocket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._tcp.is_closing():
            return
        if self._socket is not None:
            self._unread += data
            next(self._frames)
            return
        answer = self._check.decide(data, self._tcp)
        if isinstance(answer, Refuse):
            self._check.refuse(answer, self._tcp)
        else:
            self._open(*answer)

    def parse_on(self) -> None:
        """Parse the bytes that were received before reading was paused."""
        next(self._frames)

    def eof_received(self) -> bool:
        if self._socket is not None:
            self._socket.on_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._socket is not None:
            self._socket.on_gone()

    def pause_writing(self) -> None:
        if self._socket is not None:
            self._socket.on_write_paused()

    def resume_writing(self) -> None:
        if self._socket is not None:
            self._socket.on_write_resumed()

    def _open(self, accept: Accept, key: str) -> None:
        self._socket = WebsocketsSocket(self._tcp, self._check, accept.handler)
        self._unread = bytearray()
        self._frames = self._parse(self._socket)
        next(self._frames)
        self._tcp.write(switching(_proof(key), accept.subprotocol))
        self._socket.on_opened()

    def _parse(self, socket: WebsocketsSocket) -> Generator[None]:
        """Parse the frames of the connection for ever and pass them to `socket`; yields when more bytes are needed, and
        while reading is paused."""
        try:
            while True:
                while socket.is_paused:
                    yield
                yield from self._check_length()
                frame = yield from Frame.parse(self._read, mask=True, max_size=self._check.limits.max_message)
                _hand_over(frame, socket)
        except PayloadTooBig:
            socket.fail(MESSAGE_TOO_BIG)
        except BrokenFrame as error:
            socket.fail(Fault(PROTOCOL_ERROR, str(error)))
        yield  # after a failure `Drain` gets the input: the generator is not resumed

    def _check_length(self) -> Generator[None]:
        """Check the payload length in the next frame's header without consuming it; yields when more bytes are needed.
        Raises `BrokenFrame` if it is invalid."""
        while len(self._unread) < 2:
            yield
        end, least, most = _LENGTHS.get(self._unread[1] & 0x7F, (2, 0, 0))
        while len(self._unread) < end:
            yield
        if not least <= int.from_bytes(self._unread[2:end], "big") <= most:
            raise BrokenFrame("invalid length")

    def _read(self, size: int) -> Generator[None, None, bytes]:
        while len(self._unread) < size:
            yield
        taken = bytes(self._unread[:size])
        del self._unread[:size]  # moves no bytes, but keeps the memory
        if not self._unread:
            self._unread = bytearray()
        return taken


def _hand_over(frame: Frame, socket: WebsocketsSocket) -> None:
    try:
        # Frame.parse() has already refused reserved bits.
        socket.on_frame(frame.opcode, bytes(frame.data), fin=frame.fin, reserved=False)
    except Exception:
        log.exception(HANDLER_FAILED)
        socket.close(INTERNAL_ERROR, "internal error")


def _proof(key: str) -> str:
    """Return the value of Sec-WebSocket-Accept for the client's Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()
