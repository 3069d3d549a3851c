"""1 000 good users who change and watch each other, beside one abuser of each kind in turn: how late do changes come?

Good users change their mode at a fixed pace, whether or not earlier changes were delivered, and each is watched by some
others. A delivery takes from sending the frame of the change to reading it at a viewer; one that does not come within
`PATIENCE_FOR` counts as that. The abuser (`abuser`) is a process of its own on the core of the load, and one user.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.abuser import ALL
from bench.effort import Effort
from bench.load import Crowd, Http, handshake, masked, names, subscription, token
from bench.report import Figure, Result
from bench.server import ROOT, Server, herenow

GOOD = 1_000
WATCHED_BY = 5
STRIDE = 37
"""From one user who changes to the next: these have no viewer in common, who would get the second change later."""

EVERY = 0.01
"""Seconds between two changes."""

SETTLE = 3.0
"""Seconds after the abuser has begun: its burst is part of what is measured only in the second half."""

MEASURE = 8.0
PATIENCE_FOR = 5.0
MEDIAN, P99 = 5.0, 50.0
"""Milliseconds that are aimed at."""

MODES = tuple(masked(f'{{"type":"presence.set","mode":"{mode}"}}'.encode()) for mode in ("busy", "auto"))
_USER = re.compile(rb'"user_id":"(user\d+)"')


def run(effort: Effort) -> Result:
    figures: list[Figure] = []
    notes = [f"{WATCHED_BY} viewers of each good user, {1 / EVERY:.0f} changes per second"]
    kinds = ("no abuser", *ALL)
    with herenow(relations="open") as server, Crowd(server) as crowd:
        good = names(effort.people(GOOD))
        clients = crowd.join(map(handshake, good), frames_each=2)
        neighbours = [[good[(at + step) % len(good)] for step in range(1, WATCHED_BY + 1)] for at in range(len(good))]
        crowd.ask((client, subscription(users)) for client, users in zip(clients, neighbours, strict=True))
        changes = Changes(crowd, dict(zip(good, clients, strict=True)))
        for kind in kinds:
            pauses = _pauses(server)
            with _abuser(server, kind):
                changes.go_on(effort.seconds(SETTLE))
                before = server.cpu_seconds
                took = changes.go_on(effort.seconds(MEASURE))
                share = (server.cpu_seconds - before) / effort.seconds(MEASURE)
            figures.append(Figure(f"median, {kind}", "ms", [statistics.median(took)], at_most=MEDIAN))
            figures.append(Figure(f"p99, {kind}", "ms", [_p99(took)], at_most=P99))
            notes.append(
                f"{kind}: {len(took)} deliveries, {share:.2f} of the server's core, {_pauses(server) - pauses:.0f} pauses"
            )
    return Result("abuse", figures, notes)


class Changes:
    """Good users change in turn; takes the time of each delivery."""

    def __init__(self, crowd: Crowd, clients: dict[str, int]) -> None:
        self._crowd = crowd
        self._clients = clients
        self._users = list(clients)
        self._next = 0
        self._sent: dict[str, float] = {}
        self._left: dict[str, int] = {}
        self._took: list[float] = []
        for client in clients.values():
            crowd.listeners[client] = self._hear

    def go_on(self, seconds: float) -> list[float]:
        """Changes for so long and waits for the deliveries, at most `PATIENCE_FOR`. Returns their milliseconds."""
        self._took, self._sent, self._left = [], {}, {}
        started = time.monotonic()
        for number in range(round(seconds / EVERY)):
            self._crowd.settle(started + number * EVERY - time.monotonic())
            self._change()
        ends = time.monotonic() + PATIENCE_FOR
        while self._left and time.monotonic() < ends:
            self._crowd.read(0.05)
        return self._took + [PATIENCE_FOR * 1000] * sum(self._left.values())

    def _change(self) -> None:
        user = self._users[self._next * STRIDE % len(self._users)]
        mode = MODES[self._next // len(self._users) % len(MODES)]
        self._next += 1
        self._sent[user], self._left[user] = time.monotonic(), WATCHED_BY
        self._crowd.send(self._clients[user], mode)

    def _hear(self, frame: bytes) -> None:
        if frame.startswith(b'{"type":"presence.self"'):
            return
        now = time.monotonic()
        for found in _USER.findall(frame):
            user = found.decode()
            if user in self._left:
                self._took.append((now - self._sent[user]) * 1000)
                self._left[user] -= 1
                if not self._left[user]:
                    del self._left[user]


def _p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def _pauses(server: Server) -> float:
    """Times that the node has stopped reading from a client."""
    with Http(server, token("bench", scope="service")) as http:
        _, body = http.fetch(http.request("GET", "/metrics"))
    return sum(map(float, re.findall(r"^herenow_reading_pauses_total\{\S+ (\S+)$", body.decode(), re.MULTILINE)))


@contextmanager
def _abuser(server: Server, kind: str) -> Iterator[None]:
    if kind not in ALL:
        yield
        return
    command = [sys.executable, "-m", "bench.abuser", str(server.port), kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)
    assert process.stdin is not None
    try:
        process.stdin.write(token("abuser").encode() + b"\n")
        process.stdin.flush()
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the abuser ended with {process.returncode}")
    finally:
        process.stdin.close()
        process.wait()
