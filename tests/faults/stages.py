"""The stages for faults: a fleet on one server, each node behind proxies; a fleet on a sentinel group with PostgreSQL;
a fleet on a cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from tests.faults.fleet import Fleet
from tests.faults.lab import Lab
from tests.faults.store_clock import StoreClock
from tests.postgres_server import PostgresServer
from tests.redis_servers import ClusterGroup, SentinelGroup, running, valkey_binary


@asynccontextmanager
async def on_one_server(folder: Path, seed: int) -> AsyncIterator[Lab]:
    clock = StoreClock(folder)
    binary = clock.before(valkey_binary())
    with running(binary=binary) as store:
        fleet = Fleet(folder, store.url)
        fleet.stores.append(store)
        try:
            await fleet.start()
            offers = ["processes", "nodes", "proxies", "store", "sqlite"]
            lab = Lab(fleet, seed, [*offers, "store clock"] if binary else offers, store=store, store_clock=clock)
            if binary is None:
                lab.left_out["step the stores clock"] = "there is no C compiler here for the server's clock"
            yield lab
        finally:
            await fleet.close()


@asynccontextmanager
async def with_sentinels(folder: Path, seed: int) -> AsyncIterator[Lab]:
    group, database = SentinelGroup(down_after=1_500), PostgresServer()
    try:
        group.start()
        database.make().start()
        ledger = await database.make_database("faults")
        fleet = Fleet(folder, group.url, ledger=ledger, through_proxies=False)
        fleet.stores += [group.master, group.replica]
        try:
            await fleet.start()
            yield Lab(fleet, seed, ["processes", "sentinels", "postgres"], group=group, database=database)
        finally:
            await fleet.close()
    finally:
        database.close()
        group.close()


@asynccontextmanager
async def on_a_cluster(folder: Path, seed: int) -> AsyncIterator[Lab]:
    group = ClusterGroup(replicas=1, down_after=1_500)
    try:
        group.start()
        fleet = Fleet(folder, group.url, through_proxies=False)
        fleet.stores += group.nodes
        try:
            await fleet.start()
            yield Lab(fleet, seed, ["cluster"], group=group)
        finally:
            await fleet.close()
    finally:
        group.close()


STAGES: dict[str, Callable[[Path, int], AbstractAsyncContextManager[Lab]]] = {
    "one-server": on_one_server,
    "sentinels": with_sentinels,
    "cluster": on_a_cluster,
}
