"""Whether changes are delivered later while the ledger is down.

A node on PostgreSQL, with users who change and viewers of all of them. The ledger is up, frozen (SIGSTOP: it accepts
connections and never answers) and gone (kill -9: connections are refused), a few seconds each, alternating. The figure
is the 99th percentile of the time from a change leaving one socket to its arrival at another, by the load's clock,
including the first moments of an outage. Each phase is compared with the one just before, and the median of these
ratios is reported, so that other load of the machine affects both of a pair, or only some pairs.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from tests.postgres_server import PostgresServer

from bench import machine
from bench.effort import Effort
from bench.fan_out import MODES
from bench.load import Crowd, Http, handshake, names, share, subscription, token
from bench.report import Figure, Result
from bench.server import Server, herenow

VIEWERS = 200
TARGETS = 200
WATCHED = 20
"""Viewers whose frames are parsed, not only counted."""

STEP = 0.005
"""Seconds between two changes; each user changes once a second."""

WARM_UP = 3.0
TURN = 2.0
TURNS = 20
REST = 0.3
WELL_WITHIN = 30.0


def run(effort: Effort) -> Result:
    up: list[float] = []
    used = 0.0
    ratios: dict[str, list[float]] = {"frozen": [], "gone": []}
    for _ in range(effort.repeats):
        pairs, used = _measured(effort)
        up.append(statistics.median(before for each in pairs.values() for before, _ in each))
        for how, each in pairs.items():
            ratios[how].append(statistics.median(during / before for before, during in each))
    figures = [Figure("change to socket, p99, ledger up", "ms", up)]
    figures += [Figure(f"the same while it is {how}", "times", each, at_most=1.1) for how, each in ratios.items()]
    return Result(
        "ledger-down",
        figures,
        [
            f"{TARGETS} people change once a second, {VIEWERS} watch all of them; "
            f"{effort.rounds(TURNS)} turns of each kind, {effort.seconds(TURN):g} s; share of the load's core {used:.2f}"
        ],
    )


def _measured(effort: Effort) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """Kind of outage → 99th percentiles in milliseconds, (up, down) of each pair of phases."""
    watching, changing = names(VIEWERS), names(TARGETS, "target")
    pairs: dict[str, list[tuple[float, float]]] = {"frozen": [], "gone": []}
    postgres = PostgresServer(quick=False)
    try:
        postgres.make().start()
        machine.pin(postgres.pid, machine.cores().load)  # it is small beside the load, and must not use the node's core
        with herenow(itertools.product(watching, changing), ledger=postgres.url()) as server, Crowd(server) as crowd:
            targets = crowd.join(map(handshake, changing), frames_each=2)
            clients = crowd.join(map(handshake, watching), frames_each=2)
            crowd.ask((client, subscription(changing)) for client in clients)
            watch = Watch(crowd, dict(zip(changing, targets, strict=True)), clients)
            watch.run(effort.seconds(WARM_UP))
            with share() as load:
                for _ in range(effort.rounds(TURNS)):
                    for how, down, again in _ways(postgres):
                        before = _p99(watch.run(effort.seconds(TURN)))
                        crowd.settle(REST)  # pending work must not wait for the next step
                        down()
                        pairs[how].append((before, _p99(watch.run(effort.seconds(TURN)))))
                        again()
                        _wait_until_well(server, crowd)
            return pairs, load.used
    finally:
        postgres.close()


def _ways(postgres: PostgresServer) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    return [("frozen", postgres.freeze, postgres.thaw), ("gone", postgres.kill, postgres.start)]


class Watch:
    """Changes users, and measures the time until viewers have received it."""

    def __init__(self, crowd: Crowd, targets: dict[str, int], viewers: list[int]) -> None:
        self._crowd = crowd
        self._changes = itertools.cycle([(user, socket, mode) for mode in MODES for user, socket in targets.items()])
        self._sent: dict[str, float] = {}
        self._late: list[float] = []
        for viewer in viewers[:: max(1, len(viewers) // WATCHED)]:
            crowd.listeners[viewer] = self._look

    def run(self, seconds: float) -> list[float]:
        """Milliseconds."""
        late: list[float] = []
        self._late = late
        start, steps = time.monotonic(), round(seconds / STEP)
        for step, (user, socket, change) in enumerate(itertools.islice(self._changes, steps)):
            self._sent[user] = time.monotonic()
            self._crowd.send(socket, change)
            self._crowd.settle(start + (step + 1) * STEP - time.monotonic())
        return late

    def _look(self, payload: bytes) -> None:
        now = time.monotonic()
        frame = msgspec.json.decode(payload, type=_Frame)
        told = [each.user_id for each in frame.statuses]
        for user in told or [frame.user_id]:
            if user in self._sent:
                self._late.append((now - self._sent[user]) * 1000)


class _Status(msgspec.Struct):
    user_id: str


class _Frame(msgspec.Struct):
    user_id: str = ""
    statuses: list[_Status] = []


def _wait_until_well(server: Server, crowd: Crowd) -> None:
    """Wait until the backlog is written and the node reports nothing degraded."""
    until = time.monotonic() + WELL_WITHIN
    while time.monotonic() < until:
        crowd.settle(0.3)
        with suppress(OSError), Http(server, token("bench", scope="service")) as http:
            _, body = http.fetch(http.request("GET", "/readyz"))
            if b'"degraded":[]' in body:
                return
    raise RuntimeError("the node did not recover")


def _p99(late: list[float]) -> float:
    return sorted(late)[len(late) * 99 // 100]
