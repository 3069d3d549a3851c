"""Request and response bodies of the application's callback: encoding and validation.

A response is accepted completely or not at all. It must have exactly the structure and the keys that were requested: any
other response is a bug of the application, and must not grant access.
`docs/relations-callback.md` documents the same for the application's author; change both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from herenow.errors import ProtocolError
from herenow.ports import Relation
from herenow.relations.callback.failures import Failed
from herenow.wire.ids import parse_id

MOST_PAIRS = 1_000
"""Pairs or memberships in one request: some hundred kilobytes, and one database query of the application."""

MOST_LISTS = 50  # lists of contacts in one request
MOST_CONTACTS = 20_000  # contacts of one user: no viewer watches more, and a list of millions is a mistake

Id = str | int
Edge = tuple[str, str]
Key = TypeVar("Key")
Fact = TypeVar("Fact")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[Key, Fact]):
    most: int
    """Maximum number of keys in one request."""
    ask: Callable[[Sequence[Key]], bytes]
    read: Callable[[bytes, Sequence[Key]], dict[Key, Fact]]
    """Returns the answer for each of the keys, from the body of a response. Raises `Failed`."""


class _Answer(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class PairAnswer(_Answer, frozen=True):
    a: Id
    b: Id
    mutual_follow: bool
    contact: bool
    contact_until: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None


class PairsAnswer(_Answer, frozen=True):
    pairs: list[PairAnswer]


class MemberAnswer(_Answer, frozen=True):
    room: Id
    user: Id
    member: bool


class MembersAnswer(_Answer, frozen=True):
    members: list[MemberAnswer]


class ListAnswer(_Answer, frozen=True):
    user: Id
    contacts: list[Id]


class ContactsAnswer(_Answer, frozen=True):
    lists: list[ListAnswer]


def _ask_pairs(pairs: Sequence[Edge]) -> bytes:
    return msgspec.json.encode({"ask": "between", "pairs": pairs})


def _read_pairs(payload: bytes, asked: Sequence[Edge]) -> dict[Edge, Relation]:
    answer = _decoded(_pairs, payload)
    found = [(pair(_id(row.a), _id(row.b)), _relation(row)) for row in answer.pairs]
    return _check_keys(asked, found, "pair")


def _ask_members(edges: Sequence[Edge]) -> bytes:
    members = [{"room": room, "user": user} for room, user in edges]
    return msgspec.json.encode({"ask": "members", "members": members})


def _read_members(payload: bytes, asked: Sequence[Edge]) -> dict[Edge, bool]:
    answer = _decoded(_members, payload)
    found = [((_id(row.room), _id(row.user)), row.member) for row in answer.members]
    return _check_keys(asked, found, "membership")


def _ask_contacts(users: Sequence[str]) -> bytes:
    return msgspec.json.encode({"ask": "contacts", "users": users})


def _read_contacts(payload: bytes, asked: Sequence[str]) -> dict[str, list[str]]:
    found = [(_id(row.user), row.contacts) for row in _decoded(_contacts, payload).lists]
    lists = _check_keys(asked, found, "user")
    return {user: _contact_list(user, contacts) for user, contacts in lists.items()}


def _contact_list(user: str, contacts: Sequence[Id]) -> list[str]:
    if len(contacts) > MOST_CONTACTS:
        raise Failed("shape", f"A list of {len(contacts)} contacts; at most {MOST_CONTACTS} are accepted.")
    return sorted({_id(contact) for contact in contacts} - {user})


BETWEEN = Question(MOST_PAIRS, _ask_pairs, _read_pairs)
MEMBERS = Question(MOST_PAIRS, _ask_members, _read_members)
CONTACTS = Question(MOST_LISTS, _ask_contacts, _read_contacts)

_pairs = msgspec.json.Decoder(PairsAnswer)
_members = msgspec.json.Decoder(MembersAnswer)
_contacts = msgspec.json.Decoder(ContactsAnswer)


def pair(a: str, b: str) -> Edge:
    """Return the key of the relation between two users. A relation has no direction, so the ids are sorted."""
    return (a, b) if a < b else (b, a)


def _decoded(decoder: msgspec.json.Decoder[T], payload: bytes) -> T:
    try:
        return decoder.decode(payload)
    except msgspec.ValidationError as error:
        raise Failed("shape", f"The answer does not have the expected form: {error}.") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Failed("not_json", f"The answer is not JSON: {error}.") from None


def _id(value: Id) -> str:
    try:
        return parse_id(value)
    except ProtocolError as error:
        raise Failed("shape", f"The answer has an invalid id: {error.message}") from None


def _relation(row: PairAnswer) -> Relation:
    if not row.contact:
        return Relation(row.mutual_follow)
    return Relation(row.mutual_follow, contact=True, contact_until=row.contact_until)


def _check_keys(asked: Sequence[Key], found: Iterable[tuple[Key, Fact]], what: str) -> dict[Key, Fact]:
    facts: dict[Key, Fact] = {}
    for key, fact in found:
        if facts.setdefault(key, fact) != fact:
            raise Failed("mismatch", f"The answer contradicts itself about one {what}.")
    if facts.keys() != set(asked):
        raise Failed("mismatch", f"The answer lacks a requested {what}, or has one that was not requested.")
    return facts
