"""Whether response times distinguish a hidden user from one who left.

One user hides (is invisible, has blocked the viewer, or has visibility nobody), connected and active; another with the
same history has signed out. A viewer of both asks about either in random order, over one connection, by REST and by
subscribing, and measures every answer. The two sets of times are compared by their ranks (Mann–Whitney): the area under
the curve is the probability that an answer about the hidden user takes longer; at 0.5 the times reveal nothing.

Run with `python -m bench twins`. `herenow_testing.twins` checks bytes and counts.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from bench.effort import Effort
from bench.load import Crowd, Http, handshake, masked, names, token
from bench.report import Figure, Result
from bench.server import Server, herenow

HIDDEN, GONE = "hidden", "gone"
VIEWER = "viewer"
VIEWER_OF = {HIDDEN: "viewer-of-hidden", GONE: "viewer-of-gone"}
"""For requests about all contacts: each viewer has one of the two among them."""

Request = tuple[str, str, bytes]
WAYS: dict[str, list[Request]] = {
    "invisible": [("PUT", "/api/v1/presence/mode", b'{"mode":"invisible"}')],
    "blocked": [("PUT", f"/api/v1/blocks/{viewer}", b"") for viewer in (VIEWER, *VIEWER_OF.values())],
    "nobody": [("PUT", "/api/v1/presence/preferences", b'{"visibility":"nobody"}')],
}
"""Ways of hiding → requests of the hidden user."""

OTHERS = 20
ROUNDS = 2_500
WARM_UP = 200
ACT_EVERY = 10
"""Rounds between two activities of the hidden user."""

PAUSE = 0.001
AWAY_FROM_HALF = 0.05

_ACTIVE = masked(b'{"type":"presence.active"}')
_BYE = masked(b'{"type":"presence.bye"}')


Ask = Callable[[], float]
"""Asks once; returns the seconds until the answer."""


@dataclass(frozen=True)
class Inquiry:
    """A REST request."""

    target: str
    """{user} is replaced by either user."""
    by: dict[str, str]

    @contextmanager
    def asking(self, server: Server) -> Iterator[dict[str, Ask]]:
        with Http(server, token(self.by[HIDDEN])) as first, Http(server, token(self.by[GONE])) as second:
            yield {who: self._ask(http, who) for who, http in ((HIDDEN, first), (GONE, second))}

    def _ask(self, http: Http, who: str) -> Ask:
        request = http.request("GET", self.target.format(user=who))

        def ask() -> float:
            start = time.perf_counter()
            status, _ = http.fetch(request)
            took = time.perf_counter() - start
            if status != 200:
                raise RuntimeError(f"{self.target}: {status}")
            return took

        return ask


@dataclass(frozen=True)
class Subscription:
    """A subscribe on a WebSocket; undone after each answer."""

    whom: str
    """JSON members with the targets; {user} is replaced by either user."""
    by: dict[str, str]

    @contextmanager
    def asking(self, server: Server) -> Iterator[dict[str, Ask]]:
        with Crowd(server) as crowd:
            clients = {user: crowd.join([handshake(user)], frames_each=2)[0] for user in set(self.by.values())}
            yield {who: self._ask(crowd, clients[user], who) for who, user in self.by.items()}

    def _ask(self, crowd: Crowd, client: int, who: str) -> Ask:
        whom = self.whom.replace("{user}", who)
        begin, end = (masked(f'{{"type":"presence.{verb}",{whom}}}'.encode()) for verb in ("subscribe", "unsubscribe"))

        def ask() -> float:
            before = crowd.frames
            start = time.perf_counter()
            crowd.send(client, begin)
            crowd.until_frames(before + 1)
            took = time.perf_counter() - start
            crowd.send(client, end)
            crowd.until_frames(before + 2)
            return took

        return ask


_BOTH = {HIDDEN: VIEWER, GONE: VIEWER}
_OTHERS = names(OTHERS, "other")
QUESTIONS: dict[str, Inquiry | Subscription] = {
    "one": Inquiry("/api/v1/presence/{user}", _BOTH),
    "twenty-one": Inquiry("/api/v1/presence?user_ids={user}," + ",".join(_OTHERS), _BOTH),
    "count": Inquiry("/api/v1/presence/count", VIEWER_OF),
    "leaderboard": Inquiry("/api/v1/presence/leaderboard", VIEWER_OF),
    "subscribe to one": Subscription('"target_user_id":"{user}"', _BOTH),
    "subscribe to twenty-one": Subscription(f'"target_user_ids":{json.dumps(["{user}", *_OTHERS])}', _BOTH),
    "subscribe to contacts": Subscription('"contacts":true', VIEWER_OF),
}


def run(effort: Effort) -> Result:
    figures: list[Figure] = []
    notes: list[str] = []
    rounds = effort.rounds(ROUNDS)
    for way, requests in WAYS.items():
        with herenow(_contacts()) as server, Crowd(server) as crowd:
            hidden = _part(server, crowd, requests)
            for what, question in QUESTIONS.items():
                name = f"{way}, {what}"
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
    """Gives both the same history; then one hides and the other leaves. Returns the client of the hidden user."""
    clients = crowd.join(map(handshake, [HIDDEN, GONE]), frames_each=2)
    crowd.join(map(handshake, [VIEWER, *VIEWER_OF.values()]), frames_each=2)
    with Http(server, token(HIDDEN)) as http:
        for request in requests:
            status, body = http.fetch(http.request(*request))
            if status not in (200, 204):
                raise RuntimeError(f"nobody hid: {status} {body!r}")
    crowd.send(clients[1], _BYE)
    crowd.settle(3.0)  # the user who left is written to the ledger and dropped from the store
    with Http(server, token(VIEWER)) as http:
        _, body = http.fetch(http.request("GET", f"/api/v1/presence?user_ids={HIDDEN},{GONE}"))
    if [each["status"] for each in msgspec.json.decode(body)] != ["offline", "offline"]:
        raise RuntimeError(f"not both look offline: {body!r}")
    return clients[0]


def _times(
    server: Server, crowd: Crowd, hidden: int, question: Inquiry | Subscription, rounds: int
) -> dict[str, list[float]]:
    """Seconds of every answer, by user."""
    dice = random.Random(repr(question))
    took: dict[str, list[float]] = {HIDDEN: [], GONE: []}
    with question.asking(server) as asking:
        for number in range(WARM_UP + rounds):
            if number % ACT_EVERY == 0:
                crowd.send(hidden, _ACTIVE)
                crowd.read()
            for who in dice.sample((HIDDEN, GONE), 2):
                time.sleep(PAUSE)
                took[who].append(asking[who]())
    return {who: times[WARM_UP:] for who, times in took.items()}


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """(area under the curve, p): how often a value of the first is greater than one of the second, ties counting half;
    and the probability that chance alone is as far from 0.5, by the normal approximation with ties.
    """
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
