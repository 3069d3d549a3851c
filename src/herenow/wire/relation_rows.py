"""The import format of relations: lines of CSV or JSON, one edge each.

    kind,a,b[,until]        {"kind": "contact", "a": "ana", "b": "bob", "until": 1790000000000}

`follow`: a follows b; `contact`: a and b are in contact, perhaps until a time; `room`: b is a member of room a. Each line
gives a row, or an error with its line number; the caller decides whether to stop. Command and REST endpoint share these
rules.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from herenow.errors import ProtocolError
from herenow.wire.ids import parse_id
from herenow.wire.instants import parse_instant
from herenow.wire.json_text.nesting import is_too_deep

KINDS = ("follow", "contact", "room")
KEYS = ("kind", "a", "b", "until")


@dataclass(frozen=True, slots=True)
class RelationRow:
    """A row of an import or of `POST /relations`; the kinds are above. `remove`: delete the edge."""

    kind: str
    a: str
    b: str
    until: int | None = None
    remove: bool = False


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is not a row; lines count from 1."""

    line: int
    code: str
    message: str


def parse_csv(lines: Iterable[bytes]) -> Iterator[RelationRow | BadRow]:
    """Parse lines of the form `kind,a,b[,until]`, each into a row or a `BadRow`. Empty lines and a header line are
    skipped."""
    for number, line in _numbered(lines):
        try:
            cells = _cells(_text(line))
            if number == 1 and tuple(cells) in (KEYS[:3], KEYS):
                continue
            yield _row(dict(zip(KEYS, cells, strict=False)))
        except ProtocolError as error:
            yield BadRow(number, error.code, error.message)


def parse_ndjson(lines: Iterable[bytes]) -> Iterator[RelationRow | BadRow]:
    """Parse lines of one JSON object each into a row or a `BadRow`. Empty lines are skipped."""
    for number, line in _numbered(lines):
        try:
            yield _row(_object(line))
        except ProtocolError as error:
            yield BadRow(number, error.code, error.message)


def relations_elsewhere(kind: str, source: str) -> str:
    """Return the error message for a row of a kind that this server does not store, because `source` (the setting
    `relations`) names another place for it."""
    what = {"follow": "follows", "contact": "contacts", "room": "rooms"}[kind]
    if source == "open":
        return f"All users see each other on this server (relations = open); it stores no {what}."
    return f"Relations come from the application (setting relations); this server stores no {what}."


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, start=1):
        content = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).rstrip(b"\r\n")
        if content.strip():
            yield number, content


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise _invalid("The line is not UTF-8.") from None


def _cells(text: str) -> list[str]:
    try:
        cells = next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise _invalid(f"The line is not CSV: {error}.") from None
    if not 3 <= len(cells) <= 4:
        raise _invalid(f"A line has 3 or 4 cells (kind,a,b[,until]); this one has {len(cells)}.")
    return cells


def _object(line: bytes) -> Mapping[str, object]:
    text = _text(line)
    if is_too_deep(line):
        raise _invalid("The line is not JSON.")
    try:
        value = msgspec.json.decode(text)
        _key_checker.decode(text)
    except (ValueError, RecursionError):
        raise _invalid("The line is not JSON.") from None
    if not isinstance(value, dict):
        raise _invalid("The line is not a JSON object.")
    unknown = sorted(value.keys() - set(KEYS))
    if unknown:
        raise _invalid(f"A row cannot have the key {unknown[0]!r}; its keys are kind, a, b and until.")
    return value


def _row(fields: Mapping[str, object]) -> RelationRow:
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise _invalid(f"The kind is one of {', '.join(KINDS)}.")
    a = _id(fields, "a", "invalid_id" if kind == "room" else "invalid_user_id")
    b = _id(fields, "b", "invalid_user_id")
    if a == b and kind != "room":
        raise _invalid(f"A {kind} needs two different users.")
    until = _until(fields.get("until"))
    if until is not None and kind != "contact":
        raise _invalid(f"Only a contact may have an end; this is a {kind}.")
    return RelationRow(kind=kind, a=a, b=b, until=until)


def _id(fields: Mapping[str, object], key: str, code: str) -> str:
    if key not in fields:
        raise _invalid(f"The row has no {key!r}.")
    try:
        return parse_id(fields[key])
    except ProtocolError as error:
        raise ProtocolError(code, f"{key!r} is not an id. {error.message}") from None


def _until(value: object) -> int | None:
    """Parse the end of a contact into epoch milliseconds; None: no end. It may be past: the contact has then ended.
    Digits in a string are milliseconds, because CSV has only text."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and re.fullmatch("[0-9]{1,15}", value):
        return parse_instant(int(value), "until")
    return parse_instant(value, "until")


def _no_repetition(pairs: list[tuple[str, object]]) -> None:
    # msgspec keeps the last of two equal keys. Another parser may read another edge: that would be a breach of privacy.
    if len(dict(pairs)) != len(pairs):
        raise _invalid("A key is repeated in the line.")


_key_checker = json.JSONDecoder(object_pairs_hook=_no_repetition)


def _invalid(sentence: str) -> ProtocolError:
    return ProtocolError("invalid_relation", sentence)
