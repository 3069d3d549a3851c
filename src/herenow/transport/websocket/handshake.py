"""Who is let in? From the bytes of an HTTP request to a valid `Upgrade`, and from there to an acceptor's answer.

Strict about RFC 6455, section 4.2, and about what a proxy and we might read differently. uvicorn's HTTP is mended here
where it hands a connection over. What frames mean afterwards is not known here.
"""

import asyncio
import binascii
import logging
import sys
from dataclasses import dataclass
from http import HTTPStatus
from weakref import WeakMethod

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl

from herenow.transport.http.pipe import PIPE, Writer
from herenow.transport.websocket.contract import Accept, Acceptor, Limits, Refuse, Upgrade
from herenow.transport.websocket.registry import Sockets

log = logging.getLogger(__name__)

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
        upgrade = read_upgrade(request, peer=_peer(tcp), secure=is_ssl(tcp))
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
    said: dict[str, str] = {}
    again: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name = name.lower()
        if name in said:
            again.setdefault(name, []).append(value.strip())
        else:
            said[name] = value.strip()
    refuse = _complaint(request_line, said, again)
    if refuse is not None:
        return refuse
    path, _, query = request_line.split(" ")[1].partition("?")
    return Upgrade(
        path=path,
        query=query,
        headers=said,
        host=said["host"],
        origin=said.get("origin"),
        subprotocols=_tokens("sec-websocket-protocol", said, again),
        peer=peer,
        secure=secure,
    )


def _complaint(request_line: str, said: dict[str, str], again: dict[str, list[str]]) -> Refuse | None:
    """RFC 6455, 4.2.1. `again` is what was said more than once, from the second time on."""
    method, target, version = request_line.split(" ", 2)
    if not _AT_MOST_ONCE.isdisjoint(again):
        return Refuse(400, "a header that may be said once was said twice")
    if method != "GET" or version != "HTTP/1.1" or not target.startswith("/"):
        return Refuse(400, "a WebSocket is opened with GET /path HTTP/1.1")
    if said.get("content-length", "0") != "0" or "transfer-encoding" in said:
        return Refuse(400, "a WebSocket is opened without a body")
    # Among several: Firefox says `Connection: keep-alive, Upgrade`.
    if (
        "upgrade" not in [token.lower() for token in _tokens("connection", said, again)]
        or said.get("upgrade", "").lower() != "websocket"
    ):
        return Refuse(400, "the headers Connection: Upgrade and Upgrade: websocket are missing")
    if said.get("sec-websocket-version") != "13":
        return Refuse(426, "only WebSocket version 13 is spoken here", (("sec-websocket-version", "13"),))
    if not _is_key(said.get("sec-websocket-key", "")):
        return Refuse(400, "Sec-WebSocket-Key must be 16 bytes in base64")
    if not said.get("host"):
        return Refuse(400, "the header Host is missing")
    return None


def _tokens(name: str, said: dict[str, str], again: dict[str, list[str]]) -> tuple[str, ...]:
    """A comma-separated header, which may also be spread over several lines."""
    values = ",".join([said.get(name, ""), *again.get(name, ())])
    return tuple([token for part in values.split(",") if (token := part.strip())])


def _is_key(key: str) -> bool:
    try:
        return len(binascii.a2b_base64(key, strict_mode=True)) == 16
    except ValueError:  # of which binascii.Error is one; or not ASCII
        return False


def _peer(tcp: asyncio.Transport) -> tuple[str, int] | None:
    """None: not by TCP, but by a Unix socket."""
    match tcp.get_extra_info("peername"):
        case (str(host), int(port), *_):
            return host, port
    return None


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


def switching(proof: str, subprotocol: str | None) -> bytes:
    """The 101, with what proves that the client's key was read."""
    chosen = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {proof}\r\n{chosen}\r\n"
    ).encode("latin-1")


LONGEST_URL = 32_768  # bytes of an address that are kept: more than anybody takes


class Http(HttpToolsProtocol):
    """uvicorn's HTTP, mended where it hands a connection over to WebSocket; for `uvicorn.Config(http=…)`."""

    _segment = b""
    _writer: Writer | None = None
    """Who has been lent the transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Who connects and says nothing would hold a descriptor for ever: uvicorn's timer starts with its first answer.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Weakly: we hold the scope, and a connection that is closed must not wait for the garbage collector.
        self.scope["extensions"] = {PIPE: WeakMethod(self._lend)}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        cycle: RequestResponseCycle | None = self.cycle
        # Not for HEAD, where uvicorn writes nothing behind the head; nor again, when this request got no cycle of its own.
        if cycle is not None and cycle.transport is self.transport and cycle.scope["method"] != "HEAD":
            cycle.transport = Joining(self.transport)  # type: ignore[assignment]

    def _lend(self, writer: Writer) -> asyncio.Transport:
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
        if (
            writer is not None
        ):  # uvicorn tells the newest request, which is another one if the client did not wait
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


class Joining:
    """What uvicorn takes for the transport of one answer: its head waits for what comes behind it, and leaves with it.

    uvicorn writes them one after the other, and each is a call to the kernel that wakes the peer: a sixth of a bulk read.
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
