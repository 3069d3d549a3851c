"""Every question of the REST interface as a value: what is sent, and what the answer is read as.

Pure: a question knows neither HTTP client nor token, so that the blocking and the asynchronous client ask the same ones.
A new endpoint is the reason to change this module, and `rest` with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from herenow.client.choices import Until, instant
from herenow.client.errors import RestError, Unavailable
from herenow.client.presence import Custom, Device, Me, Presence
from herenow.wire.server_frames import SaidStatus

T = TypeVar("T")
Id = str | int


class Ask(Struct, Generic[T], frozen=True):
    method: str
    path: str
    shape: type[T]
    """What the answer's JSON is read as; NoneType: there is none."""
    query: Mapping[str, str] = {}
    body: object = None
    lines: Sequence[object] | None = None
    """NDJSON instead of a body."""

    @property
    def content(self) -> bytes | None:
        if self.lines is not None:
            return b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines)
        return None if self.body is None else msgspec.json.encode(self.body)

    @property
    def headers(self) -> dict[str, str]:
        if self.lines is not None:
            return {"content-type": "application/x-ndjson"}
        return {} if self.body is None else {"content-type": "application/json"}

    def answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> T:
        """Raises `RestError` with the code of the problem, `Unavailable` if somebody else answered."""
        if not 200 <= status < 300:
            raise _problem(status, content, headers)
        try:
            return msgspec.json.decode(content or b"null", type=self.shape)
        except msgspec.DecodeError as error:  # not herenow's answer: a proxy's, perhaps
            raise Unavailable(f"this is not an answer of herenow: {error}") from error


# --- What comes back -------------------------------------------------------------------------------------------------


class Counts(Struct, frozen=True):
    online: int
    busy: int
    away: int
    offline: int


class Beaten(Struct, frozen=True):
    device_id: str
    beat_every: float
    """Seconds."""


class BadBeat(Struct, frozen=True):
    index: int
    code: str


class Batch(Struct, frozen=True):
    accepted: int
    dropped: int
    errors: list[BadBeat]


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


class Imported(Struct, frozen=True):
    rows: int
    changed: int


class ModeAnswer(Struct, frozen=True):
    mode: str
    until: int | None


class Preferences(Struct, frozen=True):
    visibility: str
    """`everyone`, `contacts` or `nobody`."""
    share_last_seen: bool
    idle_after: float | None
    """Seconds; None: the server's default."""
    public: bool


class UserPage(Struct, frozen=True):
    users: list[Presence]
    cursor: str | None
    """Where to go on; None: that was all. A page may be empty before the end."""


class Explanation(Struct, frozen=True):
    rule: str
    """The rule that decided: `self`, `blocked`, `contacts`, …"""
    sight: str
    """`truth`, `full`, `blurred` or `offline`."""
    facts: dict[str, Any]
    truth: dict[str, Any]
    """How the target truly is: status, sessions, mode, and what made it so."""
    shown: Presence
    """What the viewer gets."""


class Revoked(Struct, frozen=True):
    user_id: str
    issued_before: int
    """Tokens issued before this are void."""


class _Blocks(Struct, frozen=True):
    blocked: list[str]


class _Page(Struct, frozen=True):
    users: list[SaidStatus]
    cursor: str | None


class _Explained(Struct, frozen=True):
    rule: str
    sight: str
    facts: dict[str, Any]
    truth: dict[str, Any]
    shown: SaidStatus


class _Friends(Struct, frozen=True):
    friends: list[SaidStatus]


class _Devices(Struct, frozen=True):
    devices: list[Device]


class _CustomAnswer(Struct, frozen=True):
    custom_status: Custom | None


# --- Reading ---------------------------------------------------------------------------------------------------------


def many(users: Iterable[Id], viewer: Id | None) -> Ask[list[SaidStatus]]:
    """One asks in this way too: no id is a fixed word of a path here."""
    return Ask("POST", "/presence/query", list[SaidStatus], _viewer(viewer), {"user_ids": list(users)})


def me(viewer: Id | None) -> Ask[Me]:
    return Ask("GET", "/presence/me", Me, _viewer(viewer))


def count(viewer: Id | None) -> Ask[Counts]:
    return Ask("GET", "/presence/count", Counts, _viewer(viewer))


def leaderboard(limit: int | None, viewer: Id | None) -> Ask[_Friends]:
    asked = {} if limit is None else {"limit": str(limit)}
    return Ask("GET", "/presence/leaderboard", _Friends, asked | _viewer(viewer))


def devices(viewer: Id | None) -> Ask[_Devices]:
    return Ask("GET", "/presence/devices", _Devices, _viewer(viewer))


def preferences(viewer: Id | None) -> Ask[Preferences]:
    return Ask("GET", "/presence/preferences", Preferences, _viewer(viewer))


def public_profile(user: Id) -> Ask[SaidStatus]:
    return Ask("GET", f"/public/{_part(user)}", SaidStatus)


