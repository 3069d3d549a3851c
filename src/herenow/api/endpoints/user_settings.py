"""Custom status, mode and preferences, set by the user or by a service."""

from __future__ import annotations

from msgspec import UNSET
from starlette.responses import Response

from herenow.api.description.operations import Access, BodyDoc, Operation, Parameter, ResponseDoc
from herenow.api.endpoints.presence import VIEWER
from herenow.api.http.request import Call
from herenow.api.http.request_body import Decoder
from herenow.api.http.responses import json_response, no_content
from herenow.api.request_shapes import CustomBody, CustomOfUserBody, ModeBody, ModeOfUserBody, PreferencesBody
from herenow.core.model import Custom, Mode, Source
from herenow.core.sources import choice_of
from herenow.core.visibility import Preferences, PreferencesEdit, Visibility
from herenow.errors import ProtocolError, Unavailable, UnknownOutcome
from herenow.node.sessions import Chosen
from herenow.wire.answers import CustomAnswer, LateAnswer, ModeAnswer, PreferencesAnswer
from herenow.wire.inputs import SOURCES, Scope, parse_custom, parse_mode, parse_source
from herenow.wire.instants import parse_until
from herenow.wire.shapes import CustomShape

IDLE_AFTER = (30, 86_400)
"""Seconds: the least and the greatest `idle_after` that a user may set."""


_custom = Decoder(CustomBody, "an object with only the fields text, emoji and expires_at")
_custom_of_user = Decoder(CustomOfUserBody, "an object with only the fields text, emoji, expires_at and source")
_mode = Decoder(ModeBody, "an object with only the fields mode and until")
_mode_of_user = Decoder(ModeOfUserBody, "an object with only the fields mode, until and source")
_preferences = Decoder(
    PreferencesBody, "an object with only the fields visibility, share_last_seen, idle_after and public"
)


# --- Custom status and mode ------------------------------------------------------------------------------------------


async def set_own_custom(call: Call) -> Response:
    """PUT /presence/status: set the caller's own custom status."""
    return await _set_custom(call, call.caller.user, await call.body(_custom), Source.USER)


async def set_custom_of(call: Call) -> Response:
    """PUT /users/{user}/status: a service sets a user's custom status."""
    user, body = call.path_user(), await call.body(_custom_of_user)
    return await _set_custom(call, user, body, _source(call, body.source))


async def clear_own_custom(call: Call) -> Response:
    """DELETE /presence/status: clear the caller's own custom status."""
    return _cleared(await call.node.sessions.set_custom(call.caller.user, None))


async def clear_custom_of(call: Call) -> Response:
    """DELETE /users/{user}/status: a service clears the custom status that its source has set for a user."""
    return _cleared(await call.node.sessions.set_custom(call.path_user(), None, _source(call)))


async def set_own_mode(call: Call) -> Response:
    """PUT /presence/mode: set the caller's own mode."""
    return await _set_mode(call, call.caller.user, await call.body(_mode), Source.USER)


async def set_mode_of(call: Call) -> Response:
    """PUT /users/{user}/mode: a service sets a user's mode."""
    user, body = call.path_user(), await call.body(_mode_of_user)
    return await _set_mode(call, user, body, _source(call, body.source))


async def clear_mode_of(call: Call) -> Response:
    """DELETE /users/{user}/mode: a service clears the mode that its source has set for a user."""
    return _cleared(await call.node.sessions.set_mode(call.path_user(), Mode.AUTO, None, _source(call)))


async def _set_custom(call: Call, user: str, body: CustomBody, source: Source) -> Response:
    given = {"text": body.text, "emoji": body.emoji, "expires_at": body.expires_at}
    presence, stale = await call.node.sessions.set_custom(user, parse_custom(given, call.now), source)
    return _answer(CustomAnswer(_shape(choice_of(presence, source).custom), stale=stale or UNSET))


async def _set_mode(call: Call, user: str, body: ModeBody, source: Source) -> Response:
    mode = parse_mode(body.mode)
    presence, stale = await call.node.sessions.set_mode(user, mode, parse_until(body.until, "until", call.now), source)
    choice = choice_of(presence, source)
    return _answer(ModeAnswer(choice.mode.word, choice.mode_until, stale=stale or UNSET))


def _cleared(chosen: Chosen) -> Response:
    return _answer(LateAnswer(stale=True)) if chosen.stale else no_content()


