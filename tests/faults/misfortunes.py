"""The faults of the bench, each with a proof that it took effect.

A misfortune is an async function of the lab and its random generator: it begins a fault, keeps it for a while, ends it,
and calls `lab.prove` with evidence that it took effect; a fault without evidence fails the run. `NEEDS` says on which
stage it can happen.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import httpx2
from tests.faults.people import Client
from tests.processes import token

if TYPE_CHECKING:
    from tests.faults.fleet import Member
    from tests.faults.lab import Lab

Misfortune = Callable[["Lab", Random], Awaitable[None]]
MISFORTUNES: dict[str, tuple[str, Misfortune]] = {}
"""Name → what it needs (see `Lab.offers`), and its function."""


def needs(what: str) -> Callable[[Misfortune], Misfortune]:
    def known(how: Misfortune) -> Misfortune:
        MISFORTUNES[how.__name__.replace("_", " ")] = what, how
        return how

    return known


# Nodes


@needs("processes")
async def kill_node(lab: Lab, dice: Random) -> None:
    member = lab.somebody(dice)
    with lab.trouble("kill node", member, kills=True):
        assert await member.kill() == -9
        await asyncio.sleep(dice.choice([0.1, 6.0]))
        await member.start()
    lab.prove("kill node", f"{member.name} was killed and started again")


@needs("processes")
async def stop_node(lab: Lab, dice: Random) -> None:
    member = lab.somebody(dice)
    with lab.trouble("stop node", member, kills=True):
        assert await member.stop() == 0
        await member.start()
    lab.prove("stop node", f"{member.name} left in order and came back")


@needs("nodes")
async def freeze_node_briefly(lab: Lab, dice: Random) -> None:
    member = lab.somebody(dice)
    with lab.trouble("freeze node", member, cuts=True, stops=True):
        member.freeze()
        await asyncio.sleep(2)
        assert _state(member) == "T"
        member.thaw()
    lab.prove("freeze node briefly", "its process stood still")


@needs("processes")
async def freeze_node_for_longer_than_its_lease(lab: Lab, dice: Random) -> None:
    await lab.until(lab.is_settled)  # in a store that was just emptied the node has no lease that could be found dead
    member = lab.somebody(dice)
    epochs = (await member.metrics())["herenow_epochs_total"]
    with lab.trouble("freeze node", member, cuts=True, stops=True):
        member.freeze()
        await asyncio.sleep(2.5 * lab.fleet.lease / 1000)
        member.thaw()
        await lab.until(lambda: _metric_above(member, "herenow_epochs_total", epochs))
    lab.prove("freeze node for longer than its lease", "it had to take a new epoch")


@needs("nodes")
async def step_clocks(lab: Lab, dice: Random) -> None:
    members = lab.fleet.up()
    with lab.trouble("step clocks"):
        for member in members:
            member.step_clock(dice.choice([-60, -5, 5, 60]))
        await asyncio.sleep(3)
        shifts = [await _said_time(member) for member in members]
        for member in members:
            member.step_clock(0)
        await asyncio.sleep(1)
    assert max(abs(shift) for shift in shifts) > 3
    lab.prove("step clocks", f"their machines' clocks were off by {[round(shift) for shift in shifts]} s")


@needs("nodes")
async def no_descriptors_left(lab: Lab, dice: Random) -> None:
    member = lab.somebody(dice)
    pid = _pid(member)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    doors: list[socket.socket] = []
    refused = 0
    with lab.trouble("no descriptors left", member):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (_first_free(pid), before[1]))
        try:
            address = member.url.removeprefix("http://").split(":")
            for _ in range(10):
                door = socket.create_connection((address[0], int(address[1])), timeout=2)
                door.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                doors.append(door)
            await asyncio.sleep(2)
            for door in doors:
                door.setblocking(False)
                try:
                    refused += not door.recv(100)
                except (BlockingIOError, OSError):
                    refused += 1
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            for door in doors:
                door.close()
        await lab.until(member.ready)
    assert refused
    lab.prove("no descriptors left", f"{refused} of 10 were not answered, then it was ready again")


@needs("nodes")
async def slow_consumer(lab: Lab, dice: Random) -> None:
    """A client that sends requests and never reads the answers."""
    member = lab.somebody(dice)
    closed = (await member.metrics()).get("herenow_closes_total{4408}", 0)
    address = member.url.removeprefix("http://").split(":")
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    door.connect((address[0], int(address[1])))
    door.sendall(
        f"GET /ws/presence?device_id=slow HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Authorization: Bearer {token('slow')}\r\n\r\n".encode()
    )
    door.settimeout(0.2)
    users = ",".join(f'"{user}"' for user in lab.people.users)
    question = _masked(f'{{"type":"presence.subscribe","target_user_ids":[{users}]}}'.encode())
    with lab.trouble("slow consumer", member):
        await lab.fleet.befriend("slow", *lab.people.users)
        rest = b""  # unsent bytes: a frame continues where it was interrupted
        for _ in range(200):
            rest = rest or question * 50
            try:
                rest = rest[door.send(rest) :]
            except TimeoutError:
                pass
            except OSError:
                break
            await asyncio.sleep(0.05)
            if (await member.metrics()).get("herenow_closes_total{4408}", 0) > closed:
                break
        await lab.until(lambda: _metric_above(member, "herenow_closes_total{4408}", closed))
        door.close()
    lab.prove("slow consumer", "the node closed it with 4408")


@needs("nodes")
async def reconnect_storm(lab: Lab, dice: Random) -> None:
    came: list[bool] = []
    crowd = [Client(lab.fleet, f"crowd{number}", "d1", lab.nobody) for number in range(200)]
    with lab.trouble("reconnect storm"):
        for _ in range(2):
            nodes = lab.fleet.up()
            came = await asyncio.gather(*(client.open(dice.choice(nodes)) for client in crowd))
            assert sum(came) > 150
            for client in crowd:
                if client.link is not None and client.link.tunnel is not None:
                    client.link.tunnel.reset()
            await lab.until(lambda: _all_gone(crowd))
    for client in crowd:
        lab.fleet.clients.remove(client)
        await client.stop()
    lab.prove("reconnect storm", f"{sum(came)} of {len(crowd)} came in the second wave")


async def _all_gone(crowd: list[Client]) -> bool:
    return all(client.link is None for client in crowd)


# The connection of a node to the store


@needs("proxies")
async def cut_off_briefly(lab: Lab, dice: Random) -> None:
    seconds = (lab.fleet.lease + lab.fleet.timings.grace) / 1000 - 1
    await _on_the_way(lab, dice, "cut off briefly", seconds, lambda way: way.cut(), "refused")


@needs("proxies")
async def cut_off_for_longer_than_lease_and_grace(lab: Lab, dice: Random) -> None:
    seconds = (lab.fleet.lease * 2 + lab.fleet.timings.grace) / 1000
    await _on_the_way(lab, dice, "cut off for longer than lease and grace", seconds, lambda way: way.cut(), "refused")


@needs("proxies")
async def unheard(lab: Lab, dice: Random) -> None:
    await _on_the_way(lab, dice, "unheard", 4.0, lambda way: setattr(way, "deaf", True), "swallowed")


@needs("proxies")
async def unanswered(lab: Lab, dice: Random) -> None:
    await _on_the_way(lab, dice, "unanswered", 4.0, lambda way: setattr(way, "mute", True), "swallowed")


@needs("proxies")
async def slow_way(lab: Lab, dice: Random) -> None:
    await _on_the_way(lab, dice, "slow way", 4.0, lambda way: setattr(way, "delay", 0.4), "delayed")


@needs("proxies")
async def resets(lab: Lab, dice: Random) -> None:
    await _on_the_way(lab, dice, "resets", 1.0, lambda way: way.reset(), "reset")


@needs("proxies")
async def black_hole(lab: Lab, dice: Random) -> None:
    await _on_the_way(lab, dice, "black hole", 4.0, lambda way: way.blackhole(), "swallowed")


async def _on_the_way(
    lab: Lab, dice: Random, kind: str, seconds: float, begin: Callable[..., None], proof: str
) -> None:
    member = lab.somebody(dice)
    way = member.back
    assert way is not None
    before = way.taken[proof]
    with lab.trouble(kind, member, cuts=True):
        begin(way)
        await asyncio.sleep(seconds)
        await lab.until(lambda: _count_above(way.taken, proof, before))
        way.heal()
    lab.prove(kind, f"{proof} {way.taken[proof] - before} times")


async def _count_above(taken: dict[str, int], what: str, before: int) -> bool:
    return taken[what] > before


# The store


@needs("store")
async def empty_the_store(lab: Lab, dice: Random) -> None:
    await lab.until(lab.is_settled)  # otherwise a loss in an already empty store would not be noticed
    lost = await lab.total("herenow_shards_lost_total")
    with lab.trouble("empty the store", loses=True):
        lab.store.client.flushall()
        await lab.until(lambda: lab.total_above("herenow_shards_lost_total", lost))
    lab.prove("empty the store", "nodes found their shards empty")


@needs("store")
async def kill_the_store(lab: Lab, dice: Random) -> None:
    """The store has no disk: it comes back empty."""
    await lab.until(lab.is_settled)
    lost = await lab.total("herenow_shards_lost_total")
    with lab.trouble("kill the store", loses=True):
        await asyncio.to_thread(lab.store.kill)
        await asyncio.sleep(dice.choice([0.5, 4.0]))
        await asyncio.to_thread(lab.store.start)
        await lab.until(lambda: lab.total_above("herenow_shards_lost_total", lost))
    lab.prove("kill the store", "nodes found it empty")


@needs("store")
async def freeze_the_store(lab: Lab, dice: Random) -> None:
    errors = await lab.total("herenow_engine_errors_total")
    with lab.trouble("freeze the store"):
        lab.store.stop_the_clock()
        await asyncio.sleep(dice.choice([3.0, 6.0]))
        lab.store.go_on()
        await lab.until(lambda: lab.total_above("herenow_engine_errors_total", errors))
    lab.prove("freeze the store", "nodes counted calls that failed")


@needs("store")
async def the_store_is_full(lab: Lab, dice: Random) -> None:
    errors = await lab.total("herenow_engine_errors_total")
    with lab.trouble("the store is full"):
        lab.store.client.config_set("maxmemory", "1")
        await asyncio.sleep(3)
        lab.store.client.config_set("maxmemory", "0")
        await lab.until(lambda: lab.total_above("herenow_engine_errors_total", errors))
    lab.prove("the store is full", "nodes counted calls that failed")


@needs("store")
async def the_store_takes_no_writes(lab: Lab, dice: Random) -> None:
    errors = await lab.total("herenow_engine_errors_total")
    with lab.trouble("the store takes no writes"):
        lab.store.client.config_set("min-replicas-to-write", "1")
        await asyncio.sleep(3)
        lab.store.client.config_set("min-replicas-to-write", "0")
        await lab.until(lambda: lab.total_above("herenow_engine_errors_total", errors))
    lab.prove("the store takes no writes", "nodes counted calls that failed")


@needs("store clock")
async def step_the_stores_clock(lab: Lab, dice: Random) -> None:
    """All nodes follow this clock."""
    seconds = dice.choice([-60, 60])
    with lab.trouble("step the store's clock", shifts=True):
        lab.store_clock.step(seconds)
        await asyncio.sleep(4)
        told, _ = await asyncio.to_thread(lab.store.client.time)
        lab.store_clock.step(0)
        await asyncio.sleep(1)
    assert abs(told - time.time() - seconds) < 30
    lab.prove("step the stores clock", f"the server said a time that was off by {told - time.time():.0f} s")


# Sentinel


@needs("sentinels")
async def kill_the_master(lab: Lab, dice: Random) -> None:
    group = lab.group
    old = await asyncio.to_thread(lambda: group.current)
    with lab.trouble("kill the master", loses=True):
        await asyncio.to_thread(old.kill)
        other = group.replica if old is group.master else group.master
        await lab.until(lambda: _is_master(other))
        await asyncio.to_thread(old.start)
        await asyncio.to_thread(group.wait_until_whole)
    lab.prove("kill the master", "its replica became master")


@needs("sentinels")
async def freeze_the_master(lab: Lab, dice: Random) -> None:
    group = lab.group
    old = await asyncio.to_thread(lambda: group.current)
    with lab.trouble("freeze the master", loses=True):
        old.stop_the_clock()
        other = group.replica if old is group.master else group.master
        await lab.until(lambda: _is_master(other))
        old.go_on()
        await asyncio.to_thread(group.wait_until_whole)
    lab.prove("freeze the master", "its replica became master, and the master that woke a replica")


@needs("sentinels")
async def fail_over_by_hand(lab: Lab, dice: Random) -> None:
    group = lab.group
    old = await asyncio.to_thread(lambda: group.current)
    with lab.trouble("fail over by hand", loses=True):
        other = group.replica if old is group.master else group.master
        group.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", "mine")
        await lab.until(lambda: _is_master(other))
        await asyncio.to_thread(group.wait_until_whole)
    lab.prove("fail over by hand", "the other is master now")


@needs("sentinels")
async def kill_a_sentinel(lab: Lab, dice: Random) -> None:
    sentinel = dice.choice(lab.group.sentinels)
    with lab.trouble("kill a sentinel"):
        await asyncio.to_thread(sentinel.kill)
        await lab.until(lambda: asyncio.to_thread(lambda: _is_called_down(lab, sentinel)))
        await asyncio.to_thread(sentinel.start)
        await asyncio.to_thread(lab.group.wait_until_whole)
    lab.prove("kill a sentinel", "the two others called it down, then knew it again")


@needs("sentinels")
async def freeze_a_sentinel(lab: Lab, dice: Random) -> None:
    sentinel = dice.choice(lab.group.sentinels)
    with lab.trouble("freeze a sentinel"):
        sentinel.stop_the_clock()
        try:
            await lab.until(lambda: asyncio.to_thread(lambda: _is_called_down(lab, sentinel)))
        finally:
            sentinel.go_on()
        await lab.until(lambda: asyncio.to_thread(lambda: not _is_called_down(lab, sentinel)))
    lab.prove("freeze a sentinel", "the two others called it down, then up again")


def _is_called_down(lab: Lab, sentinel: Any) -> bool:
    """True if both other sentinels consider it down."""
    others = [each for each in lab.group.sentinels if each is not sentinel]
    return all("s_down" in other.others_say(sentinel.port) for other in others)


async def _is_master(server: object) -> bool:
    info = await asyncio.to_thread(server.client.info, "replication")  # type: ignore[attr-defined]
    return bool(info["role"] == "master")


# SQLite


@needs("sqlite")
async def the_ledger_is_locked(lab: Lab, dice: Random) -> None:
    path = lab.fleet.ledger_url.removeprefix("sqlite:///")
    with lab.trouble("the ledger is locked", blinds=True):
        locker = sqlite3.connect(path, isolation_level=None, timeout=10)
        locker.execute("BEGIN EXCLUSIVE")
        try:
            said = await _refusal(lab, dice, "locked")
        finally:
            locker.execute("ROLLBACK")
            locker.close()
    lab.prove("the ledger is locked", f"a node said: {said}")


@needs("sqlite")
async def the_disk_is_full(lab: Lab, dice: Random) -> None:
    """No file of a node may grow, like a full disk for SQLite."""
    with lab.trouble("the disk is full", blinds=True):
        with _no_file_may_grow(lab.fleet.up()):
            said = await _refusal(lab, dice, "disk")
    lab.prove("the disk is full", f"a node said: {said}")


async def _refusal(lab: Lab, dice: Random, *words: str, method: str = "PUT", path: str = "/blocks/{}") -> str:
    """The error text with which a node refuses a block, or a list of blocks. The text must contain one of `words`, so
    that an unrelated error is not accepted as evidence.
    """
    member, said = lab.somebody(dice), ""

    async def refused() -> bool:
        nonlocal said
        number = next(lab.numbers)
        said = await member.refusal(method, path.format(f"somebody{number}"), f"asker{number}")
        return any(word in said for word in words)

    await lab.until(refused)
    return said


@contextmanager
def _no_file_may_grow(members: list[Member]) -> Iterator[None]:
    limits = [(member, resource.prlimit(_pid(member), resource.RLIMIT_FSIZE)) for member in members]
    for member, (_, hard) in limits:
        resource.prlimit(_pid(member), resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        for member, limit in limits:
            resource.prlimit(_pid(member), resource.RLIMIT_FSIZE, limit)


# PostgreSQL


async def _unreadable(lab: Lab, dice: Random) -> str:
    return await _refusal(lab, dice, "The database cannot be used", method="GET", path="/blocks")


@needs("postgres")
async def kill_the_database(lab: Lab, dice: Random) -> None:
    with lab.trouble("kill the database", blinds=True):
        await asyncio.to_thread(lab.database.kill)
        said = await _unreadable(lab, dice)
        await asyncio.sleep(dice.choice([0.0, 3.0]))
        await asyncio.to_thread(lab.database.start)
    lab.prove("kill the database", f"a node said: {said}")


@needs("postgres")
async def freeze_the_database(lab: Lab, dice: Random) -> None:
    with lab.trouble("freeze the database", blinds=True):
        lab.database.freeze()
        try:
            said = await _unreadable(lab, dice)
        finally:
            lab.database.thaw()
    lab.prove("freeze the database", f"a node said: {said}")


@needs("postgres")
async def cut_off_from_the_database(lab: Lab, dice: Random) -> None:
    member = lab.somebody(dice)
    way = member.side
    assert way is not None
    before = way.taken["refused"]
    with lab.trouble("cut off from the database", member, blinds=True):
        way.cut()
        await lab.until(lambda: _count_above(way.taken, "refused", before))
        await asyncio.sleep(3)
        way.heal()
    lab.prove("cut off from the database", f"refused {way.taken['refused'] - before} times")


# Evidence


async def _metric_above(member: Member, name: str, before: float) -> bool:
    try:
        return (await member.metrics()).get(name, 0) > before
    except httpx2.HTTPError:
        return False


def _pid(member: Member) -> int:
    assert member.process is not None
    return member.process.pid


def _state(member: Member) -> str:
    return Path(f"/proc/{_pid(member)}/stat").read_text().rpartition(") ")[2][0]


def _first_free(pid: int) -> int:
    """The number of the next file descriptor of the process."""
    taken = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in count() if number not in taken)


async def _said_time(member: Member) -> float:
    """Offset of the node's clock in seconds, from the Date header of an answer."""
    async with httpx2.AsyncClient(timeout=5) as http:
        answer = await http.get(f"{member.url}/healthz")
    date = answer.headers.get("date")
    assert date is not None
    return parsedate_to_datetime(date).timestamp() - time.time()


