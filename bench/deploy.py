"""A rolling restart of all nodes: what viewers see, how long clients are disconnected, and how long it takes.

Three nodes on one Valkey; every user is connected to one of them and watches ten others. A node gets SIGTERM, tells its
clients when to reconnect and drains; they connect to another node at that time; the next node is restarted when this
one answers again. No user acts, so viewers should see no change: every value other than "online" is counted, and every
value other than the last one on that connection.
"""

from __future__ import annotations

import heapq
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.effort import Effort
from bench.load import Crowd, handshake, masked, names, share, subscription
from bench.redis import valkey_server
from bench.report import Figure, Result
from bench.server import Server, free_port, herenow_node

PEOPLE = 3_000
NODES = 3
WATCHED = 10
DRAIN_WITHIN = 60.0
BACK_WITHIN = 30.0
CLOSE = 0x88
EXAMPLES = 5
COME_BACK = b"retry_after_ms="


@dataclass
class Seen:
    """Counts over all viewers."""

    changes: int = 0
    """Values that differ from the last known one."""
    not_online: int = 0
    repeats: int = 0
    """Values that repeat the last one with or without a stale mark."""
    examples: list[str] = field(default_factory=list)
    """Wrong values, as many as fit into a note."""
    away: list[float] = field(default_factory=list)
    """Seconds without a connection, one entry per disconnect."""


