"""Every client frame becomes a command or is refused with a code; its `id` is kept."""

import json

import pytest

from herenow.core.model import Custom, Mode
from herenow.errors import ProtocolError
from herenow.wire.decode import BEATS, COMMON, COMMON_LENGTH, TYPES, decode_frame, readable_id
from herenow.wire.frames import (
    Active,
    Away,
    Bye,
    HeartbeatCommand,
    Refresh,
    RoomClose,
    RoomOpen,
    SetPresence,
    Subscribe,
    TypingCommand,
    Unsubscribe,
)
from herenow.wire.inputs import Activity

NOW = 1_790_000_000_000
LATER = NOW + 60_000

ACCEPTED: list[tuple[dict[str, object], object]] = [
    ({"type": "presence.heartbeat"}, HeartbeatCommand()),
    ({"type": "presence.heartbeat", "activity_type": None}, HeartbeatCommand()),
    ({"type": "presence.heartbeat", "activity_type": "active"}, HeartbeatCommand(Activity.ACTIVE)),
    ({"type": "presence.heartbeat", "activity_type": "idle"}, HeartbeatCommand(Activity.IDLE)),
    ({"type": "presence.heartbeat", "device_id": 5, "sent_at": {"deep": [1.5]}}, HeartbeatCommand()),
    ({"type": "presence.active"}, Active()),
    ({"type": "presence.away"}, Away()),
    ({"type": "presence.subscribe", "target_user_id": 456}, Subscribe(("456",), single=True)),
    ({"type": "presence.subscribe", "target_user_id": "456"}, Subscribe(("456",), single=True)),
    ({"type": "presence.subscribe", "target_user_id": "456", "contacts": False}, Subscribe(("456",), single=True)),
    ({"type": "presence.subscribe", "target_user_ids": []}, Subscribe()),
    ({"type": "presence.subscribe", "target_user_ids": ["b", 1, "a", "1", "b"]}, Subscribe(("b", "1", "a"))),
    ({"type": "presence.subscribe", "contacts": True}, Subscribe(contacts=True)),
    (
        {"type": "presence.subscribe", "target_user_id": "a b"},
        Subscribe(invalid=(("a b", "invalid_user_id"),), single=True),
    ),
    (
        {"type": "presence.subscribe", "target_user_id": None},
        Subscribe(invalid=(("null", "invalid_user_id"),), single=True),
    ),
    (
        {"type": "presence.subscribe", "target_user_ids": ["a", "", "b", 1.5, True, "", [1], {"a": 1}]},
        Subscribe(("a", "b"), tuple((raw, "invalid_user_id") for raw in ("", "1.5", "true", "[…]", "{…}"))),
    ),
    (
        {"type": "presence.subscribe", "target_user_ids": ["x" * 300, 10**200]},
        Subscribe((), (("x" * 128, "invalid_user_id"), ("1" + "0" * 127, "invalid_user_id"))),
    ),
    ({"type": "presence.unsubscribe", "target_user_id": 456}, Unsubscribe(("456",), single=True)),
    ({"type": "presence.unsubscribe", "target_user_ids": ["a", "a", 2]}, Unsubscribe(("a", "2"))),
    ({"type": "presence.unsubscribe", "contacts": True}, Unsubscribe(contacts=True)),
    ({"type": "presence.unsubscribe", "target_user_ids": ["a", ","]}, Unsubscribe(("a",), ((",", "invalid_user_id"),))),
    ({"type": "presence.set", "mode": "busy"}, SetPresence(Mode.BUSY)),
    ({"type": "presence.set", "mode": "auto", "until": None}, SetPresence(Mode.AUTO)),
    ({"type": "presence.set", "mode": "busy", "until": LATER}, SetPresence(Mode.BUSY, LATER)),
    ({"type": "presence.set", "mode": "away", "until": "2026-09-21T14:14:20Z"}, SetPresence(Mode.AWAY, LATER)),
    ({"type": "presence.set", "custom_status": None}, SetPresence(has_custom=True)),
    (
        {"type": "presence.set", "custom_status": {"text": "lunch", "emoji": "🍜", "expires_at": LATER}},
        SetPresence(has_custom=True, custom=Custom("lunch", "🍜", LATER)),
    ),
    (
        {"type": "presence.set", "mode": "invisible", "custom_status": {"text": "x"}},
        SetPresence(Mode.INVISIBLE, has_custom=True, custom=Custom("x")),
    ),
    ({"type": "presence.typing", "to": 456}, TypingCommand("456", None, True)),
    ({"type": "presence.typing", "room": "r1"}, TypingCommand(None, "r1", True)),
    ({"type": "presence.typing", "room": "r1", "typing": False}, TypingCommand(None, "r1", False)),
    ({"type": "room.open", "room": "r1"}, RoomOpen("r1")),
    ({"type": "room.open", "room": 1}, RoomOpen("1")),
    ({"type": "room.close", "room": "r1"}, RoomClose("r1")),
    ({"type": "presence.refresh", "token": "a.b.c"}, Refresh(token="a.b.c")),
    ({"type": "presence.refresh", "token": ""}, Refresh(token="")),
    ({"type": "presence.bye"}, Bye()),
]

