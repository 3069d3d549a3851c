"""Memory of ten, fifty and a hundred thousand connected users, over several nodes.

As many nodes as the descriptor limit of a process requires, on one Valkey, each with its own load process. Every user
watches the next one, who is often on another node. Processes are not pinned: the scenario measures memory, and
connecting may use both cores. Kernel memory per socket and the load's memory are not included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench import machine
from bench.crowds import Crowds
from bench.effort import Effort
from bench.load import names
from bench.redis import valkey_server
from bench.report import Figure, Line, Result
from bench.server import Server, herenow_nodes

SIZES = (10_000, 50_000, 100_000)
PER_NODE = 15_000
SETTLE = 6.0


def run(effort: Effort) -> Result:
    sizes = [size // 20 for size in SIZES] if effort.quick else list(SIZES)
    count = 2 if effort.quick else -(-sizes[-1] // min(PER_NODE, machine.most_sockets()))
    result = Result("many")
    points: list[tuple[float, float]] = []
    with ExitStack() as running:
        store = running.enter_context(valkey_server())
        machine.spread(store.pid)
        nodes = running.enter_context(
            herenow_nodes(count, relations="open", engine=store.url, beat_every=120, dead_after=600)
        )
        for node in nodes:
            machine.spread(node.pid)
        crowds = running.enter_context(Crowds(nodes))
        before, store_before, here = _resident(nodes), store.used_bytes, 0
        for size in sizes:
            started, load = time.monotonic(), crowds.cpu_seconds
            crowds.join(_parts(here, size, count))
            took, here = time.monotonic() - started, size
            time.sleep(effort.seconds(SETTLE))
            each = (_resident(nodes) - before) / size / 1024
            points.append((size, each))
            result.figures += [
                Figure(f"{size} people on {count} nodes, each", "KB", [each]),
                Figure(f"{size} people, each in the store", "bytes", [(store.used_bytes - store_before) / size]),
            ]
            result.notes.append(
                f"until {size} were there: {took:.0f} s, the load's processes used "
                f"{(crowds.cpu_seconds - load) / took:.2f} of a core"
            )
        result.notes.append(f"a node without anybody: {before / count / 1024**2:.0f} MB")
    result.lines.append(Line("resident in the nodes", "people", "KB per person", points))
    return result


def _parts(here: int, there: int, count: int) -> list[tuple[list[str], list[list[str]]]]:
    """New users distributed over the nodes, each with the previous user as target."""
    users = names(there, "m")
    parts: list[tuple[list[str], list[list[str]]]] = [([], []) for _ in range(count)]
    for number in range(here, there):
        who, whom = parts[number % count]
        who.append(users[number])
        whom.append([users[number - 1]])
    return parts


def _resident(nodes: Sequence[Server]) -> int:
    return sum(node.resident_bytes for node in nodes)
