"""The binary encoding of a presence.

It is short, so that a million records fit a small store; an older node keeps what a newer one wrote; and a script can tell
the newer of two records by their bytes. It does not depend on the meaning of fields.

    byte 0      format, 1
    byte 1      status (2 bits) · mode (2 bits) · announced platforms (4 bits)
    bytes 2-7   version, 48 bits big-endian: comparable as bytes
    then fields until the end: tag (1 byte), length (varint), content

Times are written as the distance back from the version (zigzag varint): most are a few seconds, so two or three bytes. A
field with an unknown tag is kept and written back unchanged, but with a newer version; a field that older nodes do not know
therefore contains the times themselves (`_SOURCED`). A record of an unknown format is never changed. The content of a known
field is fixed: an extension needs a new tag. A plain online user with one device of an 8-character id takes about 36 bytes.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from functools import cache, lru_cache

from herenow.core.model import (
    UNLEASED,
    Custom,
    Idle,
    Mode,
    Platform,
    Presence,
    Retired,
    Session,
    SignedOut,
    Source,
    Sourced,
    Status,
)

FORMAT = 1
EPOCH_BYTES = 6
"""An epoch is 48 random bits; outside of this module it is written as 8 characters of base64."""

_HEAD = 8
_SINCE, _LAST_SEEN, _SESSION, _SIGNED_OUT, _MODE_UNTIL, _CUSTOM, _CHOSEN, _IDLE_AFTER, _ARRIVING, _SHOWN = range(1, 11)
_ERASED, _RETIRED, _SOURCED = 11, 12, 13

_LOST = 0b0001_0000
_LEASED = 0b0010_0000
_UNKNOWN = 0b0100_0000

_SOURCE = 0b0000_1111
_ENDS, _SAYS, _GIVES_MODE, _GIVES_CUSTOM = 0b0001_0000, 0b0010_0000, 0b0100_0000, 0b1000_0000
_NO_VERSION = 0
"""For times that are written as themselves."""

_EMPTY_RECORD = bytes((FORMAT, *bytes(_HEAD - 1)))


class UnknownFormat(ValueError):  # noqa: N818 - reads as what it is
    """The record was written by a newer version of herenow."""


class Damaged(UnknownFormat):
    """The record is truncated or overwritten. Leave it alone, like one of an unknown format."""


def version_of(record: bytes) -> int:
    """Read the version of an encoded record without decoding the rest. Works for every record format."""
    return int.from_bytes(record[2:_HEAD], "big")


def may_mention(record: bytes, epoch: str) -> bool:
    """False if no session and no sign-out entry in the encoded record is of this epoch. True may be wrong, because only
    bytes are searched. Cheaper than decoding."""
    return _epoch_bytes(epoch) in record


def encode(presence: Presence) -> bytes:
    out = bytearray(_HEAD)
    version = presence.version
    out[0] = FORMAT
    out[1] = presence.status | presence.mode << 2 | _platform_bits(presence.platforms)
    out[2:_HEAD] = version.to_bytes(6, "big")
    _put_time(out, _SINCE, presence.since, version)
    _put_time(out, _LAST_SEEN, presence.last_seen, version)
    for session in presence.sessions:
        _put(out, _SESSION, _session_bytes(session, version))
    for tombstone in presence.signed_out:
        _put(out, _SIGNED_OUT, _tombstone_bytes(tombstone, version))
    for gone in presence.retired:
        _put(out, _RETIRED, _tombstone_bytes(gone, version))
    _put_time(out, _MODE_UNTIL, presence.mode_until, version)
    if presence.custom is not None:
        _put(out, _CUSTOM, _custom_bytes(presence.custom, version))
    if presence.sources:
        out += encode_sources(presence.sources)
    if presence.chosen:
        _put_time(out, _CHOSEN, presence.chosen, version)
    if presence.idle_after is not None:
        _put(out, _IDLE_AFTER, _varint(presence.idle_after))
    _put_time(out, _ARRIVING, presence.arriving_until, version)
    _put_time(out, _SHOWN, presence.shown_at, version)
    _put_time(out, _ERASED, presence.erased_at, version)
    return bytes(out) + presence.extra


def decode(record: bytes) -> Presence:
    if not record or record[0] != FORMAT:
        raise UnknownFormat(f"record format {record[:1].hex() or 'empty'} is not one this version reads")
    try:
        return _decode(record)
    except (IndexError, UnicodeDecodeError) as error:
        raise Damaged(f"record of {len(record)} bytes: {error}") from error


def _decode(record: bytes) -> Presence:
    version = version_of(record)
    flags = record[1]
    times: dict[int, int] = {}
    sessions: list[Session] = []
    signed_out: list[SignedOut] = []
    retired: list[Retired] = []
    custom: Custom | None = None
    idle_after: int | None = None
    sources: tuple[Sourced, ...] = ()
    extra = b""
    at, end = _HEAD, len(record)
    while at < end:
        tag = record[at]
        start, at = at, at + 1
        length, at = _read_varint(record, at)
        content = record[at : at + length]
        at += length
        if tag == _SESSION:
            sessions.append(_read_session(content, version))
        elif tag in _TIMES:
            times[tag] = version - _unzigzag(_read_whole_varint(content))
        elif tag == _SIGNED_OUT:
            signed_out.append(SignedOut(*_read_tombstone(content, version)))
        elif tag == _RETIRED:
            retired.append(Retired(*_read_tombstone(content, version)))
        elif tag == _CUSTOM:
            custom = _read_custom(content, version)
        elif tag == _IDLE_AFTER:
            idle_after = _read_whole_varint(content)
        elif tag == _SOURCED and (sourced := _read_sourced(content)) is not None:
            sources = (*sources, sourced)
        else:
            extra += record[start:at]
    if at != end:
        raise IndexError(f"it ends {abs(end - at)} bytes too early")
    return Presence(
        version=version,
        sessions=tuple(sessions),
        signed_out=tuple(signed_out),
        retired=tuple(retired),
        mode=_MODES[flags >> 2 & 3],
        mode_until=times.get(_MODE_UNTIL),
        custom=custom,
        sources=sources,
        chosen=times.get(_CHOSEN, 0),
        idle_after=idle_after,
        status=_STATUSES[flags & 3],
        since=times.get(_SINCE),
        last_seen=times.get(_LAST_SEEN),
        platforms=_PLATFORM_SETS[flags >> 4],
        arriving_until=times.get(_ARRIVING),
        shown_at=times.get(_SHOWN),
        erased_at=times.get(_ERASED),
        extra=extra,
    )


_TIMES = frozenset({_SINCE, _LAST_SEEN, _MODE_UNTIL, _CHOSEN, _ARRIVING, _SHOWN, _ERASED})
_STATUSES = tuple(Status)
_MODES = tuple(Mode)
_PLATFORMS = tuple(Platform)
_IDLES = tuple(Idle)
_SOURCES = {int(source): source for source in Source if source is not Source.USER}
_PLATFORM_SETS = tuple(frozenset(p for p in Platform if mask >> p & 1) for mask in range(16))


@cache
def _platform_bits(platforms: frozenset[Platform]) -> int:
    return sum(1 << (4 + platform) for platform in platforms)


def encode_sources(sources: Iterable[Sourced]) -> bytes:
    """Encode modes and custom statuses of sources as fields of a record. The bytes do not depend on the rest of the
    record, so the ledger stores them, too."""
    out = bytearray()
    for sourced in sources:
        _put(out, _SOURCED, _sourced_bytes(sourced))
    return bytes(out)


def decode_sources(fields: bytes) -> tuple[Sourced, ...]:
    """Decode the result of `encode_sources`. Sources that this version of herenow does not know are left out. Raises
    `Damaged`."""
    try:
        return _decode(_EMPTY_RECORD + fields).sources
    except (IndexError, UnicodeDecodeError) as error:
        raise Damaged(f"sources of {len(fields)} bytes: {error}") from error


def _session_bytes(session: Session, version: int) -> bytes:
    flags = session.platform | session.idle << 2
    flags |= _LOST if session.lost_at is not None else 0
    flags |= _LEASED if session.holder != UNLEASED else 0
    device = session.device.encode()
    out = bytearray((flags, len(device)))
    out += device
    if session.holder != UNLEASED:
        out += _epoch_bytes(session.holder)
    for at in (session.since, session.seen_at, session.active_at):
        out += _varint(_zigzag(version - at))
    if session.lost_at is not None:
        out += _varint(_zigzag(version - session.lost_at))
    return bytes(out)


def _read_session(content: bytes, version: int) -> Session:
    flags, length = content[0], content[1]
    at = 2 + length
    device = content[2:at].decode()
    holder = UNLEASED
    if flags & _LEASED:
        holder = _epoch(content[at : at + EPOCH_BYTES])
        at += EPOCH_BYTES
    since, at = _read_varint(content, at)
    seen, at = _read_varint(content, at)
    active, at = _read_varint(content, at)
    lost_at = None
    if flags & _LOST:
        lost, at = _read_varint(content, at)
        lost_at = version - _unzigzag(lost)
    if at != len(content) or flags >= _UNKNOWN:
        raise IndexError("a session has unknown flags or trailing bytes")
    return Session(
        device=device,
        holder=holder,
        since=version - _unzigzag(since),
        seen_at=version - _unzigzag(seen),
        active_at=version - _unzigzag(active),
        platform=_PLATFORMS[flags & 3],
        idle=_IDLES[flags >> 2 & 3],
        lost_at=lost_at,
    )


def _tombstone_bytes(tombstone: SignedOut | Retired, version: int) -> bytes:
    return _epoch_bytes(tombstone.holder) + _varint(_zigzag(version - tombstone.at)) + tombstone.device.encode()


def _read_tombstone(content: bytes, version: int) -> tuple[str, str, int]:
    """Decode the entry of a signed-out or retired session into (device, holder, time)."""
    age, at = _read_varint(content, EPOCH_BYTES)
    return content[at:].decode(), _epoch(content[:EPOCH_BYTES]), version - _unzigzag(age)


def _custom_bytes(custom: Custom, version: int) -> bytes:
    """Encode a custom status: 1 and its end, or 0 if it has none; length of the emoji; emoji; text."""
    emoji = custom.emoji.encode()
    ends = b"\0" if custom.until is None else b"\1" + _varint(_zigzag(version - custom.until))
    return ends + _varint(len(emoji)) + emoji + custom.text.encode()


def _read_custom(content: bytes, version: int) -> Custom:
    at = 1
    until = None
    if content[0]:
        age, at = _read_varint(content, at)
        until = version - _unzigzag(age)
    length, at = _read_varint(content, at)
    text = at + length
    if text > len(content) or content[0] > 1:
        raise IndexError("a custom status has unknown flags or is cut off")
    return Custom(content[text:].decode(), content[at:text].decode(), until)


def _sourced_bytes(sourced: Sourced) -> bytes:
    """Encode the mode and custom status of one source: source and flags, mode, end of the mode, custom status."""
    flags = sourced.source | (_GIVES_MODE if sourced.gives_mode else 0) | (_GIVES_CUSTOM if sourced.gives_custom else 0)
    out = bytearray((flags, sourced.mode))
    if sourced.mode_until is not None:
        out[0] |= _ENDS
        out += _varint(_zigzag(sourced.mode_until))
    if sourced.custom is not None:
        out[0] |= _SAYS
        out += _custom_bytes(sourced.custom, _NO_VERSION)
    return bytes(out)


def _read_sourced(content: bytes) -> Sourced | None:
    """Decode the mode and custom status of one source. None: a newer version of herenow wrote them, so the caller keeps
    the bytes as they are."""
    flags, mode = content[0], content[1]
    source = _SOURCES.get(flags & _SOURCE)
    if source is None or mode >= len(_MODES):
        return None
    at, until, custom = 2, None, None
    if flags & _ENDS:
        end, at = _read_varint(content, at)
        until = _unzigzag(end)
    if flags & _SAYS:
        custom = _read_custom(content[at:], _NO_VERSION)
    elif at != len(content):
        raise IndexError("a source has trailing bytes")
    return Sourced(source, _MODES[mode], until, custom, bool(flags & _GIVES_MODE), bool(flags & _GIVES_CUSTOM))


@lru_cache(maxsize=1024)
def _epoch(content: bytes) -> str:
    """Convert the bytes of an epoch into its text. Cached: there are as many epochs as nodes, and nearly every record
    contains one."""
    return urlsafe_b64encode(content).decode()


@lru_cache(maxsize=1024)
def _epoch_bytes(epoch: str) -> bytes:
    content = urlsafe_b64decode(epoch)
    assert len(content) == EPOCH_BYTES, f"{epoch!r} is not an epoch"
    return content


def _put(out: bytearray, tag: int, content: bytes) -> None:
    out.append(tag)
    out += _varint(len(content))
    out += content


def _put_time(out: bytearray, tag: int, at: int | None, version: int) -> None:
    if at is not None:
        content = _varint(_zigzag(version - at))
        out += bytes((tag, len(content)))
        out += content


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _unzigzag(value: int) -> int:
    return -(value + 1 >> 1) if value & 1 else value >> 1


def _varint(value: int) -> bytes:
    if value < 1 << 7:
        return _ONE_BYTE[value]
    if value < 1 << 14:  # times up to 8 s ago
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:  # up to 17 min ago
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for shift in range(7, _MAX_BITS, 7):
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
    raise IndexError("a number is too long")


def _read_whole_varint(content: bytes) -> int:
    value, end = _read_varint(content, 0)
    if end != len(content):
        raise IndexError("a number has trailing bytes")
    return value


_MAX_BITS = 63
"""Bits of a number: enough for any time or duration."""

_ONE_BYTE = tuple(bytes((value,)) for value in range(128))
