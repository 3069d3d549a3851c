"""uvicorn's HTTP protocol with corrections and limits. Check this module with each new uvicorn.

`HttpProtocol` hands a connection over to WebSocket without losing bytes, lends an endpoint the transport (`pipe`), limits
the size of a request's head and the number of waiting requests, ends connections of slow peers, and releases everything with
the connection. `CoalescingTransport` writes the head of a response together with its body.
"""

import asyncio
import sys
from weakref import WeakMethod

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from herenow.transport.http.patience import Awaited, Patience, What
from herenow.transport.http.peer_limits import PeerLimits
from herenow.transport.http.pipe import PIPE, PipeWriter
from herenow.transport.websocket import Refuse, http_answer

MOST_HEAD = 32_768  # bytes of a request's head, or of the trailers after its body
PIECE = 16_384  # bytes per call of the parser: bytes that follow a body within the same call are not counted
LINGER = 1.0  # seconds in which a refused peer may still send; without this the refusal might not reach it
MOST_DROPPED = 4_194_304  # bytes read and dropped after the answer before the connection is aborted
HEAD_TOO_LARGE = (
    f"The head of a request may have at most {MOST_HEAD} bytes; "
    "POST /api/v1/presence/query takes a long list in its body.\n"
)


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection."""

    _segment: bytes | memoryview = b""
    _drops_input = False
    """Drop all input. It is still read, because a paused transport does not report that the peer disconnected."""
    _dropped = 0
    _uncounted = 0  # bytes parsed since the last complete head, piece of a body or message
    _begun = False  # a head has begun and is not complete
    _in_body = False  # a head is complete and the message is not
    _heads = 0
    _body_bytes = 0
    _patience: Patience | None = None
    _running: RequestResponseCycle | None = None
    """The request that is answered; `cycle` is the newest one, which may wait in `pipeline`."""
    _writer: PipeWriter | None = None  # the writer that borrowed the transport (`pipe`)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._gate = ReadGate(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        writer, self._writer = self._writer, None
        self._unset_keepalive_if_required()  # uvicorn keeps the timer when the connection was reset
        super().connection_lost(exc)
        self._drop_requests()
        if writer is not None:
            writer.on_gone()

    def _drop_requests(self) -> None:
        """Cancel the running request and drop the waiting ones, without answers."""
        running, self._running = self._running, None
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        # Break the reference cycle between a waiting request and this protocol; else only the garbage collector frees them.
        self.pipeline.clear()
        self.cycle = None  # type: ignore[assignment]

    # Requests

    def data_received(self, data: bytes) -> None:
        if self._drops_input:
            self._drop(data)
            return
        self._unset_keepalive_if_required()
        if len(data) <= PIECE and self._uncounted + len(data) <= MOST_HEAD:
            self._parse(data, data)
        else:
            self._parse_in_pieces(memoryview(data))

    def _parse_in_pieces(self, data: memoryview) -> None:
        while data and not (self._drops_input or self.parser is None):
            piece = data[: min(PIECE, MOST_HEAD - self._uncounted)]
            self._parse(piece, data)
            data = data[len(piece) :]

    def _parse(self, piece: bytes | memoryview, segment: bytes | memoryview) -> None:
        """Pass `piece` to the HTTP parser; it is the start of `segment`, the received bytes that are not parsed yet.
        Its bytes are counted, because the parser does not report an endless line; a head that is too large is
        refused."""
        self._segment = segment
        self._uncounted += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._unsupported_upgrade_warning()
        except httptools.HttpParserError as error:
            self._on_parser_error(error)
        self._segment = b""
        if self._uncounted >= MOST_HEAD and not self._drops_input:
            self._refuse(431, HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        if self.pipeline:
            raise TooManyWaiting
        self._begun = True
        super().on_message_begin()
        # A weak reference: the protocol holds the scope, and a cycle would delay its release.
        self.scope["extensions"] = {PIPE: WeakMethod(self._lend)}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        if not (self.parser.should_upgrade() and self._should_upgrade()):  # `websocket.handshake` checks those
            _check_head(self.parser.get_http_version(), [name for name, _ in self.headers])
        self._uncounted = 0
        self._begun = False
        self._in_body = True
        self._heads += 1
        super().on_headers_complete()
        if not self.parser.should_upgrade():
            self.headers = []  # else trailers would become headers of a request that is already being answered
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.transport is self.transport:  # else this request got no cycle of its own
            # For HEAD, uvicorn writes nothing after the head.
            is_head = cycle.scope["method"] == "HEAD"
            cycle.transport = CoalescingTransport(self.transport, bodiless=is_head)  # type: ignore[assignment]
        if self.pipeline:
            self._gate.resume_reading()  # uvicorn has paused, and would not notice that the peer disconnects

    def on_body(self, body: bytes) -> None:
        self._uncounted = 0
        self._body_bytes += len(body)
        if not self._is_answering():
            self._drop(body)
            return
        super().on_body(body)
        if self.pipeline and self._gate.read_paused:  # the body of a waiting request fills its buffer
            self._gate.held = True

    def on_message_complete(self) -> None:
        self._uncounted = self._dropped = 0
        self._in_body = False
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        self._gate.held = False
        super()._start_asgi_task(cycle, app)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    # Refusals

    def _on_parser_error(self, error: httptools.HttpParserError) -> None:
        if isinstance(error.__context__, TooManyWaiting):
            self._end_after_answers()
            return
        if isinstance(error.__context__, BadHead):
            self._refuse(*error.__context__.args)
            return
        self.logger.warning("Invalid HTTP request received.")
        self.send_400_response("Invalid HTTP request received.")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer with an HTTP error and close the connection; if an answer has begun, close after it instead."""
        if self._is_answering() and self._running is not None and self._running.response_started:
            self._end_after_answers()
            return
        has_its_answer = self._in_body and not self._is_answering()
        self._drops_input = True
        self._drop_requests()
        if not has_its_answer:
            self.transport.write(http_answer(Refuse(status, sentence)))
        # A plain close with unread data sends RST, and the peer might never read the answer.
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.loop.call_later(LINGER, self.transport.abort)
        else:
            self.transport.close()

    def _end_after_answers(self) -> None:
        """Close the connection after the answers to the requests received so far."""
        self._drops_input = True
        self.cycle.keep_alive = False

    def _drop(self, data: bytes) -> None:
        """Count received bytes that are not needed any more, and abort the connection above `MOST_DROPPED`."""
        self._dropped += len(data)
        if self._dropped > MOST_DROPPED:
            self.transport.abort()

    # Slow peers

    def await_head_since(self, since: float) -> None:
        """Begin to measure the peer's time to send the head of its first request, from `since` (loop time)."""
        self._patience = Patience(Awaited("head", 0), since)

    def check(self, now: float, limits: PeerLimits) -> str | None:
        """End the connection if its peer is late at `now` (loop time). Return what is late: "head" or "body" of a
        request, or reading the "answer"; None if nothing is late, or the peer was only idle."""
        awaited = self._awaited()
        if awaited is None:
            self._patience = None
        elif self._patience is None or not self._patience.is_for(awaited):
            self._patience = Patience(awaited, now)
        elif self._patience.is_over(awaited, now, limits, self.timeout_keep_alive):
            self._patience = None
            self._give_up(awaited.what)
            return None if awaited.what == "idle" else awaited.what
        return None

    def _awaited(self) -> Awaited | None:
        """Return what the peer must do next: send a head, a body or a request, or read an answer. None if the peer
        waits for us, or for an event stream, which has its own timeouts."""
        if self._writer is not None:
            return None
        unread = self.transport.get_write_buffer_size()
        if unread:
            written = 0 if self._running is None else getattr(self._running.transport, "written", 0)
            return Awaited("answer", id(self._running), written - unread)
        if self._drops_input or self.transport.is_closing() or self._gate.read_paused:
            return None
        if self._in_body:
            return None if self.pipeline else Awaited("body", self._heads, self._body_bytes)
        if self._begun or self._uncounted:
            return Awaited("head", self._heads)
        return None if self._is_answering() else Awaited("idle", self._heads)

    def _give_up(self, what: What) -> None:
        if what == "idle":
            self.transport.close()
        elif what == "answer":
            self.transport.abort()
        elif what == "head" and self._is_answering():
            self._end_after_answers()
        else:
            self._refuse(408, f"The {what} of a request did not arrive in time.\n")

    # Lending the transport

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

    # WebSocket

    def handle_websocket_upgrade(self) -> None:
        if self.parser.get_http_version() != "1.1" or self._is_answering():
            # The remainder of an unfinished answer would be written between the frames.
            self.send_400_response("A WebSocket is opened with HTTP/1.1, and not while a request is answered.")
            return
        super().handle_websocket_upgrade()
        # uvicorn drops bytes that follow the handshake in one segment. The parser's exception, which is being handled now,
        # has the position where they begin.
        exception = sys.exception()
        if isinstance(exception, httptools.HttpParserUpgrade) and (early := self._segment[exception.args[0] :]):
            self.transport.get_protocol().data_received(bytes(early))  # type: ignore[attr-defined]
        # Break the reference cycle with the parser; else 5 KB per socket wait for the garbage collector.
        self.parser = None  # type: ignore[assignment]


