"""What is a WebSocket to the rest of herenow? A `Socket` that a `Handler` holds, and the door both come through.

The first half is the contract: values and protocols, no behaviour. The second half is what the two implementations
(`picows_socket`, fast; `websockets_socket`, the slower second) share, so that they cannot differ in it: who is here
(`Sockets`), who is let in (`Door`), where HTTP hands over (`Http`), and what frames mean from the 101 to the end
(`Connection`). An implementation only parses and writes frames.

Nothing here knows presence, tokens or JSON. Reasons to change it: the contract towards handlers, and the rules of
RFC 6455.

    uvicorn ── Http ──► Door ──► acceptor(Upgrade) ── Refuse ──► a plain HTTP answer
                                       │
                                     Accept ──► 101 ──► Socket ◄──► Handler
"""

import asyncio
import base64
import binascii
import enum
import logging
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr, is_ssl

log = logging.getLogger(__name__)
HANDLER_FAILED = "a handler failed; its connection is closed with 1011"

NORMAL = 1000
PROTOCOL_ERROR = 1002
NO_CODE = 1005  # the peer's CLOSE carried no code; never sent
INVALID_TEXT = 1007
TOO_BIG = 1009
INTERNAL_ERROR = 1011


# ── The contract ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one connection; bytes and seconds."""

    max_message: int = 65536  # whole message, however many frames it came in
    close_timeout: float = 5.0  # from our CLOSE to the end, whatever the peer does
    linger: float = 1.0  # how long a peer that broke the protocol may go on sending before it is cut off
    high_water: int = 65536  # above so much unsent data: `on_pause`, and the peer is not read either
    read_buffer: int = 2048  # what a socket starts with; a larger message grows it


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A valid opening handshake, before it is answered. What may hold a token is kept out of `repr`."""

    path: str  # as sent: percent-encoded, without the query
    query: str = field(repr=False)  # as sent
    headers: tuple[tuple[str, str], ...] = field(repr=False)  # lower-case names, in order
    host: str
    origin: str | None
    subprotocols: tuple[str, ...] = field(repr=False)  # in the client's order
    peer: tuple[str, int] | None
    secure: bool

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        return next((value for known, value in self.headers if known == name), None)


@dataclass(frozen=True, slots=True)
class Refuse:
    """A plain HTTP answer instead of the 101."""

    status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Socket(Protocol):
    """The sending side of one connection. Every method is a no-op once the connection is closing."""

    def send_text(self, payload: bytes) -> None:
        """One whole TEXT frame. The payload is not checked; it may be given to many sockets."""

    def ping(self) -> None:
        """One PING without payload; its answer is an `on_sign_of_life`."""

    def close(self, code: int, reason: str = "") -> None:
        """Start the closing handshake; it ends within `Limits.close_timeout`, if need be by force.

        No callback but `on_closed` follows. A reason is cut to 123 bytes.
        """

    def abort(self) -> None:
        """End now, unsent data is dropped."""

    def buffered(self) -> int:
        """Bytes that wait because the peer does not read."""


class Handler(Protocol):
    """The receiving side of one connection.

    Callbacks must not block. An exception out of one is logged and closes the connection with 1011.
    """

    def on_open(self, socket: Socket) -> None:
        """The 101 is out; called first."""

    def on_text(self, payload: bytes) -> None:
        """One whole message: valid UTF-8, at most `Limits.max_message` bytes."""

    def on_binary(self) -> None:
        """A whole binary message came, and was dropped."""

    def on_sign_of_life(self) -> None:
        """A ping or a pong came; text and binary messages are signs of life without this call."""

    def on_pause(self) -> None:
        """The peer reads too slowly: stop sending. May be called from inside `send_text`."""

    def on_resume(self) -> None:
        """The peer has caught up."""

    def on_closed(self, code: int | None, reason: str) -> None:
        """The connection is gone, whatever the cause; exactly once, last, and never from inside `close` or `abort`.

        `code` is that of the first CLOSE frame, ours or the peer's (1005 if it carried none), and None if the
        connection ended without one: FIN, RST, `abort`.
        """


@dataclass(frozen=True, slots=True)
class Accept:
    """Let the connection in; `subprotocol` must be one of those offered."""

    handler: Handler
    subprotocol: str | None = None


Acceptor = Callable[[Upgrade], Accept | Refuse]


class Farewell:
    """A handler that lets a connection in only to say why not: a browser cannot read an HTTP refusal."""

    __slots__ = ("_code", "_reason")

    def __init__(self, code: int, reason: str = "") -> None:
        self._code = code
        self._reason = reason

    def on_open(self, socket: Socket) -> None:
        socket.close(self._code, self._reason)

    def on_text(self, payload: bytes) -> None: ...
    def on_binary(self) -> None: ...
    def on_sign_of_life(self) -> None: ...
    def on_pause(self) -> None: ...
    def on_resume(self) -> None: ...
    def on_closed(self, code: int | None, reason: str) -> None: ...


# ── Who is here ─────────────────────────────────────────────────────────────────────────────────────────────────

SPARE = 64  # sockets beyond max_open that may be told, at the same moment, that there is no room


class Sockets:
    """Every open socket of this process, closing ones included; uvicorn loses sight of them at the upgrade.

    There are two bounds. At `max_open` the registry is `full`: the acceptor should answer with
    `Farewell(1013, "retry_after_ms=…")`, which a browser can read but which takes a descriptor for a moment. So many
    moments may overlap as there are `spare`; beyond them the door answers 503 without asking anybody.
    """

    __slots__ = ("_emptied", "_open", "max_open", "spare")

    def __init__(self, max_open: int, spare: int = SPARE) -> None:
        self.max_open = max_open
        self.spare = spare
        self._open: set[Socket] = set()
        self._emptied: list[asyncio.Future[None]] = []

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        return len(self._open) >= self.max_open

    @property
    def exhausted(self) -> bool:
        return len(self._open) >= self.max_open + self.spare

    def __iter__(self) -> Iterator[Socket]:
        """A snapshot: sockets may come and go while it is walked."""
        return iter(tuple(self._open))

    def add(self, socket: Socket) -> None:
        self._open.add(socket)

    def discard(self, socket: Socket) -> None:
        self._open.discard(socket)
        if not self._open:
            for waiter in self._emptied:
                if not waiter.done():
                    waiter.set_result(None)
            self._emptied.clear()

    def close_all(self, code: int, reason: str | Callable[[], str] = "") -> None:
        """Close every socket; a callable gives each its own reason (a jittered `retry_after_ms=…`)."""
        for socket in self:
            socket.close(code, reason if isinstance(reason, str) else reason())

    def abort_all(self) -> None:
        for socket in self:
            socket.abort()

    async def emptied(self) -> None:
        """Wait until nobody is here."""
        if self._open:
            waiter = asyncio.get_running_loop().create_future()
            self._emptied.append(waiter)
            await waiter


def sockets_within(descriptors: int) -> int:
    """The `max_open` for so many descriptors.

    Besides the spare ones, a tenth and at least 64 are left for HTTP, Redis, the ledger and the log: when descriptors
    run out, asyncio logs ten thousands of lines per second and accepts nobody.
    """
    return max(1, descriptors - max(64, descriptors // 10) - SPARE)


def descriptors_allowed() -> int:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


# ── The door ────────────────────────────────────────────────────────────────────────────────────────────────────

# Said twice, these would let a proxy and us believe different things about who is asking.
_AT_MOST_ONCE = frozenset(
    (
        "host",
        "origin",
        "authorization",
        "upgrade",
        "sec-websocket-key",
        "sec-websocket-version",
        "content-length",
    )
)


@dataclass(frozen=True, slots=True)
class Door:
    """What one implementation was built with: who decides, within which bounds, and where those let in are kept."""

    acceptor: Acceptor
    limits: Limits
    sockets: Sockets

    def ask(self, request: bytes, tcp: asyncio.Transport) -> tuple[Accept, str] | Refuse:
        """The acceptor's answer and the client's key, or a refusal of our own."""
        upgrade = read_upgrade(request, peer=get_remote_addr(tcp), secure=is_ssl(tcp))
        if isinstance(upgrade, Refuse):
            return upgrade
        if self.sockets.exhausted:
            return Refuse(503, "too many connections", (("retry-after", "10"),))
        try:
            answer = self.acceptor(upgrade)
            if isinstance(answer, Refuse):
                return answer
            if answer.subprotocol is not None and answer.subprotocol not in upgrade.subprotocols:
                raise ValueError(f"the subprotocol {answer.subprotocol} was not offered")
        except Exception:
            log.exception("the acceptor failed on %s", upgrade.path)
            return Refuse(500, "internal error")
        return answer, upgrade.header("sec-websocket-key") or ""

    def turn_away(self, refuse: Refuse, tcp: asyncio.Transport) -> None:
        tcp.write(http_answer(refuse))
        tcp.close()
        if tcp.get_write_buffer_size():  # a peer that does not even read this
            asyncio.get_running_loop().call_later(self.limits.close_timeout, tcp.abort)


def read_upgrade(request: bytes, *, peer: tuple[str, int] | None, secure: bool) -> Upgrade | Refuse:
    """The opening handshake, or what is wrong with it.

    The bytes have passed an HTTP parser: lines are well-formed. That they make a handshake is checked here.
    """
    request_line, *lines = request.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers: list[tuple[str, str]] = []
    said: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.append((name.lower(), value.strip()))
        said.setdefault(name.lower(), []).append(value.strip())
    refuse = _complaint(request_line, said)
    if refuse is not None:
        return refuse
    path, _, query = request_line.split(" ")[1].partition("?")
    return Upgrade(
        path=path,
        query=query,
        headers=tuple(headers),
        host=said["host"][0],
        origin=said.get("origin", [None])[0],
        subprotocols=_tokens(said, "sec-websocket-protocol"),
        peer=peer,
        secure=secure,
    )


def _complaint(request_line: str, said: dict[str, list[str]]) -> Refuse | None:
    """RFC 6455, 4.2.1."""
    method, target, version = request_line.split(" ", 2)
    if any(len(said.get(name, ())) > 1 for name in _AT_MOST_ONCE):
        return Refuse(400, "a header that may be said once was said twice")
    once = {name: values[0] for name, values in said.items()}
    if method != "GET" or version != "HTTP/1.1" or not target.startswith("/"):
        return Refuse(400, "a WebSocket is opened with GET /path HTTP/1.1")
    if once.get("content-length", "0") != "0" or "transfer-encoding" in once:
        return Refuse(400, "a WebSocket is opened without a body")
    # Among several: Firefox says `Connection: keep-alive, Upgrade`.
    if (
        "upgrade" not in map(str.lower, _tokens(said, "connection"))
        or once.get("upgrade", "").lower() != "websocket"
    ):
        return Refuse(400, "the headers Connection: Upgrade and Upgrade: websocket are missing")
    if once.get("sec-websocket-version") != "13":
        return Refuse(426, "only WebSocket version 13 is spoken here", (("sec-websocket-version", "13"),))
    if not _is_key(once.get("sec-websocket-key", "")):
        return Refuse(400, "Sec-WebSocket-Key must be 16 bytes in base64")
    if not once.get("host"):
        return Refuse(400, "the header Host is missing")
    return None


def _tokens(said: dict[str, list[str]], name: str) -> tuple[str, ...]:
    """A comma-separated header, which may also be spread over several lines."""
    return tuple(
        token for value in said.get(name, ()) for part in value.split(",") if (token := part.strip())
    )


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key.encode("ascii"), validate=True)) == 16
    except (binascii.Error, UnicodeEncodeError):
        return False


def http_answer(refuse: Refuse) -> bytes:
    body = refuse.body.encode()
    head = [
        f"HTTP/1.1 {refuse.status} {HTTPStatus(refuse.status).phrase}",
        "content-type: text/plain; charset=utf-8",
        f"content-length: {len(body)}",
        "connection: close",
        *(f"{name}: {value}" for name, value in refuse.headers),
    ]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


LONGEST_URL = 32_768  # bytes of an address that are kept: more than anybody takes


class Http(HttpToolsProtocol):
    """uvicorn's HTTP, mended where it hands a connection over to WebSocket; for `uvicorn.Config(http=…)`."""

    _segment = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Who connects and says nothing would hold a descriptor for ever: uvicorn's timer starts with its first answer.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

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
            self.send_400_response(
                "A WebSocket is opened with HTTP/1.1, and not while a request is answered."
            )
            return
        super().handle_websocket_upgrade()
        # uvicorn drops what came in one segment with the handshake. It calls us while it handles the parser's
        # exception, which knows where that begins.
        exception = sys.exception()
        if isinstance(exception, httptools.HttpParserUpgrade) and (
            early := self._segment[exception.args[0] :]
        ):
            self.transport.get_protocol().data_received(early)  # type: ignore[attr-defined]
        # The parser holds our methods and we hold it: without this, 5 KB per socket wait for the garbage collector.
        self.parser = None  # type: ignore[assignment]

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete


