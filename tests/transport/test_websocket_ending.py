"""Every connection ends exactly once, in bounded time, and with the right code."""

import struct
from collections.abc import Iterator

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

from herenow.transport.websocket import Socket, SocketLimits

running, server = rig.running, rig.server


@pytest.fixture(scope="module", params=rig.IMPLEMENTATIONS)
def hasty(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with short time limits."""
    with Server(request.param, limits=SocketLimits(close_timeout=0.2, linger=0.1, high_water=20_000)) as server:
        yield server


def flood(server: Server, client: Client, *, until: int = 20_001) -> None:
    """Sends so much to a client that does not read that the kernel buffers are full and `until` bytes wait."""

    def send() -> None:
        while client.handler.socket.buffered() < until and client.handler.socket in server.registry:
            client.handler.socket.send_text(b"x" * 9_000)

    server.call(send)


# Close by the server


def test_a_websocket_close_by_the_server_completes_when_the_client_answers(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"!close 4409 signed out"))
        assert client.read_frame() == (CLOSE, struct.pack("!H", 4409) + b"signed out")
        assert client.handler._closed.empty()
        client.send(close_frame(4409))
        assert client.read_to_end() == []
        assert client.handler.closed() == (4409, "signed out")


def test_websocket_frames_received_after_the_server_sent_a_close_are_dropped(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"!close 1000"))
        client.send(frame(TEXT, b"more") + frame(PING) + frame(TEXT, b"half", fin=False) + frame(CONTINUATION, b"."))
        client.send(frame(BINARY) + close_frame(1000))
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", 1000))]
        assert client.handler.closed() == (1000, "")
        assert (client.handler.texts, client.handler.signs_of_life) == (1, 0)


def test_a_bad_websocket_frame_instead_of_the_answer_to_a_close_ends_the_connection(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"!close 1000"))
        assert client.read_frame() == (CLOSE, struct.pack("!H", 1000))
        client.send(frame(3))
        assert client.read_to_end() == []
        client.finish()
        assert client.handler.closed() == (1000, "")


def test_simultaneous_websocket_closes_of_server_and_client_are_reported_once(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"!close 1000 ours") + close_frame(1001, b"theirs"))
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", 1000) + b"ours")]
        assert client.handler.closed() == (1000, "ours")


@pytest.mark.parametrize(
    ("reason", "sent"),
    [("x" * 124, b"x" * 123), ("ä" * 62, "ä".encode() * 61), ("𝄞" * 31, "𝄞".encode() * 30), ("x" * 123, b"x" * 123)],
)
def test_a_too_long_websocket_close_reason_is_cut_between_characters(server: Server, reason: str, sent: bytes):
    with server.connect() as client:
        client.send(frame(TEXT, f"!close 1000 {reason}".encode()))
        assert client.read_frame() == (CLOSE, struct.pack("!H", 1000) + sent)


def test_an_aborted_websocket_sends_no_more_frames(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"!abort"))
        assert client.read_to_end() == []
        assert client.handler.closed() == (None, "")


def test_a_websocket_client_that_never_answers_a_close_is_disconnected(hasty: Server):
    with hasty.connect() as client:
        client.send(frame(TEXT, b"!close 1012 retry_after_ms=5"))
        assert client.handler.closed() == (1012, "retry_after_ms=5")
        assert client.read_to_end() == [(CLOSE, struct.pack("!H", 1012) + b"retry_after_ms=5")]


def test_closing_a_websocket_disconnects_a_client_that_does_not_read(hasty: Server):
    with hasty.connect(receive_buffer=4096) as client:
        flood(hasty, client)
        hasty.call(lambda: client.handler.socket.close(4408, "stuck"))
        assert client.handler.closed() == (4408, "stuck")


def test_a_websocket_handler_that_raises_an_error_closes_only_its_own_connection(server: Server, caplog):
    with server.connect() as other, server.connect() as client:
        client.send(frame(TEXT, b"!raise"))
        assert client.read_frame() == (CLOSE, struct.pack("!H", 1011) + b"internal error")
        other.send(frame(TEXT, b"still here"))
        assert other.read_text() == b"still here"
    assert "a defect of the handler" in caplog.text


def test_calls_on_a_closed_websocket_do_nothing(server: Server):
    with server.connect() as client:
        client.reset()
        client.handler.closed()

    def use() -> None:
        socket = client.handler.socket
        socket.send_text(b"small")
        socket.send_text(b"large" * 1000)
        socket.ping()
        socket.close(1000)
        socket.abort()
        assert socket.buffered() == 0

    server.call(use)
    assert client.handler._closed.empty()


# Close by the peer


def test_a_websocket_ended_without_a_close_frame_is_reported_without_a_close_code(server: Server):
    with server.connect() as client:
        client.finish()
        assert client.read_to_end() == []
        assert client.handler.closed() == (None, "")


def test_a_reset_websocket_is_reported_without_a_close_code(server: Server):
    with server.connect() as client:
        client.reset()
        assert client.handler.closed() == (None, "")


def _finish(client):
    client.finish()


def _reset(client):
    client.reset()


def _close(client):
    client.send(close_frame(1000))


def _close_and_finish(client):
    client.send(close_frame(1000))
    client.finish()


def _be_closed_and_finish(client):
    client.send(frame(TEXT, b"!close 1012 x"))
    client.read_frame()
    client.send(close_frame(1012))
    client.finish()


@pytest.mark.parametrize(
    ("leave", "said"), [(_finish, 1), (_close, 1), (_close_and_finish, 1), (_reset, 0), (_be_closed_and_finish, 0)]
)
def test_on_leaving_is_called_once_when_the_websocket_client_ends_the_connection(server: Server, leave, said: int):
    with server.connect() as client:
        leave(client)
        client.handler.closed()
        assert client.handler.leavings == said


def test_websocket_frames_sent_before_the_client_ends_the_connection_are_processed(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"a") + frame(TEXT, b"b"))
        client.finish()
        assert client.read_to_end() == [(TEXT, b"a"), (TEXT, b"b")]


@pytest.mark.parametrize("last", [b"", close_frame(1000)], ids=["fin", "close"])
def test_a_websocket_client_that_leaves_without_reading_is_closed_in_bounded_time(hasty: Server, last: bytes):
    with hasty.connect(receive_buffer=4096) as client:
        flood(hasty, client, until=1)
        client.send(last)
        client.finish()
        client.handler.closed()


@pytest.mark.parametrize("bad", [frame(3), frame(TEXT, b"\xff"), frame(CONTINUATION)], ids=["opcode", "utf8", "order"])
def test_a_client_that_breaks_the_websocket_protocol_and_stays_is_disconnected(hasty: Server, bad: bytes):
    with hasty.connect() as client:
        client.send(bad)
        assert client.handler.closed()[0] in (1002, 1007)
        assert len(client.read_to_end()) == 1


def test_a_client_that_sends_a_far_too_large_websocket_frame_gets_a_close_code_and_not_a_reset(server: Server):
    with server.connect() as client:
        client.send(frame(TEXT, b"x" * 3_000_000))  # far more than the kernel buffers hold
        assert client.read(4)[2:] == struct.pack("!H", 1009)
        client.finish()
        assert client.handler.closed()[0] == 1009


# Flow control


def test_a_websocket_client_that_reads_slowly_is_not_read_from_until_it_catches_up(hasty: Server):
    with hasty.connect(receive_buffer=4096) as client:
        flood(hasty, client)
        assert client.handler.next_flow() == "pause"
        client.send(frame(TEXT, b"asked meanwhile"))
        # Another connection has been read since; so this one would have been, too.
        with hasty.connect() as other:
            other.send(frame(PING))
            assert other.read_frame() == (PONG, b"")
        assert client.handler.texts == 0
        while client.read_text() != b"asked meanwhile":
            pass
        assert client.handler.next_flow() == "resume"


def test_a_websocket_whose_handler_raises_an_error_in_on_pause_is_closed(hasty: Server, caplog):
    def fail() -> None:
        raise RuntimeError("a defect when paused")

    with hasty.connect(receive_buffer=4096) as client:
        client.handler.on_pause = fail  # type: ignore[method-assign]
        flood(hasty, client)
        assert client.handler.closed() == (1011, "internal error")
    assert "a defect when paused" in caplog.text


# All sockets


@pytest.mark.parametrize("implementation", rig.IMPLEMENTATIONS)
def test_all_websockets_can_be_closed_with_individual_reasons_and_awaited(implementation: str):
    with Server(implementation) as server:
        waits = iter(range(100, 200))
        clients = [server.connect() for _ in range(10)]
        assert server.call(lambda: server.registry.count) == 10

        def close_all() -> None:
            for each in server.registry:
                each.close(1012, f"retry_after_ms={next(waits)}")

        server.call(close_all)
        reasons = set()
        for client in clients:
            [(opcode, payload)] = [client.read_frame() or (0, b"")]
            assert (opcode, payload[:2]) == (CLOSE, struct.pack("!H", 1012))
            reasons.add(payload[2:].decode())
            assert server.call(lambda: server.registry.count)
            client.send(frame(CLOSE, payload[:2]))
            assert client.read_to_end() == []
            client.tcp.close()
        assert reasons == {f"retry_after_ms={n}" for n in range(100, 110)}
        server.until_empty()


def test_all_websockets_of_a_server_can_be_aborted(server: Server):
    with server.connect():
        server.call(server.registry.abort_all)
        server.until_empty()


def test_the_registry_of_websockets_contains_exactly_the_open_ones(server: Server):
    with server.connect() as client:
        socket: Socket = client.handler.socket
        assert server.call(lambda: socket in list(server.registry))
        client.reset()
        client.handler.closed()
        assert server.call(lambda: socket not in list(server.registry))
