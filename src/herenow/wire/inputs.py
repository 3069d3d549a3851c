"""Checks words and texts that users and devices send, alike for frames and REST.

Each function takes a decoded JSON value and returns a value of the core, or raises `ProtocolError` with a sentence about
what is allowed. The words of a token's claim `scope` are here too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType

from herenow.core.model import Custom, Mode, Platform, Source
from herenow.errors import ProtocolError
from herenow.wire.instants import parse_until

MAX_TEXT = 100  # code points of a custom status
MAX_EMOJI = 32  # code points: the longest joined emoji has about a dozen
MAX_EMOJI_BYTES = 64  # of UTF-8; it sits in the hot record


class Activity(Enum):
    """The activity that a heartbeat may report."""

    ACTIVE = "active"
    IDLE = "idle"


_MODES = {mode.word: mode for mode in Mode}
SOURCES = {source.word: source for source in Source if source is not Source.USER}
"""Sources that a service may set, highest first."""
_PLATFORMS = {platform.word: platform for platform in Platform}
_ACTIVITIES = {activity.value: activity for activity in Activity}
_CUSTOM_KEYS = frozenset({"text", "emoji", "expires_at"})

# Control characters (category Cc); the two separators that break a line; characters that reverse the direction of the text
# around them (embeddings, overrides, isolates: "user is \u202egnp.exe"); lone surrogates, which cannot be encoded. Joiners
# and variation selectors are allowed: emoji are built with them.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FORBIDDEN_SENTENCE = "has no control, line separator, bidirectional override or lone surrogate characters"


def parse_mode(word: object) -> Mode:
    mode = _MODES.get(word) if isinstance(word, str) else None
    if mode is None:
        raise ProtocolError("invalid_mode", "A mode is auto, busy, away or invisible.")
    return mode


def parse_source(word: object) -> Source:
    """Parse the source of a mode or custom status that a service sets. None means `service`."""
    if word is None:
        return Source.SERVICE
    source = SOURCES.get(word) if isinstance(word, str) else None
    if source is None:
        raise ProtocolError(
            "invalid_source",
            f"A source is {', '.join(list(SOURCES)[:-1])} or {list(SOURCES)[-1]}; "
            "the user's own choice is set with a token of the user.",
        )
    return source


def parse_platform(word: object) -> Platform:
    """Parse the platform of a device. None and an empty string mean `other`, because a client need not know its platform."""
    if word is None or word == "":
        return Platform.OTHER
    platform = _PLATFORMS.get(word) if isinstance(word, str) else None
    if platform is None:
        raise ProtocolError("invalid_platform", "A platform is web, desktop, mobile or other.")
    return platform


def parse_activity(word: object) -> Activity | None:
    """Parse the activity that a heartbeat reports; None: it reports none."""
    if word is None:
        return None
    activity = _ACTIVITIES.get(word) if isinstance(word, str) else None
    if activity is None:
        raise ProtocolError("invalid_activity", "An activity_type is active or idle, or absent.")
    return activity


def parse_custom(value: object, now: int) -> Custom | None:
    """Parse a custom status from an object of `text`, `emoji` and `expires_at`. Returns None for null, which clears the
    custom status."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ProtocolError(
            "bad_shape", "A custom status is an object of text, emoji and expires_at, or null to clear it."
        )
    if not value.keys() <= _CUSTOM_KEYS:
        raise ProtocolError("bad_shape", "A custom status has the fields text, emoji and expires_at, and no other.")
    text = _checked_text(_string(value.get("text"), "text"))
    emoji = _checked_emoji(_string(value.get("emoji"), "emoji"))
    if not text and not emoji:
        raise ProtocolError("invalid_text", "A custom status has a text or an emoji; null clears it.")
    return Custom(text, emoji, parse_until(value.get("expires_at"), "expires_at", now))


def _string(value: object, field: str) -> str:
    """Return a string field of a custom status. Null becomes an empty string, so that clients can send back what they
    received."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ProtocolError("bad_shape", f"The {field} of a custom status is a string.")
    return value


def _checked_text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise ProtocolError("text_too_long", f"The text has {len(text)} code points; at most {MAX_TEXT} are allowed.")
    if _FORBIDDEN.search(text):
        raise ProtocolError("invalid_text", f"The text {_FORBIDDEN_SENTENCE}.")
    return text


def _checked_emoji(emoji: str) -> str:
    if _FORBIDDEN.search(emoji):
        raise ProtocolError("invalid_emoji", f"The emoji {_FORBIDDEN_SENTENCE}.")
    if len(emoji) > MAX_EMOJI or len(emoji.encode()) > MAX_EMOJI_BYTES:
        raise ProtocolError(
            "invalid_emoji", f"The emoji has at most {MAX_EMOJI} code points and {MAX_EMOJI_BYTES} bytes of UTF-8."
        )
    return emoji


SERVICE = "service"
"""The word that grants all scopes."""


class Scope(StrEnum):
    """What a service token may do: the words of its claim `scope`. A token that grants at least one of them is a service
    token; other words are ignored."""

    BEATS = "beats"
    GATEWAY = "gateway"
    READ = "read"
    GRAPH = "graph"
    EVENTS = "events"
    ADMIN = "admin"


SCOPE_MEANINGS: Mapping[Scope, str] = MappingProxyType(
    {
        Scope.BEATS: "send heartbeats of users",
        Scope.GATEWAY: "reserved for gateways",
        Scope.READ: "read the true presence, the view of any user (`?viewer=`), the list of users, metrics and statistics",
        Scope.GRAPH: "read and write relations: follows, contacts, members of rooms",
        Scope.EVENTS: "reserved for the stream of all changes",
        Scope.ADMIN: "set modes, custom statuses, blocks and preferences; sign out, revoke, delete and explain users",
    }
)

SCOPE_PREFIX = "herenow:"
"""Precedes a scope in the token of an issuer. Identity providers give users words such as `read` and `admin` for other
services; without the prefix these would make a user's token a service token."""

_OF_ISSUERS: Mapping[str, frozenset[Scope]] = {
    SERVICE: frozenset(Scope),
    **{f"{SCOPE_PREFIX}{scope}": frozenset({scope}) for scope in Scope},
}
_BY_SECRET: Mapping[str, frozenset[Scope]] = {**_OF_ISSUERS, **{scope.value: frozenset({scope}) for scope in Scope}}


def granted_scopes(claim: str | None, *, by_issuer: bool) -> frozenset[Scope]:
    """Return the scopes that the claim `scope` of a token grants; none for a user's token. Unknown words grant nothing.
    `by_issuer`: the token was signed by an issuer's key instead of our secret, so its scopes need `SCOPE_PREFIX`. They
    need it also if the claim has words that are not ours: then an application put its own scopes into a user's token."""
    if not claim:
        return frozenset()
    words = claim.split()
    bare = not by_issuer and _BY_SECRET.keys() >= set(words)
    known = _BY_SECRET if bare else _OF_ISSUERS
    return frozenset().union(*(known.get(word, frozenset()) for word in words))
