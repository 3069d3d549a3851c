"""Connects per CPU second. There is no target; the figure shows how long a restart takes.

From the handshake to `presence.self`: token checked, session committed and written to the ledger, welcome sent. The
bare listener only answers the handshake.
"""

from __future__ import annotations

from bench.effort import Effort
from bench.load import Crowd, handshake, names, share
from bench.report import Figure, Result
from bench.server import bare, herenow

PEOPLE = 5_000


def run(effort: Effort) -> Result:
    people = effort.people(PEOPLE)
    ours, theirs, used = [], [], []
    for _ in range(effort.repeats):
        with herenow() as server, Crowd(server) as crowd:
            knocking = [handshake(user) for user in names(people)]
            cpu = server.cpu_seconds
            with share() as load:
                crowd.join(knocking, frames_each=2)
                crowd.settle(1.5)  # later ledger writes are part of the cost
            used.append(load.used)
            ours.append(people / (server.cpu_seconds - cpu))
        with bare("discard") as server, Crowd(server) as crowd:
            knocking = [handshake() for _ in range(people)]
            cpu = server.cpu_seconds
            crowd.join(knocking)
            theirs.append(people / (server.cpu_seconds - cpu))
    return Result(
        "arrive",
        [Figure("arrivals", "per server CPU s", ours, theirs)],
        [f"{people} people; share of the load's core {max(used):.2f}"],
    )
