"""The server is strict: the cases of the Autobahn suite (which needs Python 2), with hand-made frames."""

import struct

import pytest
from tests.transport import test_websocket_rig as rig
from tests.transport.test_websocket_rig import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Client,
    Server,
    close_frame,
    frame,
)

running, server = rig.running, rig.server

MAX = 65536
SIZES = (0, 1, 124, 125, 126, 127, 128, 999, 1000, 1001, 1791, 1792, 4096, 4097, 16384, 65535, MAX)


def assert_fails(client: Client, code: int) -> None:
    """Asserts that the server sends one CLOSE frame with this code and a FIN, and the handler gets the same code."""
    frames = client.read_to_end()
    assert [(opcode, payload[:2]) for opcode, payload in frames] == [(CLOSE, struct.pack("!H", code))]
    client.finish()
    assert client.handler.closed()[0] == code


def text_of(size: int) -> bytes:
    return (b"0123456789" * (size // 10 + 1))[:size]


# Messages


@pytest.mark.parametrize("size", SIZES)
def test_a_websocket_text_of_any_allowed_size_arrives_whole(server: Server, size: int):
    with server.connect() as client:
        client.send(frame(TEXT, text_of(size)) + frame(TEXT, b"next"))
        assert client.read_text() == text_of(size)
        assert client.read_text() == b"next"


@pytest.mark.parametrize("size", SIZES)
def test_a_binary_websocket_message_is_reported_to_the_handler_and_the_connection_stays(server: Server, size: int):
    with server.connect() as client:
        client.send(frame(BINARY, bytes(size)) + frame(TEXT, b"next"))
        assert client.read_text() == b"binary"
        assert client.read_text() == b"next"


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("size", [MAX + 1, 2 * MAX, 10 * MAX])
def test_a_websocket_frame_over_the_size_limit_closes_the_connection_with_1009(server: Server, opcode: int, size: int):
    with server.connect() as client:
        client.send(frame(opcode, text_of(size)))
        assert_fails(client, 1009)


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_the_websocket_size_limit_applies_to_a_whole_message_not_to_each_fragment(server: Server, opcode: int):
    with server.connect() as client:
        client.send(frame(opcode, text_of(40_000), fin=False) + frame(CONTINUATION, text_of(MAX - 40_000)))
        client.read_text()
        client.send(
            frame(opcode, text_of(40_000), fin=False) + frame(CONTINUATION, text_of(MAX + 1 - 40_000), fin=False)
        )
        assert_fails(client, 1009)


@pytest.mark.parametrize("length", [MAX + 1, 2**32, 2**62, 2**63 - 1])
def test_a_websocket_frame_with_a_too_large_length_closes_the_connection_before_its_payload(
    server: Server, length: int
):
    with server.connect() as client:
        client.send(bytes([0x80 | TEXT, 0xFF]) + struct.pack("!Q", length))
        assert_fails(client, 1009)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1])
def test_a_websocket_frame_length_with_its_highest_bit_set_closes_the_connection_with_1002(server: Server, length: int):
    with server.connect() as client:
        client.send(bytes([0x80 | TEXT, 0xFF]) + struct.pack("!Q", length))
        assert_fails(client, 1002)


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("!BH", 0xFE, 0),
        struct.pack("!BH", 0xFE, 125),
        struct.pack("!BQ", 0xFF, 0),
        struct.pack("!BQ", 0xFF, 125),
        struct.pack("!BQ", 0xFF, 65535),
    ],
)
def test_a_websocket_frame_length_in_more_bytes_than_needed_closes_the_connection_with_1002(
    server: Server, header: bytes
):
    with server.connect() as client:
        client.send(bytes([0x80 | TEXT]) + header)
        assert_fails(client, 1002)


# Delivery


def test_websocket_frames_sent_byte_by_byte_arrive_whole(server: Server):
    stream = frame(TEXT, text_of(130)) + frame(PING, b"p") + frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b")
    with server.connect() as client:
        for byte in stream:
            client.send(bytes([byte]))
        assert client.read_text() == text_of(130)
        assert client.read_frame() == (PONG, b"p")
        assert client.read_text() == b"ab"


