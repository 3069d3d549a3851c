"""A WebSocket connection that reconnects: token, socket, heartbeats, subscriptions, back-off.

It interprets only the welcome frame and the replies to subscriptions; all other frames go to the listener. The pings of
`websockets` detect a server that disappears silently. A network failure is a `State`, never an exception.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
import websockets

from herenow.client import backoff
from herenow.client.backoff import Verdict
from herenow.client.interest import Interest, Wants
from herenow.client.presence import State
from herenow.client.token_source import Token, request_token
from herenow.client.tokens import expires_at, steady_clock, subject, wall_clock
from herenow.wire.frames import Active, Away, Frame, HeartbeatFrame, Refresh
from herenow.wire.server_frames import ServerFrame, read_frame
from herenow.wire.shapes import WelcomeFrame

BATCH = 0.01  # s: subscriptions requested within this time go out in one frame
ANSWER = 10.0  # s: without a response by then, the server counts as unreachable
STEADY = 10.0  # s: after this time a connection resets the count of failures
SPARE = (
    60.0  # s: a token is renewed this long before it expires, or when a fifth of its time remains if that is shorter
)
PATIENCE = 1.0  # s: shortest time between two attempts to renew the token

TOKEN_FAILED = "token_failed"  # noqa: S105 - a code, not a secret

_encode = msgspec.json.Encoder().encode


def renewal_delay(left: float) -> float:
    """Seconds to wait until the renewal of a token that expires in `left` seconds."""
    return max(PATIENCE, left - min(SPARE, left / 5))


class Listener(Protocol):
    def hear(self, frame: ServerFrame) -> None: ...
    def state_is(self, state: State) -> None: ...
    def failed(self, code: str, message: str) -> None: ...


class Link:
    """Does nothing until `run`, which the caller starts in a task and cancels to end the connection."""

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
        self._token_failures = 0
        """Failed token requests in a row."""
        self._subject: object = None
        """The `sub` claim of the first token; a token of another user closes the link."""
        self._skew = wall_clock() - steady_clock()
        """Server time minus `steady_clock`, in seconds: a wrong local clock must not make a token appear expired."""
        self._was_active = False
        """The user was active since the last heartbeat."""
        self._final_state: State | None = None
        """The state to end with, if this side closes the socket."""

    async def run(self) -> State:
        """Connect and reconnect until the connection must not be reopened; returns the final state."""
        self._listener.state_is(State("connecting"))
        while True:
            ended = await self._connect_once()
            verdict = backoff.after_close(ended.code)
            if verdict is Verdict.TOKEN:
                self._refusals += 1
                self._refused = self._token
            if ended.final:
                return ended
            if verdict is Verdict.STOP or self._refusals > backoff.REFUSALS:
                return State("closed", ended.code, ended.reason)
            wait = self._delay(ended, verdict) / 1000
            self._listener.state_is(State("reconnecting", ended.code, ended.reason, wait))
            await asyncio.sleep(wait)

    def _delay(self, ended: State, verdict: Verdict) -> int:
        """Milliseconds to wait before the next attempt to connect. `ended` is the state in which the last one ended."""
        if ended.reason == TOKEN_FAILED:
            return backoff.token_delay(self._token_failures)
        failures = backoff.counted(self._failures, verdict)
        self._failures = failures + 1
        return backoff.delay(failures, random.random(), backoff.retry_after(ended.reason))

    async def send(self, frame: Frame) -> bool:
        """Send a frame to the server. Returns False, without sending it, if there is no connection."""
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
        """Report user activity with the next heartbeat."""
        self._was_active = True

    async def idle(self) -> None:
        self._was_active = False
        await self.send(Away())

    # One connection

    async def _connect_once(self) -> State:
        """Open one connection and serve it until it ends. Returns the state after it, a final one if a retry is
        useless."""
        try:
            token = await self._fresh_token()
        except Exception as error:  # noqa: BLE001 - whatever the application's own function does
            self._token_failed(error)
            return State("reconnecting", reason=TOKEN_FAILED)
        if token is None:
            return State("signed_out")
        if token == self._refused:
            return State("closed", 4401, "token_refused")
        if not self._is_same_user(token):
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
                return await self._serve(socket)
        except (websockets.InvalidURI, ValueError) as error:
            return State("closed", reason=repr(error))
        except (OSError, TimeoutError, websockets.WebSocketException, EOFError) as error:
            return State("reconnecting", reason=f"unreachable: {error!r}")

    async def _serve(self, socket: websockets.ClientConnection) -> State:
        self._socket = socket
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(ANSWER) as patience:
                async for payload in socket:
                    frame = read_frame(payload)
                    if isinstance(frame, WelcomeFrame):
                        patience.reschedule(None)
                        tasks = await self._on_welcome(frame)
                    if frame is not None:
                        self._on_frame(frame)
        except websockets.ConnectionClosed:
            pass
        except TimeoutError:
            return State("reconnecting", reason="no_answer")
        finally:
            self._socket = self._welcome = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._final_state or State("reconnecting", _code(socket), socket.close_reason or "connection_lost")

    async def _on_welcome(self, frame: WelcomeFrame) -> list[asyncio.Task[None]]:
        self._welcome = frame
        self._device = frame.device_id
        self._refused, self._refusals = None, 0
        self._skew = frame.server_time / 1000 - steady_clock()
        self._interest.reset()
        self._listener.state_is(State("connected"))
        if self._was_active:
            self._was_active = not await self.send(Active())
        self._dirty.set()
        work = (
            self._beat(frame.beat_every),
            self._send_subscriptions(frame.limits.frame, frame.limits.bulk),
            self._renew(),
            self._become_steady(),
        )
        return [asyncio.create_task(each, name="herenow-link") for each in work]

    def _on_frame(self, frame: ServerFrame) -> None:
        if self._interest.hear(frame):
            wait = backoff.delay(1, random.random()) / 1000
            asyncio.get_running_loop().call_later(wait, self._dirty.set)
        else:
            self._listener.hear(frame)

    async def _beat(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await self.send(HeartbeatFrame(activity_type="active" if self._was_active else None))
            self._was_active = False

    async def _send_subscriptions(self, size: int, bulk: int) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(BATCH)
            self._dirty.clear()
            for frame in self._interest.frames(size, bulk):
                await self.send(frame)

    async def _renew(self) -> None:
        """Renew the token each time before it expires. If that fails, the connection still lasts until the expiry."""
        while (wait := self._seconds_until_renewal()) is not None:
            await asyncio.sleep(wait)
            try:
                token = await self._request_token()
            except Exception as error:  # noqa: BLE001 - whatever the application's own function does
                self._token_failed(error)
                continue
            if token is None:
                await self._end(State("signed_out"))
                return
            if not self._is_same_user(token):
                # Another user signed in: the presences and subscriptions held here belong to the previous user.
                await self._end(State("closed", 4401, "token_other_user"))
                return
            if token != self._token:
                self._token = token
                await self.send(Refresh(token=token))

    def _seconds_until_renewal(self) -> float | None:
        """Seconds to wait until the next renewal of the token. None if it has no expiry, or is expired although the
        last request for a token succeeded."""
        if self._token_failures:
            return backoff.token_delay(self._token_failures) / 1000
        left = self._seconds_left()
        return None if left is None or left <= 0 else renewal_delay(left)

    async def _end(self, state: State) -> None:
        self._final_state = state
        if self._socket is not None:
            await self._socket.close()

    async def _become_steady(self) -> None:
        await asyncio.sleep(STEADY)
        self._failures = 0

    # Token and address

    async def _fresh_token(self) -> str | None:
        left = self._seconds_left()
        if self._token is not None and self._token != self._refused and left is not None and left > SPARE / 2:
            return self._token
        return await self._request_token()

    async def _request_token(self) -> str | None:
        token = await request_token(self._source)
        self._token_failures = 0
        return token

    def _token_failed(self, error: Exception) -> None:
        self._token_failures += 1
        self._listener.failed(TOKEN_FAILED, repr(error))

    def _seconds_left(self) -> float | None:
        """Seconds until the token expires, by the server's clock; None if it has no expiry."""
        end = expires_at(self._token or "")
        return None if end is None else end - steady_clock() - self._skew

    def _is_same_user(self, token: str) -> bool:
        user = subject(token)
        self._subject = user if self._subject is None else self._subject
        return self._subject == user

    def _address(self) -> str:
        parts = urlsplit(self._url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True)) | {"platform": self._platform}
        if self._device is not None:
            query["device_id"] = self._device
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        return urlunsplit((scheme, parts.netloc, parts.path, urlencode(query), ""))


def _code(socket: websockets.ClientConnection) -> int | None:
    """The close code of the socket; None if there was no close frame (1006) or no code in it (1005)."""
    code: int | None = None
    with suppress(AttributeError):
        code = socket.close_code
    return None if code in (1005, 1006) else code
