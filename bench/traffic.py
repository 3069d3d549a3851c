"""Network traffic of a connected idle user, including TCP and IP headers.

No user acts or changes: the traffic is heartbeats, pings and their answers. Measured once with clients that send
heartbeats, as the SDKs do, and once with clients that only answer pings, as a browser does for a sleeping page. The
kernel counts bytes and segments of each connection at the client's end. TLS, which adds 22 bytes to each frame, and
Ethernet headers are not included.
"""

from __future__ import annotations

import time

from bench.beats import BEAT
from bench.effort import Effort
from bench.load import Crowd, handshake, names, subscription
from bench.report import Figure, Result
from bench.server import herenow

PEOPLE = 300
WATCHED = 50
BEAT_EVERY = 30.0
"""The default."""
QUICK_BEAT_EVERY = 2.0
PERIODS = 2
AIM = 50.0


def run(effort: Effort) -> Result:
    every = QUICK_BEAT_EVERY if effort.quick else BEAT_EVERY
    beating = [_bytes_per_second(every, beats=True) for _ in range(effort.repeats)]
    silent = [_bytes_per_second(every, beats=False) for _ in range(effort.repeats)]
    unit = "bytes/s"
    return Result(
        "traffic",
        [
            Figure("an idle person whose client beats", unit, beating, at_most=AIM),
            Figure("an idle person whose client only answers pings", unit, silent, at_most=AIM),
        ],
        [
            f"{PEOPLE} people who watch {WATCHED} others, a beat every {every:g} s, looked at for {PERIODS} periods"
            + (f", counted as if it were {BEAT_EVERY:g} s" if every != BEAT_EVERY else "")
        ],
    )


def _bytes_per_second(every: float, *, beats: bool) -> float:
    """Scaled to a heartbeat every 30 s."""
    users = names(PEOPLE)
    with herenow(relations="open", beat_every=every, dead_after=3 * every) as server, Crowd(server) as crowd:
        clients = crowd.join(map(handshake, users), frames_each=2)
        crowd.ask(
            (client, subscription([users[(number + step) % PEOPLE] for step in range(1, WATCHED + 1)]))
            for number, client in enumerate(clients)
        )
        _pass(crowd, clients, every, beats=beats)
        before = sum(map(crowd.wire_bytes, clients))
        for _ in range(PERIODS):
            _pass(crowd, clients, every, beats=beats)
        crossed = sum(map(crowd.wire_bytes, clients)) - before
        return crossed / PEOPLE / (PERIODS * BEAT_EVERY)


def _pass(crowd: Crowd, clients: list[int], every: float, *, beats: bool) -> None:
    """One period; the heartbeats of all clients are spread over it."""
    start = time.monotonic()
    for number, client in enumerate(clients, 1):
        if beats:
            crowd.send(client, BEAT)
        crowd.settle(start + every * number / len(clients) - time.monotonic())
