"""REST for back ends and scripts: `Rest` blocks, `AsyncRest` does not; they ask the same questions (`asks`).

The two classes are as alike as two languages allow; nothing is decided in either. A test compares them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import httpx2

from herenow.client import asks
from herenow.client.asks import (
    Ask,
    Batch,
    Beat,
    Beaten,
    Counts,
    Explanation,
    Id,
    Imported,
    ModeAnswer,
    Preferences,
    Relation,
    Revoked,
    UserPage,
)
from herenow.client.choices import Until
from herenow.client.errors import RestError, Unavailable
from herenow.client.presence import Custom, Device, Me, Presence

T = TypeVar("T")
TIMEOUT = 10.0  # seconds


class Rest:
    """`url` is the server's, without `/api/v1`; `token` a JWT or a function that gives one, asked for each request."""

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str],
        *,
        timeout: float = TIMEOUT,
        http: httpx2.Client | None = None,
    ) -> None:
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token
        self._http = http or httpx2.Client(timeout=timeout)
        self._owned = http is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._owned:
            self._http.close()

    def ask(self, ask: Ask[T]) -> T:
        """Raises `RestError` for a refusal, `Unavailable` for a server that does not answer."""
        token = self._token if isinstance(self._token, str) else self._token()
        with _translated():
            answer = self._http.request(
                ask.method,
                self._base + ask.path,
                params=dict(ask.query),
                content=ask.content,
                headers=ask.headers | {"authorization": f"Bearer {token}"},
            )
        return ask.answer(answer.status_code, answer.content, answer.headers)

    # Reading. `viewer` is for service tokens: exactly what that user would get.

    def get(self, user: Id, *, viewer: Id | None = None) -> Presence:
        return self.get_many([user], viewer=viewer)[0]

    def get_many(self, users: Iterable[Id], *, viewer: Id | None = None) -> list[Presence]:
        """In the order asked, each once."""
        return asks.presences(self.ask(asks.many(users, viewer)))

    def me(self, *, viewer: Id | None = None) -> Me:
        return self.ask(asks.me(viewer))

    def count(self, *, viewer: Id | None = None) -> Counts:
        return self.ask(asks.count(viewer))

    def leaderboard(self, *, limit: int | None = None, viewer: Id | None = None) -> list[Presence]:
        return asks.presences(self.ask(asks.leaderboard(limit, viewer)).friends)

    def devices(self, *, viewer: Id | None = None) -> list[Device]:
        return self.ask(asks.devices(viewer)).devices

    def preferences(self, *, viewer: Id | None = None) -> Preferences:
        return self.ask(asks.preferences(viewer))

    def public_profile(self, user: Id) -> Presence | None:
        """As anybody at all may see it; None: there is no such profile."""
        try:
            said = self.ask(asks.public_profile(user))
        except RestError as error:
            _absent(error)
            return None
        return Presence.said(said)

    def stats(self) -> dict[str, Any]:
        return self.ask(asks.stats())

    # Choosing. `user` is for service tokens: act for that user.

    def set_status(
        self, text: str = "", *, emoji: str = "", until: Until = None, user: Id | None = None
    ) -> Custom | None:
        return self.ask(asks.set_status(user, text, emoji, until)).custom_status

    def clear_status(self, *, user: Id | None = None) -> None:
        self.ask(asks.clear_status(user))

    def set_mode(self, mode: str, *, until: Until = None, user: Id | None = None) -> ModeAnswer:
        return self.ask(asks.set_mode(user, mode, until))

    def set_preferences(self, **changes: object) -> Preferences:
        """`visibility`, `share_last_seen`, `idle_after`, `public`; what is not mentioned stays."""
        return self.ask(asks.set_preferences(changes))

    def blocks(self, *, viewer: Id | None = None) -> list[str]:
        return self.ask(asks.blocks(viewer)).blocked

    def block(self, user: Id) -> None:
        """Neither sees the other from now on."""
        self.ask(asks.block("PUT", user))

    def unblock(self, user: Id) -> None:
        self.ask(asks.block("DELETE", user))

    def is_blocked(self, user: Id) -> bool:
        return self._is_there(asks.block("GET", user))

    def sign_out(self, device: Id) -> None:
        self.ask(asks.sign_out(device))

    # Life without a WebSocket

    def heartbeat(
        self, device: Id | None = None, *, activity: str | None = None, platform: str | None = None
    ) -> Beaten:
        return self.ask(asks.heartbeat(device, activity, platform))

    def heartbeats(self, beats: Iterable[Beat]) -> Batch:
        """Service: up to 10 000 beats of an outside gateway. Each is taken, dropped or refused by itself."""
        return self.ask(asks.heartbeats(beats))

    # The graph: service

    def follow(self, a: Id, b: Id) -> None:
        self.ask(asks.edge("PUT", "follows", a, b))

    def unfollow(self, a: Id, b: Id) -> None:
        self.ask(asks.edge("DELETE", "follows", a, b))

    def follows(self, a: Id, b: Id) -> bool:
        return self._is_there(asks.edge("GET", "follows", a, b))

    def add_contact(self, a: Id, b: Id, *, until: Until = None) -> None:
        self.ask(asks.edge("PUT", "contacts", a, b, until))

    def remove_contact(self, a: Id, b: Id) -> None:
        self.ask(asks.edge("DELETE", "contacts", a, b))

    def in_contact(self, a: Id, b: Id) -> bool:
        return self._is_there(asks.edge("GET", "contacts", a, b))

    def add_member(self, room: Id, user: Id) -> None:
        self.ask(asks.edge("PUT", "rooms", room, user))

    def remove_member(self, room: Id, user: Id) -> None:
        self.ask(asks.edge("DELETE", "rooms", room, user))

    def is_member(self, room: Id, user: Id) -> bool:
        return self._is_there(asks.edge("GET", "rooms", room, user))

    def import_relations(self, rows: Iterable[Relation]) -> Imported:
        """Up to 10 000 rows, all or none."""
        return self.ask(asks.relations(rows))

    def relations_changed(
        self,
        *,
        pairs: Iterable[tuple[Id, Id]] = (),
        users: Iterable[Id] = (),
        members: Iterable[tuple[Id, Id]] = (),
        rooms: Iterable[Id] = (),
    ) -> None:
        """Where the application is asked who is related: what to ask again. `members` are (room, user)."""
        self.ask(asks.relations_changed(pairs, users, members, rooms))

    # Users: service

    def users(
        self,
        *,
        status: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        viewer: Id | None = None,
    ) -> UserPage:
        """A page of those who are here; go on with its `cursor` until that is None."""
        return asks.page(self.ask(asks.users(status, cursor, limit, viewer)))

    def explain(self, viewer: Id, target: Id) -> Explanation:
        """Why does one see the other so?"""
        return asks.explanation(self.ask(asks.explain(viewer, target)))

    def disconnect(self, user: Id, *, device: Id | None = None) -> None:
        """Sign out everywhere, or one device; tokens stay good."""
        self.ask(asks.disconnect(user, device))

    def revoke(self, user: Id, *, issued_before: Until = None) -> Revoked:
        """Tokens issued before that instant (now, if left out) are void."""
        return self.ask(asks.revoke(user, issued_before))

    def delete_user(self, user: Id) -> None:
        """Everything about the user is forgotten."""
        self.ask(asks.delete_user(user))

    def _is_there(self, ask: Ask[object]) -> bool:
        try:
            self.ask(ask)
        except RestError as error:
            return _absent(error)
        return True