# ── One connection ──────────────────────────────────────────────────────────────────────────────────────────────


class Opcode(enum.IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class State(enum.Enum):
    OPEN = enum.auto()
    CLOSING = enum.auto()  # our CLOSE is out, the peer's has not come
    ENDING = enum.auto()  # no frame goes in or out any more; the connection is on its way down


class Connection:
    """From the 101 to the end: what frames mean and how it ends, whoever parses them. It is also the `Socket`.

    OPEN ── close() ──► CLOSING ── the peer's CLOSE ──► ENDING: what is unsent goes out, then FIN
      ├── the peer's CLOSE, answered with its own code ──► ENDING
      ├── the peer broke the protocol: CLOSE ──► ENDING: FIN, and what it still sends is drained
      └── FIN, RST, abort ──► ENDING

    With the first step away from OPEN a deadline starts, behind which the connection is aborted. `on_gone` is the
    only exit. A subclass parses and writes frames.
    """

    __slots__ = ("_code", "_deadline", "_door", "_message", "_reason", "_state", "_tcp", "handler", "plain")

    def __init__(self, tcp: asyncio.Transport, door: Door, handler: Handler) -> None:
        self._tcp = tcp
        self._door = door
        self.handler = handler
        self._state = State.OPEN
        self._message: Message | None = None  # a fragmented one under way
        self.plain = True  # open, and no fragmented message under way: an unfragmented text is in order
        self._code: int | None = None
        self._reason = ""
        self._deadline: asyncio.TimerHandle | None = None

    # What a subclass adds.

    def send_text(self, payload: bytes) -> None:
        raise NotImplementedError

    def ping(self) -> None:
        raise NotImplementedError

    def put_pong(self, payload: bytes) -> None:
        raise NotImplementedError

    def put_close(self, payload: bytes) -> None:
        raise NotImplementedError

    def hang_up(self) -> None:
        """Make `send_text` and `ping` no-ops from now on; may be called twice."""
        raise NotImplementedError

    # Beginning and end.

    @property
    def is_open(self) -> bool:
        return self._state is State.OPEN

    def on_opened(self) -> None:
        """The 101 is out."""
        # uvloop's own low mark is 16 bytes (sic): a slow peer would have to take everything first.
        self._tcp.set_write_buffer_limits(high=self._door.limits.high_water)
        self._door.sockets.add(self)
        self._tell(lambda: self.handler.on_open(self))

    def on_gone(self) -> None:
        """The transport has said so: once."""
        self._leave(State.ENDING)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._door.sockets.discard(self)
        # The handler holds us: let go of it, or both wait for the garbage collector.
        handler, self.handler = self.handler, _NOBODY
        try:
            handler.on_closed(self._code, self._reason)
        except Exception:
            log.exception("a handler failed in on_closed")

    # Frames.

    def on_frame(self, opcode: int, payload: bytes, *, fin: bool, reserved: bool) -> None:
        if self._state is State.ENDING or (self._state is State.CLOSING and opcode != Opcode.CLOSE):
            return
        if reserved:
            self.fail(Fault(PROTOCOL_ERROR, "reserved bits are set"))
        elif opcode == Opcode.PONG:
            self.handler.on_sign_of_life()
        elif opcode == Opcode.PING:
            self.put_pong(payload)
            self.handler.on_sign_of_life()
        elif opcode == Opcode.CLOSE:
            self._on_close(payload)
        else:
            self._on_fragment(opcode, payload, fin=fin)

    def _on_fragment(self, opcode: int, payload: bytes, *, fin: bool) -> None:
        """A part of a message; an unfragmented one is first and last part."""
        message = self._message
        if (opcode == Opcode.CONTINUATION) == (message is None):
            self.fail(Fault(PROTOCOL_ERROR, "fragments out of order"))
            return
        message = message or Message(is_text=opcode == Opcode.TEXT)
        message.payload += payload
        if len(message.payload) > self._door.limits.max_message:
            self.fail(MESSAGE_TOO_BIG)
            return
        self.plain = fin
        self._message = None if fin else message
        if fin:
            self._on_message(message)

    def _on_message(self, message: "Message") -> None:
        if not message.is_text:
            self.handler.on_binary()
        elif is_utf8(message.payload):
            self.handler.on_text(bytes(message.payload))
        else:
            self.fail(NOT_UTF8)

    def _on_close(self, payload: bytes) -> None:
        said = read_close(payload)
        if isinstance(said, Fault):
            self.fail(said)
            return
        if self._state is State.OPEN:
            self._code, self._reason = said
            self.put_close(payload[:2])  # its code, not its words
        self._leave(State.ENDING)
        self._end_within(self._door.limits.close_timeout)
        self._tcp.close()

    # Ends that we choose.

    def close(self, code: int, reason: str = "") -> None:
        if self._state is State.OPEN:
            self._say_close(code, reason)
            self._leave(State.CLOSING)
            self._end_within(self._door.limits.close_timeout)

    def abort(self) -> None:
        self._leave(State.ENDING)
        self._tcp.abort()

    def buffered(self) -> int:
        return self._tcp.get_write_buffer_size()

    # Ends that the peer chooses.

    def fail(self, fault: "Fault") -> None:
        """It broke the protocol: say so, and listen no longer (RFC 6455, 7.1.7)."""
        if self._state is State.ENDING:
            return
        if self._state is State.OPEN:
            self._say_close(fault.code, fault.reason)
        self._leave(State.ENDING)
        # Not a plain close: while data is unread that is an RST, and the peer might never see our code.
        self._tcp.set_protocol(Drain(self._tcp.get_protocol()))
        self._tcp.resume_reading()
        if self._tcp.can_write_eof():
            self._tcp.write_eof()
        self._end_within(self._door.limits.linger)

    def on_eof(self) -> None:
        """Its FIN. The transport closes itself once everything is sent; it does not get for ever."""
        self._leave(State.ENDING)
        self._end_within(self._door.limits.close_timeout)

    # Its speed.

    def on_write_paused(self) -> None:
        # Who does not read our answers may not ask more, or the queue would have no bound.
        self._tcp.pause_reading()
        self._tell(self.handler.on_pause)

    def on_write_resumed(self) -> None:
        self._tcp.resume_reading()
        self._tell(self.handler.on_resume)

    def _tell(self, callback: Callable[[], None]) -> None:
        if self._state is State.OPEN:
            try:
                callback()
            except Exception:
                log.exception(HANDLER_FAILED)
                self.close(INTERNAL_ERROR, "internal error")

    def _say_close(self, code: int, reason: str) -> None:
        self._code, self._reason = code, reason
        self.put_close(code.to_bytes(2, "big") + _cut(reason))

    def _leave(self, state: State) -> None:
        self._state = state
        self.plain = False
        self._message = None
        self.hang_up()

    def _end_within(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._tcp.abort)


class Message:
    """The fragments so far. One buffer, not a list: a flood of empty fragments takes no room."""

    __slots__ = ("is_text", "payload")

    def __init__(self, *, is_text: bool) -> None:
        self.is_text = is_text
        self.payload = bytearray()


class Drain(asyncio.Protocol):
    """Reads on without listening until the peer has finished, so that our last words reach it."""

    __slots__ = ("_before",)

    def __init__(self, before: asyncio.BaseProtocol) -> None:
        self._before = before

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)


@dataclass(frozen=True, slots=True)
class Fault:
    """How a peer broke the protocol: the close code it gets, and the words."""

    code: int
    reason: str


NOT_UTF8 = Fault(INVALID_TEXT, "text is not UTF-8")
MESSAGE_TOO_BIG = Fault(TOO_BIG, "message too big")


def read_close(payload: bytes) -> tuple[int, str] | Fault:
    """Code and reason of a CLOSE frame."""
    if not payload:
        return NO_CODE, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not is_close_code(code):
        return Fault(PROTOCOL_ERROR, "invalid close code")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        return NOT_UTF8


def is_close_code(code: int) -> bool:
    """May it stand in a frame? RFC 6455, 7.4, and the registry it opened (1012 to 1014 came later)."""
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999


def is_utf8(payload: bytes | bytearray) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _cut(reason: str) -> bytes:
    """At most the 123 bytes that a CLOSE frame has room for, and no half character."""
    encoded = reason.encode()
    return encoded if len(encoded) <= 123 else encoded[:123].decode(errors="ignore").encode()


_NOBODY = Farewell(NORMAL)
