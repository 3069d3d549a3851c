"""Startup checks of a Redis server: a server that cannot be used is refused with one sentence.

Refused are servers that evict keys (users would be lost), are too old for the commands in the scripts, or are replicas (no
writes), and clusters without a master for one of our slots. Checks that need INFO are skipped if the server denies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import hiredis

from herenow.engines.redis.client import Cluster, Lost, RedisTarget, Refused, Server, Servers, Topology, refusal
from herenow.errors import ConfigurationError, Unavailable

OLDEST = (6, 2)


async def check(servers: Servers, target: RedisTarget, slots: Sequence[int]) -> None:
    """Connect to the Redis servers and check that each master can be used: its version, role and eviction policy.
    `slots`: the cluster slots of our keys. Raises `ConfigurationError`, or `Unavailable` when no server answers."""
    try:
        await servers.open()
        if isinstance(servers, Cluster):
            missing = servers.missing(slots)
            if missing:
                raise _wrong(target, f"the cluster has no master for slot {missing[0]}: assign one, then start again")
        else:
            await servers.of(slots[0])
        for server in servers.masters():
            await _check_server(server, target)
    except Refused as error:
        raise _wrong(target, str(error)) from None


@dataclass(frozen=True, slots=True)
class ServerState:
    """The figures of one server that `herenow doctor` judges."""

    address: str
    used_memory: int
    maxmemory: int
    """In bytes; 0: no limit."""
    policy: str
    evicted: int
    """Keys evicted since the server started."""
    saves: bool
    """The last RDB snapshot was written, or there was none."""
    replicas: int
    watched: bool
    """Sentinel or Cluster would promote a replica if this server failed."""

    @property
    def volatile(self) -> bool:
        return self.policy.startswith("volatile")


async def states(servers: Servers, target: RedisTarget) -> list[ServerState]:
    """Return memory, eviction and replication figures of each Redis master; call after `check`. Replicas, and servers
    that deny INFO, are left out."""
    infos = [(server, await _info(server)) for server in servers.masters()]
    return [_state(server, info, target) for server, info in infos if info and info.get("role") != "slave"]


def _state(server: Server, info: dict[str, str], target: RedisTarget) -> ServerState:
    return ServerState(
        address=str(server.address),
        used_memory=int(info.get("used_memory", "0")),
        maxmemory=int(info.get("maxmemory", "0")),
        policy=info.get("maxmemory_policy", "noeviction"),
        evicted=int(info.get("evicted_keys", "0")),
        saves=info.get("rdb_last_bgsave_status", "ok") == "ok",
        replicas=int(info.get("connected_slaves", "0")),
        watched=target.topology in (Topology.SENTINEL, Topology.CLUSTER),
    )


async def _check_server(server: Server, target: RedisTarget) -> None:
    info = await _info(server)
    where = server.address
    version = tuple(int(part) for part in info.get("redis_version", "9.9").split(".")[:2])
    if version < OLDEST:
        raise _wrong(target, f"{where} has version {info['redis_version']}; 6.2 or newer is needed")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys"):
        raise _wrong(target, f"{where} has maxmemory-policy {policy} and would evict users; set it to noeviction")
    mode = info.get("redis_mode") or info.get("server_mode")  # the latter in Valkey
    clustered = info.get("cluster_enabled") == "1" or mode == "cluster"
    if clustered and target.topology is not Topology.CLUSTER:
        raise _wrong(target, f"{where} is a node of a cluster: use redis+cluster://{where}")
    if mode == "sentinel":
        raise _wrong(target, f"{where} is a sentinel: use redis+sentinel://{where}/name")
    if target.topology is Topology.CLUSTER and not clustered:
        raise _wrong(target, f"{where} is not a node of a cluster: use redis://{where}")
    if info.get("role") == "slave" and target.topology is not Topology.CLUSTER:
        raise _wrong(target, f"{where} is a replica and takes no writes: use its master, or redis+sentinel://")


async def _info(server: Server) -> dict[str, str]:
    try:
        replies = await server.ask([("INFO",)])
    except Lost as error:
        raise Unavailable(str(error)) from None
    [reply] = replies
    if isinstance(reply, hiredis.ReplyError):
        if str(reply).startswith("NOPERM"):
            return {}
        raise refusal(server.address, reply)
    lines = reply.decode(errors="replace").splitlines() if isinstance(reply, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _wrong(target: RedisTarget, why: str) -> ConfigurationError:
    return ConfigurationError(unusable(target, why))


def unusable(target: RedisTarget, why: str) -> str:
    """Return an error sentence with the engine's URL and the reason `why`, which may be a server's reply with
    punctuation of its own."""
    why = why.rstrip(" .")
    return f"engine {target.shown!r} cannot be used: {why}{'' if why.endswith(('?', '!')) else '.'}"
