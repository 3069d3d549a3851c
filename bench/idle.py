"""Whether an idle minute costs more with more idle users.

Clients connect, watch one another and then send nothing. First with a `beat_every` so long that no client is pinged
during the measurement: this cost must not grow with the users. Then with a short one: the difference is the cost of
pings and their answers, which replace each user's heartbeats.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.effort import Effort
from bench.load import Crowd, handshake, names, subscription
from bench.report import Figure, Result
from bench.server import herenow

PEOPLE = (0, 2_000, 8_000)
LOOK = 20.0
SETTLE = 5.0
UNPINGED = {"beat_every": 3600, "dead_after": 7200}
PINGED = {"beat_every": 5, "dead_after": 60}
MORE = 0.2
"""CPU seconds per minute, a third of a percent of a core: noise."""


@dataclass(frozen=True)
class Measured:
    cpu: float
    """CPU seconds per minute."""
    pings: float
    """Per minute."""


def run(effort: Effort) -> Result:
    crowds = [effort.people(people) for people in PEOPLE]
    quiet = {people: [_look(people, effort, UNPINGED).cpu for _ in range(effort.repeats)] for people in crowds}
    least, most = (crowds[1], crowds[-1])  # a node that never had a user has less to do, whatever the numbers
    more = statistics.median(quiet[most]) - statistics.median(quiet[least])
    pinged = [_look(most, effort, PINGED) for _ in range(effort.repeats)]
    per_ping = [(each.cpu - statistics.median(quiet[most])) / each.pings * 1e6 for each in pinged]
    unit = "CPU s per minute"
    return Result(
        "idle",
        [
            *(Figure(f"{people} people, nobody pinged", unit, cpu) for people, cpu in quiet.items()),
            Figure(f"{most} people more than {least}", unit, [more], at_most=MORE),
            Figure(f"{most} people, pinged every 5 s", unit, [each.cpu for each in pinged]),
            Figure("a ping and its answer", "CPU µs", per_ping),
        ],
        [
            f"looked for {effort.seconds(LOOK):g} s; {pinged[-1].pings:.0f} pings per minute where there are any, "
            "six times as many as by default"
        ],
    )


def _look(people: int, effort: Effort, settings: dict[str, int]) -> Measured:
    users = names(people)
    ring = [(user, users[(number + 1) % people]) for number, user in enumerate(users)]
    with herenow(ring, **settings) as server, Crowd(server) as crowd:
        clients = crowd.join(map(handshake, users), frames_each=2)
        crowd.ask((client, subscription([target])) for client, (_, target) in zip(clients, ring, strict=True))
        crowd.settle(effort.seconds(SETTLE))
        seconds = effort.seconds(LOOK)
        cpu, pings = server.cpu_seconds, crowd.pings
        crowd.settle(seconds)
        per_minute = 60 / seconds
        return Measured((server.cpu_seconds - cpu) * per_minute, (crowd.pings - pings) * per_minute)
