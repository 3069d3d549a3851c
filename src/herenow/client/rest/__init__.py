"""The REST clients: `Rest` blocks, `AsyncRest` is for asyncio; both send the requests that `calls` defines."""

from herenow.client.rest.rest_clients import AsyncRest, Rest

__all__ = ["AsyncRest", "Rest"]
