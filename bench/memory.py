"""Resident memory of a connected, subscribed, idle user.

Read before any user is connected, and when all are connected and idle. Each user watches the next one, ten or fifty of
a ring, so every user is watched as well. Kernel memory per socket is not included.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.effort import Effort
from bench.load import Crowd, handshake, names, subscription
from bench.report import Figure, Result
from bench.server import Server, bare, herenow

PEOPLE = 10_000
SETTLE = 4.0
"""Seconds until the ledger has been written and garbage collected."""


def run(effort: Effort) -> Result:
    people = effort.people(PEOPLE)
    theirs = [_bare(people, effort) for _ in range(effort.repeats)]
    one = [_herenow(people, 1, effort) for _ in range(effort.repeats)]
    ten = [_herenow(people, 10, effort) for _ in range(effort.repeats)]
    fifty = [_herenow(people, 50, effort) for _ in range(effort.repeats)]
    unit = "KB per user"
    return Result(
        "memory",
        [
            Figure("connected, watching 1", unit, one, theirs, at_most=12.0, less_is_better=True),
            Figure("connected, watching 10", unit, ten, theirs, less_is_better=True),
            Figure("connected, watching 50", unit, fifty, theirs, at_most=11.0, less_is_better=True),
        ],
        [f"{people} people; 1 KB is 1024 bytes; the bare listener's clients are only connected"],
    )


def _bare(people: int, effort: Effort) -> float:
    with bare("discard") as server, Crowd(server) as crowd:
        before = server.resident_bytes
        crowd.join(handshake() for _ in range(people))
        crowd.settle(effort.seconds(SETTLE))
        return _per_user(server, before, people)


def _herenow(people: int, targets: int, effort: Effort) -> float:
    with herenow(_ring(people, targets)) as server, Crowd(server) as crowd:
        before = server.resident_bytes
        users = names(people)
        clients = crowd.join(map(handshake, users), frames_each=2)
        crowd.ask(
            (client, subscription([users[(number + step) % people] for step in range(1, targets + 1)]))
            for number, client in enumerate(clients)
        )
        crowd.settle(effort.seconds(SETTLE))
        return _per_user(server, before, people)


def _per_user(server: Server, before: int, people: int) -> float:
    return (server.resident_bytes - before) / people / 1024


def _ring(people: int, targets: int) -> Iterator[tuple[str, str]]:
    users = names(people)
    for number, user in enumerate(users):
        for step in range(1, targets + 1):
            yield user, users[(number + step) % people]
