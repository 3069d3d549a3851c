"""Does an idle minute cost more when more people are idle?

Clients connect, watch one another and then say nothing. Twice: with a `beat_every` so long that nobody is pinged while
we look, where the cost may not grow with the people; and with the default one, where every silent client is pinged
twice a minute, which is its own beat.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.effort import Effort
from bench.load import Crowd, handshake, names, subscription
from bench.report import Figure, Result
from bench.server import herenow

PEOPLE = (0, 2_000, 8_000)
LOOK = 20.0
SETTLE = 5.0
UNPINGED = {"beat_every": 3600, "dead_after": 7200}
MORE = 0.2
"""CPU seconds per minute that eight thousand idle people may cost at the most: noise."""


@dataclass(frozen=True)
class Measured:
    cpu: float
    """Seconds per minute."""
    pings: float
    """Per minute."""


def run(effort: Effort) -> Result:
    crowds = [effort.people(people) for people in PEOPLE]
    figures: list[Figure] = []
    base: list[float] = []
    for people in crowds:
        quiet = [_look(people, effort, UNPINGED).cpu for _ in range(effort.repeats)]
        base = base or quiet
        figures.append(Figure(f"{people} people, nobody pinged", "CPU s per minute", quiet))
    more = [most - least for most, least in zip(figures[-1].ours, base, strict=True)]
    figures.append(
        Figure(f"{crowds[-1]} people more than {crowds[0]}", "CPU s per minute", more, at_most=MORE)
    )
    notes = []
    for people in crowds[1:]:
        pinged = [_look(people, effort, {}) for _ in range(effort.repeats)]
        figures.append(
            Figure(f"{people} people, default settings", "CPU s per minute", [each.cpu for each in pinged])
        )
        notes.append(f"{people} people by default: {pinged[-1].pings:.0f} pings per minute, answered")
    return Result("idle", figures, notes)


def _look(people: int, effort: Effort, settings: dict[str, int]) -> Measured:
    users = names(people)
    ring = [(user, users[(number + 1) % people]) for number, user in enumerate(users)]
    with herenow(ring, **settings) as server, Crowd(server) as crowd:
        clients = crowd.join(map(handshake, users), frames_each=2)
        goal = crowd.frames + people
        for client, (_, target) in zip(clients, ring, strict=True):
            crowd.send(client, subscription([target]))
            crowd.read()
        crowd.until(lambda: crowd.frames >= goal)
        crowd.settle(effort.seconds(SETTLE))
        seconds = effort.seconds(LOOK)
        cpu, pings = server.cpu_seconds, crowd.pings
        crowd.settle(seconds)
        per_minute = 60 / seconds
        return Measured((server.cpu_seconds - cpu) * per_minute, (crowd.pings - pings) * per_minute)
