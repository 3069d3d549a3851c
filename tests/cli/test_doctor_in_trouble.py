"""`herenow doctor` during failures: real stores, ledgers and nodes that are killed, frozen, full or read-only. Each
gets one sentence with a remedy, and the exit code tells the severity.
"""

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager, closing

import pytest
from tests.cli.test_top_view import stats
from tests.processes import PATIENCE, SECRET, Server
from tests.redis_servers import SentinelGroup, running

from herenow.cli.doctor.findings import Weight
from herenow.cli.doctor.ledger_check import FULL_DISK, LITTLE_ROOM, room
from herenow.cli.doctor.node_check import said
from herenow.engines import make_engine
from herenow.ledgers import open_ledger
from herenow.ports import Lease

pytestmark = pytest.mark.xdist_group("doctor")


@pytest.fixture(scope="module")
def valkey():
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def empty(request):
    if "valkey" in request.fixturenames:
        request.getfixturevalue("valkey").client.flushall()


async def doctor(**settings):
    """(exit code, output without line breaks)"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HERENOW_")}
    env |= {"HERENOW_SECRET": SECRET, "COLUMNS": "1000"}
    env |= {f"HERENOW_{name.upper()}": str(value) for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "herenow.cli",
        "doctor",
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    text = out.decode()
    assert "Traceback" not in text
    return process.returncode, text


def found(text, weight, subject):
    """Sentences of this weight about this subject."""
    return [
        line[9 + 14 :].strip() for line in text.splitlines() if line.startswith(weight) and line[8:].startswith(subject)
    ]


@asynccontextmanager
async def engine(url):
    opened = make_engine(url, shards=16, namespace="herenow", capacity=1_000_000)
    await opened.open({})
    try:
        yield opened
    finally:
        await opened.close()


# --- The store


async def test_doctor_accepts_a_healthy_live_store(valkey):
    code, text = await doctor(engine=valkey.url, port=0)
    assert code == 0
    assert found(text, "ok", "live store") == [f"{valkey.url} answers and takes writes."]
    assert found(text, "ok", "nodes") == ["No node has a lease in the live store."]
    assert valkey.client.dbsize() == 0


async def test_doctor_reports_a_full_live_store_and_gives_advice_on_a_nearly_full_one(valkey):
    valkey.client.rpush("other", *[bytes(1 << 10)] * 100)
    for number in range(300):  # so that a few connections do not matter
        valkey.client.copy("other", f"other:{number}")
    used = valkey.client.info("memory")["used_memory"]
    try:
        valkey.client.config_set("maxmemory", used // 2)
        code, text = await doctor(engine=valkey.url, port=0)
        assert code == 1
        assert "is full and takes no new users: raise its maxmemory" in text
        valkey.client.config_set("maxmemory", int(used * 1.06))
        code, text = await doctor(engine=valkey.url, port=0)
        assert code == 0
        assert re.search(r"advice.*uses \d+% of its memory", text)
    finally:
        valkey.client.config_set("maxmemory", 0)
        valkey.client.flushall()


async def test_doctor_reports_a_live_store_with_too_few_replicas(valkey):
    try:
        valkey.client.config_set("min-replicas-to-write", 1)
        code, text = await doctor(engine=valkey.url, port=0)
    finally:
        valkey.client.config_set("min-replicas-to-write", 0)
    assert code == 1
    [sentence] = found(text, "problem", "live store")
    assert "takes no writes. It has too few replicas" in sentence
    assert "min-replicas-to-write" in sentence


async def test_doctor_reports_a_live_store_that_is_a_replica(valkey):
    with running("--replicaof", f"127.0.0.1 {valkey.port}") as replica:
        code, text = await doctor(engine=replica.url, port=0)
    assert code == 1
    assert "is a replica and takes no writes" in text


async def test_doctor_reports_a_live_store_that_evicts_keys():
    with running("--maxmemory-policy", "volatile-lru") as server:
        server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] + 300_000)
        for number in range(2_000):
            server.client.set(f"other:{number}", "x" * 1_000, ex=1_000)
        server.client.config_set("maxmemory", 0)
        code, text = await doctor(engine=server.url, port=0)
    assert code == 1
    assert re.search(r"has evicted \d+ keys", text)
    assert "maxmemory-policy volatile-lru" in text


@pytest.mark.parametrize("how", ["frozen", "killed"])
async def test_doctor_reports_an_unreachable_live_store_and_still_runs_the_other_checks(how):
    with running() as server:
        if how == "frozen":
            server.stop_the_clock()
        else:
            server.kill()
        code, text = await doctor(engine=server.url, port=0)
    assert code == 1
    [sentence] = found(text, "problem", "live store")
    assert "does not answer" in sentence
    assert found(text, "ok", "clock")


async def test_doctor_gives_advice_on_a_redis_master_without_replicas_after_a_failover():
    with closing(SentinelGroup(down_after=500)) as group:
        group.start()
        code, text = await doctor(engine=group.url, port=0)
        assert code == 0
        assert "no connected replica" not in text
        group.master.kill()
        async with asyncio.timeout(PATIENCE):
            while group.replica.client.info("replication")["role"] != "master" or code:
                await asyncio.sleep(0.1)
            while "has no connected replica" not in text:  # until the sentinels agree on the master
                code, text = await doctor(engine=group.url, port=0)
    assert code == 0


# --- Nodes on the store

TIMINGS = {"beat_every": 1, "dead_after": 2, "grace": 1, "node_lease": 9}
"""Timings of these nodes; another node must have the same."""


async def test_doctor_reports_settings_that_differ_from_those_of_the_running_nodes_and_writes_nothing(valkey, tmp_path):
    server = await Server(tmp_path, {"engine": valkey.url, **TIMINGS}).start()
    same = {"engine": valkey.url, "port": 0, "ledger": f"sqlite:///{server.ledger}", **TIMINGS}
    agreed = valkey.client.hgetall("{herenow}:terms")
    try:
        code, text = await doctor(**same)
        assert "Its nodes have the same database, secret, shards and timings." in found(text, "ok", "live store")
        assert found(text, "problem", "live store") == []

        other = {**same, "shards": 8, "grace": 7, "secret": "x" * 32}
        code, text = await doctor(**other)
        assert code == 1
        assert found(text, "problem", "live store") == [
            "The nodes on this store have another secret, so herenow serve would not start: give all of them the same one "
            "by the setting secret; to change it, first give every node the old and the new one (one per line, and SIGHUP), "
            "and when all have both, the new one alone.",
            "shards is 8 here and 16 for the nodes on this store, so herenow serve would not start: set shards to 16; "
            "take their number of shards, or another namespace.",
            "grace is 7 here and 1 for the nodes on this store, so herenow serve would not start: set grace to 1; to change "
            "it, first run HDEL {herenow}:terms grace in the store, and then restart the nodes one after the other, all "
            "with the new value.",
        ]
        assert "x" * 32 not in text

        await _assert_a_new_ledger_is_refused(same, tmp_path / "other")
        assert valkey.client.hgetall("{herenow}:terms") == agreed
        # A new store needs some seconds until it is settled.
        await _until(server, lambda troubles: not troubles)
    finally:
        await server.kill()

    # The advice of doctor works.
    valkey.client.hdel("{herenow}:terms", "grace")
    code, text = await doctor(**same | {"grace": 7})
    assert code == 0, text
    async with _started(tmp_path, {"engine": valkey.url, **TIMINGS, "grace": 7}):
        assert valkey.client.hget("{herenow}:terms", "grace") == b"7"


async def _until(server, wanted):
    """Wait until the node's own problems satisfy `wanted`."""
    async with asyncio.timeout(PATIENCE):
        while not wanted({each["what"] for each in (await server.rest("GET", "/stats"))["degraded"]}):
            await asyncio.sleep(0.1)