def _masked(payload: bytes) -> bytes:
    length = len(payload)
    head = bytes([0x81, 0x80 | length]) if length < 126 else bytes([0x81, 0xFE]) + length.to_bytes(2, "big")
    return head + b"\0\0\0\0" + payload


# A cluster


@needs("cluster")
async def kill_a_master(lab: Lab, dice: Random) -> None:
    group = lab.group
    old = dice.choice(await asyncio.to_thread(lambda: group.masters_now))
    with lab.trouble("kill a master", loses=True):
        await asyncio.to_thread(old.kill)
        await lab.until(lambda: asyncio.to_thread(lambda: len(group.masters_now) == 3 and group.is_whole()))
        await asyncio.to_thread(old.start)
        await lab.until(lambda: asyncio.to_thread(lambda: group.is_whole() and old not in group.masters_now))
    lab.prove("kill a master", "its replica became master")


@needs("cluster")
async def freeze_a_master(lab: Lab, dice: Random) -> None:
    group = lab.group
    old = dice.choice(await asyncio.to_thread(lambda: group.masters_now))
    with lab.trouble("freeze a master", loses=True):
        old.stop_the_clock()
        await lab.until(lambda: asyncio.to_thread(lambda: len(group.masters_now) == 3 and group.is_whole()))
        old.go_on()
        await lab.until(lambda: asyncio.to_thread(lambda: group.is_whole() and old not in group.masters_now))
    lab.prove("freeze a master", "its replica became master, and the master that woke a replica")


@needs("cluster")
async def move_a_slot(lab: Lab, dice: Random) -> None:
    """Move a slot that holds a shard, key by key, while it is used."""
    moved = 0
    with lab.trouble("move a slot"):
        for slot in await asyncio.to_thread(lab.group.slots_with_keys):
            moved += await asyncio.to_thread(lab.group.move, slot, dice)
            await asyncio.sleep(0.5)
    assert moved
    lab.prove("move a slot", f"{moved} keys went to another master")
