"""Response time of `GET /presence` for 200 and for 1000 users on an idle node.

One keep-alive connection, one request after the other, from the first byte sent to the last byte read. All users are
connected; the caller is a connected contact of all of them, or a service.
"""

from __future__ import annotations

import time

import msgspec

from bench.effort import Effort
from bench.load import Crowd, Http, handshake, names, share, token
from bench.report import Figure, Result
from bench.server import Server, herenow

PEOPLE = 1_000
CALLER = "caller"
REQUESTS = 500
WARM_UP = 20
PAUSE = 0.005
AIMS = {200: 5.0, 1000: 10.0}
"""Ids in a request → milliseconds at the 99th percentile."""


def run(effort: Effort) -> Result:
    people = names(PEOPLE, "u")
    figures: list[Figure] = []
    with herenow((CALLER, user) for user in people) as server, Crowd(server) as crowd:
        crowd.join(map(handshake, [CALLER, *people]), frames_each=2)
        crowd.settle(2.0)
        with share() as load:
            for who, bearer in (("a contact", token(CALLER)), ("a service", token("bench", scope="service"))):
                for ids, aim in AIMS.items():
                    figures += _figures(server, bearer, people[:ids], who, aim, effort)
    return Result("lookup", figures, [f"{len(people)} people connected; share of the load's core {load.used:.2f}"])


def _figures(server: Server, bearer: str, ids: list[str], who: str, aim: float, effort: Effort) -> list[Figure]:
    p50, p99 = [], []
    for _ in range(effort.repeats):
        took = _times(server, bearer, ids, effort.rounds(REQUESTS))
        p50.append(took[len(took) // 2])
        p99.append(took[len(took) * 99 // 100])
    name = f"{len(ids)} people, asked by {who}"
    return [Figure(f"{name}, p50", "ms", p50), Figure(f"{name}, p99", "ms", p99, at_most=aim)]


def _times(server: Server, bearer: str, ids: list[str], requests: int) -> list[float]:
    """Milliseconds, ascending."""
    took: list[float] = []
    with Http(server, bearer) as http:
        request = http.request("GET", f"/api/v1/presence?user_ids={','.join(ids)}")
        for _ in range(WARM_UP + requests):
            start = time.perf_counter()
            status, body = http.fetch(request)
            took.append((time.perf_counter() - start) * 1000)
            time.sleep(PAUSE)
        status, body = http.fetch(request)
        if status != 200 or [each["status"] for each in msgspec.json.decode(body)] != ["online"] * len(ids):
            raise RuntimeError(f"not the answer that was asked for: {status} {body[:200]!r}")
    return sorted(took[WARM_UP:])