def _answer(answer: CustomAnswer | ModeAnswer | PreferencesAnswer | LateAnswer) -> Response:
    """Make a response with the status 202 if the answer is `stale`, otherwise with 200."""
    return json_response(answer, status=202 if answer.stale is True else 200)


def _source(call: Call, given: object = None) -> Source:
    """Return the source for which a service sets a mode or custom status: `given` in the body, or the query parameter
    `source`, by default `service`. Raises `bad_shape` if body and query differ."""
    asked = call.parameter("source")
    if given is not None and asked is not None and given != asked:
        raise ProtocolError("bad_shape", "The source in the body and the parameter source differ.")
    return parse_source(asked if given is None else given)


def _shape(custom: Custom | None) -> CustomShape | None:
    return None if custom is None else CustomShape(custom.text, custom.emoji, custom.until)


# --- Preferences -----------------------------------------------------------------------------------------------------


async def read_preferences(call: Call) -> Response:
    """GET /presence/preferences: read the caller's own preferences."""
    user = call.myself
    presence = await call.node.viewing.presence(user)
    return _preferences_response(await call.node.viewing.preferences(user), Chosen(presence, stale=False))


async def set_preferences(call: Call) -> Response:
    """PUT /presence/preferences: change the caller's own preferences. All fields are checked before any change."""
    body, user = await call.body(_preferences), call.caller.user
    edit = PreferencesEdit(
        None if body.visibility is UNSET else _visibility(body.visibility),
        None if body.share_last_seen is UNSET else _flag("share_last_seen", body.share_last_seen),
        None if body.public is UNSET else _flag("public", body.public),
    )
    idle_after = None if body.idle_after is UNSET else _idle_after(body.idle_after)
    if edit == PreferencesEdit():
        own = await call.node.viewing.preferences(user)
    else:
        own = await call.node.viewing.change_preferences(user, edit)
    if body.idle_after is UNSET:
        chosen = await _decided(call, user)
    else:
        chosen = await call.node.sessions.set_idle_after(user, idle_after)
    return _preferences_response(own, chosen)


async def _decided(call: Call, user: str) -> Chosen:
    """Return the user's presence: from the store, or as far as it is known while the store is unreachable. The ledger
    has the preferences already, so the request must not fail."""
    try:
        return Chosen(await call.node.viewing.presence(user), stale=False)
    except (Unavailable, UnknownOutcome):
        [(presence, _)] = await call.node.records.read([user])
        return Chosen(presence, stale=True)


def _preferences_response(own: Preferences, chosen: Chosen) -> Response:
    idle_after = _seconds(chosen.presence.idle_after)
    return _answer(
        PreferencesAnswer(
            _words[own.visibility], own.share_last_seen, idle_after, own.public, stale=chosen.stale or UNSET
        )
    )


def _seconds(milliseconds: int | None) -> float | None:
    """Convert milliseconds to seconds; whole seconds become an integer (30, not 30.0)."""
    if milliseconds is None:
        return None
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000


_words = {Visibility.EVERYONE: "everyone", Visibility.CONTACTS: "contacts", Visibility.NOBODY: "nobody"}


def _visibility(value: object) -> Visibility:
    for visibility, word in _words.items():
        if value == word:
            return visibility
    raise ProtocolError("invalid_visibility", f"visibility must be one of {', '.join(_words.values())}.")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ProtocolError("bad_shape", f"{name} must be true or false.")
    return value


