"""One connection that comes back: token, socket, beats, and what to do when it ends.

It keeps the socket alive and passes on what comes through it; what the frames mean is not known here (but for the
welcome, and for what is needed to subscribe again). Detecting a server that is silently gone is left to the pings of
`websockets`. No failure of the network is an exception: it is a state.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import websockets

from herenow.client import backoff
from herenow.client.backoff import Verdict
from herenow.client.interest import Interest, Wants
from herenow.client.presence import State
from herenow.client.tokens import expires_at, steady_clock, subject, wall_clock
from herenow.wire.frames import Active, Away, Frame, HeartbeatFrame, Refresh
from herenow.wire.server_frames import ServerFrame, read_frame
from herenow.wire.shapes import WelcomeFrame

Token: TypeAlias = str | Callable[[], str | Awaitable[str | None] | None]
"""A JWT, or what gives one; asked again when it ends. None: nobody is signed in."""

BATCH = 0.01  # s: what is wanted within it is asked for in one frame
ANSWER = 10.0  # s: a server that has not answered by then is not there
STEADY = 10.0  # s: a connection that lived so long is not a failed try
SPARE = 60.0  # s: a token is renewed so long before its end, or at a fifth of what is left of it
PATIENCE = 1.0  # s between two tries to renew it, at the least

_encode = msgspec.json.Encoder().encode


class Listener(Protocol):
    def hear(self, frame: ServerFrame) -> None: ...
    def state_is(self, state: State) -> None: ...
    def failed(self, code: str, message: str) -> None: ...


class Link:
    """`run` is the whole life of it; the caller runs it in a task of its own."""

    def __init__(self, url: str, token: Token, *, device_id: str | None, platform: str, listener: Listener) -> None:
        self._url = url
        self._source = token
        self._device = device_id
        self._platform = platform
        self._listener = listener
        self._interest = Interest()
        self._socket: websockets.ClientConnection | None = None
        self._welcome: WelcomeFrame | None = None
        self._dirty = asyncio.Event()
        self._token: str | None = None
        self._refused: str | None = None
        self._refusals = 0
        self._failures = 0
        self._subject: object = None
        """Whose tokens they are: a link is one person's."""
        self._skew = wall_clock() - steady_clock()
        """The server's clock less ours, in seconds: a wrong clock here must not end a token early."""
        self._acted = False
        self._over: State | None = None
        """How it ends, if we end it."""

    async def run(self) -> State:
        """Until the connection has ended for good."""
        self._listener.state_is(State("connecting"))
        while True:
            ended = await self._once()
            verdict = backoff.after_close(ended.code)
            if verdict is Verdict.TOKEN:
                self._refusals += 1
                self._refused = self._token
            if ended.phase == "closed" or verdict is Verdict.STOP or self._refusals > backoff.REFUSALS:
                return State("closed", ended.code, ended.reason)
            self._failures = backoff.counted(self._failures, verdict)
            asked = backoff.retry_after(ended.reason)
            wait = backoff.delay(self._failures, random.random(), asked) / 1000
            self._failures += 1
            self._listener.state_is(State("reconnecting", ended.code, ended.reason, wait))
            await asyncio.sleep(wait)

    async def send(self, frame: Frame) -> bool:
        """False: there is no connection, and it was not sent."""
        if self._socket is None or self._welcome is None:
            return False
        try:
            await self._socket.send(_encode(frame), text=True)
        except websockets.ConnectionClosed:
            return False
        return True

    def want(self, wants: Wants, again: tuple[str, ...] = ()) -> None:
        self._interest.want(wants)
        self._interest.again(again)
        self._dirty.set()

    def active(self) -> None:
        """The person did something; goes with the next beat."""
        self._acted = True

    async def idle(self) -> None:
        self._acted = False
        await self.send(Away())

    # One connection

    async def _once(self) -> State:
        """How it ended; `closed`: there is no use in another try."""
        try:
            token = await self._fresh_token()
        except Exception as error:  # noqa: BLE001 - whatever the application's own function does
            self._listener.failed("token_failed", repr(error))
            return State("reconnecting", reason="token_failed")
        if not token:
            return State("closed", 4401, "token_missing")
        if token == self._refused:
            return State("closed", 4401, "token_refused")
        if not self._is_ours(token):
            return State("closed", 4401, "token_other_user")
        self._token = token
        try:
            async with websockets.connect(
                self._address(),
                additional_headers={"authorization": f"Bearer {self._token}"},
                subprotocols=[websockets.Subprotocol("herenow.v1")],
                open_timeout=ANSWER,
                close_timeout=1,
                max_size=None,
            ) as socket:
                return await self._live(socket)
        except (websockets.InvalidURI, ValueError) as error:
            return State("closed", reason=repr(error))
        except (OSError, TimeoutError, websockets.WebSocketException, EOFError) as error:
            return State("reconnecting", reason=repr(error))

    async def _live(self, socket: websockets.ClientConnection) -> State:
        self._socket = socket
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(ANSWER) as patience:
                async for payload in socket:
                    frame = read_frame(payload)
                    if isinstance(frame, WelcomeFrame):
                        patience.reschedule(None)
                        tasks = await self._welcomed(frame)
                    if frame is not None:
                        self._heard(frame)
        except websockets.ConnectionClosed:
            pass
        finally:
            self._socket = self._welcome = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._over or State("reconnecting", _code(socket), socket.close_reason or "")

    async def _welcomed(self, frame: WelcomeFrame) -> list[asyncio.Task[None]]:
        self._welcome = frame
        self._device = frame.device_id
        self._refused, self._refusals = None, 0
        self._skew = frame.server_time / 1000 - steady_clock()
        self._interest.reset()
        self._listener.state_is(State("connected"))
        if self._acted:
            self._acted = not await self.send(Active())
        self._dirty.set()
        work = (self._beat(frame.beat_every), self._ask(frame.limits.frame), self._renew(), self._become_steady())
        return [asyncio.create_task(each, name="herenow-link") for each in work]

    def _heard(self, frame: ServerFrame) -> None:
        if self._interest.hear(frame):
            wait = backoff.delay(1, random.random()) / 1000
            asyncio.get_running_loop().call_later(wait, self._dirty.set)
        else:
            self._listener.hear(frame)

    async def _beat(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await self.send(HeartbeatFrame(activity_type="active" if self._acted else None))
            self._acted = False

    async def _ask(self, size: int) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(BATCH)
            self._dirty.clear()
            for frame in self._interest.frames(size):
                await self.send(frame)

    async def _renew(self) -> None:
        while (left := self._left()) is not None and left > 0:
            await asyncio.sleep(max(PATIENCE, left - min(SPARE, left / 5)))
            try:
                token = await self._ask_source()
            except Exception as error:  # noqa: BLE001 - whatever the application's own function does
                # The connection may live a little longer; if it ends, the token is asked for again.
                self._listener.failed("token_failed", repr(error))
                continue
            if not token or token == self._token:
                continue
            if not self._is_ours(token):
                # Somebody else has signed in: what is known and wanted here is not theirs.
                self._over = State("closed", 4401, "token_other_user")
                if self._socket is not None:
                    await self._socket.close()
                return
            self._token = token
            await self.send(Refresh(token=token))

    async def _become_steady(self) -> None:
        await asyncio.sleep(STEADY)
        self._failures = 0

    # Token and address

    async def _fresh_token(self) -> str | None:
        left = self._left()
        if self._token is not None and self._token != self._refused and left is not None and left > SPARE / 2:
            return self._token
        return await self._ask_source()

    async def _ask_source(self) -> str | None:
        if isinstance(self._source, str):
            return self._source
        given = self._source()
        return await given if inspect.isawaitable(given) else given

    def _left(self) -> float | None:
        """Seconds that the token has yet, by the server's clock."""
        end = expires_at(self._token or "")
        return None if end is None else end - steady_clock() - self._skew

    def _is_ours(self, token: str) -> bool:
        whose = subject(token)
        self._subject = whose if self._subject is None else self._subject
        return self._subject == whose

    def _address(self) -> str:
        parts = urlsplit(self._url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True)) | {"platform": self._platform}
        if self._device is not None:
            query["device_id"] = self._device
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        return urlunsplit((scheme, parts.netloc, parts.path, urlencode(query), ""))


def _code(socket: websockets.ClientConnection) -> int | None:
    """1006 is the library's word for no close frame at all."""
    code: int | None = None
    with suppress(AttributeError):
        code = socket.close_code
    return None if code in (1005, 1006) else code
