"""A user with thousands of viewers, on a separate process with real sockets and the default threshold.

One test, because its handshakes are expensive: a user with 6 000 viewers changes, hides during paced delivery, exceeds
the push ceiling, and falls below it again. No test asserts times by our clock: it compares the server's own timestamps
and the order of frames.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from bench.load import Crowd, Http, handshake, masked, names, subscription, token
from bench.server import Server, herenow

from bench import machine
from herenow.core.limits import LONGEST_WAVE, FanoutLimits

VIEWERS = 6_000
TABS = 3
"""Connections per user: users are expensive, further connections are not."""

CEILING = 6_500
MORE = 600
LEAVE = 800
"""Then the viewers are fewer than nine tenths of the ceiling."""

SLACK = 1_000
"""Milliseconds of tolerance for a busy machine."""

Status = dict[str, Any]


class Audience:
    """All viewers, and the frames each has received since the last check."""

    def __init__(self, crowd: Crowd, clients: Iterable[int]) -> None:
        self._crowd = crowd
        self.told: dict[int, list[Status]] = {}
        for client in clients:
            self.add(client)

    def add(self, client: int) -> None:
        told = self.told[client] = []
        self._crowd.listeners[client] = lambda payload: told.extend(_statuses(payload))

    def lose(self, clients: Iterable[int]) -> None:
        self._crowd.leave(clients)
        for client in clients:
            del self.told[client]

    def until(self, wanted: int, **fields: object) -> list[Status]:
        """Wait until so many viewers got this as their last status; returns these statuses."""

        def heard() -> list[Status]:
            return [told[-1] for told in self.told.values() if told and fields.items() <= told[-1].items()]

        while len(heard()) < wanted:
            self._crowd.until_frames(self._crowd.frames + 1)
            self._crowd.settle(0.05)  # in large steps
        return heard()

    def forget(self) -> None:
        for told in self.told.values():
            told.clear()


@pytest.fixture
def descriptors() -> None:
    machine.raise_descriptor_limit()
    if machine.most_sockets() < VIEWERS + MORE + 10:
        pytest.skip("needs descriptors for 7 000 sockets: ulimit -n")


def test_changes_of_a_user_with_six_thousand_viewers_are_paced_and_above_a_limit_sent_on_request_only(
    descriptors: None,
) -> None:
    assert FanoutLimits().pace_above == 5_000  # the default, which this server has
    users = [user for user in names((VIEWERS + MORE) // TABS) for _ in range(TABS)]
    with herenow(relations="open", push_ceiling=CEILING) as server, Crowd(server) as crowd:
        clients = crowd.join(map(handshake, users[:VIEWERS]), frames_each=2)
        crowd.ask((client, subscription(["star"])) for client in clients)
        idle = frozenset(clients[number] for number in range(VIEWERS) if number // TABS % 2)
        goal = crowd.frames + 2 * len(idle)
        crowd.send_all(idle, masked(b'{"type":"presence.away","id":1}'))
        crowd.until_frames(goal)  # `presence.ok` and `presence.self`
        audience = Audience(crowd, clients)
        [star, neighbour, friend] = crowd.join(map(handshake, ["star", "neighbour", "friend"]), frames_each=2)
        _paced_with_the_active_first(audience, idle)
        _nobody_else_waits(crowd, audience, star, neighbour, friend)
        _what_is_hidden_meanwhile_is_not_shown(crowd, audience, star)
        _on_demand_above_the_ceiling(server, crowd, audience, star, users[VIEWERS:])
        _pushed_again_below_it(audience, clients)


def _paced_with_the_active_first(audience: Audience, idle: frozenset[int]) -> None:
    """The star has connected."""
    heard = audience.until(VIEWERS, status="online")
    assert {len(told) for told in audience.told.values()} == {1}
    assert {status["delivery"] for status in heard} == {"paced"}
    active_ones = [told[0]["as_of"] for client, told in audience.told.items() if client not in idle]
    idle_ones = [told[0]["as_of"] for client, told in audience.told.items() if client in idle]
    assert max(active_ones) <= min(idle_ones)
    lasts = 1000 * FanoutLimits().lasts(VIEWERS)
    assert lasts / 2 < max(idle_ones) - heard[0]["since"] < lasts + SLACK
    audience.forget()


def _nobody_else_waits(crowd: Crowd, audience: Audience, star: int, neighbour: int, friend: int) -> None:
    """A user with one viewer changes during paced delivery."""
    crowd.ask([(friend, subscription(["neighbour"]))])
    heard: list[Status] = []
    crowd.listeners[friend] = lambda payload: heard.extend(_statuses(payload))
    crowd.send(star, masked(b'{"type":"presence.set","mode":"busy"}'))
    audience.until(1, status="busy")
    crowd.send(neighbour, masked(b'{"type":"presence.set","mode":"busy"}'))
    crowd.until(lambda: bool(heard))
    assert heard[0]["as_of"] < max(status["as_of"] for status in audience.until(VIEWERS, status="busy"))
    audience.forget()


def _what_is_hidden_meanwhile_is_not_shown(crowd: Crowd, audience: Audience, star: int) -> None:
    """The star ends busy, and hides when some of the viewers have received it."""
    crowd.send(star, masked(b'{"type":"presence.set","mode":"auto"}'))
    audience.until(VIEWERS // 10, status="online")
    crowd.send(star, masked(b'{"type":"presence.set","mode":"invisible"}'))
    [hidden_at] = {status["last_seen"] for status in audience.until(VIEWERS, status="offline")}
    shown = [status for told in audience.told.values() for status in told if status["status"] == "online"]
    assert VIEWERS // 10 <= len(shown) < VIEWERS
    assert all(status["as_of"] <= hidden_at for status in shown)
    last = [told[-1] for told in audience.told.values()]
    assert max(status["as_of"] for status in last) - hidden_at < 1000 * LONGEST_WAVE + SLACK
    audience.forget()


def _on_demand_above_the_ceiling(server: Server, crowd: Crowd, audience: Audience, star: int, users: list[str]) -> None:
    newcomers = crowd.join(map(handshake, users), frames_each=2)
    crowd.ask((client, subscription(["star"])) for client in newcomers)
    heard = audience.until(VIEWERS, delivery="poll")
    assert {_seen(status) for status in heard} == {("offline", None, "recently")}
    for client in newcomers:
        audience.add(client)
    audience.forget()
    crowd.send(star, masked(b'{"type":"presence.set","mode":"auto","id":"seen"}'))
    with Http(server, token("friend")) as http:
        answer = {}
        while answer.get("status") != "online":
            answer = json.loads(http.fetch(http.request("GET", "/api/v1/presence/star"))[1])
    crowd.settle(2 * FanoutLimits().lasts(VIEWERS + MORE))
    assert not any(audience.told.values())
    asks = newcomers[0]
    crowd.send(asks, subscription(["star"]))
    [snapshot] = audience.until(1, status="online")
    assert snapshot["delivery"] == "poll"
    audience.forget()


def _pushed_again_below_it(audience: Audience, clients: list[int]) -> None:
    audience.lose(clients[:LEAVE])
    heard = audience.until(VIEWERS + MORE - LEAVE, status="online")
    assert {status["delivery"] for status in heard} == {"paced"}
    assert {len(told) for told in audience.told.values()} == {1}


def _seen(status: Status) -> tuple[str, int | None, str | None]:
    return status["status"], status["last_seen"], status.get("last_seen_bucket")


def _statuses(payload: bytes) -> Iterator[Status]:
    frame = json.loads(payload)
    if frame["type"] == "presence.status":
        yield frame
    elif frame["type"] == "presence.statuses":
        yield from frame["statuses"]
