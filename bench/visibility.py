"""Cost of visibility decisions, and how fast a visibility change takes effect.

Decisions are measured in this process on known facts, in microseconds of CPU time: all viewers of one user at once, as
when the user changes a setting, and single pairs. The change is measured on a whole node: a user with many viewers
changes to `nobody` and back to `contacts`, from the request to the last frame.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from bench.effort import Effort
from bench.fan_out import STAR, watched_star
from bench.load import Crowd, Http, token
from bench.report import Figure, Result
from bench.server import Server
from herenow.core.visibility import Block, Preferences, Visibility
from herenow.node.access.pair_facts import PairFacts, pair_fact
from herenow.ports import Relation

VIEWERS = 1_000
DECISIONS = 200
CHANGES = 10
NOW = 1_700_000_000_000


def run(effort: Effort) -> Result:
    rounds = effort.rounds(DECISIONS)
    known, viewers = _known(VIEWERS)
    at_once, alone, took = [], [], []
    for _ in range(effort.repeats):
        at_once.append(_microseconds(lambda: known.sights_of(STAR, viewers, NOW), rounds) / VIEWERS)
        alone.append(_microseconds(lambda: _one_by_one(known, viewers), rounds) / VIEWERS)
        with watched_star(VIEWERS) as (server, crowd, _change, _frame):
            took.append(_slowest_change(server, crowd, effort.rounds(CHANGES)))
    return Result(
        "visibility",
        [
            Figure("deciding, per viewer of one target", "µs", at_once, at_most=0.5),
            Figure("deciding, one pair", "µs", alone, at_most=3.0),
            Figure(f"visibility changed, until {VIEWERS} sockets know", "s", took, at_most=1.0),
        ],
        ["viewers of nine kinds: friends, contacts, strangers, blocked, with and without shared times"],
    )


def _known(count: int) -> tuple[PairFacts, list[str]]:
    """A target with visibility everyone, and viewers of every kind in rotation."""
    known = PairFacts()
    known.learn_preferences(STAR, Preferences(Visibility.EVERYONE))
    relations = (Relation(mutual_follow=True), Relation(contact=True), Relation())
    viewers = [f"user{number:05d}" for number in range(count)]
    for number, viewer in enumerate(viewers):
        block = Block(NOW - number) if number % 9 == 8 else None
        known.learn_facts(viewer, {STAR: pair_fact(relations[number % 3], shares_room=False, block=block)})
        known.learn_preferences(viewer, Preferences(share_last_seen=number % 2 == 0))
    return known, viewers


def _one_by_one(known: PairFacts, viewers: list[str]) -> None:
    for viewer in viewers:
        known.verdict(viewer, STAR, NOW)


def _microseconds(work: Callable[[], object], rounds: int) -> float:
    work()
    started = time.process_time()
    for _ in range(rounds):
        work()
    return (time.process_time() - started) * 1e6 / rounds


def _slowest_change(server: Server, crowd: Crowd, rounds: int) -> float:
    slowest = 0.0
    with Http(server, token(STAR)) as http:
        for number in range(rounds):
            body = json.dumps({"visibility": ("nobody", "contacts")[number % 2]}).encode()
            goal = crowd.frames + VIEWERS
            started = time.monotonic()
            status, answer = http.fetch(http.request("PUT", "/api/v1/presence/preferences", body))
            if status != 200:
                raise RuntimeError(f"not changed: {status} {answer[:200]!r}")
            crowd.until_frames(goal)
            slowest = max(slowest, time.monotonic() - started)
            crowd.settle(0.3)
    return slowest
