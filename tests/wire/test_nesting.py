"""JSON may be nested 64 levels deep, on every version of Python, in frames, in bodies and in tokens."""

import json

import jwt
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.api.http.request_body import Decoder
from herenow.errors import ProtocolError
from herenow.transport.auth import verify
from herenow.wire.decode import decode_frame, readable_id
from herenow.wire.json_text.nesting import MAX_DEPTH, is_too_deep
from herenow.wire.relation_rows import BadRow, parse_ndjson

ARRAYS = (b"[", b"]")
OBJECTS = (b'{"a":', b"}")
BOTH = (b'[{"":', b"}]")


def nest(depth: int, pair: tuple[bytes, bytes] = ARRAYS) -> bytes:
    levels = pair[0].count(b"[") + pair[0].count(b"{")
    assert depth % levels == 0
    return pair[0] * (depth // levels) + b"1" + pair[1] * (depth // levels)


@pytest.mark.parametrize("pair", [ARRAYS, OBJECTS, BOTH])
def test_json_nested_64_levels_deep_is_accepted_and_deeper_json_is_not(pair):
    assert MAX_DEPTH == 64
    assert not is_too_deep(nest(64, pair))
    assert is_too_deep(nest(66, pair))
    assert is_too_deep(b"[" + nest(64, pair) + b"]")


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps(["[" * 100]).encode(),
        json.dumps(["[" * 40, "{" * 40, "a" * 100]).encode(),
        json.dumps({"[" * 100: '"'}).encode(),
        json.dumps(['\\"' + "[" * 100]).encode(),
        json.dumps(["\\", "[" * 100, "\\\\"]).encode(),
        json.dumps([[] for _ in range(1000)]).encode(),
        json.dumps([{"a": "]"} for _ in range(1000)]).encode(),
    ],
)
def test_brackets_in_strings_and_sibling_arrays_do_not_count_as_json_nesting_depth(payload):
    assert not is_too_deep(payload)


def test_brackets_in_strings_do_not_hide_the_real_json_nesting_depth():
    for hidden in (b'"]"', b'"\\"]"', b'"\\\\","]"', b'"]]]]","","]]"'):
        assert is_too_deep((b"[" + hidden + b",") * 65 + b"1" + b"]" * 65), hidden


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


TEXT = st.text('[]{}"\\,:a', max_size=8)
VALUES = st.recursive(
    TEXT, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=20
)


@given(VALUES, st.integers(55, 66), st.binary(max_size=3))
def test_the_check_of_the_nesting_depth_is_exact_for_any_json(value, around, padding):
    for _ in range(around):
        value = [padding.hex(), value]
    assert is_too_deep(json.dumps(value).encode()) == (depth_of(value) > MAX_DEPTH)


# Callers of the check

FRAME = b'{"type":"presence.heartbeat","id":7,"unknown":%b}'


def test_a_frame_nested_too_deeply_is_refused_as_bad_json():
    assert decode_frame(FRAME % nest(63)).id == 7
    with pytest.raises(ProtocolError, match="nested too deeply") as refusal:
        decode_frame(FRAME % nest(64))
    assert refusal.value.code == "bad_json"


def test_the_id_of_a_frame_nested_too_deeply_is_not_read():
    assert readable_id(FRAME % nest(63)) == 7
    assert readable_id(FRAME % nest(64)) is None


@pytest.mark.parametrize("depth", [65, 999, 1001, 5_000, 100_000])
@pytest.mark.parametrize("repeated_keys", [True, False])
def test_a_request_body_nested_too_deeply_is_refused_as_bad_json(depth, repeated_keys):
    body = Decoder(list[msgspec.Raw], "a list", repeated_keys=repeated_keys)
    assert len(body.decode(nest(64))) == 1
    with pytest.raises(ProtocolError, match="nested too deeply") as refusal:
        body.decode(nest(depth))
    assert refusal.value.code == "bad_json"


def test_an_import_line_nested_too_deeply_is_refused_as_not_json():
    row = b'{"kind":"follow","a":"ana","b":"bob","until":%b}'
    [refused] = parse_ndjson([row % nest(64)])
    assert isinstance(refused, BadRow)
    assert (refused.code, refused.message) == ("invalid_relation", "The line is not JSON.")
    [read] = parse_ndjson([row % nest(63)])
    assert isinstance(read, BadRow)
    assert read.code == "invalid_instant"


def test_a_token_with_claims_nested_too_deeply_is_refused_as_malformed():
    def claims(depth: int) -> str:
        value: object = 1
        for _ in range(depth):
            value = [value]
        return jwt.encode({"sub": "ana", "iat": 1_000, "exp": 2_000, "extra": value}, "s" * 32, "HS256")

    assert verify(claims(63), ("s" * 32,), now=1_500, max_ttl=86_400).user == "ana"
    with pytest.raises(ProtocolError) as refusal:
        verify(claims(64), ("s" * 32,), now=1_500, max_ttl=86_400)
    assert refusal.value.code == "token_malformed"
