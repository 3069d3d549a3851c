"""The Python SDK: live presence over a WebSocket (`Herenow`), and REST for back ends (`Rest`, `AsyncRest`, `mint`).

It imports `wire` and `errors` but nothing else of the server, so that a back end does not load a presence server. The
rules that every client follows are in `spec/`.
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
