"""A WebSocket that is not read from: its frames wait in order, others are served, and it can still be closed."""

from __future__ import annotations

import contextlib
import struct
import time

import pytest
from tests.transport.test_websocket_rig import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PATIENCE,
    PING,
    PONG,
    TEXT,
    Client,
    Echo,
    Server,
    close_frame,
    frame,
    running,
    server,
)

from herenow.transport.websocket import Accept, Pause
from herenow.transport.websocket.framing import MOST_IGNORED

__all__ = ["running", "server"]

MB = 1_000_000


class Pausing(Echo):
    """Pauses reading with each text `!pause`, inside the callback; the test resumes."""

    def on_text(self, payload: bytes) -> None:
        super().on_text(payload)
        if payload == b"!pause":
            self.socket.pause_reading(Pause.BUDGET)

    def resume(self) -> None:
        self.socket.resume_reading(Pause.BUDGET)


@pytest.fixture
def pausing(server: Server) -> Server:
    server.acceptor = lambda _upgrade: Accept(Pausing(server))
    return server


def texts(*payloads: bytes) -> bytes:
    return b"".join(frame(TEXT, payload) for payload in payloads)


def served(server: Server) -> None:
    """Returns when another client was served: what was received before was processed as far as it will be."""
    with server.connect() as other:
        for number in range(20):
            other.send(texts(b"%d" % number))
            assert other.read_text() == b"%d" % number


def resume(server: Server, client: Client) -> None:
    handler = client.handler
    assert isinstance(handler, Pausing)
    server.call(handler.resume)


def test_frames_after_a_pause_wait_while_another_client_is_served_and_come_in_order(pausing: Server) -> None:
    said = [b"%d" % number for number in range(100)]
    with pausing.connect() as client:
        client.send(texts(b"before", b"!pause", *said[:50]))
        served(pausing)
        client.send(texts(*said[50:]))
        served(pausing)
        assert client.handler.texts == 2
        resume(pausing, client)
        assert [client.read_text() for _ in range(102)] == [b"before", b"!pause", *said]


def test_the_send_buffer_of_a_client_that_is_not_read_fills_and_everything_is_read_after_the_pause(
    pausing: Server,
) -> None:
    with pausing.connect() as client:
        client.send(texts(b"!pause"))
        assert client.read_text() == b"!pause"
        client.tcp.setblocking(False)
        data, sent = frame(BINARY, b"x" * 60_000), 0
        refused_at = None
        while refused_at != sent:  # twice the same: nothing was read in between
            refused_at = sent
            with contextlib.suppress(BlockingIOError):
                while sent < 100 * MB:
                    sent += client.tcp.send(data[sent % len(data) :])
            served(pausing)
        assert sent < 100 * MB
        assert client.handler.other_frames == 0
        client.tcp.settimeout(PATIENCE)
        resume(pausing, client)
        client.send(data[sent % len(data) :] + texts(b"last"))
        while (got := client.read_text()) == b"binary":
            pass
        assert got == b"last"
        assert client.handler.other_frames == sent // len(data) + 1


def test_every_pause_needs_its_own_end(pausing: Server) -> None:
    with pausing.connect() as client:
        client.send(texts(b"!pause", b"waits"))
        assert client.read_text() == b"!pause"
        pausing.call(lambda: client.handler.socket.pause_reading(Pause.COMMANDS))
        resume(pausing, client)
        served(pausing)
        assert client.handler.texts == 1
        pausing.call(lambda: client.handler.socket.resume_reading(Pause.COMMANDS))
        assert client.read_text() == b"waits"


def test_a_pause_that_ends_inside_the_callback_lets_another_client_in_between(pausing: Server) -> None:
    class OneAtATime(Echo):
        def on_text(self, payload: bytes) -> None:
            super().on_text(payload)
            self.socket.pause_reading(Pause.ITERATION)
            self.socket.resume_reading(Pause.ITERATION)

    pausing.acceptor = lambda _upgrade: Accept(OneAtATime(pausing))
    said = [b"%d" % number for number in range(300)]
    with pausing.connect() as client:
        client.send(texts(*said))
        assert [client.read_text() for _ in said] == said


