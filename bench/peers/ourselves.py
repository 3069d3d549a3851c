"""herenow as one of the sides: the whole node with its defaults, on the work of the peers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from bench.beats import BEAT
from bench.fan_out import MODES
from bench.load import Crowd, Http, handshake, subscription, token
from bench.peers.peer import PEOPLE, STAR, Change, Looking, Talk
from bench.server import herenow

CALLER = "caller"


@contextmanager
def ourselves(people: Iterable[Looking] = ()) -> Iterator[Talk]:
    """A node where these users may see each other, and every viewer gets a change at once."""
    contacts = [(user, target) for user, targets in people for target in targets]
    asked = [(CALLER, user) for user in PEOPLE]
    with herenow([*contacts, *asked], beat_min=0, pace_above=100_000) as server:
        yield _Talk(server)


class _Talk(Talk):
    frames_at_connect = 2
    frames_to_star = 1

    def handshake(self, user: str, targets: Sequence[str] = ()) -> bytes:
        return handshake(user)

    def openings(self, user: str, targets: Sequence[str] = ()) -> list[bytes]:
        return [subscription(targets)] if targets else []

    def beat(self) -> bytes:
        return BEAT

    def star(self, crowd: Crowd) -> Change:
        [client] = self.join(crowd, [(STAR, ())])
        modes = itertools.cycle(MODES)
        return lambda: crowd.send(client, next(modes))

    def prepare_lookup(self, crowd: Crowd) -> None:
        self.join(crowd, [(user, ()) for user in (CALLER, *PEOPLE)])
        crowd.settle(2.0)

    def lookups(self) -> dict[str, tuple[Http, bytes]]:
        bearers = {"by a service": token("bench", scope="service"), "by a contact": token(CALLER)}
        asking = {way: self.http(bearer) for way, bearer in bearers.items()}
        target = f"/api/v1/presence?user_ids={','.join(PEOPLE)}"
        return {way: (http, http.request("GET", target)) for way, http in asking.items()}
