"""HTTP: the listener with uvicorn, the choice between HTTP and WebSocket, limits per peer, and event streams."""

from herenow.transport.http.listener import Listener
from herenow.transport.http.pipe import PIPE, Lender, PipeWriter, lender_of
from herenow.transport.http.sse import EventStream, Streaming

__all__ = ["PIPE", "EventStream", "Lender", "Listener", "PipeWriter", "Streaming", "lender_of"]
