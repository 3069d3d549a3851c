"""The protocol state of one connection: malformed frames are answered and counted, refusals only answered."""

import json

import msgspec
import pytest

from herenow.wire.codes import CODES, MALFORMED
from herenow.wire.frames import Bye, Command, HeartbeatCommand, SetPresence, Subscribe
from herenow.wire.inputs import Activity
from herenow.wire.peer import LIMIT, WINDOW, Peer, Rejection

NOW = 1_790_000_000_000
BEAT = b'{"type":"presence.heartbeat"}'
VALID = [
    BEAT,
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


def answer(rejection):
    assert isinstance(rejection, Rejection)
    frame = msgspec.json.decode(rejection.frame)
    assert frame["type"] == "presence.error"
    assert frame["code"] == rejection.code
    assert rejection.code in CODES
    assert frame["message"].endswith(".")
    return frame


def rejected(peer, payload, now=NOW) -> Rejection:
    rejection = peer.receive(payload, now)
    assert isinstance(rejection, Rejection)
    answer(rejection)
    return rejection


@pytest.mark.parametrize("payload", VALID)
def test_a_valid_frame_gives_a_command(payload):
    assert isinstance(Peer().receive(payload, NOW), Command)


def test_all_plain_heartbeats_share_one_command_object():
    assert Peer().receive(BEAT, NOW) is Peer().receive(b'{"type": "presence.heartbeat"}', NOW + 1)
    assert Peer().receive(BEAT, NOW) == HeartbeatCommand()


def test_a_decoded_heartbeat_keeps_its_activity_and_frame_id():
    beat = {"type": "presence.heartbeat", "activity_type": "active"}
    assert Peer().receive(json.dumps(beat).encode(), NOW) == HeartbeatCommand(Activity.ACTIVE)
    assert Peer().receive(json.dumps(beat | {"id": 3}).encode(), NOW) == HeartbeatCommand(Activity.ACTIVE, 3)


def test_whitespace_and_key_order_of_a_frame_are_ignored():
    assert Peer().receive(b' \n{ "id" : "q" ,\t"type" : "presence.bye" } ', NOW) == Bye(id="q")


@pytest.mark.parametrize(
    ("payload", "code", "frame_id"),
    [
        (b'{"type":"presence.nothing","id":"q"}', "unknown_type", "q"),
        (b'{"type":"presence.set","mode":5,"id":9}', "bad_shape", 9),
        (b'{"type":"presence.set","id":9}', "bad_shape", 9),
        (b'{"type":"presence.set","mode":"online","id":9}', "invalid_mode", 9),
        (b'{"type":"room.open","room":"a b","id":"q"}', "invalid_id", "q"),
        (b'{"id":"q"}', "bad_shape", "q"),
        (b'{"type":"presence.bye","x":1,"x":2,"id":"q"}', "bad_json", "q"),
        (b'{"type":"presence.bye","id":"%b"}' % (b"x" * 65), "bad_shape", None),
        (b'{"type":"presence.bye","id":true}', "bad_shape", None),
        (b'{"id":"q"', "bad_json", None),
        (b'"q"', "bad_shape", None),
        (b'{"type":"presence.bye","id":"q","x":"\xff"}', "bad_json", None),
    ],
)
def test_the_rejection_of_a_frame_has_an_error_code_and_echoes_the_frame_id_if_it_is_readable(payload, code, frame_id):
    frame = answer(Peer().receive(payload, NOW))
    assert frame["code"] == code
    assert frame.get("id") == frame_id


def test_a_binary_websocket_message_is_rejected_and_counts_as_a_malformed_frame():
    peer = Peer()
    assert answer(peer.binary(NOW))["code"] == "binary_frame"
    closes = [peer.binary(NOW).close for _ in range(LIMIT)]
    assert closes == [None] * (LIMIT - 1) + [4400]


@pytest.mark.parametrize("payload", [b"{", b"[]", b'{"type":"nothing"}', b'{"type":"room.open"}'])
def test_the_twenty_first_malformed_frame_within_a_minute_closes_the_connection(payload):
    peer = Peer()
    closes = [rejected(peer, payload, NOW + n).close for n in range(LIMIT + 1)]
    assert closes == [None] * LIMIT + [4400]


def test_twenty_malformed_frames_a_minute_are_always_tolerated():
    peer = Peer()
    step = WINDOW // LIMIT
    assert all(rejected(peer, b"{", NOW + n * step).close is None for n in range(10 * LIMIT))


def test_malformed_frames_are_counted_over_a_sliding_minute():
    peer = Peer()
    assert all(rejected(peer, b"{", NOW + WINDOW - 1).close is None for _ in range(LIMIT))
    assert rejected(peer, b"{", NOW + 2 * WINDOW - 2).close == 4400
    assert rejected(peer, b"{", NOW + 3 * WINDOW).close is None


def test_a_well_formed_but_refused_frame_does_not_count_as_malformed():
    peer = Peer()
    refused = [
        b'{"type":"presence.set","mode":"online"}',
        b'{"type":"presence.set","mode":"busy","until":1}',
        b'{"type":"presence.set","custom_status":{"text":""}}',
        b'{"type":"presence.heartbeat","activity_type":"asleep"}',
        b'{"type":"room.open","room":""}',
    ]
    for payload in refused * LIMIT:
        rejection = rejected(peer, payload)
        assert rejection.code not in MALFORMED
        assert rejection.close is None


def test_a_subscribe_to_an_invalid_user_id_does_not_count_as_a_malformed_frame():
    peer = Peer()
    for _ in range(2 * LIMIT):
        command = peer.receive(b'{"type":"presence.subscribe","target_user_id":null}', NOW)
        assert command == Subscribe(invalid=(("null", "invalid_user_id"),), single=True)


def test_valid_frames_do_not_reset_the_count_of_malformed_ones():
    peer = Peer()
    for _ in range(LIMIT):
        assert rejected(peer, b"{").close is None
        assert peer.receive(BEAT, NOW) == HeartbeatCommand()
    assert rejected(peer, b"{").close == 4400


def test_malformed_frames_are_counted_per_connection():
    one, other = Peer(), Peer()
    for _ in range(LIMIT + 1):
        one.receive(b"{", NOW)
    assert rejected(other, b"{").close is None


def test_the_end_time_in_a_frame_is_compared_with_the_time_of_receipt():
    payload = b'{"type":"presence.set","mode":"busy","until":%d}' % (NOW + 5)
    assert isinstance(Peer().receive(payload, NOW), SetPresence)
    assert answer(Peer().receive(payload, NOW + 5))["code"] == "instant_in_past"
