"""The two sides: `herenow serve` with its own ledger, and the bare listener. One at a time, alone on its core.

Every process started here is stopped here, by its pid. A node's files are in a temporary folder.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import machine

ROOT = Path(__file__).parent.parent
SECRET = "a secret of the benchmark, known to everybody"
START_WITHIN = 60.0
STOP_WITHIN = 8.0


@dataclass(frozen=True)
class Server:
    """A process that listens."""

    pid: int
    port: int

    @property
    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.pid)

    @property
    def resident_bytes(self) -> int:
        return machine.resident_bytes(self.pid)

    @property
    def reads(self) -> machine.Reads:
        return machine.reads(self.pid)


@contextmanager
def herenow(contacts: Iterable[tuple[str, str]] = (), **settings: object) -> Iterator[Server]:
    """A node with these contacts, default settings but for the given ones, and a ledger in a file."""
    with herenow_nodes(1, contacts, **settings) as [server]:
        yield server


@contextmanager
def herenow_nodes(count: int, contacts: Iterable[tuple[str, str]] = (), **settings: object) -> Iterator[list[Server]]:
    """`count` nodes on one ledger."""
    with tempfile.TemporaryDirectory(prefix="herenow-bench-") as folder, ExitStack() as stack:
        nodes = []
        for _ in range(count):
            nodes.append(stack.enter_context(herenow_node(Path(folder), free_port(), settings, contacts)))
            contacts = ()
        yield nodes


@contextmanager
def herenow_node(
    folder: Path,
    port: int,
    settings: Mapping[str, object],
    contacts: Iterable[tuple[str, str]] = (),
    stop_within: float = STOP_WITHIN,
) -> Iterator[Server]:
    """One of several nodes with the ledger in this folder; it may drain for `stop_within` seconds."""
    usual = {"ledger": f"sqlite:///{folder}/herenow.db", "secret": SECRET, "port": port}
    environment = _environment(**{**usual, **settings})
    _import(contacts, folder, environment)
    command = [sys.executable, *_profiler(), "-m", "herenow.cli", "serve"]
    with process(command, environment, folder / f"server{port}.log", port, stop_within) as server:
        yield server


@contextmanager
def bare(mode: str) -> Iterator[Server]:
    """The bare picows listener; `mode` is discard or fan-out."""
    with tempfile.TemporaryDirectory(prefix="herenow-bench-") as folder:
        port = free_port()
        command = [sys.executable, "-m", "bench.bare_listener", mode, "--port", str(port)]
        with process(command, dict(os.environ), Path(folder) / "server.log", port) as server:
            yield server


def _environment(**settings: object) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HERENOW_")}
    return inherited | {f"HERENOW_{name.upper()}": str(value) for name, value in settings.items()}


def _profiler() -> list[str]:
    """BENCH_PROFILE=/path/to/file runs the node under cProfile, for analysis and never for a figure."""
    profile = os.environ.get("BENCH_PROFILE")
    return ["-m", "cProfile", "-o", profile] if profile else []


def _import(contacts: Iterable[tuple[str, str]], folder: Path, environment: dict[str, str]) -> None:
    rows = folder / "contacts.csv"
    with rows.open("w") as file:
        file.writelines(f"contact,{a},{b}\n" for a, b in contacts)
    if rows.stat().st_size:
        done = subprocess.run(
            [sys.executable, "-m", "herenow.cli", "import", str(rows)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"herenow import failed: {done.stderr}")


@contextmanager
def process(
    command: list[str], environment: dict[str, str], log: Path, port: int, stop_within: float = STOP_WITHIN
) -> Iterator[Server]:
    """A server on its core, from its first answer until the end of the block."""
    with log.open("wb") as output:
        started = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=output)
    machine.pin(started.pid, machine.cores().server)
    try:
        _wait_until_it_listens(started, port, log)
        yield Server(started.pid, port)
        if started.poll() is not None:
            raise RuntimeError(f"the server ended before the measurement did:\n{_tail(log)}")
    finally:
        _end(started, stop_within)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        try:
            # Not only a listening port: a node binds it first and answers when everything else is ready.
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
                probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
                if probe.recv(1):
                    return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the server did not start within {START_WITHIN:g} s:\n{_tail(log)}")


def _end(process: subprocess.Popen[bytes], within: float) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
