"""Whether a measurement was slow, or disturbed by other load of the machine.

A 99th percentile of a few milliseconds mostly shows other users of the machine: a hypervisor that takes a core away, or
another process on the core. The kernel counts both. So besides the percentile of all measurements there is one of the
undisturbed ("calm") measurements, defined by:

    the hypervisor took no time from any core         "steal" in /proc/stat, which has steps of 10 ms
    no participating process was preempted            involuntary context switches
    nor was ready and waited for a core               /proc/PID/schedstat, up to `WAITED`

No measurement is excluded for being slow. Disturbances below the resolution of the counters stay in, and so does a core
that is merely slower than usual because others use the same hardware; the latter shows in a piece of plain computing of
the same length, which alternates with the measurement (`Computing`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

WAITED = 200_000
"""Nanoseconds: several times what the wake-ups of one measurement take on an idle machine."""

ENOUGH = 100
"""Fewer measurements have no 99th percentile."""


@dataclass(frozen=True)
class Taken:
    """Resources taken from these processes since they started."""

    stolen: int
    """Hundredths of a second, over all cores."""
    switched: int
    """Involuntary context switches."""
    waited: int
    """Nanoseconds of waiting for a core."""

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
    """Of the main thread, which does the work in a node and in a store. A kernel may lack this file."""
    with suppress(FileNotFoundError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return 0


@dataclass
class Times:
    """Milliseconds of every measurement, and of the undisturbed ones."""

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
        """Percentile of all measurements if too few were undisturbed."""
        return percentile(self.calm if len(self.calm) >= ENOUGH else self.all, 99)

    @property
    def left_out(self) -> float:
        """Percent of the measurements that were disturbed."""
        return 100 * (1 - len(self.calm) / len(self.all)) if len(self.calm) >= ENOUGH else 0.0


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


class Computing:
    """Plain computing that takes this many milliseconds on an idle machine."""

    def __init__(self, ms: float) -> None:
        self._block = bytes(10_000)
        self._times = 1_000
        self._times = max(1, round(self._times * ms / min(self.turn() for _ in range(5))))

    def turn(self) -> float:
        """Milliseconds it took."""
        began = time.perf_counter()
        for _ in range(self._times):
            crc32(self._block)
        return (time.perf_counter() - began) * 1000
