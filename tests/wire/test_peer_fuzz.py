"""Whatever bytes arrive, a connection answers with a command or a proper rejection and raises no other error."""

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.wire.codes import CODES
from herenow.wire.frames import Command
from herenow.wire.peer import Peer, Rejection

NOW = 1_790_000_000_000
VALID = [
    b'{"type":"presence.heartbeat"}',
    b'{"type": "presence.heartbeat", "activity_type": "active", "id": 17}',
    b'{"type":"presence.active","id":"q"}',
    b'{"type":"presence.away"}',
    b'{"type":"presence.subscribe","target_user_id":456,"id":1}',
    b'{"type":"presence.subscribe","target_user_ids":["ana",2,"\xc3\xa9",""],"id":2}',
    b'{"type":"presence.unsubscribe","contacts":true}',
    b'{"type":"presence.set","mode":"busy","until":1790000060000,"custom_status":null}',
    b'{"type":"presence.set","custom_status":{"text":"\\u00e9 lunch","emoji":"","expires_at":"2026-09-21T15:00:00Z"}}',
    b'{"type":"presence.typing","room":"r1","typing":false}',
    b'{"type":"room.open","room":"r1"}',
    b'{"type":"room.close","room":"r1"}',
    b'{"type":"presence.refresh","token":"a.b.c"}',
    b'{"type":"presence.bye"}',
]


def survives(payload, peer=None):
    result = (peer or Peer()).receive(payload, NOW)
    if isinstance(result, Rejection):
        frame = msgspec.json.decode(result.frame)
        assert frame["code"] == result.code
        assert result.code in CODES
    else:
        assert isinstance(result, Command)


def test_a_megabyte_of_garbage_as_a_frame_is_answered_with_a_proper_rejection():
    for payload in (b"[" * 1_000_000, b"9" * 1_000_000, b'"' * 1_000_000, b"\x00" * 1_000_000):
        survives(payload)
    survives(b'{"type":"presence.subscribe","target_user_ids":[' + b'{"":[' * 200_000)


@pytest.mark.parametrize("field", [b"target_user_id", b"target_user_ids", b"custom_status", b"mode", b"unknown"])
def test_a_frame_nested_near_pythons_recursion_limit_is_rejected_without_a_crash(field):
    for depth in range(900, 1100):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            nest = opening * depth + b"1" + closing * depth
            survives(b'{"type":"presence.subscribe","%b":%b}' % (field, nest))
            survives(b'{"type":"presence.set","%b":%b}' % (field, nest))


@given(st.binary(max_size=200))
def test_any_bytes_as_a_frame_give_a_command_or_a_proper_rejection(payload):
    survives(payload)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    [
        "id",
        "activity_type",
        "target_user_id",
        "target_user_ids",
        "contacts",
        "mode",
        "until",
        "custom_status",
        "to",
        "room",
        "typing",
        "token",
    ]
)
WORDS = st.sampled_from([json.loads(payload)["type"] for payload in VALID])
CUSTOM = st.dictionaries(st.sampled_from(["text", "emoji", "expires_at", "else"]), JSON, max_size=3)


@given(WORDS, st.dictionaries(FIELDS, JSON | CUSTOM, max_size=4))
def test_any_values_in_the_fields_of_a_frame_give_a_command_or_a_proper_rejection(kind, fields):
    survives(json.dumps({"type": kind, **fields}).encode())
    survives(json.dumps({"type": kind, **fields}, ensure_ascii=False).encode(errors="surrogatepass"))


def test_twenty_thousand_mutations_of_valid_frames_give_commands_or_proper_rejections():
    chance = random.Random(20_000)
    peer = Peer()
    for _ in range(20_000):
        survives(mutated(chance.choice(VALID), chance), peer)


# Fragments that are difficult for JSON, ids and texts, to insert anywhere.
PIECES = [
    *(bytes([byte]) for byte in b'"\\{}[],:-0\xff'),
    *(b"null", b"true", b"1e999", b"NaN", b'"type":', b'"id":', b"\\ud800", b"\\u0000", b"\xe2\x80\xae"),
    *(b"9" * 400, b"[" * 2000, b'{"a":' * 1100),
]


def mutated(payload, chance):
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(payload) + 1)
        match chance.randrange(5):
            case 0:
                payload = payload[:at] + bytes([chance.randrange(256)]) + payload[at + 1 :]
            case 1:
                payload = payload[:at] + chance.choice(PIECES) + payload[at:]
            case 2:
                payload = payload[:at] + payload[at + chance.randint(1, 8) :]
            case 3:
                other = chance.choice(VALID)
                payload = payload[:at] + other[chance.randrange(len(other)) :]
            case _:
                end = min(len(payload), at + chance.randint(1, 20))
                payload = payload[:end] + payload[at:end] + payload[end:]
    return payload
