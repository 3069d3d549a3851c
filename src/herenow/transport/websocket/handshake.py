"""The opening handshake (RFC 6455, section 4.2): from the bytes of an HTTP request to a valid `Upgrade` or a refusal.

Headers that a proxy and this server might interpret differently are refused. uvicorn or `http.first_bytes` parses the HTTP.
"""

import asyncio
import binascii
import logging
from dataclasses import dataclass
from http import HTTPStatus

from herenow.transport.websocket.contract import Accept, Acceptor, Refuse, SocketLimits, Upgrade
from herenow.transport.websocket.registry import Sockets

log = logging.getLogger(__name__)

# Repeated, a proxy and this server might use different values of these.
_AT_MOST_ONCE = frozenset(
    ("host", "origin", "authorization", "upgrade", "sec-websocket-key", "sec-websocket-version", "content-length")
)


@dataclass(frozen=True, slots=True)
class UpgradeCheck:
    """Checks opening handshakes for one WebSocket implementation."""

    acceptor: Acceptor
    limits: SocketLimits
    sockets: Sockets

    def decide(self, request: bytes, tcp: asyncio.Transport) -> tuple[Accept, str] | Refuse:
        """Check an opening handshake and let the server's `acceptor` decide about it. Return its `Accept` and the
        client's Sec-WebSocket-Key, or a refusal.

        A refusal is also returned if the handshake is invalid, too many sockets are open or the acceptor raises."""
        upgrade = read_upgrade(request, peer=_peer(tcp), secure=bool(tcp.get_extra_info("sslcontext")))
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

    def refuse(self, refuse: Refuse, tcp: asyncio.Transport) -> None:
        """Write the HTTP answer of a refusal and close the connection."""
        tcp.write(http_answer(refuse))
        tcp.close()
        if tcp.get_write_buffer_size():  # the peer does not read
            asyncio.get_running_loop().call_later(self.limits.close_timeout, tcp.abort)


def read_upgrade(request: bytes, *, peer: tuple[str, int] | None, secure: bool) -> Upgrade | Refuse:
    """Parse and check an opening handshake; return it, or a refusal if it is invalid. `request` has passed an HTTP
    parser, so its lines are well-formed."""
    request_line, *lines = request.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers: dict[str, str] = {}
    repeated: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name = name.lower()
        if name in headers:
            repeated.setdefault(name, []).append(value.strip())
        else:
            headers[name] = value.strip()
    refuse = _complaint(request_line, headers, repeated)
    if refuse is not None:
        return refuse
    path, _, query = request_line.split(" ")[1].partition("?")
    return Upgrade(
        path=path,
        query=query,
        headers=headers,
        host=headers["host"],
        origin=headers.get("origin"),
        subprotocols=_tokens("sec-websocket-protocol", headers, repeated),
        peer=peer,
        secure=secure,
    )


def _complaint(request_line: str, headers: dict[str, str], repeated: dict[str, list[str]]) -> Refuse | None:
    """Return a refusal if the opening handshake violates RFC 6455, 4.2.1; None if it is valid. `repeated`: the second
    and further values of repeated headers."""
    method, target, version = request_line.split(" ", 2)
    if not _AT_MOST_ONCE.isdisjoint(repeated):
        return Refuse(400, "a header that may occur once is repeated")
    if method != "GET" or version != "HTTP/1.1" or not target.startswith("/"):
        return Refuse(400, "a WebSocket is opened with GET /path HTTP/1.1")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return Refuse(400, "a WebSocket is opened without a body")
    # One of several tokens: Firefox sends `Connection: keep-alive, Upgrade`.
    if (
        "upgrade" not in [token.lower() for token in _tokens("connection", headers, repeated)]
        or headers.get("upgrade", "").lower() != "websocket"
    ):
        return Refuse(400, "the headers Connection: Upgrade and Upgrade: websocket are missing")
    if headers.get("sec-websocket-version") != "13":
        return Refuse(426, "only WebSocket version 13 is supported", (("sec-websocket-version", "13"),))
    if not _is_key(headers.get("sec-websocket-key", "")):
        return Refuse(400, "Sec-WebSocket-Key must be 16 bytes in base64")
    if not headers.get("host"):
        return Refuse(400, "the header Host is missing")
    return None


def _tokens(name: str, headers: dict[str, str], repeated: dict[str, list[str]]) -> tuple[str, ...]:
    """Return the elements of the comma-separated header `name`. `repeated`: its second and further values, if it is
    repeated."""
    values = ",".join([headers.get(name, ""), *repeated.get(name, ())])
    return tuple([token for part in values.split(",") if (token := part.strip())])


def _is_key(key: str) -> bool:
    try:
        return len(binascii.a2b_base64(key, strict_mode=True)) == 16
    except ValueError:  # includes binascii.Error; also raised for text that is not ASCII
        return False


def _peer(tcp: asyncio.Transport) -> tuple[str, int] | None:
    """Return host and port of the peer; None for a Unix socket."""
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
    """Return the 101 response to an opening handshake; `proof` is the value of Sec-WebSocket-Accept."""
    chosen = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {proof}\r\n{chosen}\r\n"
    ).encode("latin-1")
