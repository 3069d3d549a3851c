"""uvicorn's HTTP protocol with the corrections this server needs; a new uvicorn is the reason to change this module.

`HttpProtocol` hands a connection over to WebSocket without losing bytes, lends an endpoint the transport (`pipe`), bounds
the time a silent client may hold a connection and the length of a URL. `CoalescingTransport` writes the head of a response
together with its body.
"""

import asyncio
import sys
from weakref import WeakMethod

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from herenow.transport.http.pipe import PIPE, PipeWriter

LONGEST_URL = 32_768  # bytes of an address that are kept: more than anybody takes


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, corrected where it hands a connection over to WebSocket; for `uvicorn.Config(http=…)`."""

    _segment = b""
    _writer: PipeWriter | None = None
    """The writer that the transport is lent to (`pipe`)."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Who connects and says nothing would hold a descriptor for ever: uvicorn's timer starts with its first answer.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Weakly: we hold the scope, and a connection that is closed must not wait for the garbage collector.
        self.scope["extensions"] = {PIPE: WeakMethod(self._lend)}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        cycle: RequestResponseCycle | None = self.cycle
        # Not for HEAD, where uvicorn writes nothing behind the head; nor again, when this request got no cycle of its own.
        if cycle is not None and cycle.transport is self.transport and cycle.scope["method"] != "HEAD":
            cycle.transport = CoalescingTransport(self.transport)  # type: ignore[assignment]

    def _lend(self, writer: PipeWriter) -> asyncio.Transport:
        self._writer = writer
        return self.transport

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writer is not None:
            self._writer.on_pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writer is not None:
            self._writer.on_resume()

    def connection_lost(self, exc: Exception | None) -> None:
        writer, self._writer = self._writer, None
        super().connection_lost(exc)
        if writer is not None:  # uvicorn tells the newest request, which is another one if the client did not wait
            writer.on_gone()

    def on_url(self, url: bytes) -> None:
        # httptools cannot take more than 64 KiB apart, and uvicorn would gather it without end. Whoever reads an address
        # refuses one that is half as long, in words of their own; so its end need not be kept.
        self.url = (self.url + url)[:LONGEST_URL]

    def data_received(self, data: bytes) -> None:
        self._segment = data
        super().data_received(data)
        self._segment = b""

    def handle_websocket_upgrade(self) -> None:
        if self.parser.get_http_version() != "1.1" or self._is_answering():
            # An answer still under way would be written into the middle of the frames.
            self.send_400_response("A WebSocket is opened with HTTP/1.1, and not while a request is answered.")
            return
        super().handle_websocket_upgrade()
        # uvicorn drops what came in one segment with the handshake. It calls us while it handles the parser's
        # exception, which knows where that begins.
        exception = sys.exception()
        if isinstance(exception, httptools.HttpParserUpgrade) and (early := self._segment[exception.args[0] :]):
            self.transport.get_protocol().data_received(early)  # type: ignore[attr-defined]
        # The parser holds our methods and we hold it: without this, 5 KB per socket wait for the garbage collector.
        self.parser = None  # type: ignore[assignment]

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete


class CoalescingTransport:
    """The transport that uvicorn writes one response to: holds the head back until the body comes, and writes both at once.

    uvicorn writes them one after the other, and each write is a system call that wakes the peer: a sixth of a bulk read.
    """

    __slots__ = ("_head", "_tcp")

    def __init__(self, tcp: asyncio.Transport) -> None:
        self._tcp = tcp
        self._head: bytes | None = None  # empty: it is out

    def write(self, data: bytes) -> None:
        if self._head:
            if data:
                self._tcp.writelines((self._head, data))
            else:
                self._tcp.write(self._head)
            self._head = b""
        elif self._head is None and not data.startswith(_CONTINUE):
            self._head = data
        else:
            self._tcp.write(data)

    def close(self) -> None:
        if self._head:  # of an answer that broke off
            self._tcp.write(self._head)
        self._tcp.close()

    def is_closing(self) -> bool:
        return self._tcp.is_closing()


_CONTINUE = b"HTTP/1.1 100 "