def _idle_after(value: object) -> int | None:
    """Check the `idle_after` of a request (seconds) and convert it to milliseconds; None means the server's default."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError("bad_shape", "idle_after must be a number of seconds, or null for the default.")
    least, most = IDLE_AFTER
    if not least <= value <= most:
        raise ProtocolError("out_of_range", f"idle_after must be from {least} to {most} seconds.")
    return round(value * 1000)


_UNTIL_CODES = ("invalid_instant", "instant_in_past", "instant_too_far")
_CUSTOM_CODES = ("invalid_text", "text_too_long", "invalid_emoji", *_UNTIL_CODES)
_SET_CUSTOM = ResponseDoc("The new custom status.", CustomAnswer)
_SET_MODE = ResponseDoc("The new mode.", ModeAnswer)
_LATE = "The live store is unreachable. The database has the change; viewers see it when the store is back."
_SET_CUSTOM_LATE = ResponseDoc(_LATE, CustomAnswer)
_SET_MODE_LATE = ResponseDoc(_LATE, ModeAnswer)
_CLEARED_LATE = ResponseDoc(_LATE, LateAnswer)
_CLEARED = ResponseDoc("There is no custom status.")
_CLEARED_OF = ResponseDoc("This source has none.")
_SOURCE = Parameter(
    "source",
    "The source whose mode or custom status it is; `service` if it is left out. A body may name it instead.",
    {"enum": list(SOURCES)},
    codes=("invalid_source",),
)
_ABOUT_SOURCES = (
    "The highest source that has one counts: `user` (the user's own choice), `call`, `service`, `calendar`, `schedule`. "
    "None of them changes another, and the end of one shows the next."
)

OPERATIONS = (
    Operation(
        "PUT",
        "/api/v1/presence/status",
        set_own_custom,
        "Set one's own custom status",
        {200: _SET_CUSTOM, 202: _SET_CUSTOM_LATE},
        scope=Scope.ADMIN,
        body=BodyDoc(CustomBody),
        codes=_CUSTOM_CODES,
    ),
    Operation(
        "DELETE",
        "/api/v1/presence/status",
        clear_own_custom,
        "Clear one's own custom status",
        {204: _CLEARED, 202: _CLEARED_LATE},
        scope=Scope.ADMIN,
    ),
    Operation(
        "PUT",
        "/api/v1/presence/mode",
        set_own_mode,
        "Set one's own mode",
        {200: _SET_MODE, 202: _SET_MODE_LATE},
        about="With `auto`, `until` is ignored.",
        scope=Scope.ADMIN,
        body=BodyDoc(ModeBody),
        codes=("invalid_mode", *_UNTIL_CODES),
    ),
    Operation(
        "GET",
        "/api/v1/presence/preferences",
        read_preferences,
        "Read one's own preferences",
        {200: ResponseDoc("All preferences.", PreferencesAnswer)},
        scope=Scope.READ,
        query=(VIEWER,),
    ),
    Operation(
        "PUT",
        "/api/v1/presence/preferences",
        set_preferences,
        "Change one's own preferences",
        {
            200: ResponseDoc("All preferences, with their new values.", PreferencesAnswer),
            202: ResponseDoc(
                "The live store is unreachable. The database has the new values. `idle_after` takes effect when the store "
                "is back, all others at once.",
                PreferencesAnswer,
            ),
        },
        about="Fields that are left out stay unchanged.",
        scope=Scope.ADMIN,
        body=BodyDoc(PreferencesBody),
        codes=("out_of_range", "invalid_visibility"),
    ),
    Operation(
        "PUT",
        "/api/v1/users/{user}/status",
        set_custom_of,
        "Set a user's custom status",
        {200: _SET_CUSTOM, 202: _SET_CUSTOM_LATE},
        about=_ABOUT_SOURCES,
        access=Access.SERVICE,
        scope=Scope.ADMIN,
        query=(_SOURCE,),
        body=BodyDoc(CustomOfUserBody),
        codes=_CUSTOM_CODES,
    ),
    Operation(
        "DELETE",
        "/api/v1/users/{user}/status",
        clear_custom_of,
        "Clear a user's custom status of one source",
        {204: _CLEARED_OF, 202: _CLEARED_LATE},
        access=Access.SERVICE,
        scope=Scope.ADMIN,
        query=(_SOURCE,),
    ),
    Operation(
        "PUT",
        "/api/v1/users/{user}/mode",
        set_mode_of,
        "Set a user's mode",
        {200: _SET_MODE, 202: _SET_MODE_LATE},
        about=f"{_ABOUT_SOURCES} `auto` is no mode.",
        access=Access.SERVICE,
        scope=Scope.ADMIN,
        query=(_SOURCE,),
        body=BodyDoc(ModeOfUserBody),
        codes=("invalid_mode", *_UNTIL_CODES),
    ),
    Operation(
        "DELETE",
        "/api/v1/users/{user}/mode",
        clear_mode_of,
        "Clear a user's mode of one source",
        {204: _CLEARED_OF, 202: _CLEARED_LATE},
        access=Access.SERVICE,
        scope=Scope.ADMIN,
        query=(_SOURCE,),
    ),
)