class AsyncRest:
    """`Rest` for asyncio; `token` may be an async function too."""

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str | Awaitable[str]],
        *,
        timeout: float = TIMEOUT,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token
        self._http = http or httpx2.AsyncClient(timeout=timeout)
        self._owned = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def ask(self, ask: Ask[T]) -> T:
        """Raises `RestError` for a refusal, `Unavailable` for a server that does not answer."""
        token = self._token if isinstance(self._token, str) else self._token()
        if inspect.isawaitable(token):
            token = await token
        with _translated():
            answer = await self._http.request(
                ask.method,
                self._base + ask.path,
                params=dict(ask.query),
                content=ask.content,
                headers=ask.headers | {"authorization": f"Bearer {token}"},
            )
        return ask.answer(answer.status_code, answer.content, answer.headers)

    # Reading. `viewer` is for service tokens: exactly what that user would get.

    async def get(self, user: Id, *, viewer: Id | None = None) -> Presence:
        return (await self.get_many([user], viewer=viewer))[0]

    async def get_many(self, users: Iterable[Id], *, viewer: Id | None = None) -> list[Presence]:
        """In the order asked, each once."""
        return asks.presences(await self.ask(asks.many(users, viewer)))

    async def me(self, *, viewer: Id | None = None) -> Me:
        return await self.ask(asks.me(viewer))

    async def count(self, *, viewer: Id | None = None) -> Counts:
        return await self.ask(asks.count(viewer))

    async def leaderboard(self, *, limit: int | None = None, viewer: Id | None = None) -> list[Presence]:
        return asks.presences((await self.ask(asks.leaderboard(limit, viewer))).friends)

    async def devices(self, *, viewer: Id | None = None) -> list[Device]:
        return (await self.ask(asks.devices(viewer))).devices

    async def preferences(self, *, viewer: Id | None = None) -> Preferences:
        return await self.ask(asks.preferences(viewer))

    async def public_profile(self, user: Id) -> Presence | None:
        """As anybody at all may see it; None: there is no such profile."""
        try:
            said = await self.ask(asks.public_profile(user))
        except RestError as error:
            _absent(error)
            return None
        return Presence.said(said)

    async def stats(self) -> dict[str, Any]:
        return await self.ask(asks.stats())

    # Choosing. `user` is for service tokens: act for that user.

    async def set_status(
        self, text: str = "", *, emoji: str = "", until: Until = None, user: Id | None = None
    ) -> Custom | None:
        return (await self.ask(asks.set_status(user, text, emoji, until))).custom_status

    async def clear_status(self, *, user: Id | None = None) -> None:
        await self.ask(asks.clear_status(user))

    async def set_mode(self, mode: str, *, until: Until = None, user: Id | None = None) -> ModeAnswer:
        return await self.ask(asks.set_mode(user, mode, until))

    async def set_preferences(self, **changes: object) -> Preferences:
        """`visibility`, `share_last_seen`, `idle_after`, `public`; what is not mentioned stays."""
        return await self.ask(asks.set_preferences(changes))

    async def blocks(self, *, viewer: Id | None = None) -> list[str]:
        return (await self.ask(asks.blocks(viewer))).blocked

    async def block(self, user: Id) -> None:
        """Neither sees the other from now on."""
        await self.ask(asks.block("PUT", user))

    async def unblock(self, user: Id) -> None:
        await self.ask(asks.block("DELETE", user))

    async def is_blocked(self, user: Id) -> bool:
        return await self._is_there(asks.block("GET", user))

    async def sign_out(self, device: Id) -> None:
        await self.ask(asks.sign_out(device))

    # Life without a WebSocket

    async def heartbeat(
        self, device: Id | None = None, *, activity: str | None = None, platform: str | None = None
    ) -> Beaten:
        return await self.ask(asks.heartbeat(device, activity, platform))

    async def heartbeats(self, beats: Iterable[Beat]) -> Batch:
        """Service: up to 10 000 beats of an outside gateway. Each is taken, dropped or refused by itself."""
        return await self.ask(asks.heartbeats(beats))

    # The graph: service

    async def follow(self, a: Id, b: Id) -> None:
        await self.ask(asks.edge("PUT", "follows", a, b))

    async def unfollow(self, a: Id, b: Id) -> None:
        await self.ask(asks.edge("DELETE", "follows", a, b))

    async def follows(self, a: Id, b: Id) -> bool:
        return await self._is_there(asks.edge("GET", "follows", a, b))

    async def add_contact(self, a: Id, b: Id, *, until: Until = None) -> None:
        await self.ask(asks.edge("PUT", "contacts", a, b, until))

    async def remove_contact(self, a: Id, b: Id) -> None:
        await self.ask(asks.edge("DELETE", "contacts", a, b))

    async def in_contact(self, a: Id, b: Id) -> bool:
        return await self._is_there(asks.edge("GET", "contacts", a, b))

    async def add_member(self, room: Id, user: Id) -> None:
        await self.ask(asks.edge("PUT", "rooms", room, user))

    async def remove_member(self, room: Id, user: Id) -> None:
        await self.ask(asks.edge("DELETE", "rooms", room, user))

    async def is_member(self, room: Id, user: Id) -> bool:
        return await self._is_there(asks.edge("GET", "rooms", room, user))

    async def import_relations(self, rows: Iterable[Relation]) -> Imported:
        """Up to 10 000 rows, all or none."""
        return await self.ask(asks.relations(rows))

    async def relations_changed(
        self,
        *,
        pairs: Iterable[tuple[Id, Id]] = (),
        users: Iterable[Id] = (),
        members: Iterable[tuple[Id, Id]] = (),
        rooms: Iterable[Id] = (),
    ) -> None:
        """Where the application is asked who is related: what to ask again. `members` are (room, user)."""
        await self.ask(asks.relations_changed(pairs, users, members, rooms))

    # Users: service

    async def users(
        self,
        *,
        status: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        viewer: Id | None = None,
    ) -> UserPage:
        """A page of those who are here; go on with its `cursor` until that is None."""
        return asks.page(await self.ask(asks.users(status, cursor, limit, viewer)))

    async def explain(self, viewer: Id, target: Id) -> Explanation:
        """Why does one see the other so?"""
        return asks.explanation(await self.ask(asks.explain(viewer, target)))

    async def disconnect(self, user: Id, *, device: Id | None = None) -> None:
        """Sign out everywhere, or one device; tokens stay good."""
        await self.ask(asks.disconnect(user, device))

    async def revoke(self, user: Id, *, issued_before: Until = None) -> Revoked:
        """Tokens issued before that instant (now, if left out) are void."""
        return await self.ask(asks.revoke(user, issued_before))

    async def delete_user(self, user: Id) -> None:
        """Everything about the user is forgotten."""
        await self.ask(asks.delete_user(user))

    async def _is_there(self, ask: Ask[object]) -> bool:
        try:
            await self.ask(ask)
        except RestError as error:
            return _absent(error)
        return True


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except httpx2.RequestError as error:
        raise Unavailable(f"the server does not answer: {error!r}") from error


def _absent(error: RestError) -> bool:
    """False if that is what the refusal means."""
    if error.code != "not_found":
        raise error
    return False
