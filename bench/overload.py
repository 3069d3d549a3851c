"""A node with more requests than it can answer: its delay, which changes it sheds, and which are still delivered.

More and more processes read a thousand users at a time (`bulk_load`). At each stage the node's own delay and level are
read from its metrics, and a user hides and returns: the time until a viewer has received it, including request and
answer, is the delay of online and offline changes. Then the load stops, and the node has recovered when it sheds
nothing any more.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.effort import Effort
from bench.load import PATIENCE, Crowd, Http, handshake, masked, subscription, token
from bench.report import Figure, Result
from bench.server import ROOT, Server, herenow

CONNECTIONS = 100
"""Of each process."""

STAGES = 5
SETTLE = 4.0
"""Seconds until a stage is stable."""

ROUNDS = 3
MODES = tuple(masked(f'{{"type":"presence.set","mode":"{mode}"}}'.encode()) for mode in ("invisible", "auto"))


def run(effort: Effort) -> Result:
    figures: list[Figure] = []
    notes: list[str] = []
    with herenow(relations="open") as server, Crowd(server) as crowd:
        target, viewer = crowd.join(map(handshake, ("target", "viewer")), frames_each=2)
        crowd.ask([(viewer, subscription(["target"]))])
        with _busy(server) as busy:
            for stage in range(effort.rounds(STAGES) + 1):
                if stage:
                    next(busy)
                    crowd.settle(SETTLE)
                came = _come_and_go(crowd, target, viewer)
                late, level, given_up = _measured(server)
                figures.append(Figure(f"coming and going, {stage * CONNECTIONS} bulk readers", "s", [max(came)]))
                notes.append(
                    f"{stage * CONNECTIONS} bulk readers: {late:.2f} s late, level {level:.0f}, {given_up:.0f} given up"
                )
        started = time.monotonic()
        while _measured(server)[1]:
            crowd.settle(0.1)
        figures.append(Figure("until it gives up nothing any more", "s", [time.monotonic() - started]))
    return Result("overload", figures, notes)


def _come_and_go(crowd: Crowd, target: int, viewer: int) -> list[float]:
    took = []
    heard: list[bytes] = []
    crowd.listeners[viewer] = heard.append
    for mode in MODES * ROUNDS:
        heard.clear()
        started = time.monotonic()
        crowd.send(target, mode)
        crowd.until(lambda: bool(heard))
        took.append(time.monotonic() - started)
        crowd.settle(0.1)
    return took


def _measured(server: Server) -> tuple[float, float, float]:
    """(delay, level, changes shed since the start)"""
    with Http(server, token("bench", scope="service"), patience=PATIENCE) as http:
        _, body = http.fetch(http.request("GET", "/metrics"))
    found = dict(re.findall(r"^(herenow_(?:loop|given)\w+) (\S+)$", body.decode(), re.MULTILINE))
    given_up = re.findall(r"^herenow_given_up_total\{\S+ (\S+)$", body.decode(), re.MULTILINE)
    return (
        float(found["herenow_loop_late_seconds"]),
        float(found["herenow_given_up_level"]),
        sum(map(float, given_up)),
    )


@contextmanager
def _busy(server: Server) -> Iterator[Iterator[None]]:
    """Starts one more process at each step; all are stopped at the end of the block."""
    processes: list[subprocess.Popen[bytes]] = []

    def grow() -> Iterator[None]:
        while True:
            command = [sys.executable, "-m", "bench.bulk_load", str(server.port), str(CONNECTIONS)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)
            processes.append(process)
            assert process.stdin is not None
            process.stdin.write(token("bench", scope="service").encode() + b"\n")
            process.stdin.flush()
            yield

    try:
        yield grow()
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            process.wait()
