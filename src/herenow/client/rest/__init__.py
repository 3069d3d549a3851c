"""REST from the client's side: `Rest` blocks, `AsyncRest` is awaited; both send the requests that `calls` defines."""

from herenow.client.rest.rest_clients import AsyncRest, Rest

__all__ = ["AsyncRest", "Rest"]