def users(status: str | None, cursor: str | None, limit: int | None, viewer: Id | None) -> Ask[_Page]:
    asked = {"status": status, "cursor": cursor, "limit": None if limit is None else str(limit)}
    given = {name: value for name, value in asked.items() if value is not None}
    return Ask("GET", "/users", _Page, given | _viewer(viewer))


def explain(viewer: Id, target: Id) -> Ask[_Explained]:
    return Ask("GET", "/explain", _Explained, {"viewer": str(viewer), "target": str(target)})


def stats() -> Ask[dict[str, Any]]:
    return Ask("GET", "/stats", dict[str, Any])


# --- Choosing; for oneself, or by a service for a user ---------------------------------------------------------------


def set_status(user: Id | None, text: str, emoji: str, until: Until) -> Ask[_CustomAnswer]:
    body = {"text": text, "emoji": emoji, "expires_at": instant(until)}
    return Ask("PUT", _of(user, "status"), _CustomAnswer, body=body)


def clear_status(user: Id | None) -> Ask[None]:
    return Ask("DELETE", _of(user, "status"), type(None))


def set_mode(user: Id | None, mode: str, until: Until) -> Ask[ModeAnswer]:
    return Ask("PUT", _of(user, "mode"), ModeAnswer, body={"mode": mode, "until": instant(until)})


def set_preferences(changes: Mapping[str, object]) -> Ask[Preferences]:
    return Ask("PUT", "/presence/preferences", Preferences, body=dict(changes))


def blocks(viewer: Id | None) -> Ask[_Blocks]:
    return Ask("GET", "/blocks", _Blocks, _viewer(viewer))


def block(method: str, user: Id) -> Ask[Any]:
    return Ask(method, f"/blocks/{_part(user)}", dict[str, Any] if method == "GET" else type(None))


def sign_out(device: Id) -> Ask[None]:
    return Ask("DELETE", f"/presence/devices/{_part(device)}", type(None))


# --- Life ------------------------------------------------------------------------------------------------------------


def heartbeat(device: Id | None, activity: str | None, platform: str | None) -> Ask[Beaten]:
    body = {"device_id": device, "activity_type": activity, "platform": platform}
    given = {name: value for name, value in body.items() if value is not None}
    return Ask("POST", "/presence/heartbeat", Beaten, body=given)


def heartbeats(beats: Iterable[Beat]) -> Ask[Batch]:
    return Ask("POST", "/heartbeats", Batch, body=list(beats))


# --- The graph -------------------------------------------------------------------------------------------------------


def edge(method: str, kind: str, a: Id, b: Id, until: Until = None) -> Ask[Any]:
    """`kind` is follows, contacts or rooms."""
    between = "/members" if kind == "rooms" else ""
    path = f"/{kind}/{_part(a)}{between}/{_part(b)}"
    end = instant(until)
    shape = dict[str, Any] if method == "GET" else type(None)
    return Ask(method, path, shape, body=None if end is None else {"until": end})


def relations(rows: Iterable[Relation]) -> Ask[Imported]:
    return Ask("POST", "/relations", Imported, lines=list(rows))


def relations_changed(
    pairs: Iterable[tuple[Id, Id]],
    users: Iterable[Id],
    members: Iterable[tuple[Id, Id]],
    rooms: Iterable[Id],
) -> Ask[None]:
    body = {"pairs": list(pairs), "users": list(users), "members": list(members), "rooms": list(rooms)}
    return Ask("POST", "/relations/changed", type(None), body=body)


# --- What is done to a user ------------------------------------------------------------------------------------------


def disconnect(user: Id, device: Id | None) -> Ask[None]:
    body = {} if device is None else {"device_id": device}
    return Ask("POST", _of(user, "disconnect"), type(None), body=body)


def revoke(user: Id, issued_before: Until) -> Ask[Revoked]:
    return Ask("POST", _of(user, "revoke"), Revoked, body={"issued_before": instant(issued_before)})


def delete_user(user: Id) -> Ask[None]:
    return Ask("DELETE", f"/users/{_part(user)}", type(None))


# --- Readings of answers ---------------------------------------------------------------------------------------------


def presences(said: list[SaidStatus]) -> list[Presence]:
    return [Presence.said(each) for each in said]


def page(answer: _Page) -> UserPage:
    return UserPage(presences(answer.users), answer.cursor)


def explanation(answer: _Explained) -> Explanation:
    return Explanation(answer.rule, answer.sight, answer.facts, answer.truth, Presence.said(answer.shown))


def _viewer(viewer: Id | None) -> dict[str, str]:
    return {} if viewer is None else {"viewer": str(viewer)}


def _of(user: Id | None, what: str) -> str:
    return f"/presence/{what}" if user is None else f"/users/{_part(user)}/{what}"


def _part(value: Id) -> str:
    return quote(str(value), safe="")


class _Problem(Struct, frozen=True):
    code: str
    detail: str = ""


def _problem(status: int, content: bytes, headers: Mapping[str, str]) -> RestError:
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:  # not herenow's answer: a proxy's, perhaps
        problem = _Problem(f"http_{status}", content[:200].decode(errors="replace"))
    after = headers.get("retry-after", "")
    return RestError(problem.code, problem.detail, status, float(after) if after.isdigit() else None)