def test_many_websocket_frames_in_one_tcp_segment_are_all_handled_in_order(server: Server):
    with server.connect() as client:
        client.send(b"".join(frame(TEXT, str(i).encode()) for i in range(1000)))
        assert [int(client.read_text()) for _ in range(1000)] == list(range(1000))


@pytest.mark.parametrize("size", [10, 5_000, MAX])
def test_websocket_frames_in_one_tcp_segment_with_the_handshake_are_not_lost(server: Server, size: int):
    whole, half = frame(TEXT, text_of(size)), frame(TEXT, b"and on")
    with server.connect(with_it=whole + half[:4]) as client:
        client.send(half[4:])
        assert client.read_text() == text_of(size)
        assert client.read_text() == b"and on"


@pytest.mark.parametrize("mask", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\x00\x80\x7f"])
def test_websocket_frames_with_any_mask_are_unmasked(server: Server, mask: bytes):
    with server.connect() as client:
        client.send(frame(TEXT, text_of(1003), mask=mask))
        assert client.read_text() == text_of(1003)


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 6, 9])
def test_a_connection_ended_in_the_middle_of_a_websocket_frame_is_reported_without_a_close_code(
    server: Server, cut: int
):
    with server.connect() as client:
        client.send(frame(TEXT, b"never finished")[:cut])
        client.finish()
        assert client.read_to_end() == []
        assert client.handler.closed() == (None, "")


# Ping and pong


@pytest.mark.parametrize("size", [0, 1, 124, 125])
def test_a_websocket_ping_is_answered_with_its_own_payload(server: Server, size: int):
    payload = bytes(range(256))[:size]
    with server.connect() as client:
        client.send(frame(PING, payload))
        assert client.read_frame() == (PONG, payload)
        client.send(frame(TEXT, b"next"))
        assert client.read_text() == b"next"
        assert client.handler.signs_of_life == 1


def test_an_unsolicited_websocket_pong_counts_as_a_sign_of_life(server: Server):
    with server.connect() as client:
        client.send(frame(PONG, b"unasked") + frame(TEXT, b"next"))
        assert client.read_text() == b"next"
        assert client.handler.signs_of_life == 1


def test_ten_websocket_pings_in_one_tcp_segment_are_all_answered(server: Server):
    with server.connect() as client:
        client.send(b"".join(frame(PING, bytes([i])) for i in range(10)))
        assert [client.read_frame() for _ in range(10)] == [(PONG, bytes([i])) for i in range(10)]


def test_a_websocket_ping_of_the_server_has_no_payload(server: Server):
    with server.connect() as client:
        server.call(client.handler.socket.ping)
        assert client.read_frame() == (PING, b"")


@pytest.mark.parametrize("opcode", [PING, PONG, CLOSE])
def test_a_websocket_control_frame_over_125_bytes_closes_the_connection_with_1002(server: Server, opcode: int):
    with server.connect() as client:
        client.send(frame(opcode, struct.pack("!H", 1000) + bytes(124)))
        assert_fails(client, 1002)


@pytest.mark.parametrize("opcode", [PING, PONG, CLOSE])
def test_a_fragmented_websocket_control_frame_closes_the_connection_with_1002(server: Server, opcode: int):
    with server.connect() as client:
        client.send(frame(opcode, b"", fin=False))
        assert_fails(client, 1002)


# Bits and opcodes


@pytest.mark.parametrize("rsv", range(1, 8))
@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, PONG, CLOSE])
def test_a_websocket_frame_with_a_reserved_bit_closes_the_connection_with_1002(server: Server, opcode: int, rsv: int):
    with server.connect() as client:
        client.send(frame(opcode, b"", rsv=rsv))
        assert_fails(client, 1002)


def test_a_websocket_continuation_frame_with_a_reserved_bit_closes_the_connection_with_1002(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b", rsv=4))
        assert_fails(client, 1002)


@pytest.mark.parametrize("fin", [True, False])
@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
def test_a_websocket_frame_with_a_reserved_opcode_closes_the_connection_with_1002(
    server: Server, opcode: int, fin: bool
):
    with server.connect() as client:
        client.send(frame(opcode, b"", fin=fin))
        assert_fails(client, 1002)


@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, PONG, CLOSE])
def test_an_unmasked_websocket_frame_closes_the_connection_with_1002(server: Server, opcode: int):
    with server.connect() as client:
        client.send(frame(opcode, b"", mask=None))
        assert_fails(client, 1002)


