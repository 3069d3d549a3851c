"""The server survives 100 000 seeded frames, valid and invalid, without growing."""

import gc
import random
import struct
from collections.abc import Callable

import psutil
from tests.transport import test_websocket_rig as rig
from tests.transport.test_websocket_rig import BINARY, CONTINUATION, PING, PONG, TEXT, Server, close_frame, frame

running, server = rig.running, rig.server

FRAMES = {"picows": 100_000, "websockets": 25_000}
PER_CONNECTION = 200  # few enough for the kernel to hold all answers: the client writes first and then reads
GROWTH = 24 * 2**20  # bytes; one leaked connection in ten would be more

Say = Callable[[random.Random], bytes]


def payload(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 5, 125, 126, 1000, 5000)))


RIGHT: tuple[Say, ...] = (
    lambda chance: frame(TEXT, payload(chance).hex().encode(), mask=chance.randbytes(4)),
    lambda chance: frame(TEXT, "ünïcödé 𝄞".encode(), mask=chance.randbytes(4)),
    lambda chance: frame(BINARY, payload(chance), mask=chance.randbytes(4)),
    lambda chance: frame(PING, chance.randbytes(chance.randrange(126))),
    lambda chance: frame(PONG, chance.randbytes(chance.randrange(126))),
    lambda chance: frame(TEXT, b"in ", fin=False) + frame(PING) + frame(CONTINUATION, b"parts"),
)
WRONG: tuple[Say, ...] = (
    lambda chance: chance.randbytes(chance.randrange(1, 50)),
    lambda chance: frame(TEXT, chance.randbytes(20), mask=chance.randbytes(4)),
    lambda chance: frame(chance.randrange(16), payload(chance), fin=chance.random() < 0.5, rsv=chance.randrange(8)),
    lambda chance: frame(chance.choice((TEXT, PING)), b"bare", mask=None),
    lambda chance: close_frame(chance.randrange(65536), chance.randbytes(chance.randrange(124))),
    lambda chance: bytes([0x80 | TEXT, 0xFF]) + struct.pack("!Q", chance.getrandbits(64)),
    lambda chance: frame(CONTINUATION, payload(chance)),
    lambda chance: frame(TEXT, b"never finished", fin=False),
)


def throw(server: Server, chance: random.Random, frames: int) -> None:
    for _ in range(frames // PER_CONNECTION):
        say = (chance.choice(WRONG if chance.random() < 0.005 else RIGHT)(chance) for _ in range(PER_CONNECTION))
        with server.connect() as client:
            client.send(b"".join(say))
            client.finish()
            while client.tcp.recv(2**20):
                pass


def test_a_hundred_thousand_random_websocket_frames_cause_no_crash_and_no_memory_growth(server: Server, caplog):
    chance = random.Random(20261115)
    process = psutil.Process()
    throw(server, chance, 20_000)  # so that every buffer and cache has its size
    gc.collect()
    before = process.memory_info().rss
    throw(server, chance, FRAMES[server.implementation])
    gc.collect()
    assert process.memory_info().rss - before < GROWTH
    with server.connect() as client:
        client.send(frame(TEXT, b"still there?"))
        assert client.read_text() == b"still there?"
        assert server.call(lambda: server.registry.count) == 1
    assert [record.getMessage() for record in caplog.records if record.levelname != "INFO"] == []
