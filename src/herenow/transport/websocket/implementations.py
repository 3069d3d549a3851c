"""The two implementations of WebSocket by name; only the one that is asked for is imported.

A third implementation is the reason to change this module.
"""

import asyncio
from collections.abc import Callable

from herenow.transport.websocket.contract import Acceptor, SocketLimits
from herenow.transport.websocket.registry import Sockets


def protocol_factory(
    name: str, acceptor: Acceptor, limits: SocketLimits, sockets: Sockets
) -> Callable[..., asyncio.BaseProtocol]:
    """Return what `uvicorn.Config(ws=…)` takes: "websockets", or picows for any other name.

    Raises `ConfigurationError` if the installed picows is not a known one.
    """
    if name == "websockets":
        from herenow.transport.websocket.websockets_socket import websockets_protocol

        return websockets_protocol(acceptor, limits, sockets)
    from herenow.transport.websocket.picows import picows_protocol

    return picows_protocol(acceptor, limits, sockets)