def test_websocket_frames_before_a_bad_frame_are_answered(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"good"))
        assert client.read_text() == b"good"
        client.send(frame(3))
        assert_fails(client, 1002)


# Fragments


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_a_websocket_text_in_fragments_arrives_whole(server: Server, size: int):
    text = "zwei Möwen über dem Fjord ☁ 𝄞".encode()
    parts = [text[i : i + size] for i in range(0, len(text), size)] + [b""]
    with server.connect() as client:
        client.send(frame(TEXT, b"", fin=False) + b"".join(frame(CONTINUATION, part, fin=False) for part in parts))
        client.send(frame(CONTINUATION, b"") + frame(TEXT, b"next"))
        assert client.read_text() == text
        assert client.read_text() == b"next"


def test_a_binary_websocket_message_in_fragments_is_reported_to_the_handler_once(server: Server):
    with server.connect() as client:
        client.send(frame(BINARY, b"\xff", fin=False) + frame(CONTINUATION, b"\xfe", fin=False) + frame(CONTINUATION))
        client.send(frame(TEXT, b"next"))
        assert client.read_text() == b"binary"
        assert client.read_text() == b"next"


def test_a_websocket_ping_between_fragments_is_answered_before_the_message(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"a", fin=False) + frame(PING, b"!") + frame(CONTINUATION, b"b"))
        assert client.read_frame() == (PONG, b"!")
        assert client.read_text() == b"ab"


def test_a_websocket_close_between_fragments_is_answered_and_the_message_dropped(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"a", fin=False) + close_frame(1001))
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", 1001))]
        assert client.handler.closed() == (1001, "")


@pytest.mark.parametrize(
    "frames",
    [
        frame(CONTINUATION, b"from nowhere"),
        frame(CONTINUATION, b"from nowhere", fin=False),
        frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"),
        frame(TEXT, b"a", fin=False) + frame(TEXT, b"b", fin=False),
        frame(TEXT, b"a", fin=False) + frame(BINARY, b"b"),
        frame(BINARY, b"a", fin=False) + frame(TEXT, b"b"),
        frame(TEXT, b"a", fin=False) + frame(PING) + frame(TEXT, b"b"),
    ],
)
def test_websocket_fragments_out_of_order_close_the_connection_with_1002(server: Server, frames: bytes):
    with server.connect() as client:
        client.send(frames)
        client.finish()
        got = [(opcode, payload[:2]) for opcode, payload in client.read_to_end()]
        assert [item for item in got if item[0] != PONG] == [(CLOSE, struct.pack("!H", 1002))]


def test_a_websocket_continuation_frame_after_the_last_fragment_closes_the_connection_with_1002(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b"))
        assert client.read_text() == b"ab"
        client.send(frame(CONTINUATION, b"c"))
        assert_fails(client, 1002)


# UTF-8

VALID = {
    "greek": "κόσμε",
    "first of each length": "\0\x80\u0800\U00010000",
    "last of each length": "\x7f\u07ff\uffff\U0010ffff",
    "around the surrogates": "\ud7ff\ue000",
    "replacement": "\ufffd",
    "noncharacters": "\ufffe\uffff\ufdd0\U0001fffe",
    "byte order mark": "\ufeffa",
}
INVALID = {
    "lone continuation": b"\x80",
    "lone last continuation": b"\xbf",
    "continuations": b"\x80\xbf\x80",
    "lone start of two": b"\xc3 ",
    "lone start of three": b"\xe2\x82",
    "lone start of four": b"\xf0\x9d\x84",
    "overlong slash in two": b"\xc0\xaf",
    "overlong slash in three": b"\xe0\x80\xaf",
    "overlong slash in four": b"\xf0\x80\x80\xaf",
    "overlong nul": b"\xc0\x80",
    "overlong last of two": b"\xe0\x9f\xbf",
    "overlong last of three": b"\xf0\x8f\xbf\xbf",
    "first high surrogate": b"\xed\xa0\x80",
    "last low surrogate": b"\xed\xbf\xbf",
    "surrogate pair": b"\xed\xa0\x80\xed\xb0\x80",
    "beyond the last": b"\xf4\x90\x80\x80",
    "start of five": b"\xf8\x88\x80\x80\x80",
    "start of six": b"\xfc\x84\x80\x80\x80\x80",
    "fe": b"\xfe",
    "ff": b"\xff",
    "good, then bad": "κόσμε".encode() + b"\xed\xa0\x80" + b"edited",
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID.keys())
def test_valid_utf8_in_a_websocket_text_is_accepted_whole_and_split_anywhere(server: Server, text: str):
    encoded = text.encode()
    with server.connect() as client:
        client.send(frame(TEXT, encoded))
        assert client.read_text() == encoded
        for cut in range(len(encoded) + 1):
            client.send(frame(TEXT, encoded[:cut], fin=False) + frame(CONTINUATION, encoded[cut:]))
            assert client.read_text() == encoded


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID.keys())
def test_invalid_utf8_in_a_websocket_text_closes_the_connection_with_1007(server: Server, text: bytes):
    with server.connect() as client:
        client.send(frame(TEXT, text))
        assert_fails(client, 1007)


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID.keys())
def test_invalid_utf8_in_websocket_fragments_closes_the_connection_with_1007(server: Server, text: bytes):
    with server.connect() as client:
        client.send(frame(TEXT, text[:1], fin=False) + frame(PING) + frame(CONTINUATION, text[1:]))
        assert client.read_frame() == (PONG, b"")
        assert_fails(client, 1007)


