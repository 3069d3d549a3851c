"""The live client: watch presences, set the own status, send and receive typing, over one WebSocket that reconnects.

    async with Herenow("wss://here.example/ws/presence", token=fetch_token) as here:
        async for change in here.watch(["ana", "bo"]):
            paint(change.now)

A slow reader gets the latest presence of each user instead of a growing queue. `link` keeps the connection.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from herenow.client.choices import Until, set_frame
from herenow.client.errors import Closed, ProtocolError, Unavailable
from herenow.client.interest import Wants
from herenow.client.link import Link
from herenow.client.mailbox import Mailbox
from herenow.client.presence import Change, Me, Presence, State, Typing
from herenow.client.roster import Roster
from herenow.client.token_source import Token
from herenow.wire.frames import Bye, SetFrame, TypingFrame
from herenow.wire.ids import parse_id
from herenow.wire.server_frames import AnyDeniedFrame, SelfFrame, ServerFrame, StatusesFrame, StatusFrame
from herenow.wire.shapes import ErrorFrame, OkFrame, TypingNoticeFrame

STALE = 2.0  # s without a connection until presences are flagged stale: a quick reconnect should not make dots blink
TYPING = 4.0  # s between two typing frames for the same place (the server forgets after 6)
ANSWER = 10.0  # s: how long `set` and `bye` wait for the server


class Watch:
    """An asynchronous iterator of `Change`: first the presences already known, then each change.

    The subscription ends with `close()`, at the end of `async with`, or when the object is garbage-collected. Iterating
    raises `Closed` once the connection is closed for good.
    """

    def __init__(self, here: Herenow, users: frozenset[str] | None) -> None:
        self.users = users
        """The ids of the watched users; None: all contacts."""
        self._box: Mailbox[str, Change] = Mailbox()
        here._watches.add(self)
        self._end_watch = weakref.finalize(self, _end_watch, weakref.ref(here), weakref.ref(self))
        self._end_watch.atexit = False

    def tell(self, change: Change) -> None:
        """Queue a change for the reader of this watch; only the client calls this. The change replaces an unread one of
        the same user, but keeps the `before` of that one."""
        user = change.now.user_id
        waiting = self._box.waiting(user)
        self._box.put(user, change if waiting is None else replace(change, before=waiting.before))

    def finish(self, why: BaseException) -> None:
        """End the iteration over this watch: after the unread changes it raises `why`. Only the client calls this."""
        self._box.end(why)

    def close(self) -> None:
        """Stop watching: end the iteration, and unsubscribe from users that no other watch needs."""
        self._end_watch()
        self.finish(StopAsyncIteration())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        return await self._box.take()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Herenow:
    """The live client. Use it with `async with`, which connects and closes it.

    `url` is the WebSocket address of the server. `token` is the http(s) address of your token endpoint, a function (sync or
    async) that returns a JWT, or a JWT. Endpoint and function are asked again before the token expires, and after 1 s,
    doubling to at most 30 s, if they fail, do not answer within 10 s or answer something else. No user is signed in if the
    endpoint answers 204 or 401, or the function returns None: the state is then `signed_out`. Without `device_id` the
    server assigns one, which is kept across reconnects.
    """

    def __init__(self, url: str, token: Token, *, device_id: str | None = None, platform: str = "other") -> None:
        self._link = Link(url, token, device_id=device_id, platform=platform, listener=self)
        self._roster = Roster()
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._rooms: list[str] = []
        self._state = State("connecting")
        self._me: Me | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled: asyncio.Handle | None = None
        self._denied_again: list[str] = []
        self._number = 0
        self._unanswered: dict[object, asyncio.Future[bool]] = {}
        """Unanswered `set` frames by id; the result is False if the connection ended before the response."""
        self._states: weakref.WeakSet[Mailbox[None, State]] = weakref.WeakSet()
        self._typings: weakref.WeakSet[Mailbox[tuple[str, str | None, str | None], Typing]] = weakref.WeakSet()
        self._typing_sent_at: dict[tuple[str | None, str | None], float] = {}
        self._typing_timers: dict[tuple[str, str | None, str | None], asyncio.TimerHandle] = {}
        self._stale_timer: asyncio.TimerHandle | None = None
        self.errors: list[ProtocolError] = []
        """The last 100 errors that belong to no call: refusals of the server, and failed token requests."""

    # Opening and closing

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._send_subscriptions()
        self._task = asyncio.create_task(self._run(), name="herenow")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. The user goes offline after the server's reconnect window; `bye` signs out at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if not self._state.final:
            self._finish(State("closed"), StopAsyncIteration())

    async def bye(self) -> None:
        """Sign this device out: it is offline at once. Returns when the connection is closed, or after 10 seconds."""
        await self._link.send(Bye())
        if self._task is not None:
            await asyncio.wait([self._task], timeout=ANSWER)

    async def _run(self) -> None:
        try:
            state = await self._link.run()
        except Exception as error:
            # A bug in the client must not leave readers waiting for ever.
            self._finish(State("closed", reason=repr(error)), error)
            raise
        self._finish(state, _closed(state))

    # Reading

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._state

    async def connected(self) -> None:
        """Wait until the client is connected. Raises `Closed` if it is closed and does not reconnect."""
        box = self._state_box()
        with _closed_if_ended():
            while (await box.take()).phase != "connected":
                pass

    async def _next_state(self) -> None:
        box = self._state_box()
        with _closed_if_ended():
            await box.take()
            await box.take()

    async def states(self) -> AsyncIterator[State]:
        """Yield the state of the connection, then each change of it. Raises `Closed` at the end; after `close()` it
        just ends."""
        async for state in self._state_box():
            yield state

    def _state_box(self) -> Mailbox[None, State]:
        box: Mailbox[None, State] = Mailbox()
        box.put(None, self._state)
        self._states.add(box)
        if self._state.final:
            box.end(self._reason_to_end())
        return box

    def get(self, user: str | int) -> Presence:
        """The last known presence of a user; its status is `unknown` if the user is not watched or nothing came yet."""
        return self._roster.get(str(user))

    @property
    def me(self) -> Me | None:
        """The user's own presence; None until the server has sent it."""
        return self._me

    def watch(self, users: Iterable[str | int]) -> Watch:
        """Subscribe to users. The result is an iterator of their known presences, and then of each change.

        All watches share one subscription per user. If the server denied a user before, it is asked again. Raises
        `ProtocolError` for an invalid id.
        """
        return self._watch(frozenset(parse_id(user) for user in users))

    def watch_contacts(self) -> Watch:
        """Subscribe to all users that this user may see, including those added later. The result is as for `watch`."""
        return self._watch(None)

    def _watch(self, users: frozenset[str] | None) -> Watch:
        watch = Watch(self, users)
        known = [self._roster.get(user) for user in self._roster if users is None or user in users]
        for presence in known:
            watch.tell(Change(presence, None))
        if self._state.final:
            watch.finish(self._reason_to_end())
        self._denied_again += [presence.user_id for presence in known if presence.denied]
        self._schedule_subscriptions()
        return watch

    def _schedule_subscriptions(self) -> None:
        """Schedule one call of `_send_subscriptions` for all watches that change now: 5 000 new watches become one
        list. It is thread-safe, because the garbage collector may finalize a watch in any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._schedule_in_loop)

    def _schedule_in_loop(self) -> None:
        if self._scheduled is None and self._loop is not None:
            self._scheduled = self._loop.call_soon(self._send_subscriptions)

    def _send_subscriptions(self) -> None:
        self._scheduled = None
        named = dict.fromkeys(user for watch in self._watches for user in sorted(watch.users or ()))
        contacts = any(watch.users is None for watch in self._watches)
        for user in self._roster:
            if not contacts and user not in named:
                self._roster.forget(user)
        again, self._denied_again = tuple(self._denied_again), []
        self._link.want(Wants(tuple(named), tuple(dict.fromkeys(self._rooms)), contacts), again)

    # Sending

    async def set(
        self,
        *,
        mode: str | None = None,
        text: str | UnsetType | None = UNSET,
        emoji: str | UnsetType | None = UNSET,
        until: Until = None,
    ) -> None:
        """Set the user's mode, custom status, or both; returns when the server has confirmed it.

        `mode` is `auto`, `busy`, `away` or `invisible`. `text` and `emoji` together are the custom status; empty or None
        clears it. What is left out stays unchanged. `until` (None: no end) applies to everything in this call. If the
        connection ends before the response, the call is repeated on the next one. Raises `ProtocolError` with the server's
        code, `Unavailable` after 10 seconds without a response, `Closed` if the client is closed.
        """
        self._number += 1
        frame = replace(set_frame(mode=mode, text=text, emoji=emoji, until=until), id=f"s{self._number}")
        try:
            async with asyncio.timeout(ANSWER):
                while not await self._send_once(frame):
                    pass
        except TimeoutError:
            raise Unavailable("the server did not answer in time") from None

    async def _send_once(self, frame: SetFrame) -> bool:
        """Send a `set` frame and wait for the server's response. Returns False if the connection ended before it: the
        caller must send the frame again, which is harmless."""
        await self.connected()
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._unanswered[frame.id] = answer
        try:
            if await self._link.send(frame):
                return await answer
        finally:
            del self._unanswered[frame.id]
        # The link has not reported the lost connection yet. Wait for that: `connected()` would return at once, without
        # yielding to the event loop, and the caller would loop for ever.
        await self._next_state()
        return False

    async def auto(self) -> None:
        """Return to the automatic mode: the status follows the devices' activity. The custom status stays."""
        await self.set(mode="auto")

    async def clear(self) -> None:
        """Clear the custom status; the mode stays."""
        await self.set(text=None)

    async def typing(self, *, to: str | int | None = None, room: str | int | None = None, typing: bool = True) -> None:
        """Report that the user types to a user (`to`) or in a room. Call it on every keystroke: one frame per 4 seconds is
        sent. `typing=False` reports the stop at once, for example when the message is sent."""
        if (to is None) == (room is None):
            raise ValueError("name exactly one of to and room")
        place = (None if to is None else parse_id(to), None if room is None else parse_id(room))
        now = asyncio.get_running_loop().time()
        if typing and now - self._typing_sent_at.get(place, -TYPING) < TYPING:
            return
        self._typing_sent_at = {
            each: at for each, at in self._typing_sent_at.items() if now - at < TYPING and each != place
        }
        if typing:
            self._typing_sent_at[place] = now
        await self._link.send(
            TypingFrame(to=UNSET if to is None else to, room=UNSET if room is None else room, typing=typing)
        )

    async def typings(self) -> AsyncIterator[Typing]:
        """Yield an event when a user starts or stops typing, to this user or in an open room (see `open`)."""
        box: Mailbox[tuple[str, str | None, str | None], Typing] = Mailbox()
        self._typings.add(box)
        if self._state.final:
            box.end(self._reason_to_end())
        async for typing in box:
            yield typing

    def open(self, room: str | int) -> None:
        """Receive typing events of a room that this user is a member of. Each `open` needs a `leave`."""
        self._rooms.append(parse_id(room))
        self._schedule_subscriptions()

    def leave(self, room: str | int) -> None:
        """Undo one `open` of the room; nothing happens if it is not open."""
        if (name := parse_id(room)) in self._rooms:
            self._rooms.remove(name)
            self._schedule_subscriptions()

    def active(self) -> None:
        """Report user activity; it is sent with the next heartbeat."""
        self._link.active()

    async def idle(self) -> None:
        """Report at once that the user is idle on this device."""
        await self._link.idle()

    # Receiving: called by the link

    def hear(self, frame: ServerFrame) -> None:
        match frame:
            case StatusFrame():
                self._changed(self._roster.take(Presence.said(frame)))
            case StatusesFrame():
                for said in frame.statuses:
                    self._changed(self._roster.take(Presence.said(said)))
            case AnyDeniedFrame():
                for denied in frame.all:
                    self._changed(self._roster.deny(denied.target_user_id, denied.reason))
            case SelfFrame():
                self._me = Me(
                    frame.status,
                    frame.mode,
                    frame.until,
                    frame.custom_status,
                    frame.devices,
                    frame.mode_source,
                    frame.custom_source,
                )
            case TypingNoticeFrame():
                self._on_typing(frame)
            case OkFrame() | ErrorFrame():
                self._on_response(frame)
            case _:
                pass

    def state_is(self, state: State) -> None:
        before, self._state = self._state, state
        if self._stale_timer is not None:
            self._stale_timer.cancel()
            self._stale_timer = None
        if before.phase == "connected":
            self._roster.lost()
        if state.phase == "reconnecting":
            self._stale_timer = asyncio.get_running_loop().call_later(STALE, self._flag_stale)
        for box in list(self._states):
            box.put(None, state)
        if state.phase != "connected":
            for answer in self._unanswered.values():
                if not answer.done():
                    answer.set_result(False)

    def failed(self, code: str, message: str) -> None:
        self.errors = [*self.errors[-99:], ProtocolError(code, message)]

    def _flag_stale(self) -> None:
        for change in self._roster.age():
            self._changed(change)

    def _changed(self, change: Change | None) -> None:
        if change is None:
            return
        for watch in list(self._watches):
            if watch.users is None or change.now.user_id in watch.users:
                watch.tell(change)

    def _on_response(self, frame: OkFrame | ErrorFrame) -> None:
        answer = self._unanswered.get(frame.id)
        if answer is None or answer.done():
            if isinstance(frame, ErrorFrame):
                self.failed(frame.code, frame.message)
        elif isinstance(frame, ErrorFrame):
            answer.set_exception(ProtocolError(frame.code, frame.message))
        else:
            answer.set_result(True)

    def _on_typing(self, frame: TypingNoticeFrame) -> None:
        to, room = (None if place is UNSET else place for place in (frame.to, frame.room))
        key = (frame.user_id, to, room)
        if (old := self._typing_timers.pop(key, None)) is not None:
            old.cancel()
        if frame.expires_in > 0:
            self._typing_timers[key] = asyncio.get_running_loop().call_later(
                frame.expires_in, self._on_typing_timeout, key
            )
        self._report_typing(key, typing=frame.expires_in > 0)

    def _on_typing_timeout(self, key: tuple[str, str | None, str | None]) -> None:
        del self._typing_timers[key]
        self._report_typing(key, typing=False)

    def _report_typing(self, key: tuple[str, str | None, str | None], *, typing: bool) -> None:
        for box in list(self._typings):
            box.put(key, Typing(*key, typing))

    def _reason_to_end(self) -> BaseException:
        return StopAsyncIteration() if self._state == State("closed") else _closed(self._state)

    def _finish(self, state: State, why: BaseException) -> None:
        self.state_is(state)
        for timer in self._typing_timers.values():
            timer.cancel()
        for watch in list(self._watches):
            watch.finish(why)
        for states in list(self._states):
            states.end(why)
        for typings in list(self._typings):
            typings.end(why)


def _closed(state: State) -> Closed:
    return Closed(state.code, state.reason or state.phase)


@contextmanager
def _closed_if_ended() -> Iterator[None]:
    """Context manager for callers that wait for a connection: raise `Closed` instead of the `StopAsyncIteration` with
    which a mailbox ends after `close()`."""
    try:
        yield
    except StopAsyncIteration:
        raise Closed(None, "closed by us") from None


def _end_watch(here: weakref.ref[Herenow], watch: weakref.ref[Watch]) -> None:
    """Remove a watch that was closed or garbage-collected from its client, which then updates its subscriptions."""
    client, closed = here(), watch()
    if client is None:
        return
    if closed is not None:
        client._watches.discard(closed)
    client._schedule_subscriptions()
