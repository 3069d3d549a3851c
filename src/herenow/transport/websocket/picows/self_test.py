"""Tests at start that the installed picows behaves as `picows.socket` expects: `socket` depends on its internals.

One connection is simulated with a transport that records the output. So an incompatible picows is an error at start.
"""

import asyncio
import socket
from importlib.metadata import version

from herenow.errors import ConfigurationError
from herenow.transport.websocket.contract import Accept, CloseOnOpen, Socket, SocketLimits
from herenow.transport.websocket.framing import PROTOCOL_ERROR
from herenow.transport.websocket.handshake import UpgradeCheck
from herenow.transport.websocket.picows.socket import PicowsProtocol
from herenow.transport.websocket.registry import Sockets


def run_self_test() -> None:
    """Test with a simulated connection that the installed picows works as expected. Raises `ConfigurationError` if it
    does not."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        problem = loop.run_until_complete(_find_problem_in_loop())
        loop.close()
    else:
        problem = _find_problem()
    if problem:
        raise ConfigurationError(
            f"picows {version('picows')} does not work with this server ({problem}): install picows==2.3.* "
            "or use the slower WebSocket implementation, websockets"
        )


async def _find_problem_in_loop() -> str:
    return _find_problem()


def _find_problem() -> str:
    """Run a simulated connection through picows, and return the first difference from the expected behaviour; empty if
    there is none."""
    if not version("picows").startswith("2.3."):
        return "it is not a known version"
    echo = Echo()
    try:
        with socket.socket() as nowhere:
            transport = RecordingTransport(nowhere)
            protocol = PicowsProtocol(UpgradeCheck(lambda _upgrade: Accept(echo), SocketLimits(), Sockets(max_open=1)))
            protocol.connection_made(transport)
            protocol.data_received(_HANDSHAKE)
            protocol.data_received(b"\x81\x82\0\0\0\0hi")
            protocol.data_received(b"\x83\x80\0\0\0\0")  # a reserved opcode
            protocol.connection_lost(None)
    except (TypeError, ValueError, AttributeError, LookupError, RuntimeError) as error:
        return str(error)
    if not transport.sent.startswith(b"HTTP/1.1 101 ") or _PROOF not in transport.sent:
        return "the handshake was not answered"
    if b"\x81\x02hi\x88" not in transport.sent:
        return "a text was not echoed, or a malformed frame not answered with CLOSE"
    if echo.closed_with != [PROTOCOL_ERROR]:
        return "a malformed frame was not reported"
    return ""


_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: nowhere\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

_PROOF = b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n"  # for the key of `_HANDSHAKE`


class Echo(CloseOnOpen):
    __slots__ = ("closed_with", "send")

    def __init__(self) -> None:
        self.closed_with: list[int | None] = []

    def on_open(self, socket: Socket) -> None:
        self.send = socket.send_text

    def on_text(self, payload: bytes) -> None:
        self.send(payload)

    def on_closed(self, code: int | None, reason: str) -> None:
        self.closed_with.append(code)


class RecordingTransport(asyncio.Transport):
    def __init__(self, nowhere: socket.socket) -> None:
        super().__init__({"socket": nowhere})
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return 1  # simulates a slow peer: picows then calls `write` instead of writing to the descriptor

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.Protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False