def test_a_fragmented_message_may_be_interrupted_by_a_pause(pausing: Server) -> None:
    with pausing.connect() as client:
        client.send(
            frame(TEXT, b"!pau", fin=False)
            + frame(CONTINUATION, b"se")
            + frame(TEXT, b"on", fin=False)
            + frame(PING, b"!")
            + frame(CONTINUATION, b"e")
        )
        assert client.read_text() == b"!pause"
        served(pausing)
        assert client.handler.signs_of_life == 0
        resume(pausing, client)
        assert client.read_frame() == (PONG, b"!")
        assert client.read_text() == b"one"
        assert client.handler.other_frames == 5


def test_a_close_of_the_client_during_a_pause_is_answered_after_it(pausing: Server) -> None:
    with pausing.connect() as client:
        client.send(texts(b"!pause", b"last") + close_frame(1000))
        assert client.read_text() == b"!pause"
        served(pausing)
        resume(pausing, client)
        assert client.read_to_end() == [(TEXT, b"last"), (CLOSE, struct.pack("!H", 1000))]
        assert client.handler.closed() == (1000, "")


@pytest.mark.parametrize("early", [True, False])
def test_a_close_of_the_server_ends_a_pause(pausing: Server, early: bool) -> None:
    with pausing.connect() as client:
        answer = close_frame(1012)
        client.send(texts(b"!pause", b"never") + (answer if early else b""))
        assert client.read_text() == b"!pause"
        served(pausing)
        pausing.call(lambda: client.handler.socket.close(1012, "later"))
        assert client.read_frame() == (CLOSE, struct.pack("!H", 1012) + b"later")
        if not early:
            client.send(answer)
        assert client.read_frame() is None
        assert client.handler.closed() == (1012, "later")
        assert client.handler.texts == 1


def test_a_malformed_frame_during_a_pause_closes_the_connection(pausing: Server) -> None:
    with pausing.connect() as client:
        client.send(texts(b"!pause", b"never") + frame(TEXT, b"x", rsv=7))
        assert client.read_text() == b"!pause"
        resume(pausing, client)
        got = client.read_to_end()
        assert got[-1][0] == CLOSE
        assert got[-1][1].startswith(struct.pack("!H", 1002))


def test_an_error_of_the_handler_in_a_frame_that_waited_closes_its_connection(pausing: Server) -> None:
    with pausing.connect() as client:
        client.send(texts(b"!pause", b"!raise"))
        assert client.read_text() == b"!pause"
        resume(pausing, client)
        assert client.read_frame() == (CLOSE, struct.pack("!H", 1011) + b"internal error")


def test_a_reset_connection_that_is_not_read_is_freed_when_the_pause_ends(pausing: Server) -> None:
    with pausing.connect() as client:
        client.send(texts(b"!pause"))
        assert client.read_text() == b"!pause"
        client.reset()
        resume(pausing, client)
        assert client.handler.closed() == (None, "")
        resume(pausing, client)
        pausing.until_empty()


def test_a_client_that_sends_on_after_the_servers_close_is_read_for_a_thousand_frames_only(pausing: Server) -> None:
    with pausing.connect() as client:
        client.send(texts(b"!close 4400 enough"))
        assert client.read_frame() == (CLOSE, struct.pack("!H", 4400) + b"enough")
        socket = client.handler.socket
        client.tcp.settimeout(3)  # longer than a busy machine takes to read the first thousand
        with contextlib.suppress(TimeoutError):
            for _ in range(100):
                client.send(frame(BINARY, b"x" * 1_000) * 1_000)
            pytest.fail("the server read 100 MB")
        ends = time.monotonic() + PATIENCE
        while pausing.call(lambda: socket._ignored) < MOST_IGNORED:  # type: ignore[attr-defined]
            assert time.monotonic() < ends
        # and at most the frames of the read buffer, of 100 000 that were offered
        assert pausing.call(lambda: socket._ignored) < 10 * MOST_IGNORED  # type: ignore[attr-defined]
