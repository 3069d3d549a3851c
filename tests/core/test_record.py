"""Encoding and decoding a presence: no field is lost, unknown fields are kept, broken records are refused."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.story import T0, Story, table

from herenow.core.model import (
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
from herenow.core.record import (
    Damaged,
    UnknownFormat,
    decode,
    decode_sources,
    encode,
    encode_sources,
    may_mention,
    version_of,
)
from herenow.core.settle import Held, Timings, settle

NEWEST = 2**48 - 1

times = st.integers(0, 2**48) | st.integers(T0 - 10**9, T0 + 10**9)
devices = st.text(min_size=1, max_size=9) | st.sampled_from(["x" * 128, "é" * 64, "𝄞" * 32])
"""Up to 128 bytes."""
epochs = st.binary(min_size=6, max_size=6).map(lambda raw: urlsafe_b64encode(raw).decode())
sessions = st.builds(
    Session,
    device=devices,
    holder=epochs | st.just(""),
    since=times,
    seen_at=times,
    active_at=times,
    platform=st.sampled_from(Platform),
    idle=st.sampled_from(Idle),
    lost_at=st.none() | times,
)
texts = st.text(max_size=9) | st.sampled_from(["x" * 100, "👩‍👩‍👧‍👦" * 14])
customs = st.builds(Custom, text=texts, emoji=st.text(max_size=4), until=st.none() | times)
contents = st.binary(max_size=9) | st.sampled_from([bytes(127), bytes(128), bytes(300)])
unknown_fields = st.lists(st.tuples(st.integers(100, 255), contents), max_size=2).map(
    lambda fields: b"".join(field(tag, content) for tag, content in fields)
)
sourced = st.builds(
    Sourced,
    source=st.sampled_from([source for source in Source if source is not Source.USER]),
    mode=st.sampled_from(Mode),
    mode_until=st.none() | times,
    custom=st.none() | customs,
    gives_mode=st.booleans(),
    gives_custom=st.booleans(),
)
presences = st.builds(
    Presence,
    version=st.integers(0, NEWEST) | st.integers(T0 - 10**9, T0 + 10**9),
    sessions=st.lists(sessions, max_size=3).map(tuple),
    signed_out=st.lists(st.builds(SignedOut, devices, epochs, times), max_size=2).map(tuple),
    retired=st.lists(st.builds(Retired, devices, epochs, times), max_size=2).map(tuple),
    mode=st.sampled_from(Mode),
    mode_until=st.none() | times,
    custom=st.none() | customs,
    sources=st.lists(sourced, max_size=4).map(tuple),
    chosen=st.just(0) | times,
    idle_after=st.none() | st.integers(0, 10**9),
    status=st.sampled_from(Status),
    since=st.none() | times,
    last_seen=st.none() | times,
    platforms=st.frozensets(st.sampled_from(Platform)),
    arriving_until=st.none() | times,
    shown_at=st.none() | times,
    erased_at=st.none() | times,
    extra=unknown_fields,
)


def field(tag: int, content: bytes) -> bytes:
    length = len(content)
    return bytes((tag,)) + (bytes((length,)) if length < 128 else bytes((length & 127 | 128, length >> 7))) + content


@given(presences)
@example(Presence())
@example(Presence(version=NEWEST, since=0, last_seen=2**48))
@example(Presence(version=0, sessions=(Session("é" * 64, "", 1, 2, 3, lost_at=4),)))
@example(Presence(version=T0, custom=Custom("👩‍👩‍👧‍👦" * 14, "🏳️‍🌈", T0 + 1)))
@example(Presence(version=T0, sources=(Sourced(Source.SCHEDULE, Mode.BUSY, T0, Custom("é", "🌴", 2**48), True, True),)))
@example(Presence(version=T0, signed_out=(SignedOut("𝄞" * 32, "epoch-n1", T0 - 1),)))
def test_a_presence_encoded_as_a_record_and_decoded_again_is_unchanged(presence):
    written = encode(presence)
    assert decode(written) == presence
    assert encode(decode(written)) == written
    assert version_of(written) == presence.version
    assert all(may_mention(written, session.holder) for session in presence.sessions if session.holder)


versions = st.integers(0, NEWEST) | st.integers(T0, T0 + 300)


@given(versions, versions)
def test_the_version_bytes_of_records_sort_like_the_versions(one, other):
    older, newer = encode(Presence(version=one))[2:8], encode(Presence(version=other))[2:8]
    assert (older < newer) == (one < other)


def test_the_version_of_a_record_can_be_read_even_if_its_format_is_unknown():
    assert version_of(b"\x07?" + T0.to_bytes(6, "big") + b"whatever comes later") == T0


# Small


def test_the_record_of_a_user_online_with_one_device_has_at_most_40_bytes():
    held = Held("device-1", "epoch-n1", T0, T0, platform=Platform.WEB)
    record = encode(settle(Presence(), T0, Timings(), epoch="epoch-n1", held=[held]).presence)
    assert len(record) <= 40


@table(
    "script, most",
    {
        "two devices": ("connect device-1, 1m, connect device-2 on n2", 64),
        "online for an hour": ("connect device-1, 1h, act device-1", 44),
        "by REST": ("rest device-1", 40),
        "in grace": ("connect device-1, 1m, drop device-1", 44),
        "offline": ("connect device-1, 1m, bye device-1", 16),
        "hidden": ("connect device-1, 1m, mode invisible", 48),
    },
)
def test_records_of_common_states_have_at_most_64_bytes(script, most):
    assert len(encode(Story().play(script).record)) <= most


# Records of a newer version


@given(presences, st.integers(14, 255), contents)
def test_a_record_field_with_an_unknown_tag_is_kept_and_written_back(presence, tag, content):
    foreign = field(tag, content)
    written = encode(presence)
    for record in (written + foreign, written[:8] + foreign + written[8:]):
        read = decode(record)
        assert foreign in encode(read)
        assert decode(encode(read)) == read


def test_recomputing_a_record_keeps_a_field_of_a_newer_release():
    story = Story(start=decode(encode(Presence()) + field(77, b"from the future")))
    story.play("connect d1, mode busy, 1m, drop d1, 1h")
    assert field(77, b"from the future") in encode(story.record)


# Sources


@given(st.lists(sourced, max_size=4).map(tuple))
def test_modes_and_texts_set_by_services_are_encoded_and_decoded_unchanged(sources):
    assert decode_sources(encode_sources(sources)) == sources


@given(st.lists(sourced, max_size=4).map(tuple), times, times)
def test_the_encoding_of_modes_set_by_services_does_not_depend_on_the_version_of_the_record(sources, one, other):
    """A node that does not know them writes the same bytes into a record with another version."""
    record = encode(Presence(version=min(one, NEWEST), sources=sources))
    rewritten = record[:2] + min(other, NEWEST).to_bytes(6, "big") + record[8:]
    assert decode(rewritten).sources == sources


@table(
    "script, record",
    {
        "nobody": ("1s", "0100000000000000"),
        "a mode and a text of the user": (
            "connect device-1 as web, 1m, mode busy for 1h, text tea for 2h",
            "0127018bcfe65261010102031921086465766963652d317a9a1c87e9f5c2a907c2a907c2a9070504fdb9b703060901fdf3ee06007465"
            "61070100",
        ),
        "hidden and gone": ("connect d1, 1m, mode invisible, drop d1, 1m", "010c018bcfe6c7900203e0d4030703e0d403"),
        "away by choice": ("connect d1, bye d1, mode away", "0108018bcfe56802020104070100"),
        "a source that came and went": (
            "connect d1, bye d1, mode away, mode busy by call, mode auto by call",
            "0108018bcfe56804020108070100",
        ),
    },
)
def test_records_without_modes_set_by_services_are_encoded_as_by_the_previous_release(script, record):
    assert encode(Story().play(script).record).hex() == record


@table(
    "content",
    {
        "an unknown source": (bytes((0x0B, 1)),),
        "an unknown mode": (bytes((2, 4)),),
        "both, and more": (bytes((0xFF, 9)) + b"what comes later",),
    },
)
def test_a_mode_set_by_a_source_that_only_a_newer_release_knows_is_kept_in_the_record(content):
    foreign = field(13, content)
    known = Sourced(Source.CALL, Mode.BUSY, gives_mode=True)
    read = decode(encode(Presence(version=T0, sources=(known,))) + foreign)
    assert (read.sources, read.extra) == ((known,), foreign)
    assert foreign in encode(read)
    assert decode_sources(encode_sources([known]) + foreign) == (known,)


@pytest.mark.parametrize("fields", [b"\x0d", b"\x0d\x01\x02", b"\x0d\x03\x02\x01\x00", b"\x0d\x02\x12\x01"])
def test_a_record_with_damaged_modes_of_services_is_refused(fields):
    with pytest.raises(Damaged, match="sources of"):
        decode_sources(fields)
    with pytest.raises(Damaged, match="record of"):
        decode(b"\x01\x00" + T0.to_bytes(6, "big") + fields)


@pytest.mark.parametrize("record", [b"", b"\x00", b"\x02" + bytes(7), b"\xff" * 40])
def test_a_record_of_an_unknown_format_raises_unknown_format(record):
    with pytest.raises(UnknownFormat) as caught:
        decode(record)
    assert caught.type is UnknownFormat, "it may be right, only not for us"


# Invalid records


@given(presences, st.data())
def test_a_truncated_record_is_refused_or_equals_a_shorter_record(presence, data):
    """A record cut exactly between two fields cannot be recognised."""
    written = encode(presence)
    cut = written[: data.draw(st.integers(1, len(written) - 1))]
    try:
        read = decode(cut)
    except Damaged:
        return
    assert written.startswith(cut)
    assert len(encode(read)) == len(cut)


@given(st.binary(max_size=80), st.integers(0, 1))
@settings(max_examples=500)
def test_random_bytes_are_refused_as_a_record_or_decoded_consistently(garbage, kind):
    record = b"\x01" + garbage if kind else garbage
    try:
        presence = decode(record)
    except ValueError:
        return
    assert decode(encode(presence)) == presence


@given(presences, st.data())
def test_a_record_with_a_flipped_bit_is_refused_or_decoded_consistently(presence, data):
    written = bytearray(encode(presence))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = decode(bytes(written))
    except ValueError:
        return
    assert decode(encode(read)) == read


HEAD = b"\x01\x00" + T0.to_bytes(6, "big")
SESSION = b"\x03"


@table(
    "record",
    {
        "only a format": (b"\x01",),
        "half a head": (HEAD[:5],),
        "a tag without a length": (HEAD + b"\x01",),
        "a length without an end": (HEAD + b"\x01\xff",),
        "a content that is missing": (HEAD + b"\x01\x05\x00",),
        "an empty time": (HEAD + b"\x01\x00",),
        "a time with a tail": (HEAD + b"\x01\x02\x00\x00",),
        "a time without an end": (HEAD + b"\x01\x0a" + b"\xff" * 10,),
        "an empty session": (HEAD + SESSION + b"\x00",),
        "a session whose device is cut off": (HEAD + SESSION + b"\x04\x00\x09ab",),
        "a device that is not text": (HEAD + SESSION + b"\x06\x00\x01\xff\x00\x00\x00",),
        "a session with a tail": (HEAD + SESSION + b"\x07\x00\x01a\x00\x00\x00\x00",),
        "a session that says what we do not know": (HEAD + SESSION + b"\x06\x40\x01a\x00\x00\x00",),
        "a session idle in an unknown way": (HEAD + SESSION + b"\x06\x0c\x01a\x00\x00\x00",),
        "a session with half an epoch": (HEAD + SESSION + b"\x06\x20\x01abcd",),
        "a note with half an epoch": (HEAD + b"\x04\x03abc",),
        "an empty custom status": (HEAD + b"\x06\x00",),
        "a custom status whose emoji is cut off": (HEAD + b"\x06\x03\x00\x09a",),
        "a custom status that ends in an unknown way": (HEAD + b"\x06\x03\x02\x00\x00",),
        "a text that is not text": (HEAD + b"\x06\x03\x00\x00\xff",),
    },
)
def test_a_malformed_record_is_refused(record):
    with pytest.raises(Damaged, match="record of"):
        decode(record)


def test_a_record_with_a_session_of_a_node_with_an_invalid_run_id_cannot_be_encoded():
    with pytest.raises(AssertionError, match="not an epoch"):
        encode(Presence(sessions=(Session("d1", "abcd", 0, 0, 0),)))
