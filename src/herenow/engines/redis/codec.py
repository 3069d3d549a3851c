"""The format of a record in a bucket: encoding and decoding.

A bucket keeps its compact encoding while no field and no value is longer than 64 bytes (`hash-max-listpack-value`), so:

    field   the user's id; for an id over 64 bytes a zero byte, which no id may contain, and a digest
    value   1 byte    length n of the wake-up; +128: the body is in the shard's tails
            n bytes   the wake-up, big-endian. n = 0: none · 1 to 5: ms after the record's version · 6: epoch ms
            the body; with a tail the record's first 8 bytes, which hold its version; nothing if there is no record
    body    the record; if the field is a digest, the length of the id and the id come before it

A typical user's value is 4 bytes longer than the record. A record has only one encoding as a body, so comparing bodies
compares records. The scripts read this format too (`lua/_shard.lua`). Of a record, only its version is interpreted.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

LONGEST = 64
INLINE = LONGEST - 7
"""Length of the longest body that is stored in the bucket: with any wake-up, the value fits into `LONGEST`."""

_DIGEST = b"\0"
_HEAD = 8
_ABSOLUTE = 6


def field_of(user: str) -> bytes:
    field = user.encode()
    return field if len(field) <= LONGEST else _DIGEST + blake2b(field, digest_size=20).digest()


def body_of(user: str, field: bytes, record: bytes) -> bytes:
    """Return the bytes that are stored for a record (empty: no record): the record itself, after the user's id if
    `field` is only a digest of the id."""
    if field[:1] != _DIGEST:
        return record
    name = user.encode()
    return bytes((len(name),)) + name + record


class Encoded(NamedTuple):
    value: bytes
    """For the bucket; empty: the field is removed."""
    tail: bytes
    """For the shard's tails; empty: none."""


def encoded(field: bytes, record: bytes, body: bytes, wake_at: int | None) -> Encoded:
    if not record:
        if wake_at is None:
            return Encoded(b"", b"")
        due = wake_at.to_bytes(_ABSOLUTE, "big")
        if field[:1] == _DIGEST:
            return Encoded(bytes((128 + _ABSOLUTE,)) + due, body)
        return Encoded(bytes((_ABSOLUTE,)) + due, b"")
    wake = b"" if wake_at is None else _encoded_wake(wake_at, int.from_bytes(record[2:_HEAD], "big"))
    if len(record) <= INLINE and field[:1] != _DIGEST:
        return Encoded(bytes((len(wake),)) + wake + record, b"")
    return Encoded(bytes((128 + len(wake),)) + wake + record[:_HEAD], body)


def _encoded_wake(wake_at: int, version: int) -> bytes:
    after = wake_at - version
    if 0 <= after < 1 << 40:
        return after.to_bytes(max(1, (after.bit_length() + 7) // 8), "big")
    return wake_at.to_bytes(_ABSOLUTE, "big")


def inline(value: bytes) -> bytes:
    """Return the record (as stored) that a value of a bucket, a Redis hash, contains; empty if it is stored separately,
    in the shard's hash `tails`."""
    n = value[0]
    return value[n + 1 :] if n < 128 else b""


def has_tail(value: bytes) -> bool:
    """Return True if this value of a bucket, a Redis hash, belongs to a record that is stored separately, in the
    shard's hash `tails`, because it is long."""
    n = value[0]
    return n >= 128 and len(value) > n - 127


def user_of(field: bytes, body: bytes) -> str:
    return field.decode() if field[:1] != _DIGEST else body[1 : 1 + body[0]].decode()


def record_of(field: bytes, body: bytes) -> bytes | None:
    if field[:1] == _DIGEST and body:
        body = body[1 + body[0] :]
    return body or None
