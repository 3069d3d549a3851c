"""Can a stopwatch tell somebody who hides from somebody who left?

One person hides (is invisible, has blocked the viewer, shows themselves to nobody), connected and active; another, with the
same past, has signed out. A viewer who knows both asks about the one and the other in an order that dice decide, over one
connection, and times every answer. The two sets of times are compared by their ranks (Mann–Whitney): the area under the
curve is the chance that an answer about the hidden one takes longer than one about the other, and 0.5 is what nobody can
use.

`python -m bench twins`; what bytes and counts tell is shown by `herenow.testing.twins`, not here.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from bench.effort import Effort
from bench.load import Crowd, Http, handshake, masked, names, token
from bench.report import Figure, Result
from bench.server import Server, herenow

HIDDEN, GONE = "hidden", "gone"
VIEWER = "viewer"
VIEWER_OF = {HIDDEN: "viewer-of-hidden", GONE: "viewer-of-gone"}
"""For questions about all contacts: each has one of the two among them."""

Request = tuple[str, str, bytes]
WAYS: dict[str, list[Request]] = {
    "invisible": [("PUT", "/api/v1/presence/mode", b'{"mode":"invisible"}')],
    "blocked": [("PUT", f"/api/v1/blocks/{viewer}", b"") for viewer in (VIEWER, *VIEWER_OF.values())],
    "nobody": [("PUT", "/api/v1/presence/preferences", b'{"visibility":"nobody"}')],
}
"""How to hide: the hidden one's own requests."""

OTHERS = 20
ROUNDS = 2_500
WARM_UP = 200
ACT_EVERY = 10
"""Rounds between two signs of the hidden one's activity."""

PAUSE = 0.001
AWAY_FROM_HALF = 0.05

_ACTIVE = masked(b'{"type":"presence.active"}')
_BYE = masked(b'{"type":"presence.bye"}')


@dataclass(frozen=True)
class Question:
    name: str
    target: str
    """With {user} where the one or the other is named."""
    by: dict[str, str]


QUESTIONS = (
    Question("one", "/api/v1/presence/{user}", {HIDDEN: VIEWER, GONE: VIEWER}),
    Question(
        "twenty-one",
        "/api/v1/presence?user_ids={user}," + ",".join(names(OTHERS, "other")),
        {HIDDEN: VIEWER, GONE: VIEWER},
    ),
    Question("count", "/api/v1/presence/count", VIEWER_OF),
    Question("leaderboard", "/api/v1/presence/leaderboard", VIEWER_OF),
)


def run(effort: Effort) -> Result:
    figures: list[Figure] = []
    notes: list[str] = []
    rounds = effort.rounds(ROUNDS)
    for way, requests in WAYS.items():
        with herenow(_contacts()) as server, Crowd(server) as crowd:
            hidden = _part(server, crowd, requests)
            for question in QUESTIONS:
                name = f"{way}, {question.name}"
                areas = []
                for _ in range(effort.repeats):
                    times = _times(server, crowd, hidden, question, rounds)
                    area, p = mann_whitney(times[HIDDEN], times[GONE])
                    areas.append(area)
                    medians = ", ".join(f"{who} {_median(took) * 1e6:.0f} µs" for who, took in times.items())
                    notes.append(f"{name}: area {area:.3f}, p {p:.3f}; medians: {medians}")
                off = [abs(area - 0.5) for area in areas]
                figures.append(Figure(f"{name}: area, away from 0.5", "", off, at_most=AWAY_FROM_HALF))
    return Result("twins", figures, [f"{rounds} answers about each", *notes])


def _contacts() -> list[tuple[str, str]]:
    others = names(OTHERS, "other")
    both = [(VIEWER, user) for user in (HIDDEN, GONE, *others)]
    return both + [(viewer, user) for who, viewer in VIEWER_OF.items() for user in (who, *others)]


def _part(server: Server, crowd: Crowd, requests: Sequence[Request]) -> int:
    """The same past for both; then one hides and the other leaves. Answers the hidden one's client."""
    clients = crowd.join(map(handshake, [HIDDEN, GONE]), frames_each=2)
    crowd.join(map(handshake, [VIEWER, *VIEWER_OF.values()]), frames_each=2)
    with Http(server, token(HIDDEN)) as http:
        for request in requests:
            status, body = http.fetch(http.request(*request))
            if status not in (200, 204):
                raise RuntimeError(f"nobody hid: {status} {body!r}")
    crowd.send(clients[1], _BYE)
    crowd.settle(3.0)  # whoever left is written down, and leaves the store
    with Http(server, token(VIEWER)) as http:
        _, body = http.fetch(http.request("GET", f"/api/v1/presence?user_ids={HIDDEN},{GONE}"))
    if [each["status"] for each in msgspec.json.decode(body)] != ["offline", "offline"]:
        raise RuntimeError(f"not both look offline: {body!r}")
    return clients[0]


def _times(
    server: Server, crowd: Crowd, hidden: int, question: Question, rounds: int
) -> dict[str, list[float]]:
    """Seconds of every answer, about the one and the other."""
    dice = random.Random(question.name)
    took: dict[str, list[float]] = {HIDDEN: [], GONE: []}
    with Http(server, token(question.by[HIDDEN])) as first, Http(server, token(question.by[GONE])) as second:
        asking = {
            who: (http, http.request("GET", question.target.format(user=who)))
            for who, http in ((HIDDEN, first), (GONE, second))
        }
        for number in range(WARM_UP + rounds):
            if number % ACT_EVERY == 0:
                crowd.send(hidden, _ACTIVE)
                crowd.read()
            for who in dice.sample((HIDDEN, GONE), 2):
                http, request = asking[who]
                time.sleep(PAUSE)
                start = time.perf_counter()
                status, _ = http.fetch(request)
                took[who].append(time.perf_counter() - start)
                if status != 200:
                    raise RuntimeError(f"{question.name}: {status}")
    return {who: times[WARM_UP:] for who, times in took.items()}


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """(area under the curve, p): how often one of the first is greater than one of the second, ties for half; and how
    likely chance alone would take it as far from 0.5, by the normal approximation with ties taken into account."""
    values = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    ranks, ties, at = 0.0, 0, 0
    while at < len(values):
        end = at
        while end < len(values) and values[end][0] == values[at][0]:
            end += 1
        ranks += (at + 1 + end) / 2 * sum(1 for _, which in values[at:end] if which == 0)
        ties += (end - at) ** 3 - (end - at)
        at = end
    n, m = len(first), len(second)
    u = ranks - n * (n + 1) / 2
    spread = math.sqrt(n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1))))
    p = math.erfc(abs(u - n * m / 2) / spread / math.sqrt(2)) if spread else 1.0
    return u / (n * m), p


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