REFUSED: list[tuple[object, str]] = [
    ({"type": "presence.heartbeat", "activity_type": "asleep"}, "invalid_activity"),
    ({"type": "presence.heartbeat", "activity_type": 1}, "bad_shape"),
    ({"type": "presence.subscribe"}, "bad_shape"),
    ({"type": "presence.subscribe", "contacts": False}, "bad_shape"),
    ({"type": "presence.subscribe", "contacts": 1}, "bad_shape"),
    ({"type": "presence.subscribe", "target_user_id": 1, "target_user_ids": [2]}, "bad_shape"),
    ({"type": "presence.subscribe", "target_user_ids": [], "contacts": True}, "bad_shape"),
    ({"type": "presence.subscribe", "target_user_id": 1, "contacts": True}, "bad_shape"),
    ({"type": "presence.subscribe", "target_user_ids": "a,b"}, "bad_shape"),
    ({"type": "presence.subscribe", "target_user_ids": None}, "bad_shape"),
    ({"type": "presence.unsubscribe"}, "bad_shape"),
    ({"type": "presence.set"}, "bad_shape"),
    ({"type": "presence.set", "until": LATER}, "bad_shape"),
    ({"type": "presence.set", "custom_status": {"text": "a"}, "until": LATER}, "bad_shape"),
    ({"type": "presence.set", "mode": None}, "bad_shape"),
    ({"type": "presence.set", "mode": "online"}, "invalid_mode"),
    ({"type": "presence.set", "mode": "busy", "until": NOW}, "instant_in_past"),
    ({"type": "presence.set", "mode": "busy", "until": NOW * 2}, "instant_too_far"),
    ({"type": "presence.set", "mode": "busy", "until": "2027-01-01T00:00:00"}, "invalid_instant"),
    ({"type": "presence.set", "mode": "busy", "until": 1.5}, "invalid_instant"),
    ({"type": "presence.set", "custom_status": "lunch"}, "bad_shape"),
    ({"type": "presence.set", "custom_status": {"text": "x" * 101}}, "text_too_long"),
    ({"type": "presence.set", "custom_status": {"text": "\u202e"}}, "invalid_text"),
    ({"type": "presence.set", "custom_status": {"text": "a", "emoji": "x" * 33}}, "invalid_emoji"),
    ({"type": "presence.typing"}, "bad_shape"),
    ({"type": "presence.typing", "to": "a", "room": "r"}, "bad_shape"),
    ({"type": "presence.typing", "to": "a", "typing": "yes"}, "bad_shape"),
    ({"type": "presence.typing", "to": None}, "invalid_user_id"),
    ({"type": "presence.typing", "room": ""}, "invalid_id"),
    ({"type": "room.open"}, "bad_shape"),
    ({"type": "room.open", "room": True}, "invalid_id"),
    ({"type": "room.close"}, "bad_shape"),
    ({"type": "room.close", "room": "a b"}, "invalid_id"),
    ({"type": "presence.refresh"}, "bad_shape"),
    ({"type": "presence.refresh", "token": 5}, "bad_shape"),
    ({"type": "presence.status"}, "unknown_type"),
    ({"type": ""}, "unknown_type"),
    ({"type": "x" * 5000}, "unknown_type"),
    ({"type": 5}, "bad_shape"),
    ({"type": None}, "bad_shape"),
    ({}, "bad_shape"),
    ([], "bad_shape"),
    (None, "bad_shape"),
    ("presence.bye", "bad_shape"),
]

