"""How a record lies in a bucket, and back.

A bucket keeps its compact encoding while no field and no value is longer than 64 bytes (`hash-max-listpack-value`), so:

    field   the user's id; of an id over 64 bytes a digest, marked by a first byte that no id may contain
    value   1 byte    length n of the wake-up; +128: the body lies in the shard's tails
            n bytes   the wake-up, big-endian: 0 none · 1 to 5 milliseconds after the record's version · 6 the time itself
            the body; or its record's first 8 bytes, which hold the version; or nothing where there is a wake-up only
    body    the record; behind its length and the id where the field is a digest

A plain user's value is 4 bytes longer than the record. The same body always lies in the same place, so comparing bodies is
comparing records. Scripts read this too (`lua/_shard.lua`); what a record says nobody here knows, but for its version.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

LONGEST = 64
INLINE = LONGEST - 7
"""The longest body that stays in the bucket, whatever its wake-up takes."""

_DIGEST = b"\0"
_HEAD = 8
_ABSOLUTE = 6


def field_of(user: str) -> bytes:
    field = user.encode()
    return field if len(field) <= LONGEST else _DIGEST + blake2b(field, digest_size=20).digest()


def body_of(user: str, field: bytes, record: bytes) -> bytes:
    """What is compared and, unless it is a tail, stored. `record` empty: none."""
    if field[:1] != _DIGEST:
        return record
    name = user.encode()
    return bytes((len(name),)) + name + record


class Laid(NamedTuple):
    """Where a user's record and wake-up go."""

    value: bytes
    """In the bucket; empty: nothing is to be stored."""
    tail: bytes
    """In the shard's tails; empty: nothing."""


def laid(field: bytes, record: bytes, body: bytes, wake_at: int | None) -> Laid:
    if not record:
        if wake_at is None:
            return Laid(b"", b"")
        due = wake_at.to_bytes(_ABSOLUTE, "big")
        if field[:1] == _DIGEST:
            return Laid(bytes((128 + _ABSOLUTE,)) + due, body)
        return Laid(bytes((_ABSOLUTE,)) + due, b"")
    wake = b"" if wake_at is None else _wake(wake_at, int.from_bytes(record[2:_HEAD], "big"))
    if len(record) <= INLINE and field[:1] != _DIGEST:
        return Laid(bytes((len(wake),)) + wake + record, b"")
    return Laid(bytes((128 + len(wake),)) + wake + record[:_HEAD], body)


def _wake(wake_at: int, version: int) -> bytes:
    after = wake_at - version
    if 0 <= after < 1 << 40:
        return after.to_bytes(max(1, (after.bit_length() + 7) // 8), "big")
    return wake_at.to_bytes(_ABSOLUTE, "big")


def inline(value: bytes) -> bytes:
    """The body, unless it is in the tails."""
    n = value[0]
    return value[n + 1 :] if n < 128 else b""


def has_tail(value: bytes) -> bool:
    """Does the value have a body that is in the tails?"""
    n = value[0]
    return n >= 128 and len(value) > n - 127


def user_of(field: bytes, body: bytes) -> str:
    return field.decode() if field[:1] != _DIGEST else body[1 : 1 + body[0]].decode()


def record_of(field: bytes, body: bytes) -> bytes | None:
    if field[:1] == _DIGEST and body:
        body = body[1 + body[0] :]
    return body or None