class TooManyWaiting(Exception):  # noqa: N818 - only stops the parser
    """A third request came while one is answered and one waits."""


class BadHead(Exception):  # noqa: N818 - only stops the parser
    """The head of a request is refused. Arguments: the HTTP status of the answer, and a sentence."""


def _check_head(version: str, names: list[bytes]) -> None:
    """Raise `BadHead` if a proxy and this server might understand the head differently: another version than 1.0 and
    1.1, no Host with 1.1, or a header twice of which this server uses one."""
    if version not in ("1.0", "1.1"):
        raise BadHead(505 if version >= "2" else 400, "This server speaks HTTP/1.1 and HTTP/1.0.\n")
    if version == "1.1" and b"host" not in names:
        raise BadHead(400, "A request needs the header Host.\n")
    for name in _AT_MOST_ONCE:
        if names.count(name) > 1:
            raise BadHead(400, f"A request has the header {name.decode().title()} at most once.\n")


_AT_MOST_ONCE = (b"host", b"origin", b"authorization")


class ReadGate(FlowControl):
    """uvicorn's flow control with two corrections.

    While `held`, nothing is read: uvicorn would resume as soon as the running request reads its body, and fill the buffer of
    the waiting one. Calls for a closed transport are ignored; uvloop would raise."""

    held = False

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused and not self.held and not self._transport.is_closing():
            super().resume_reading()


class CoalescingTransport:
    """The transport for one response: holds the head back until the body comes, and writes both in one system call.

    Two writes would also wake the peer twice: a sixth of the cost of a bulk read. Writes after the connection has closed are
    dropped; uvloop would raise."""

    __slots__ = ("_head", "_tcp", "written")

    def __init__(self, tcp: asyncio.Transport, *, bodiless: bool = False) -> None:
        self._tcp = tcp
        self.written = 0
        self._head: bytes | None = b"" if bodiless else None  # None: not written yet; empty: sent

    def write(self, data: bytes) -> None:
        if self._tcp.is_closing():
            return
        self.written += len(data)
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
        if self._head and not self._tcp.is_closing():  # the answer ended without a body
            self._tcp.write(self._head)
        self._tcp.close()

    def is_closing(self) -> bool:
        return self._tcp.is_closing()


_CONTINUE = b"HTTP/1.1 100 "