def run(effort: Effort) -> Result:
    people = effort.people(PEOPLE)
    seen: list[Seen] = []
    took: list[float] = []
    used: list[float] = []
    for _ in range(effort.repeats):
        with share() as load:
            one, seconds = _measure(people)
        seen.append(one)
        took.append(seconds)
        used.append(load.used)
    away = [sorted(each.away) for each in seen]
    return Result(
        "deploy",
        [
            Figure("values shown that were not online", "", [each.not_online for each in seen], at_most=0),
            Figure("changes of people who did nothing", "", [each.changes for each in seen], at_most=0),
            Figure("values marked stale, or fresh again", "", [each.repeats for each in seen]),
            Figure("without a connection, p50", "s", [each[len(each) // 2] for each in away]),
            Figure("without a connection, p99", "s", [each[len(each) * 99 // 100] for each in away]),
            Figure(f"{NODES} nodes restarted", "s", took),
        ],
        [
            f"{people} people, {[len(each) for each in away][-1]} reconnects; share of the load's core {max(used):.2f}",
            "clients come back when the node tells them to, so that most of the time without a connection is its choice",
            *[example for each in seen for example in each.examples[:EXAMPLES]],
        ],
    )


def _measure(people: int) -> tuple[Seen, float]:
    with ExitStack() as running:
        store = running.enter_context(valkey_server())
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="herenow-bench-")))
        settings = {"engine": store.url, "relations": "open"}
        nodes = [Node(folder, free_port(), settings) for _ in range(NODES)]
        for node in nodes:
            running.callback(node.stop)
            node.start()
        town = running.enter_context(Town(nodes, names(people)))
        town.arrive()
        town.pass_time(3.0)
        town.seen = Seen()
        started = time.monotonic()
        for number, node in enumerate(nodes):
            town.closed = number
            town.meanwhile(node.stop)
            town.meanwhile(node.start)
            town.closed = None
            town.until_all_are_back()
        took = time.monotonic() - started
        town.pass_time(3.0)
        return town.seen, took


class Node:
    """A node that is stopped and started again at the same address."""

    def __init__(self, folder: Path, port: int, settings: Mapping[str, object]) -> None:
        self._folder, self._settings = folder, settings
        self._running = ExitStack()
        self.server = Server(0, port)

    def start(self) -> None:
        self._running.enter_context(
            herenow_node(self._folder, self.server.port, self._settings, stop_within=DRAIN_WITHIN)
        )

    def stop(self) -> None:
        self._running.close()


class Town:
    """Clients of all users, which reconnect when asked to, to a node that is not restarted next."""

    def __init__(self, nodes: list[Node], users: list[str]) -> None:
        self._users = users
        self._crowds = [Crowd(node.server, address=2 + number) for number, node in enumerate(nodes)]
        self._who: list[dict[int, int]] = [{} for _ in nodes]
        """For each node: client → number of the user."""
        self._left_at: dict[int, float] = {}
        self._returning: list[tuple[float, int]] = []
        self.closed: int | None = None
        self.seen = Seen()
        for at, crowd in enumerate(self._crowds):
            crowd.on_lost = self._lost_at(at)

    def __enter__(self) -> Town:
        return self

    def __exit__(self, *error: object) -> None:
        for crowd in self._crowds:
            crowd.__exit__(*error)

    def arrive(self) -> None:
        for start in range(0, len(self._users), 50):
            for user in range(start, min(start + 50, len(self._users))):
                self._left_at[user] = time.monotonic()
                self._knock(user, user % NODES)
            self.until_all_are_back()

    def pass_time(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._step()

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread while clients are served."""
        failed: list[BaseException] = []

        def do() -> None:
            try:
                work()
            except RuntimeError as error:
                failed.append(error)

        thread = threading.Thread(target=do)
        thread.start()
        while thread.is_alive():
            self._step()
        if failed:
            raise failed[0]

    def until_all_are_back(self) -> None:
        deadline = time.monotonic() + BACK_WITHIN
        while self._left_at:
            self._step()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(self._left_at)} people did not come back within {BACK_WITHIN:g} s")

    def _step(self) -> None:
        while self._returning and self._returning[0][0] <= time.monotonic():
            _, user = heapq.heappop(self._returning)
            open_ones = [at for at in range(NODES) if at != self.closed]
            self._knock(user, open_ones[user % len(open_ones)])
        for crowd in self._crowds:
            crowd.read(0.002)

    def _knock(self, user: int, at: int) -> None:
        crowd = self._crowds[at]
        try:
            client = crowd.knock(handshake(self._users[user]))
        except ConnectionRefusedError:
            heapq.heappush(self._returning, (time.monotonic() + 0.5, user))
            return
        self._who[at][client] = user
        crowd.listeners[client] = self._eyes(user, at, client)

    def _eyes(self, user: int, at: int, client: int) -> Callable[[bytes], None]:
        known: dict[str, _Status] = {}
        crowd = self._crowds[at]

        def look(payload: bytes) -> None:
            if not payload.startswith(b"{"):
                self._who[at].pop(client, None)
                self._told_to_leave(user, payload)
                crowd.send(client, masked(payload, CLOSE))
                return
            frame = msgspec.json.decode(payload, type=_Frame)
            if frame.type == "presence.welcome":
                self._back(user)
                crowd.send(client, subscription(self._targets(user)))
            elif frame.type in ("presence.status", "presence.statuses"):
                for each in frame.statuses or [frame.value]:
                    self._shown(each, known)

        return look

    def _shown(self, value: _Status, known: dict[str, _Status]) -> None:
        self.seen.not_online += value.status != "online"
        if value.user_id in known:
            had = known[value.user_id]
            self.seen.repeats += had == value
            if had != value:
                self.seen.changes += 1
                self.seen.examples.append(f"{had} became {value}")
        known[value.user_id] = value

    def _targets(self, user: int) -> list[str]:
        return [self._users[(user + step) % len(self._users)] for step in range(1, WATCHED + 1)]

    def _back(self, user: int) -> None:
        self.seen.away.append(time.monotonic() - self._left_at.pop(user))

    def _told_to_leave(self, user: int, close: bytes) -> None:
        delay = int(close.partition(COME_BACK)[2] or b"0") / 1000
        self._left_at[user] = time.monotonic()
        heapq.heappush(self._returning, (time.monotonic() + delay, user))

    def _lost_at(self, at: int) -> Callable[[int], None]:
        def lost(client: int) -> None:
            user = self._who[at].pop(client, None)
            if user is not None:  # closed without a close frame
                self._left_at[user] = time.monotonic()
                heapq.heappush(self._returning, (time.monotonic() + 1.0, user))

        return lost


class _Status(msgspec.Struct):
    user_id: str = ""
    status: str = ""
    since: int | None = None
    platforms: list[str] = []


class _Frame(msgspec.Struct):
    type: str = ""
    user_id: str = ""
    status: str = ""
    since: int | None = None
    platforms: list[str] = []
    statuses: list[_Status] = []

    @property
    def value(self) -> _Status:
        return _Status(self.user_id, self.status, self.since, self.platforms)
