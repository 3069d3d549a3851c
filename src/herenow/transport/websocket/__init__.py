"""WebSockets, independent of presence: the contract of socket and handler, the opening handshake, framing, and two
implementations (picows, websockets). `protocol_factory` imports only the requested one.
"""

from herenow.transport.websocket.close_queue import CloseQueue
from herenow.transport.websocket.contract import (
    Accept,
    Acceptor,
    CloseOnOpen,
    Handler,
    Pause,
    Refuse,
    Socket,
    SocketLimits,
    Upgrade,
)
from herenow.transport.websocket.handshake import http_answer
from herenow.transport.websocket.implementations import protocol_factory
from herenow.transport.websocket.pending import PendingHandler
from herenow.transport.websocket.pinger import Pinger
from herenow.transport.websocket.registry import Sockets, connections_within, descriptors_allowed, sockets_within

__all__ = [
    "Accept",
    "Acceptor",
    "CloseOnOpen",
    "CloseQueue",
    "Handler",
    "Pause",
    "PendingHandler",
    "Pinger",
    "Refuse",
    "Socket",
    "SocketLimits",
    "Sockets",
    "Upgrade",
    "connections_within",
    "descriptors_allowed",
    "http_answer",
    "protocol_factory",
    "sockets_within",
]
