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
from herenow.client.errors import RestError
from herenow.client.presence import Custom, Device, Me, Presence
from herenow.wire.heard import SaidStatus

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
        """Raises `RestError` with the code of the problem."""
        if status >= 400:
            raise _problem(status, content, headers)
        return msgspec.json.decode(content or b"null", type=self.shape)


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


def preferences(viewer: Id | None) -> Ask[dict[str, Any]]:
    return Ask("GET", "/presence/preferences", dict[str, Any], _viewer(viewer))


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


def set_preferences(changes: Mapping[str, object]) -> Ask[dict[str, Any]]:
    return Ask("PUT", "/presence/preferences", dict[str, Any], body=dict(changes))


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


# --- Readings of answers ---------------------------------------------------------------------------------------------


def presences(said: list[SaidStatus]) -> list[Presence]:
    return [Presence.said(each) for each in said]


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
