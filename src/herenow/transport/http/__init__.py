"""The HTTP side of the port: the listener with uvicorn behind it, first bytes, limits of peers, and event streams."""

from herenow.transport.http.listener import Listener
from herenow.transport.http.pipe import PIPE, Lender, PipeWriter, lender_of
from herenow.transport.http.sse import EventStream, Streaming

__all__ = ["PIPE", "EventStream", "Lender", "Listener", "PipeWriter", "Streaming", "lender_of"]
