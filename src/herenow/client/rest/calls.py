"""Every call of the REST interface, defined once for the blocking and the asynchronous client.

A method of `RestCalls` takes the arguments of a call and returns its request as an `Ask`. `Rest` and `AsyncRest` inherit the
methods and send that request: there the same method returns the result, or a coroutine of it, and type checkers know which.
A new endpoint needs only a new method here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload
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
    """Descriptor of a REST method. Its result depends on the class of the instance: `Rest`, `AsyncRest` or `RestCalls`."""

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
    """The signature shown by `help`: the return type `Ask[T]` is replaced by the `T` that the caller gets."""
    found = inspect.signature(make)
    return found.replace(return_annotation=str(found.return_annotation).removeprefix("Ask[").removesuffix("]"))


class Beat(Struct, frozen=True, omit_defaults=True):
    """One heartbeat in `heartbeats`. Without `device_id` it reports activity for all live sessions of the user.

    `activity_type` is `active`, `idle` or None (a heartbeat without activity). `gone` reports that the device disconnected.
    """

    user_id: str | int
    device_id: str | int | None = None
    activity_type: str | None = None
    platform: str | None = None
    gone: bool = False


class Relation(Struct, frozen=True, omit_defaults=True):
    """One row for `import_relations`. `kind` is `follow` (`a` follows `b`), `contact` or `room` (`a` is the room, `b` the
    member); `until` is the end of a contact: epoch milliseconds or RFC 3339 with a time zone, None for no end."""

    kind: str
    a: str | int
    b: str | int
    until: int | str | None = None


class RestCalls:
    """The REST calls. On this class each method only returns its request; `Rest` and `AsyncRest` send it.

    `viewer` (service tokens only) reads exactly what that user would get; without it a service token reads the truth.
    `user` in the setters (service tokens only) acts for that user.
    """

    @staticmethod
    def _method_of(make: Callable[Concatenate[RestCalls, P], Ask[T]]) -> Callable[..., object]:
        """Make the method of a REST call from `make`, which builds the request. This one returns the request;
        subclasses make a method that sends it."""

        @functools.wraps(make)
        def method(self: RestCalls, *args: P.args, **kwargs: P.kwargs) -> Ask[T]:
            return make(self, *args, **kwargs)

        return method

    # Reading

    @RestCall
    def get(self, user: Id, *, viewer: Id | None = None) -> Ask[Presence]:
        """The presence of one user; unrelated and unknown users look offline."""
        # Not GET /presence/{user}: an id such as `me` would match a fixed path.
        return self.get_many([user], viewer=viewer).then(lambda found: found[0])

    @RestCall
    def get_many(self, users: Iterable[Id], *, viewer: Id | None = None) -> Ask[list[Presence]]:
        """The presences of many users, in the given order, without duplicates."""
        body = {"user_ids": list(users)}
        return Ask("POST", "/presence/query", list[answers.StatusAnswer], _viewer(viewer), body).then(_presences)

    @RestCall
    def me(self, *, viewer: Id | None = None) -> Ask[Me]:
        """The user's own presence: the true status, even while invisible."""
        return Ask("GET", "/presence/me", Me, _viewer(viewer))

    @RestCall
    def count(self, *, viewer: Id | None = None) -> Ask[Counts]:
        """Count the user's contacts by status."""
        return Ask("GET", "/presence/count", Counts, _viewer(viewer))

    @RestCall
    def leaderboard(self, *, limit: int | None = None, viewer: Id | None = None) -> Ask[list[Presence]]:
        """List the user's contacts: online, busy, away, then offline by last seen. At most `limit`, by default 50."""
        query = {} if limit is None else {"limit": str(limit)}
        return Ask("GET", "/presence/leaderboard", answers.Leaderboard, query | _viewer(viewer)).then(
            lambda answer: _presences(answer.friends)
        )

    @RestCall
    def devices(self, *, viewer: Id | None = None) -> Ask[list[Device]]:
        """List the user's own devices, sorted by id."""
        return Ask("GET", "/presence/devices", answers.Devices, _viewer(viewer)).then(
            lambda answer: list(answer.devices)
        )

    @RestCall
    def preferences(self, *, viewer: Id | None = None) -> Ask[Preferences]:
        """Read the user's own preferences."""
        return Ask("GET", "/presence/preferences", Preferences, _viewer(viewer))

    @RestCall
    def public_profile(self, user: Id) -> Ask[Presence | None]:
        """The public profile of a user, which needs no relation; None if the user has none."""
        return Ask("GET", f"/public/{_part(user)}", answers.StatusAnswer).then(Presence.said).if_missing(None)

    @RestCall
    def stats(self) -> Ask[dict[str, Any]]:
        """Service tokens only: read the node's statistics and current problems, as in `GET /stats`."""
        return Ask("GET", "/stats", dict[str, Any])

    # Setting

    @RestCall
    def set_status(
        self, text: str = "", *, emoji: str = "", until: Until = None, user: Id | None = None, source: str | None = None
    ) -> Ask[Custom | None]:
        """Set the custom status until `until` (None: no end). Returns it as stored; None if it was cleared.

        With `user` (service tokens only), `source` is `call`, `service` (the default), `calendar` or `schedule`. The user's
        own choice counts before all of them, the others in this order.
        """
        body = {"text": text, "emoji": emoji, "expires_at": instant(until)} | _given({"source": source})
        return Ask("PUT", _of(user, "status"), answers.CustomAnswer, body=body).then(
            lambda answer: answer.custom_status
        )

    @RestCall
    def clear_status(self, *, user: Id | None = None, source: str | None = None) -> Ask[None]:
        """Clear the custom status. With `user` (service tokens only), clear that user's custom status of one `source`,
        by default `service`."""
        shape = answers.LateAnswer | None
        return Ask("DELETE", _of(user, "status"), cast("type[object]", shape), _given({"source": source})).then(
            lambda _: None
        )

    @RestCall
    def set_mode(
        self, mode: str, *, until: Until = None, user: Id | None = None, source: str | None = None
    ) -> Ask[ModeAnswer]:
        """Set the mode (`auto`, `busy`, `away` or `invisible`) until `until` (None: no end; ignored for `auto`).

        `auto` clears the mode. `user` and `source` are as for `set_status`.
        """
        body = {"mode": mode, "until": instant(until)} | _given({"source": source})
        return Ask("PUT", _of(user, "mode"), ModeAnswer, body=body)

    @RestCall
    def set_preferences(self, /, **changes: object) -> Ask[Preferences]:
        """Change `visibility`, `share_last_seen`, `idle_after` (seconds; None: the server's default) or `public`.

        Preferences that are left out stay unchanged. Returns all preferences.
        """
        return Ask("PUT", "/presence/preferences", Preferences, body=changes)

    @RestCall
    def blocks(self, *, viewer: Id | None = None) -> Ask[list[str]]:
        """List the ids of the users that the user blocks, sorted."""
        return Ask("GET", "/blocks", answers.BlockList, _viewer(viewer)).then(lambda answer: answer.blocked)

    @RestCall
    def block(self, user: Id) -> Ask[None]:
        """Block a user: from now on neither sees the other."""
        return Ask("PUT", f"/blocks/{_part(user)}", type(None))

    @RestCall
    def unblock(self, user: Id) -> Ask[None]:
        """Remove a block; nothing happens if there is none."""
        return Ask("DELETE", f"/blocks/{_part(user)}", type(None))

    @RestCall
    def is_blocked(self, user: Id) -> Ask[bool]:
        """True if the caller blocks this user."""
        return _exists(f"/blocks/{_part(user)}")

    @RestCall
    def sign_out(self, device: Id) -> Ask[None]:
        """Sign out one of the user's devices. Raises `RestError` with the code `device_unknown` if the user has no such
        device."""
        return Ask("DELETE", f"/presence/devices/{_part(device)}", type(None))

    # Heartbeats without a WebSocket

    @RestCall
    def heartbeat(
        self, device: Id | None = None, *, activity: str | None = None, platform: str | None = None
    ) -> Ask[Beaten]:
        """Keep a device online without a WebSocket. The result has the device id and the seconds until the next heartbeat.

        Without `device` the device id is `rest`. `activity` is `active`, `idle`, or None for a heartbeat without activity.
        """
        body = {"device_id": device, "activity_type": activity, "platform": platform}
        return Ask("POST", "/presence/heartbeat", Beaten, body=_given(body))

    @RestCall
    def heartbeats(self, beats: Iterable[Beat]) -> Ask[BatchAnswer]:
        """Service tokens only: send heartbeats of many users, at most 10 000. Each is accepted, dropped or refused
        separately."""
        return Ask("POST", "/heartbeats", BatchAnswer, body=list(beats))

    # Relations: service tokens only

    @RestCall
    def follow(self, a: Id, b: Id) -> Ask[None]:
        """Let `a` follow `b`. Two users who follow each other see each other's presence."""
        return Ask("PUT", _edge("follows", a, b), type(None))

    @RestCall
    def unfollow(self, a: Id, b: Id) -> Ask[None]:
        """Remove the follow from `a` to `b`."""
        return Ask("DELETE", _edge("follows", a, b), type(None))

    @RestCall
    def follows(self, a: Id, b: Id) -> Ask[bool]:
        """True if `a` follows `b`."""
        return _exists(_edge("follows", a, b))

    @RestCall
    def add_contact(self, a: Id, b: Id, *, until: Until = None) -> Ask[None]:
        """Make `a` and `b` contacts of each other until `until` (None: no end)."""
        end = instant(until)
        return Ask("PUT", _edge("contacts", a, b), type(None), body=None if end is None else {"until": end})

    @RestCall
    def remove_contact(self, a: Id, b: Id) -> Ask[None]:
        """End the contact of `a` and `b`."""
        return Ask("DELETE", _edge("contacts", a, b), type(None))

    @RestCall
    def in_contact(self, a: Id, b: Id) -> Ask[bool]:
        """True if `a` and `b` are contacts."""
        return _exists(_edge("contacts", a, b))

    @RestCall
    def add_member(self, room: Id, user: Id) -> Ask[None]:
        """Make a user a member of a room."""
        return Ask("PUT", _member(room, user), type(None))

    @RestCall
    def remove_member(self, room: Id, user: Id) -> Ask[None]:
        """End a user's membership of a room."""
        return Ask("DELETE", _member(room, user), type(None))

    @RestCall
    def is_member(self, room: Id, user: Id) -> Ask[bool]:
        """True if the user is a member of the room."""
        return _exists(_member(room, user))

    @RestCall
    def import_relations(self, rows: Iterable[Relation]) -> Ask[Imported]:
        """Add up to 10 000 relations; all or none are stored."""
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
        """Report that relations changed in the application, so that the server requests them again. For applications
        that answer the relations callback. `pairs` are pairs of users, `members` are (room, user) pairs; `users` and
        `rooms` report all relations of a user and all members of a room."""
        body = {"pairs": list(pairs), "users": list(users), "members": list(members), "rooms": list(rooms)}
        return Ask("POST", "/relations/changed", type(None), body=body)

    # Users: service tokens only

    @RestCall
    def users(
        self,
        *,
        status: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        viewer: Id | None = None,
    ) -> Ask[UserPage]:
        """List the users that are not offline, page by page. Pass the `cursor` of a page to get the next one; it is
        None on the last page."""
        query = {"status": status, "cursor": cursor, "limit": None if limit is None else str(limit)}
        return Ask("GET", "/users", answers.UserPage, _given(query) | _viewer(viewer)).then(
            lambda page: UserPage(_presences(page.users), page.cursor)
        )

    @RestCall
    def explain(self, viewer: Id, target: Id) -> Ask[Explanation]:
        """Explain why `viewer` sees `target` as it does: the rule that applied, the relations and preferences that it
        used, and the target's true state."""
        return Ask("GET", "/explain", Explanation, {"viewer": str(viewer), "target": str(target)})

    @RestCall
    def disconnect(self, user: Id, *, device: Id | None = None) -> Ask[None]:
        """Sign a user out on all devices, or on one; the user's tokens stay valid."""
        return Ask("POST", _of(user, "disconnect"), type(None), body=_given({"device_id": device}))

    @RestCall
    def revoke(self, user: Id, *, issued_before: Until = None) -> Ask[Revoked]:
        """Revoke the user's tokens issued before `issued_before` (None: now), and close the sockets opened with them."""
        return Ask("POST", _of(user, "revoke"), Revoked, body={"issued_before": instant(issued_before)})

    @RestCall
    def delete_user(self, user: Id) -> Ask[None]:
        """Delete everything about a user, and revoke the user's tokens. With a new token the user starts as a new one."""
        return Ask("DELETE", f"/users/{_part(user)}", type(None))


def _presences(statuses: Iterable[answers.StatusAnswer]) -> list[Presence]:
    return [Presence.said(status) for status in statuses]


def _exists(path: str) -> Ask[bool]:
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
