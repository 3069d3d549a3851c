"""A load of several processes, for more connections than one process has descriptors.

Each process is a `Crowd` on one server, with its own source addresses. Between two orders it reads incoming frames and
answers pings. The processes share the load's core; their CPU time is summed.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType

from bench import machine
from bench.load import Crowd, handshake, subscription
from bench.server import Server

LISTEN = 0.05
PATIENCE = 600.0

Order = tuple[str, list[str], list[list[str]]]
"""`join` with users and the targets of each; or `end`."""


class Crowds:
    """One process for each of these servers."""

    def __init__(self, servers: Sequence[Server]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for number, server in enumerate(servers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_obey, args=(theirs, server, 2 + number * 2), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Crowds:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()  # the processes read this as the end
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()

    def join(self, parts: Sequence[tuple[list[str], list[list[str]]]]) -> None:
        """Gives each process its users and the targets of each; returns when all are connected and answered."""
        for pipe, (users, targets) in zip(self._pipes, parts, strict=True):
            pipe.send(("join", users, targets))
        deadline = time.monotonic() + PATIENCE
        for pipe in self._pipes:
            if not pipe.poll(max(0.0, deadline - time.monotonic())):
                raise RuntimeError(f"not everybody was there within {PATIENCE:g} s")
            if (said := pipe.recv()) != "joined":
                raise RuntimeError(said)

    @property
    def cpu_seconds(self) -> float:
        return sum(machine.cpu_seconds(process.pid) for process in self._processes if process.pid)


def _obey(orders: Connection, server: Server, address: int) -> None:
    machine.raise_descriptor_limit()
    with Crowd(server, address=address) as crowd:
        while True:
            while not orders.poll():
                crowd.read(LISTEN)
            try:
                _, users, targets = orders.recv()
            except EOFError:
                return
            try:
                clients = crowd.join(map(handshake, users), frames_each=2)
                watching = zip(clients, targets, strict=True)
                crowd.ask((client, subscription(each)) for client, each in watching if each)
                orders.send("joined")
            except (RuntimeError, OSError) as error:
                orders.send(str(error) or repr(error))