# CLOSE


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, *range(1007, 1015), 3000, 3999, 4000, 4401, 4999])
def test_a_websocket_close_is_answered_with_its_own_code_and_the_connection_ends(server: Server, code: int):
    with server.connect() as client:
        client.send(close_frame(code, b"bye"))
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", code))]
        assert client.handler.closed() == (code, "bye")


@pytest.mark.parametrize("code", [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 1999, 2000, 2999, 5000, 65535])
def test_a_websocket_close_with_an_invalid_code_is_answered_with_1002(server: Server, code: int):
    with server.connect() as client:
        client.send(close_frame(code))
        assert_fails(client, 1002)


def test_an_empty_websocket_close_frame_is_answered_with_an_empty_one(server: Server):
    with server.connect() as client:
        client.send(frame(CLOSE))
        assert client.read_to_end() == [(CLOSE, b"")]
        assert client.handler.closed() == (1005, "")


def test_a_websocket_close_with_an_incomplete_code_is_answered_with_1002(server: Server):
    with server.connect() as client:
        client.send(frame(CLOSE, b"\x03"))
        assert_fails(client, 1002)


def test_the_longest_websocket_close_reason_is_accepted(server: Server):
    with server.connect() as client:
        client.send(close_frame(1000, b"x" * 123))
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", 1000))]
        assert client.handler.closed() == (1000, "x" * 123)


@pytest.mark.parametrize("reason", INVALID.values(), ids=INVALID.keys())
def test_a_websocket_close_reason_that_is_not_utf8_is_refused(server: Server, reason: bytes):
    with server.connect() as client:
        client.send(close_frame(1000, reason))
        assert_fails(client, 1007)


AFTER_CLOSE = {
    "text": frame(TEXT, b"late"),
    "ping": frame(PING),
    "another close": close_frame(1001),
    "bad opcode": frame(3),
    "noise": b"\xff" * 100,
}


@pytest.mark.parametrize("more", AFTER_CLOSE.values(), ids=AFTER_CLOSE.keys())
@pytest.mark.parametrize("code", [1000, 3003, 4000])
@pytest.mark.parametrize("apart", [True, False])
def test_websocket_frames_after_a_close_frame_are_not_processed(server: Server, more: bytes, code: int, apart: bool):
    with server.connect() as client:
        pieces = [close_frame(code, b"bye"), more] if apart else [close_frame(code, b"bye") + more]
        for piece in pieces:
            client.send(piece)
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", code))]
        assert client.handler.closed() == (code, "bye")
        assert (client.handler.texts, client.handler.signs_of_life) == (0, 0)


def test_a_websocket_text_directly_before_a_close_frame_is_processed(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"bye") + close_frame(1000))
        assert client.read_to_end() == [(TEXT, b"bye"), (CLOSE, struct.pack("!H", 1000))]
