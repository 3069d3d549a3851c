"""How cost grows with the number of users: the same activity at one, two, four and eight times as many.

Every user watches twenty others and changes six times a minute. With linear growth a user costs the same at each size:
CPU time of the node per user and minute, memory per user, and delay of a change.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from random import Random

from bench.city import Eyes
from bench.effort import Effort
from bench.fan_out import MODES
from bench.load import Crowd, handshake, names, share, subscription
from bench.report import Figure, Line, Result
from bench.server import herenow

PEOPLE = 1_000
TIMES = (1, 2, 4, 8)
WATCHED = 20
CHANGES = 0.1
"""Per user and second."""
WARM_UP = 3.0
MEASURE = 8.0
STEP = 0.02
MORE = 1.25
"""A user may cost at most this many times as much among eight times as many users."""


@dataclass(frozen=True)
class Cost:
    cpu: float
    """Milliseconds per user and minute."""
    memory: float
    """KB per user."""
    p99: float
    """Milliseconds."""
    load: float


def run(effort: Effort) -> Result:
    sizes = [effort.people(PEOPLE * times) for times in TIMES]
    costs = {size: [_measure(size, effort) for _ in range(effort.repeats)] for size in sizes}
    cpu = {size: [each.cpu for each in found] for size, found in costs.items()}
    memory = {size: [each.memory for each in found] for size, found in costs.items()}
    late = {size: [each.p99 for each in found] for size, found in costs.items()}
    least, most = sizes[0], sizes[-1]
    more = statistics.median(cpu[most]) / statistics.median(cpu[least])
    figures = [
        *(Figure(f"{size} people, each", "CPU ms per minute", found) for size, found in cpu.items()),
        Figure(f"a person among {most} by one among {least}", "times", [more], at_most=MORE),
        *(Figure(f"{size} people, each", "KB", found) for size, found in memory.items()),
        *(Figure(f"{size} people, change to viewer, p99", "ms", found) for size, found in late.items()),
    ]
    return Result(
        "growth",
        figures,
        [
            f"each watches {WATCHED} and changes {CHANGES * 60:g} times a minute",
            "share of the load's core: "
            + ", ".join(f"{max(each.load for each in found):.2f}" for found in costs.values()),
        ],
        lines=[
            _line("CPU", "ms per person and minute", cpu),
            _line("memory", "KB per person", memory),
            _line("change to viewer, p99", "ms", late),
        ],
    )


def _line(name: str, unit: str, found: dict[int, list[float]]) -> Line:
    return Line(name, "people", unit, [(size, statistics.median(each)) for size, each in found.items()])


def _measure(people: int, effort: Effort) -> Cost:
    users, dice = names(people), Random(7)
    watched = [[users[(number + step) % people] for step in range(1, WATCHED + 1)] for number in range(people)]
    with herenow(relations="open") as server, Crowd(server) as crowd:
        before = server.resident_bytes
        clients = crowd.join(map(handshake, users), frames_each=2)
        crowd.ask((client, subscription(targets)) for client, targets in zip(clients, watched, strict=True))
        crowd.settle(effort.seconds(WARM_UP))
        memory = (server.resident_bytes - before) / people / 1024
        eyes = Eyes(crowd, clients[:: max(1, people // 100)])
        _live(crowd, clients, dice, effort.seconds(WARM_UP))
        eyes.late.clear()
        cpu = server.cpu_seconds
        with share() as load:
            _live(crowd, clients, dice, effort.seconds(MEASURE))
        cpu = server.cpu_seconds - cpu
        late = sorted(eyes.late)
        return Cost(cpu * 1000 / people * 60 / load.seconds, memory, late[len(late) * 99 // 100], load.used)


def _live(crowd: Crowd, clients: list[int], dice: Random, seconds: float) -> None:
    """Users become busy and free again, in random order at an even pace."""
    start, made = time.monotonic(), 0
    busy = 0
    for step in range(1, round(seconds / STEP) + 1):
        while made < len(clients) * CHANGES * step * STEP:
            crowd.send(dice.choice(clients), MODES[busy])
            busy ^= 1
            made += 1
        crowd.settle(start + step * STEP - time.monotonic())