async def _assert_a_new_ledger_is_refused(same, folder):
    """A ledger that does not exist yet, and an existing one."""
    folder.mkdir()
    other = {**same, "ledger": f"sqlite:///{folder}/herenow.db"}
    code, text = await doctor(**other)
    assert code == 1
    [sentence] = found(text, "problem", "live store")
    assert "herenow.db does not exist yet, so it is not the one that the nodes" in sentence
    assert [*folder.iterdir()] == []
    ledger = open_ledger(other["ledger"])
    await ledger.open()
    await ledger.close()
    code, text = await doctor(**other)
    assert code == 1
    [sentence] = found(text, "problem", "live store")
    assert "herenow.db exists, but is not the one that the nodes on this store use" in sentence
    assert "point the setting ledger at theirs" in sentence


@asynccontextmanager
async def _started(folder, settings):
    server = await Server(folder, settings).start()
    try:
        yield server
    finally:
        await server.kill()


async def test_doctor_reports_a_node_that_stopped_renewing_its_lease(valkey):
    async with engine(valkey.url) as opened:
        now = await opened.store_time()
        await opened.renew(Lease("lives", 1, now), begins=True)
        await opened.renew(Lease("frozen", 1, now - 410_000), begins=True)
        await opened.renew(Lease("gone", 1, now - 9_000_000), begins=True)
        await opened.renew(Lease("ahead", 1, now + 300_000), begins=True)
        await opened.renew(Lease("dead", 1, now), begins=True)
        await opened.mark_dead("dead", 1)
        await opened.settle(3, now, 0)
        code, text = await doctor(engine=valkey.url, port=0, node_lease=600)
    assert code == 1
    still = found(text, "problem", "nodes")
    assert sorted(sentence.split()[2] for sentence in still) == ["frozen", "gone"]
    assert "other nodes take them over if this goes on" in "".join(still)
    assert "other nodes are taking over its users" in "".join(still)
    assert "dead was declared dead" in text
    assert re.search(r"The node ahead is 2\d\d\.\d s ahead of the live store's clock", text)
    assert re.search(r"\d+ of 16 shards lost their data", "".join(found(text, "problem", "shards")))


