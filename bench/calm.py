"""Was it slow, or did the machine do something else meanwhile?

A 99th percentile of a few milliseconds shows first of all who else uses the machine: a hypervisor that takes a core away, or
another process that is let in. The kernel counts both. So beside the percentile of everything there is one of what went on
in calm, which has a definition:

    the hypervisor took nothing from any core         "steal" in /proc/stat, which has steps of 10 ms
    no process that takes part was sent away          involuntary context switches
    nor was ready and had to wait for a core          /proc/PID/schedstat, up to `WAITED`

It never leaves anything out for being slow. What the counters are too coarse for stays in, and so does a core that is only
slower than usual, since others use what is behind it: that is seen by a piece of plain computing of the same length, which
takes turns with what is measured (`Computing`) and has nothing to do with it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

WAITED = 200_000
"""Nanoseconds: several times what the wake-ups of one measurement take when nobody is in the way."""

ENOUGH = 100
"""Fewer have no 99th percentile."""


@dataclass(frozen=True)
class Taken:
    """From these processes, since they began."""

    stolen: int
    """Hundredths of a second, of all cores."""
    switched: int
    """Times that one was sent away."""
    waited: int
    """Nanoseconds for a core."""

    def calm_since(self, before: Taken) -> bool:
        return (self.stolen, self.switched) == (before.stolen, before.switched) and (
            self.waited - before.waited <= WAITED
        )


def taken(pids: Sequence[int]) -> Taken:
    cores = Path("/proc/stat").read_text().partition("\n")[0].split()
    return Taken(int(cores[8]), sum(map(_switched, pids)), sum(map(_waited, pids)))


def _switched(pid: int) -> int:
    _, _, rest = Path(f"/proc/{pid}/status").read_text().partition("\nnonvoluntary_ctxt_switches:")
    return int(rest.split()[0])


def _waited(pid: int) -> int:
    """Of its first thread: the one that does the work, in a node as in a store. A kernel may be built without it."""
    with suppress(FileNotFoundError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return 0


@dataclass
class Times:
    """Milliseconds of each turn, and of those in calm."""

    all: list[float] = field(default_factory=list)
    calm: list[float] = field(default_factory=list)

    def add(self, ms: float, *, calm: bool) -> None:
        self.all.append(ms)
        if calm:
            self.calm.append(ms)

    @property
    def p50(self) -> float:
        return percentile(self.all, 50)

    @property
    def p99(self) -> float:
        return percentile(self.all, 99)

    @property
    def calm_p99(self) -> float:
        """Of all of them where too few were in calm: then nothing is known that is better."""
        return percentile(self.calm if len(self.calm) >= ENOUGH else self.all, 99)

    @property
    def left_out(self) -> float:
        """Percent."""
        return 100 * (1 - len(self.calm) / len(self.all)) if len(self.calm) >= ENOUGH else 0.0


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


class Computing:
    """Plain computing that takes so many milliseconds when nothing is in the way."""

    def __init__(self, ms: float) -> None:
        self._block = bytes(10_000)
        self._times = 1_000
        self._times = max(1, round(self._times * ms / min(self.turn() for _ in range(5))))

    def turn(self) -> float:
        """The milliseconds it took."""
        began = time.perf_counter()
        for _ in range(self._times):
            crc32(self._block)
        return (time.perf_counter() - began) * 1000
