"""One connection to a Redis server, shared by many callers: requests out, replies back in order.

A request that fails before it was written to the network raises `Unavailable`. After that its outcome is unknown without a
reply, and it raises `Lost`, which the caller translates. No request is ever repeated here. A late reply ends the
connection, because all replies behind it would be late too.

hiredis packs and parses; no client library in between retries, pools or hides anything.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import hiredis

from herenow.errors import Unavailable

CLIENT_NAME = "herenow"  # name of our connections in CLIENT LIST
CONNECT = 0.8  # seconds to connect and log in

DEADLINE = 1.0
"""Seconds for a reply. Together with `CONNECT` less than the deadline of our callers: they get our error with its reason."""

BLOCKED_FOR = 0.1
"""If a deadline is noticed this many seconds late, this process was blocked and the server is not to blame."""

EXTRA_TIME = 0.5  # additional seconds for the reply if this process was blocked
PORTION = 100  # commands that are sent together at least: enough to be worth a system call

PORTIONS = 8
"""Portions of one call at most; they get larger instead, because each costs a round trip to a distant server."""

AHEAD = 2
"""Portions sent before their replies arrive: the server never waits, and we decode replies while it works. If it got all at
once, it would reply at the end and decoding would begin only then."""

Argument = str | int | bytes
Command = tuple[Argument, ...]
Reply = object  # bytes, int, None, a list of replies, or `hiredis.ReplyError`

_MORE = object()


class Lost(Exception):  # noqa: N818 - reads as what it is
    """The request was sent and the connection has ended: the request may have been executed, or still may be."""


class Refused(Unavailable):
    """The server does not accept us and will not without a change: password, database, mode of operation."""


def refusal(address: Address, reply: hiredis.ReplyError) -> Unavailable:
    """Return the exception for an error reply of a server: `Refused` if trying again cannot help, otherwise
    `Unavailable`."""
    text = f"{address} refuses: {reply}"
    code = str(reply).partition(" ")[0]
    for_good = code in ("ERR", "NOAUTH", "NOPERM", "WRONGPASS") and "max number of clients" not in text
    return Refused(text) if for_good else Unavailable(text)


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    user: str | None = None
    password: str | None = None
    database: int = 0
    tls: ssl.SSLContext | None = None

    def commands(self) -> list[Command]:
        commands: list[Command] = []
        if self.password is not None:
            commands.append(("AUTH", self.password) if self.user is None else ("AUTH", self.user, self.password))
        if self.database:
            commands.append(("SELECT", self.database))
        return commands


async def connect(address: Address, login: Login, deadline: float = CONNECT) -> RedisConnection:
    """Open a connection to a Redis server and log in. Raises `Unavailable` if the server cannot be reached within
    `deadline` seconds, or its subclass `Refused` if it does not accept the login."""
    loop = asyncio.get_running_loop()
    connection = RedisConnection(address)
    try:
        async with asyncio.timeout(deadline):
            await loop.create_connection(lambda: connection, address.host, address.port, ssl=login.tls)
            replies = await connection.ask([*login.commands(), ("CLIENT", "SETNAME", CLIENT_NAME)])
    except (OSError, TimeoutError, Lost) as error:
        connection.close()
        raise Unavailable(f"{address} cannot be reached ({_describe(error)})") from None
    except BaseException:
        connection.close()
        raise
    for reply in replies[:-1]:
        if isinstance(reply, hiredis.ReplyError):
            connection.close()
            raise refusal(address, reply)
    return connection


class RedisConnection(asyncio.Protocol):
    """After `close`, or when the server has closed the connection, every request fails."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._listener: Callable[[Reply], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = hiredis.Reader(notEnoughData=_MORE)
        self._waiting: deque[_PendingCall] = deque()
        self._close_reason = "closed"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def asked(self) -> int:
        """The number of calls that wait for replies of the server."""
        return len(self._waiting)

    async def ask(self, commands: Sequence[Command], deadline: float = DEADLINE) -> list[Reply]:
        """Send the commands and return one reply per command; error replies are returned, too. Raises `Unavailable` if
        nothing was sent, otherwise `Lost` if the replies do not come within `deadline` seconds."""
        sent = b"".join([packed(command) for command in commands])
        until = asyncio.get_running_loop().time() + deadline
        return await self._wait_replies(self._send(sent, len(commands)), until)

    async def ask_in_parts(
        self,
        parts: Iterable[tuple[bytes, int]],
        total: int,
        take: Callable[[list[Reply]], None],
        deadline: float = DEADLINE,
    ) -> None:
        """Send many commands in parts, and pass their replies to `take` while the server works on later parts.

        `parts`: packed commands and their number, `total` commands in all; each part is built just before it is sent.
        `take` gets the replies to one or more whole parts. `deadline`: seconds from sending some parts to their last
        reply. Raises like `ask`; `take` may have got some of the replies by then."""
        now = asyncio.get_running_loop().time
        portion = max(PORTION, total // PORTIONS)
        pending: deque[tuple[_PendingCall, float]] = deque()
        waiting: list[bytes] = []
        count = 0
        begun = False
        for data, commands in parts:
            waiting.append(data)
            count += commands
            if count >= portion:
                if len(pending) == AHEAD:
                    take(await self._wait_replies(*pending.popleft()))
                pending.append((self._send_portion(b"".join(waiting), count, begun=begun), now() + deadline))
                waiting, count, begun = [], 0, True
                await asyncio.sleep(0)  # lets the transport send
        if waiting:
            pending.append((self._send_portion(b"".join(waiting), count, begun=begun), now() + deadline))
        while pending:
            take(await self._wait_replies(*pending.popleft()))

    def _send_portion(self, data: bytes, count: int, *, begun: bool) -> _PendingCall:
        try:
            return self._send(data, count)
        except Unavailable as error:
            raise Lost(str(error)) if begun else error from None

    def _send(self, data: bytes, count: int) -> _PendingCall:
        if self._transport is None or self._transport.is_closing():
            raise Unavailable(f"{self.address} is not connected")
        call = _PendingCall(count, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._transport.write(data)
        return call

    async def _wait_replies(self, call: _PendingCall, until: float) -> list[Reply]:
        try:
            async with asyncio.timeout_at(until):
                return await call.answer
        except TimeoutError:
            if not call.missing:
                return call.replies  # complete: only this process was late
            if call.answer.done() and not call.answer.cancelled():
                return call.answer.result()
        loop = asyncio.get_running_loop()
        if loop.time() - until > BLOCKED_FOR:  # perhaps the whole machine was blocked and the reply is still under way
            call.answer = loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(EXTRA_TIME):
                    return await call.answer
        self.close("no answer in time")
        raise Lost(f"{self.address} did not answer in time")

    def listen(self, listener: Callable[[Reply], None]) -> None:
        """Pass every reply that arrives from now on to `listener`, as is needed after SUBSCRIBE. It gets None when the
        connection has ended."""
        self._listener = listener

    def send(self, command: Command) -> None:
        """Send a command without waiting for its reply, on a connection with a listener."""
        if self._transport is not None:
            self._transport.write(packed(command))

    def close(self, why: str = "closed") -> None:
        """Close the connection at once. Commands that were sent may still be executed. `why`: the reason in the error
        of waiting calls."""
        if self._transport is not None:
            self._close_reason = why
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        gets, take = self._parser.gets, self._take
        try:
            while (reply := gets()) is not _MORE:
                take(reply)
        except hiredis.ProtocolError as error:
            self.close(f"it sent an invalid Redis reply: {error}")

    def _take(self, reply: Reply) -> None:
        if self._listener is not None:
            self._listener(reply)
            return
        if not self._waiting:
            return
        call = self._waiting[0]
        call.replies.append(reply)
        call.missing -= 1
        if not call.missing:
            self._waiting.popleft()
            if not call.answer.done():
                call.answer.set_result(call.replies)

    def connection_lost(self, error: Exception | None) -> None:
        lost = Lost(f"the connection to {self.address} was lost ({_describe(error) if error else self._close_reason})")
        self._transport = None
        while self._waiting:
            call = self._waiting.popleft()
            if not call.answer.done():
                call.answer.set_exception(lost)
                call.answer.exception()  # marks it as retrieved, because the caller may be gone
        if self._listener is not None:
            self._listener(None)


class _PendingCall:
    __slots__ = ("answer", "missing", "replies")

    def __init__(self, count: int, answer: asyncio.Future[list[Reply]]) -> None:
        self.missing = count
        self.answer = answer
        self.replies: list[Reply] = []


def packed(command: Command) -> bytes:
    data: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub means one argument, not many
    return data


def _describe(error: BaseException) -> str:
    return "no answer" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