async def test_doctor_says_that_the_next_node_takes_over_the_users_of_a_single_dead_node(valkey):
    async with engine(valkey.url) as opened:
        await opened.renew(Lease("alone", 1, await opened.store_time() - 60_000), begins=True)
    code, text = await doctor(engine=valkey.url, port=0)
    assert code == 0
    [sentence] = found(text, "advice", "nodes")
    assert "the next one that starts takes over its users" in sentence


async def test_doctor_finds_a_frozen_node_by_its_lease_and_by_a_request_to_it(valkey, tmp_path):
    server = await Server(tmp_path, {"engine": valkey.url, **TIMINGS}).start()
    port = int(server.url.rpartition(":")[2])
    settings = {"engine": valkey.url, "port": port, "ledger": f"sqlite:///{server.ledger}", **TIMINGS}
    try:
        async with asyncio.timeout(PATIENCE):
            while (await server.rest("GET", "/stats"))["degraded"]:  # a new store settles first
                await asyncio.sleep(0.1)
        code, text = await doctor(**settings)
        assert code == 0, text
        [sentence] = found(text, "ok", "node ")
        assert "reports no problem" in sentence
        assert found(text, "ok", "nodes") == ["1 of 1 leases are being renewed."]
        os.kill(server.pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            while not found(text, "advice", "nodes"):
                code, text = await doctor(**settings)
        assert code == 1
        [sentence] = found(text, "problem", "node ")
        assert "the process hangs or is frozen" in sentence
        [sentence] = found(text, "advice", "nodes")
        assert "no renewal of its lease for" in sentence
    finally:
        os.kill(server.pid, signal.SIGCONT)
        await server.kill()


async def test_doctor_reports_the_problems_that_a_node_knows_with_a_remedy(valkey, tmp_path):
    """The node's store is full."""
    server = await Server(tmp_path, {"engine": valkey.url, "node_lease": 3}).start()
    port = int(server.url.rpartition(":")[2])
    try:
        valkey.client.config_set("maxmemory", 1)
        await _until(server, lambda troubles: "engine" in troubles)
        code, text = await doctor(engine=valkey.url, node_lease=3, port=port, ledger=f"sqlite:///{server.ledger}")
    finally:
        valkey.client.config_set("maxmemory", 0)
        await server.kill()
    assert code == 1
    sentences = found(text, "problem", "node ")
    assert sentences[0] == (
        "The live store cannot be used. It is full and takes no writes. Raise its maxmemory, or find out what else fills it."
    )


async def test_j10_doctor_and_the_node_report_that_no_process_expires_users(valkey, tmp_path):
    settings = {"engine": valkey.url, "node_lease": 2}
    nodes = [Server(tmp_path, {**settings, "reap": "off"}) for _ in range(2)]
    reaper = Server(tmp_path, settings, "reap")
    try:
        for node in nodes:
            await node.start()
        for node in nodes:
            await _until(node, lambda troubles: troubles == {"reapers"})  # a new store is stale for some seconds
        where = {**settings, "port": nodes[0].url.rpartition(":")[2], "ledger": f"sqlite:///{nodes[0].ledger}"}
        code, text = await doctor(**where)
        assert code == 1
        [sentence] = found(text, "problem", "node")
        assert "No process expires due users in any shard" in sentence
        assert "start herenow reap" in sentence
        await reaper.start()
        for node in nodes:
            await _until(node, lambda troubles: not troubles)
        await reaper.kill()
        await _until(nodes[0], lambda troubles: "reapers" in troubles)
    finally:
        for server in (*nodes, reaper):
            if server.process is not None:
                await server.kill()


# --- The ledger


@pytest.mark.parametrize("how", ["frozen", "killed", "read-only"])
async def test_doctor_and_the_node_report_a_failing_postgresql_database(fragile_postgres, fragile_url, tmp_path, how):
    server = await Server(tmp_path, {"ledger": fragile_url}).start()
    settings = {"ledger": fragile_url, "port": int(server.url.rpartition(":")[2])}
    name = fragile_url.rpartition("/")[2]
    try:
        if how == "frozen":
            fragile_postgres.freeze()
        elif how == "killed":
            fragile_postgres.kill()
        else:
            await fragile_postgres.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            await fragile_postgres.sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
        async with server.client("ana") as ana:  # a user who leaves causes a write
            await ana.send("presence.set", mode="busy")
        async with asyncio.timeout(PATIENCE):
            while not (await server.rest("GET", "/stats"))["degraded"]:
                await asyncio.sleep(0.1)
        code, text = await doctor(**settings)
    finally:
        if how == "frozen":
            fragile_postgres.thaw()
        await server.kill()
        fragile_postgres.start_again()
        if how == "read-only":
            await fragile_postgres.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert code == 1
    assert len(found(text, "problem", "database")) == 1
    assert found(text, "problem", "node ")


@pytest.mark.parametrize(
    ("free", "weights"),
    [(0, [Weight.PROBLEM]), (FULL_DISK, [Weight.ADVICE]), (LITTLE_ROOM - 1, [Weight.ADVICE]), (LITTLE_ROOM, [])],
)
def test_doctor_reports_a_full_disk_and_gives_advice_on_a_nearly_full_one(tmp_path, free, weights):
    assert [finding.weight for finding in room(tmp_path / "herenow.db", free)] == weights


# --- Findings from statistics


@pytest.mark.parametrize(
    ("given", "weight", "words"),
    [
        ({}, Weight.FINE, "reports no problem"),
        ({"draining": True, "ready": False}, Weight.ADVICE, "draining"),
        ({"ready": False}, Weight.PROBLEM, "not ready"),
        ({"per_second": {"conflicts": 30.0, "changes": 40.0}}, Weight.ADVICE, "conflict with a write of another node"),
        ({"delivery": {"p50": 0.1, "p99": 1.5}}, Weight.ADVICE, "1.5 s to reach sockets"),
        ({"degraded": [{"what": "x", "detail": "Woe.", "fix": "Do this."}]}, Weight.PROBLEM, "Woe. Do this."),
    ],
)
def test_doctor_turns_statistics_of_a_node_into_problems_and_advice(given, weight, words):
    first = next(iter(said("http://a:1", stats(**given))))
    assert first.weight is weight
    assert words in first.sentence


def test_doctor_does_not_report_a_few_write_conflicts_of_a_node():
    some = stats(per_second={"conflicts": 9.0, "changes": 1.0})
    assert [finding.weight for finding in said("http://a:1", some)] == [Weight.FINE]
