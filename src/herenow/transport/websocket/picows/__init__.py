"""WebSockets by picows, a parser in C: with strict checks (`socket`) and a test of the installed version (`self_test`)."""

import asyncio
from collections.abc import Callable

from herenow.transport.websocket.contract import Acceptor, SocketLimits
from herenow.transport.websocket.handshake import UpgradeCheck
from herenow.transport.websocket.picows.self_test import run_self_test
from herenow.transport.websocket.picows.socket import PicowsProtocol
from herenow.transport.websocket.registry import Sockets

__all__ = ["picows_protocol"]


def picows_protocol(acceptor: Acceptor, limits: SocketLimits, sockets: Sockets) -> Callable[..., asyncio.BaseProtocol]:
    """Return the function that makes an asyncio protocol for each WebSocket, for `uvicorn.Config(ws=…)`. Raises
    `ConfigurationError` if picows fails the self-test."""
    run_self_test()
    check = UpgradeCheck(acceptor, limits, sockets)

    def protocol(**_of_uvicorn: object) -> asyncio.BaseProtocol:
        return PicowsProtocol(check)

    return protocol
