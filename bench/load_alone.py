"""The speed of the load itself. If it were the bottleneck, every other figure would be one of the load.

The load reads frames that lie ready in a thousand TCP connections, as after a fan-out; it writes heartbeats to a
thousand connections that are emptied outside the measurement; it connects to the bare listener. Each is counted per CPU
second of the load, beside what the fastest server, the bare listener, does in one of its own.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from functools import partial

from bench.beats import BEAT
from bench.effort import Effort
from bench.fan_out import bare_crowd
from bench.load import Crowd, handshake
from bench.report import Figure, Result
from bench.server import Server, bare

CONNECTIONS = 1_000
ROUNDS = 40
CONNECTS = 5_000
PAYLOAD = b"x" * 200
FRAME = b"\x81\x7e" + len(PAYLOAD).to_bytes(2, "big") + PAYLOAD
"""As long as a status frame."""


def run(effort: Effort) -> Result:
    figures: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("read", "write", "connect")}
    rounds, connects = effort.rounds(ROUNDS), effort.people(CONNECTS)
    for _ in range(effort.repeats):
        read, write = _alone(rounds)
        sent = _bare_sends(rounds)
        connect, accepted = _connects(connects)
        for name, ours, theirs in (("read", read, sent), ("write", write, sent), ("connect", connect, accepted)):
            figures[name][0].append(ours)
            figures[name][1].append(theirs)
    said = {
        "read": ("frames of 200 bytes read, against sent by the bare listener", "per CPU s"),
        "write": ("heartbeats written, against the same", "per CPU s"),
        "connect": ("handshakes made, against answered by the bare listener", "per CPU s of its own"),
    }
    return Result(
        "load",
        [Figure(*said[name], ours, theirs) for name, (ours, theirs) in figures.items()],
        [f"{CONNECTIONS} connections, one frame per read; left the load, right the server: above 1 the load is faster"],
    )


def _alone(rounds: int) -> tuple[float, float]:
    """(frames read, frames written) per CPU second of this process."""
    with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as listening, Crowd(Server(0, 0)) as crowd:
        others, clients = [], []
        for _ in range(CONNECTIONS):
            client = socket.create_connection(listening.getsockname())
            others.append(listening.accept()[0])
            clients.append(crowd.adopt(client))
        read = write = 0.0
        for _ in range(rounds):
            for other in others:
                other.send(FRAME)
            goal = crowd.frames + CONNECTIONS
            read += _cpu(partial(crowd.until_frames, goal))
            write += _cpu(partial(crowd.send_all, clients, BEAT))
            for other in others:
                os.read(other.fileno(), 4096)
        for other in others:
            other.close()
    return CONNECTIONS * rounds / read, CONNECTIONS * rounds / write


def _cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _bare_sends(rounds: int) -> float:
    with bare_crowd(CONNECTIONS, PAYLOAD) as (server, crowd, change):
        before = server.cpu_seconds
        for _ in range(rounds):
            goal = crowd.frames + CONNECTIONS
            change()
            time.sleep(0.03)
            crowd.until_frames(goal)
        return CONNECTIONS * rounds / (server.cpu_seconds - before)


def _connects(count: int) -> tuple[float, float]:
    with bare("discard") as server, Crowd(server) as crowd:
        knocking = [handshake() for _ in range(count)]
        before = server.cpu_seconds
        used = _cpu(partial(crowd.join, knocking))
        return count / used, count / (server.cpu_seconds - before)
