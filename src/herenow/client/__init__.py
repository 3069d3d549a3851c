"""The Python SDK: live presence over a WebSocket (`Herenow`), and REST for back ends (`Rest`, `AsyncRest`, `mint`).

It knows the wire and nothing else of the server, and imports nothing heavy: a back end can use it without paying for a
presence server. The protocol's promises on the client's side are in `spec/`.
"""

from herenow.client.errors import Closed, HerenowError, ProtocolError, RestError, Unavailable
from herenow.client.live import Herenow, Watch
from herenow.client.presence import (
    Change,
    Custom,
    Device,
    Explanation,
    Me,
    Preferences,
    Presence,
    State,
    Typing,
    UserPage,
)
from herenow.client.rest import AsyncRest, Rest
from herenow.client.rest.calls import Beat, Relation
from herenow.client.tokens import mint

__all__ = [
    "AsyncRest",
    "Beat",
    "Change",
    "Closed",
    "Custom",
    "Device",
    "Explanation",
    "Herenow",
    "HerenowError",
    "Me",
    "Preferences",
    "Presence",
    "ProtocolError",
    "Relation",
    "Rest",
    "RestError",
    "State",
    "Typing",
    "Unavailable",
    "UserPage",
    "Watch",
    "mint",
]