UNREADABLE = [
    b"",
    b" ",
    b"{",
    b"nonsense",
    b'{"type":"presence.bye"}}',
    b"{'type':'presence.bye'}",
    b'{"type":"presence.bye",}',
    b'\xef\xbb\xbf{"type":"presence.bye"}',
    '{"type":"presence.bye"}'.encode("utf-16"),
    b'{"type":"presence.bye","x":"\xff"}',
    b'{"type":"presence.bye","\xff":1}',
    b'{"type":"presence.bye\xff"}',
    b'{"type":"presence.bye","id":"\xed\xa0\x80"}',
    b'{"type":"presence.bye","id":"\\ud800"}',
    b'{"type":"presence.bye","x":NaN}',
    b'{"type":"presence.bye","x":-Infinity}',
    b'{"type":"presence.set","mode":"busy","until":1e999}',
    b'{"type":"presence.set","mode":"busy","until":' + b"9" * 5000 + b"}",
    b'{"type":"presence.bye","x":' + b"9" * 5000 + b"}",
    b'{"type":"presence.bye","x":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    b'{"type":"presence.subscribe","target_user_id":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}",
    b"[" * 60_000,
    b'{"type":"presence.bye","type":"presence.bye"}',
    b'{"type":"presence.bye","id":1,"\\u0069d":2}',
    b'{"type":"presence.set","custom_status":{"text":"a","text":"b"}}',
    b'{"type":"presence.bye","unknown":[{"a":1,"a":1}]}',
    b'{"type":"presence.bye","x":"a\x00b"}',
    b'{"type":"presence.bye","x":01}',
]


def understood(frame):
    return decode_frame(json.dumps(frame).encode()).command(NOW)


@pytest.mark.parametrize(("frame", "command"), ACCEPTED)
def test_a_valid_frame_is_decoded_to_its_command(frame, command):
    assert understood(frame) == command
    assert type(understood(frame)) is type(command)


def test_the_frames_accepted_in_these_tests_include_every_frame_type():
    assert {frame["type"] for frame, _ in ACCEPTED} == TYPES


@pytest.mark.parametrize(("frame", "command"), ACCEPTED)
@pytest.mark.parametrize("frame_id", [7, 0, -1, "", "abc", "é" * 64, 10**63, None])
def test_a_decoded_command_keeps_the_id_of_its_frame(frame, command, frame_id):
    assert understood(frame | {"id": frame_id}).id == frame_id


@pytest.mark.parametrize("frame_id", ["x" * 65, 10**64, -(10**63), True, 1.0, [], {}])
def test_a_frame_id_that_is_too_long_or_of_another_type_is_refused(frame_id):
    payload = json.dumps({"type": "presence.bye", "id": frame_id}).encode()
    with pytest.raises(ProtocolError) as refusal:
        decode_frame(payload)
    assert refusal.value.code == "bad_shape"
    assert readable_id(payload) is None


@pytest.mark.parametrize(("frame", "code"), REFUSED)
def test_an_invalid_frame_is_refused_with_the_error_code_of_its_mistake(frame, code):
    with pytest.raises(ProtocolError) as refusal:
        understood(frame)
    assert refusal.value.code == code
    assert refusal.value.message.endswith(".")
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize(("frame", "code"), [row for row in REFUSED if isinstance(row[0], dict)])
def test_the_id_of_a_refused_frame_can_be_read(frame, code):
    assert readable_id(json.dumps(frame | {"id": "q1"}).encode()) == "q1"


@pytest.mark.parametrize("payload", UNREADABLE, ids=lambda payload: repr(payload[:48]))
def test_a_frame_of_invalid_or_ambiguous_json_is_refused(payload):
    with pytest.raises(ProtocolError) as refusal:
        decode_frame(payload)
    assert refusal.value.code == "bad_json"
    assert refusal.value.message.endswith(".")


@pytest.mark.parametrize("payload", [b"", b"[]", b"5", b"{", b"\xff", b"[" * 60_000, b'{"id":NaN}'])
def test_reading_the_id_of_a_payload_without_an_id_returns_none(payload):
    assert readable_id(payload) is None


def test_the_prepared_commands_for_common_frames_equal_the_decoded_frames():
    assert b'{"type":"presence.heartbeat"}' in COMMON
    assert b'{"type": "presence.heartbeat"}' in COMMON
    for payload, command in COMMON.items():
        assert decode_frame(payload).command(NOW) == command
        assert len(payload) <= COMMON_LENGTH
    assert {payload for payload, command in COMMON.items() if isinstance(command, HeartbeatCommand)} == set(BEATS)
    assert all(COMMON[payload] == HeartbeatCommand(activity) for payload, activity in BEATS.items())


def test_the_repr_of_a_refresh_command_hides_the_token():
    assert "secret" not in repr(Refresh(token="secret"))
    assert "secret" not in str(Refresh(token="secret"))


def test_a_json_error_message_spells_json_correctly():
    with pytest.raises(ProtocolError, match=r"This is not valid JSON: JSON is malformed: .+\.$"):
        decode_frame(b"not json")
