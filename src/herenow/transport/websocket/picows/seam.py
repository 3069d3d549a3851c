"""Is the installed picows the one that `picows_socket` was made for? Tried when the server starts, before anybody connects.

One connection is played through with nobody on the other side. A change of picows that a version number does not show
is then a sentence at start, and not a server that answers wrongly. Another thing that we lean on is the reason to
change this module.
"""

import asyncio
import socket
from collections.abc import Callable
from importlib.metadata import version

from herenow.errors import ConfigurationError
from herenow.transport.websocket.contract import Accept, Acceptor, Farewell, Limits, Socket
from herenow.transport.websocket.framing import PROTOCOL_ERROR
from herenow.transport.websocket.handshake import Door
from herenow.transport.websocket.picows.socket import PicowsProtocol
from herenow.transport.websocket.registry import Sockets


def picows_protocol(
    acceptor: Acceptor, limits: Limits, sockets: Sockets
) -> Callable[..., asyncio.BaseProtocol]:
    """For `uvicorn.Config(ws=…)`. Raises `ConfigurationError` if the installed picows is not the one known here."""
    check_seam()
    door = Door(acceptor, limits, sockets)

    def protocol(**_of_uvicorn: object) -> asyncio.BaseProtocol:
        return PicowsProtocol(door)

    return protocol


def check_seam() -> None:
    """Play one connection through, with nobody on the other side, and compare what was written and called."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        problem = loop.run_until_complete(_rehearse_in_loop())
        loop.close()
    else:
        problem = _rehearse()
    if problem:
        raise ConfigurationError(
            f"picows {version('picows')} does not fit this gateway ({problem}): install picows==2.3.* "
            "or use the slower WebSocket implementation, websockets"
        )


async def _rehearse_in_loop() -> str:
    return _rehearse()


def _rehearse() -> str:
    """What is not as it should be, in a few words."""
    if not version("picows").startswith("2.3."):
        return "it is not a known version"
    echo = Echo()
    try:
        with socket.socket() as nowhere:
            stage = Stage(nowhere)
            protocol = PicowsProtocol(Door(lambda _upgrade: Accept(echo), Limits(), Sockets(max_open=1)))
            protocol.connection_made(stage)
            protocol.data_received(_HANDSHAKE)
            protocol.data_received(b"\x81\x82\0\0\0\0hi")
            protocol.data_received(b"\x83\x80\0\0\0\0")  # a reserved opcode
            protocol.connection_lost(None)
    except (TypeError, ValueError, AttributeError, LookupError, RuntimeError) as error:
        return str(error)
    if not stage.sent.startswith(b"HTTP/1.1 101 ") or _PROOF not in stage.sent:
        return "the handshake was not answered"
    if b"\x81\x02hi\x88" not in stage.sent:
        return "a text was not echoed, or a malformed frame not answered with CLOSE"
    if echo.closed_with != [PROTOCOL_ERROR]:
        return "a malformed frame was not reported"
    return ""


_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nhost: nowhere\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

_PROOF = b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n"  # that its key was read


class Echo(Farewell):
    __slots__ = ("closed_with", "send")

    def __init__(self) -> None:
        self.closed_with: list[int | None] = []

    def on_open(self, socket: Socket) -> None:
        self.send = socket.send_text

    def on_text(self, payload: bytes) -> None:
        self.send(payload)

    def on_closed(self, code: int | None, reason: str) -> None:
        self.closed_with.append(code)


class Stage(asyncio.Transport):
    """A transport that leads nowhere and remembers what was written."""

    def __init__(self, nowhere: socket.socket) -> None:
        super().__init__({"socket": nowhere})
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return 1  # as if the peer were slow: picows then writes here, and not to the descriptor

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.Protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...
    def resume_reading(self) -> None: ...
    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return False
