"""Selects the WebSocket implementation by name and imports only that one."""

import asyncio
from collections.abc import Callable

from herenow.transport.websocket.contract import Acceptor, SocketLimits
from herenow.transport.websocket.registry import Sockets


def protocol_factory(
    name: str, acceptor: Acceptor, limits: SocketLimits, sockets: Sockets
) -> Callable[..., asyncio.BaseProtocol]:
    """Return the function that makes an asyncio protocol for each WebSocket, for `uvicorn.Config(ws=…)`. Every `name`
    but "websockets" selects picows.

    Raises `ConfigurationError` if the installed picows fails its self-test."""
    if name == "websockets":
        from herenow.transport.websocket.websockets_socket import websockets_protocol

        return websockets_protocol(acceptor, limits, sockets)
    from herenow.transport.websocket.picows import picows_protocol

    return picows_protocol(acceptor, limits, sockets)
