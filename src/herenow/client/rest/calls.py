"""Every call of the REST interface, defined once for the blocking and the asynchronous client.

A method of `RestCalls` takes the arguments of a call and returns its request as an `Ask`. `Rest` and `AsyncRest` inherit the
methods and send that request: there the same method returns the answer, or a coroutine of it, and type checkers know which.
A new endpoint is a new method here and nothing else.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

from msgspec import Struct

from herenow.client.choices import Until, instant
from herenow.client.presence import Custom, Device, Explanation, Me, Preferences, Presence, UserPage
from herenow.client.rest.asks import Ask
from herenow.wire import answers
from herenow.wire.answers import BatchAnswer, Beaten, Counts, Imported, ModeAnswer, Revoked

if TYPE_CHECKING:
    from herenow.client.rest import AsyncRest, Rest

P = ParamSpec("P")
T = TypeVar("T")
Id = str | int


class RestCall(Generic[P, T]):
    """A method of `RestCalls`, whose result depends on the class that it is called on."""

    def __init__(self, make: Callable[Concatenate[RestCalls, P], Ask[T]]) -> None:
        self._make = make
        self._methods: dict[type[RestCalls], Any] = {}

    @overload
    def __get__(self, client: Rest, kind: type[RestCalls]) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncRest, kind: type[RestCalls]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: RestCalls, kind: type[RestCalls]) -> Callable[P, Ask[T]]: ...
    @overload
    def __get__(self, client: None, kind: type[RestCalls]) -> Callable[Concatenate[Any, P], Any]: ...
    def __get__(self, client: RestCalls | None, kind: type[RestCalls]) -> object:
        method = self._methods.get(kind)
        if method is None:
            method = self._methods[kind] = kind._method_of(self._make)
            setattr(method, "__signature__", _signature(self._make))  # noqa: B010 - functions have it, their type does not
        return method.__get__(client, kind)


def _signature(make: Callable[..., Ask[Any]]) -> inspect.Signature:
    """That of the call, for `help`: an `Ask[T]` is shown as the `T` that the caller gets."""
    found = inspect.signature(make)
    return found.replace(return_annotation=str(found.return_annotation).removeprefix("Ask[").removesuffix("]"))


class Beat(Struct, frozen=True, omit_defaults=True):
    """One beat of a batch. Without `device_id`: activity of the user's live sessions. `gone`: that device is lost."""

    user_id: str | int
    device_id: str | int | None = None
    activity_type: str | None = None
    platform: str | None = None
    gone: bool = False


class Relation(Struct, frozen=True, omit_defaults=True):
    """`follow`, `contact` or `room`; of a room, `a` is the room and `b` the member."""

    kind: str
    a: str | int
    b: str | int
    until: int | str | None = None


