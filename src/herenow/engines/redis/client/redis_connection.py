"""One connection to a Redis server: requests out, replies back in order, many callers at a time.

It tells whether a request was ever given to the network. Before that, its failure is `Unavailable`; afterwards its outcome
is unknown until the reply is there, and the failure is `Lost`, which the caller translates by what it asked for. No request
is ever repeated here. Callers share one connection: a request is written at once, and the replies find their
callers in the order of the requests, as the protocol has it.

A reply that does not come in time ends the connection: whatever is behind it would not come either.

Built on hiredis, which packs and parses; there is no client library in between that would repeat, pool or hide anything.
It does not know what is asked for, nor which server is the right one.
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

CLIENT_NAME = "herenow"
"""What CLIENT LIST shows for our connections."""

CONNECT = 0.8
"""Seconds to connect and to be let in."""

DEADLINE = 1.0
"""Seconds for a reply. With `CONNECT` less than what the callers wait for a call, so that the error is ours and says why."""

STOOD_STILL = 0.1
"""Seconds by which a deadline is noticed too late, from which on it was us who could not go on."""

ONCE_MORE = 0.5
"""Seconds the server then has."""

PORTION = 100
"""Commands that are sent together: enough to be worth a call of the kernel."""

PORTIONS = 8
"""No more of them, but larger ones: to a server far away each costs its way."""

AHEAD = 2
"""Portions that may be under way: a server never waits for the next one, and answers the first before it has read the last.
Given all of them at once it answers when it is through, and what the answers say is read afterwards."""

Argument = str | int | bytes
Command = tuple[Argument, ...]
Reply = object
"""bytes, int, None, a list of replies, or `hiredis.ReplyError`."""

_MORE = object()


class Lost(Exception):  # noqa: N818 - reads as what it is
    """The request was sent, and the connection is no more: perhaps it was executed, perhaps it still will be."""


class Refused(Unavailable):
    """The server answered, and does not let us in: a password, a database, a mode of operation."""


def refusal(address: Address, said: hiredis.ReplyError) -> Unavailable:
    """For good, or only now?"""
    text = f"{address} refuses: {said}"
    code = str(said).partition(" ")[0]
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
    """How to be let in."""

    user: str | None = None
    password: str | None = None
    database: int = 0
    tls: ssl.SSLContext | None = None

    def commands(self) -> list[Command]:
        said: list[Command] = []
        if self.password is not None:
            said.append(("AUTH", self.password) if self.user is None else ("AUTH", self.user, self.password))
        if self.database:
            said.append(("SELECT", self.database))
        return said


async def connect(address: Address, login: Login, deadline: float = CONNECT) -> RedisConnection:
    """A connection that was let in. Raises `Refused` when the server says no, `Unavailable` when there is no answer."""
    loop = asyncio.get_running_loop()
    connection = RedisConnection(address)
    try:
        async with asyncio.timeout(deadline):
            await loop.create_connection(lambda: connection, address.host, address.port, ssl=login.tls)
            replies = await connection.ask([*login.commands(), ("CLIENT", "SETNAME", CLIENT_NAME)])
    except (OSError, TimeoutError, Lost) as error:
        connection.close()
        raise Unavailable(f"{address} cannot be reached ({_words(error)})") from None
    except BaseException:
        connection.close()
        raise
    for reply in replies[:-1]:
        if isinstance(reply, hiredis.ReplyError):
            connection.close()
            raise refusal(address, reply)
    return connection


class RedisConnection(asyncio.Protocol):
    """See the module. After `close`, or when the peer is gone, every request fails."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._listener: Callable[[Reply], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = hiredis.Reader(notEnoughData=_MORE)
        self._waiting: deque[_Asked] = deque()
        self._why = "closed"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def asked(self) -> int:
        """How many requests have no answer yet."""
        return len(self._waiting)

    async def ask(self, commands: Sequence[Command], deadline: float = DEADLINE) -> list[Reply]:
        """One reply per command, errors of the server among them. Raises `Unavailable` when nothing was sent, `Lost` when
        there is no answer to what was sent."""
        sent = b"".join([packed(command) for command in commands])
        until = asyncio.get_running_loop().time() + deadline
        return await self._answered(self._send(sent, len(commands)), until)

    async def ask_in_parts(
        self,
        parts: Iterable[tuple[bytes, int]],
        total: int,
        take: Callable[[list[Reply]], None],
        deadline: float = DEADLINE,
    ) -> None:
        """The same for packed commands and how many they are, `total` in all. The server begins while the rest is still
        being made, and `take` gets the replies to some whole parts while it is at work on others. Each portion has a
        deadline of its own, from when it is sent: not the server's fault if we stood still before. If this fails, some may
        have been taken."""
        now = asyncio.get_running_loop().time
        portion = max(PORTION, total // PORTIONS)
        asked: deque[tuple[_Asked, float]] = deque()
        waiting: list[bytes] = []
        count = 0
        begun = False
        for data, commands in parts:
            waiting.append(data)
            count += commands
            if count >= portion:
                if len(asked) == AHEAD:
                    take(await self._answered(*asked.popleft()))
                asked.append((self._send_on(b"".join(waiting), count, begun=begun), now() + deadline))
                waiting, count, begun = [], 0, True
                await asyncio.sleep(0)  # what was written goes out
        if waiting:
            asked.append((self._send_on(b"".join(waiting), count, begun=begun), now() + deadline))
        while asked:
            take(await self._answered(*asked.popleft()))

    def _send_on(self, data: bytes, count: int, *, begun: bool) -> _Asked:
        try:
            return self._send(data, count)
        except Unavailable as error:
            raise Lost(str(error)) if begun else error from None

    def _send(self, data: bytes, count: int) -> _Asked:
        if self._transport is None or self._transport.is_closing():
            raise Unavailable(f"{self.address} is not connected")
        asked = _Asked(count, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        self._transport.write(data)
        return asked

    async def _answered(self, asked: _Asked, until: float) -> list[Reply]:
        try:
            async with asyncio.timeout_at(until):
                return await asked.answer
        except TimeoutError:
            if not asked.missing:
                return asked.replies  # it was this process that stood still
            if asked.answer.done() and not asked.answer.cancelled():
                return asked.answer.result()
        loop = asyncio.get_running_loop()
        if loop.time() - until > STOOD_STILL:  # and perhaps the whole machine: the answer may be on its way
            asked.answer = loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(ONCE_MORE):
                    return await asked.answer
        self.close("no answer in time")
        raise Lost(f"{self.address} did not answer in time")

    def listen(self, listener: Callable[[Reply], None]) -> None:
        """From now on whatever comes is a message, as after SUBSCRIBE; None is the last one."""
        self._listener = listener

    def send(self, command: Command) -> None:
        """Without waiting for a reply: on a connection that listens."""
        if self._transport is not None:
            self._transport.write(packed(command))

    def close(self, why: str = "closed") -> None:
        """At once. What was sent may still be executed."""
        if self._transport is not None:
            self._why = why
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        gets, take = self._parser.gets, self._take
        try:
            while (reply := gets()) is not _MORE:
                take(reply)
        except hiredis.ProtocolError as error:
            self.close(f"it does not speak Redis: {error}")

    def _take(self, reply: Reply) -> None:
        if self._listener is not None:
            self._listener(reply)
            return
        if not self._waiting:
            return
        asked = self._waiting[0]
        asked.replies.append(reply)
        asked.missing -= 1
        if not asked.missing:
            self._waiting.popleft()
            if not asked.answer.done():
                asked.answer.set_result(asked.replies)

    def connection_lost(self, error: Exception | None) -> None:
        lost = Lost(f"{self.address} is gone ({_words(error) if error else self._why})")
        self._transport = None
        while self._waiting:
            asked = self._waiting.popleft()
            if not asked.answer.done():
                asked.answer.set_exception(lost)
                asked.answer.exception()  # its caller may be gone
        if self._listener is not None:
            self._listener(None)


class _Asked:
    __slots__ = ("answer", "missing", "replies")

    def __init__(self, count: int, answer: asyncio.Future[list[Reply]]) -> None:
        self.missing = count
        self.answer = answer
        self.replies: list[Reply] = []


def packed(command: Command) -> bytes:
    data: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub means one argument, not many
    return data


def _words(error: BaseException) -> str:
    return "no answer" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
