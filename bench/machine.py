"""Process figures from the operating system: CPU seconds, memory, reads; and the assignment of cores.

Linux only. The server has one core, the load another; the figures are read from outside, so measuring costs the server
nothing.
"""

from __future__ import annotations

import functools
import os
import platform
import resource
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SPARE = 500
"""Descriptors a process needs besides its sockets; the node leaves a tenth of its limit unused, see `most_sockets`."""


@dataclass(frozen=True)
class Cores:
    server: int
    load: int

    @property
    def shared(self) -> bool:
        return self.server == self.load


@functools.cache  # the load pins itself, and would then see only one core
def cores() -> Cores:
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[0], allowed[-1])


def pin(pid: int, core: int) -> None:
    _place(pid, {core})


def _place(pid: int, allowed: set[int]) -> None:
    with suppress(PermissionError, ProcessLookupError):
        os.sched_setaffinity(pid, allowed)


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads, in nanosecond steps (/proc/PID/stat has steps of 10 ms)."""
    return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) answers on Linux


def resident_bytes(pid: int) -> int:
    """Resident memory without the kernel's socket buffers, which the process cannot influence."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


@dataclass(frozen=True)
class Reads:
    """Number of reads of a process with read(2), which uvloop uses for sockets."""

    bytes: int
    calls: int


def reads(pid: int) -> Reads:
    lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return Reads(int(lines["rchar"]), int(lines["syscr"]))


def raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


TCP_INFO = struct.Struct("=5xB98xQQQQII")
"""Fields of Linux' struct tcp_info: options; two rates, bytes acknowledged and received, segments sent and received."""

TIMESTAMPS = 1
IP_HEADER, TCP_HEADER, TIMESTAMP_OPTION = 20, 20, 12


def wire_bytes(connection: socket.socket) -> int:
    """Bytes in both directions by the kernel's count of bytes and segments, including pure acknowledgements."""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
    options, _, _, sent, received, segments_out, segments_in = TCP_INFO.unpack(told)
    header = IP_HEADER + TCP_HEADER + (TIMESTAMP_OPTION if options & TIMESTAMPS else 0)
    total: int = sent + received + (segments_out + segments_in) * header
    return total


def spread(pid: int) -> None:
    """Allows any core, where CPU seconds are not measured."""
    _place(pid, {cores().server, cores().load})


def descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def most_sockets() -> int:
    """Connections that fit into one process here and into a node, which keeps a tenth of its descriptors free."""
    limit = descriptors()
    return limit - max(SPARE, limit // 10 + 100)


def described() -> dict[str, str]:
    """Description of the machine, for the results."""
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpu": _cpu_model(),
        "cores": f"{cores().server} for the server and {cores().load} for the load",
        "load_average": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