class RestCalls:
    """The calls themselves: each returns its request, which is not sent."""

    @staticmethod
    def _method_of(make: Callable[Concatenate[RestCalls, P], Ask[T]]) -> Callable[..., object]:
        """The method that a client of this kind has for a call."""

        @functools.wraps(make)
        def method(self: RestCalls, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
            return make(self, *args, **kwargs)

        return method

    # Reading. `viewer` is for service tokens: exactly what that user would get.

    @RestCall
    def get(self, user: Id, *, viewer: Id | None = None) -> Ask[Presence]:
        # Not GET /presence/{user}: there an id could be one of the fixed words of a path.
        return self.get_many([user], viewer=viewer).then(lambda found: found[0])

    @RestCall
    def get_many(self, users: Iterable[Id], *, viewer: Id | None = None) -> Ask[list[Presence]]:
        """In the order asked, each once."""
        body = {"user_ids": list(users)}
        return Ask("POST", "/presence/query", list[answers.StatusAnswer], _viewer(viewer), body).then(_presences)

    @RestCall
    def me(self, *, viewer: Id | None = None) -> Ask[Me]:
        return Ask("GET", "/presence/me", Me, _viewer(viewer))

    @RestCall
    def count(self, *, viewer: Id | None = None) -> Ask[Counts]:
        return Ask("GET", "/presence/count", Counts, _viewer(viewer))

    @RestCall
    def leaderboard(self, *, limit: int | None = None, viewer: Id | None = None) -> Ask[list[Presence]]:
        query = {} if limit is None else {"limit": str(limit)}
        return Ask("GET", "/presence/leaderboard", answers.Leaderboard, query | _viewer(viewer)).then(
            lambda answer: _presences(answer.friends)
        )

    @RestCall
    def devices(self, *, viewer: Id | None = None) -> Ask[list[Device]]:
        return Ask("GET", "/presence/devices", answers.Devices, _viewer(viewer)).then(
            lambda answer: list(answer.devices)
        )

    @RestCall
    def preferences(self, *, viewer: Id | None = None) -> Ask[Preferences]:
        return Ask("GET", "/presence/preferences", Preferences, _viewer(viewer))

    @RestCall
    def public_profile(self, user: Id) -> Ask[Presence | None]:
        """As anybody at all may see it; None: there is no such profile."""
        return Ask("GET", f"/public/{_part(user)}", answers.StatusAnswer).then(Presence.said).if_missing(None)

    @RestCall
    def stats(self) -> Ask[dict[str, Any]]:
        return Ask("GET", "/stats", dict[str, Any])

    # Choosing. `user` is for service tokens: act for that user.

    @RestCall
    def set_status(
        self, text: str = "", *, emoji: str = "", until: Until = None, user: Id | None = None
    ) -> Ask[Custom | None]:
        body = {"text": text, "emoji": emoji, "expires_at": instant(until)}
        return Ask("PUT", _of(user, "status"), answers.CustomAnswer, body=body).then(
            lambda answer: answer.custom_status
        )

    @RestCall
    def clear_status(self, *, user: Id | None = None) -> Ask[None]:
        return Ask("DELETE", _of(user, "status"), type(None))

    @RestCall
    def set_mode(self, mode: str, *, until: Until = None, user: Id | None = None) -> Ask[ModeAnswer]:
        return Ask("PUT", _of(user, "mode"), ModeAnswer, body={"mode": mode, "until": instant(until)})

    @RestCall
    def set_preferences(self, /, **changes: object) -> Ask[Preferences]:
        """`visibility`, `share_last_seen`, `idle_after`, `public`; what is not mentioned stays."""
        return Ask("PUT", "/presence/preferences", Preferences, body=changes)

    @RestCall
    def blocks(self, *, viewer: Id | None = None) -> Ask[list[str]]:
        return Ask("GET", "/blocks", answers.BlockList, _viewer(viewer)).then(lambda answer: answer.blocked)

    @RestCall
    def block(self, user: Id) -> Ask[None]:
        """Neither sees the other from now on."""
        return Ask("PUT", f"/blocks/{_part(user)}", type(None))

    @RestCall
    def unblock(self, user: Id) -> Ask[None]:
        return Ask("DELETE", f"/blocks/{_part(user)}", type(None))

    @RestCall
    def is_blocked(self, user: Id) -> Ask[bool]:
        return _exists(f"/blocks/{_part(user)}")

    @RestCall
    def sign_out(self, device: Id) -> Ask[None]:
        return Ask("DELETE", f"/presence/devices/{_part(device)}", type(None))

    # Life without a WebSocket

    @RestCall
    def heartbeat(
        self, device: Id | None = None, *, activity: str | None = None, platform: str | None = None
    ) -> Ask[Beaten]:
        body = {"device_id": device, "activity_type": activity, "platform": platform}
        return Ask("POST", "/presence/heartbeat", Beaten, body=_given(body))

    @RestCall
    def heartbeats(self, beats: Iterable[Beat]) -> Ask[BatchAnswer]:
        """Service: up to 10 000 beats of an outside gateway. Each is taken, dropped or refused by itself."""
        return Ask("POST", "/heartbeats", BatchAnswer, body=list(beats))

    # The graph: service

    @RestCall
    def follow(self, a: Id, b: Id) -> Ask[None]:
        return Ask("PUT", _edge("follows", a, b), type(None))

    @RestCall
    def unfollow(self, a: Id, b: Id) -> Ask[None]:
        return Ask("DELETE", _edge("follows", a, b), type(None))

    @RestCall
    def follows(self, a: Id, b: Id) -> Ask[bool]:
        return _exists(_edge("follows", a, b))

    @RestCall
    def add_contact(self, a: Id, b: Id, *, until: Until = None) -> Ask[None]:
        end = instant(until)
        return Ask("PUT", _edge("contacts", a, b), type(None), body=None if end is None else {"until": end})

    @RestCall
    def remove_contact(self, a: Id, b: Id) -> Ask[None]:
        return Ask("DELETE", _edge("contacts", a, b), type(None))

    @RestCall
    def in_contact(self, a: Id, b: Id) -> Ask[bool]:
        return _exists(_edge("contacts", a, b))

    @RestCall
    def add_member(self, room: Id, user: Id) -> Ask[None]:
        return Ask("PUT", _member(room, user), type(None))

    @RestCall
    def remove_member(self, room: Id, user: Id) -> Ask[None]:
        return Ask("DELETE", _member(room, user), type(None))

    @RestCall
    def is_member(self, room: Id, user: Id) -> Ask[bool]:
        return _exists(_member(room, user))

    @RestCall
    def import_relations(self, rows: Iterable[Relation]) -> Ask[Imported]:
        """Up to 10 000 rows, all or none."""
        return Ask("POST", "/relations", Imported, lines=list(rows))

    @RestCall
    def relations_changed(
        self,
        *,
        pairs: Iterable[tuple[Id, Id]] = (),
        users: Iterable[Id] = (),
        members: Iterable[tuple[Id, Id]] = (),
        rooms: Iterable[Id] = (),
    ) -> Ask[None]:
        """Where the application is asked who is related: what to ask again. `members` are (room, user)."""
        body = {"pairs": list(pairs), "users": list(users), "members": list(members), "rooms": list(rooms)}
        return Ask("POST", "/relations/changed", type(None), body=body)

    # Users: service

    @RestCall
    def users(
        self,
        *,
        status: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        viewer: Id | None = None,
    ) -> Ask[UserPage]:
        """A page of those who are here; go on with its `cursor` until that is None."""
        query = {"status": status, "cursor": cursor, "limit": None if limit is None else str(limit)}
        return Ask("GET", "/users", answers.UserPage, _given(query) | _viewer(viewer)).then(
            lambda page: UserPage(_presences(page.users), page.cursor)
        )

    @RestCall
    def explain(self, viewer: Id, target: Id) -> Ask[Explanation]:
        """Why does one see the other so?"""
        return Ask("GET", "/explain", Explanation, {"viewer": str(viewer), "target": str(target)})

    @RestCall
    def disconnect(self, user: Id, *, device: Id | None = None) -> Ask[None]:
        """Sign out everywhere, or one device; tokens stay good."""
        return Ask("POST", _of(user, "disconnect"), type(None), body=_given({"device_id": device}))

    @RestCall
    def revoke(self, user: Id, *, issued_before: Until = None) -> Ask[Revoked]:
        """Tokens issued before that instant (now, if left out) are void."""
        return Ask("POST", _of(user, "revoke"), Revoked, body={"issued_before": instant(issued_before)})

    @RestCall
    def delete_user(self, user: Id) -> Ask[None]:
        """Everything about the user is forgotten."""
        return Ask("DELETE", f"/users/{_part(user)}", type(None))


def _presences(statuses: Iterable[answers.StatusAnswer]) -> list[Presence]:
    return [Presence.said(status) for status in statuses]


def _exists(path: str) -> Ask[bool]:
    """Whether there is something at this path."""
    return Ask("GET", path, dict[str, Any]).then(lambda _: True).if_missing(value=False)


def _given(values: Mapping[str, T | None]) -> dict[str, T]:
    return {name: value for name, value in values.items() if value is not None}


def _viewer(viewer: Id | None) -> dict[str, str]:
    return {} if viewer is None else {"viewer": str(viewer)}


def _of(user: Id | None, what: str) -> str:
    return f"/presence/{what}" if user is None else f"/users/{_part(user)}/{what}"


def _edge(kind: str, a: Id, b: Id) -> str:
    return f"/{kind}/{_part(a)}/{_part(b)}"


def _member(room: Id, user: Id) -> str:
    return f"/rooms/{_part(room)}/members/{_part(user)}"


def _part(value: Id) -> str:
    return quote(str(value), safe="")
