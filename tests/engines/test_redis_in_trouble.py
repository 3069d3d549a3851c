"""An engine on failing servers: frozen, emptied, refusing, moved, or replaced by older copies.

No test waits for time to pass; tests wait for the servers to reach a state.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.redis_servers import ClusterGroup, SentinelGroup, running, wait_for

from herenow.engines import make_engine
from herenow.engines.redis import ShardKeys
from herenow.engines.redis.client import RedisConnection, connect, redis_server, sentinel
from herenow.errors import ConfigurationError, Unavailable, UnknownOutcome
from herenow.ports import Committed, Fenced, Lease, Loaded, Write
from herenow_testing.contracts.engine import NOW, TERMS, is_settled, joined, log_after, record, settled, stored, user_of

PATIENCE = 30.0


@asynccontextmanager
async def opened(url, **options):
    engine = make_engine(url, **{"capacity": 10_000, **options})
    await engine.open(TERMS)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
def server():
    """Its own server, because tests break it."""
    with running() as server:
        yield server


@pytest.fixture
async def engine(server):
    async with opened(server.url) as engine:
        yield engine


async def sooner_or_later(call, wanted=lambda answer: True):
    """Repeats the call until it succeeds, as a node does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                answer = await call()
                if wanted(answer):
                    return answer
            except (Unavailable, UnknownOutcome):
                pass
            await asyncio.sleep(0.05)


# Frozen servers


async def test_a_write_to_a_frozen_redis_has_an_unknown_outcome_until_the_node_raises_its_fence_number(server, engine):
    node, user = await joined(engine), user_of(engine, 0)
    await node.commit()
    server.stop_the_clock()
    with pytest.raises(UnknownOutcome):
        await engine.commit(node.batch(Write(user, None, record(1), note=b"n")))
    with pytest.raises(Unavailable):
        await engine.commit(node.batch(Write(user, None, record(1), note=b"n")))
    with pytest.raises(Unavailable):
        await engine.load([user])
    server.go_on()
    row = await sooner_or_later(lambda: engine.jump(0, node.epoch, 10))
    assert row in (1, 2)
    ran = record(1) if row == 2 else None
    assert await stored(engine, user) == ran
    node.last = 10
    await node.write(Write(user, ran, record(2)))
    assert await stored(engine, user) == record(2)


async def test_a_batch_sent_to_a_frozen_redis_runs_when_it_resumes_but_never_after_a_raised_fence_number(
    server, engine
):
    """The late execution is real, and the fence stops it."""
    node, user = await joined(engine), user_of(engine, 0)
    await node.commit()  # now the server has the script
    late = node.batch(Write(user, None, record(1)))
    server.stop_the_clock()
    with pytest.raises(UnknownOutcome):
        await engine.commit(late)
    server.go_on()
    await sooner_or_later(lambda: stored(engine, user), lambda found: found == record(1))
    assert await engine.commit(late) == Fenced(2)
    assert await engine.jump(0, node.epoch, 20) == 2
    assert await engine.commit(late) == Fenced(20)


async def test_reading_the_log_of_a_frozen_redis_raises_unavailable(server, engine):
    heads = await engine.heads()
    server.stop_the_clock()
    try:
        with pytest.raises(Unavailable):
            await engine.tail(heads, 0.2)
    finally:
        server.go_on()
    assert await sooner_or_later(lambda: engine.tail(heads, 0)) == []


async def test_a_thousand_calls_to_an_unreachable_redis_make_few_connection_attempts(server, engine, monkeypatch):
    attempts = []

    async def counted(address, login):
        attempts.append(address)
        return await connect(address, login)

    monkeypatch.setattr(redis_server, "connect", counted)
    server.kill()
    began = asyncio.get_running_loop().time()
    for _ in range(1_000):
        with pytest.raises(Unavailable):
            await engine.load(["ana"])
    took = asyncio.get_running_loop().time() - began
    assert 1 <= len(attempts) <= 2 + took / redis_server.ATTEMPT_INTERVAL


# Data loss


async def test_every_call_detects_a_redis_that_came_back_empty(server, engine):
    await settled(engine)
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1), wake_at=5, note=b"n", unsaved=True))
    assert await engine.renew(Lease(node.epoch, 1, NOW), begins=True)
    heads = await engine.heads()
    waiting = asyncio.create_task(engine.tail(heads, 5))
    await asyncio.sleep(0)
    server.kill()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises((Unavailable, UnknownOutcome)):
        await engine.commit(node.batch())
    with pytest.raises(Unavailable):
        await engine.commit(node.batch())
    server.start()
    assert await sooner_or_later(lambda: engine.load([user])) == [Loaded(None, settled=False)]
    assert not (await engine.due([0], NOW, 10))[0].settled
    assert await engine.commit(node.batch(Write(user, record(1), record(2)))) == Fenced(None)
    part = await log_after(engine, 0, heads[0])
    assert part is not None
    assert part.gap
    assert not await engine.renew(Lease(node.epoch, 2, NOW))
    assert await engine.renew(Lease("another-epoch", 1, NOW), begins=True)


async def test_after_flushall_a_running_node_stores_its_settings_again_and_a_node_that_differs_is_refused(
    server, engine
):
    assert await engine.renew(Lease("epoch", 1, NOW), begins=True)
    server.client.flushall()
    assert not await engine.renew(Lease("epoch", 2, NOW))
    other = make_engine(server.url, capacity=777)
    with pytest.raises(ConfigurationError, match="grace"):
        await other.open({**TERMS, "grace": "another"})
    await other.open(TERMS)
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1)))
    assert await stored(other, user) == record(1), "both find it in the same bucket"
    await other.close()


async def test_a_node_stops_using_an_emptied_redis_that_nodes_with_other_settings_took_over(server, engine):
    server.client.flushall()
    async with opened(server.url, capacity=1_000_000):
        with pytest.raises(Unavailable, match="restart"):
            await engine.renew(Lease("epoch", 2, NOW))


async def test_scripts_flushed_from_redis_are_loaded_again_and_run_once(server, engine):
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1)))
    server.client.script_flush()
    await node.write(Write(user, record(1), record(2), note=b"n"))
    assert await stored(engine, user) == record(2)
    assert (await engine.heads())[0] == 1


async def test_redis_connections_killed_by_the_server_are_reopened(server, engine):
    node, user = await joined(engine), user_of(engine, 0)
    await engine.send(b"before")
    assert await engine.receive(5) == [b"before"]
    server.client.client_kill_filter(_type="normal", skipme=True)
    server.client.client_kill_filter(_type="pubsub", skipme=True)
    await sooner_or_later(lambda: engine.load([user]))
    await node.write(Write(user, None, record(1)))
    await sooner_or_later(lambda: engine.receive(0.01), lambda got: got == [])
    await engine.send(b"after")
    assert await engine.receive(5) == [b"after"]


# Refused writes


async def refused(engine, node, user, why):
    before = await engine.heads()
    with pytest.raises(Unavailable, match=why):
        await engine.commit(node.batch(Write(user, record(1), record(2), wake_at=9, note=b"n", unsaved=True)))
    assert await stored(engine, user) == record(1)
    assert await engine.heads() == before
    assert await engine.unsaved(0, 10) == []


async def test_a_redis_without_free_memory_refuses_whole_batches_but_still_removes_records(server, engine):
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1)))
    server.client.config_set("maxmemory", 1)
    await refused(engine, node, user, "OOM")
    with pytest.raises(Unavailable):
        await engine.renew(Lease(node.epoch, 1, NOW), begins=True)
    await engine.saved(0, [(user, record(1), True)])
    assert await stored(engine, user) is None
    server.client.config_set("maxmemory", 0)
    await node.write(Write(user, None, record(3)))


async def test_a_redis_that_became_a_replica_refuses_writes_until_it_is_a_master_again(server, engine):
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1)))
    with running() as master:
        server.client.config_set("replica-serve-stale-data", "yes")
        server.client.replicaof("127.0.0.1", master.port)
        with pytest.raises(Unavailable, match="READONLY"):
            await engine.commit(node.batch(Write(user, record(1), record(2))))
        server.client.replicaof("NO", "ONE")
    answer = await sooner_or_later(lambda: engine.commit(node.batch(Write(user, None, record(3)))))
    assert isinstance(answer, Committed | Fenced)


async def test_a_redis_master_with_too_few_replicas_refuses_writes(server, engine):
    node, user = await joined(engine), user_of(engine, 0)
    await node.write(Write(user, None, record(1)))
    server.client.config_set("min-replicas-to-write", 1)
    await refused(engine, node, user, "NOREPLICAS")
    server.client.config_set("min-replicas-to-write", 0)
    await node.write(Write(user, record(1), record(2)))


async def test_a_redis_script_that_fails_half_way_has_an_unknown_outcome(server, engine):
    node, user = await joined(engine), user_of(engine, 0)
    server.client.set(ShardKeys("herenow", 0).log, "not a stream")
    with pytest.raises(UnknownOutcome):
        await engine.commit(node.batch(Write(user, None, record(1), note=b"n")))
    with pytest.raises(Unavailable):
        await engine.tail({0: 5}, 0.01)


# Sentinel


@pytest.fixture
def group():
    group = SentinelGroup(down_after=1_000)
    try:
        yield group.start()
    finally:
        group.close()


async def test_a_redis_failover_that_loses_writes_is_detected_because_the_nodes_fence_number_is_older(group):
    async with opened(group.url) as engine:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        assert group.master.client.wait(1, 5_000) == 1
        group.replica.stop_the_clock()
        group.master.client.client_kill_filter(_type="slave")
        await node.write(Write(user, record(1), record(2)))
        group.master.kill()
        group.replica.go_on()
        answer = await sooner_or_later(lambda: engine.commit(node.batch(Write(user, record(2), record(3)))))
        assert answer == Fenced(1)
        assert await stored(engine, user) == record(1)


async def test_a_planned_redis_failover_is_noticed_and_the_old_master_gets_no_writes(group):
    async with opened(group.url) as engine:
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        group.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", "mine")
        wait_for(lambda: group.replica.client.info("replication")["role"] == "master", "no failover")
        await sooner_or_later(
            lambda: engine.load([user]),
            lambda _: any(each.address.port == group.replica.port for each in engine._servers.masters()),
        )
        answer = await sooner_or_later(lambda: engine.jump(0, node.epoch, 10))
        assert answer == 1
        assert group.replica.client.hget(ShardKeys("herenow", 0).fences, node.epoch) == b"10"


async def test_a_node_subscribes_again_to_a_redis_sentinel_that_froze(group, monkeypatch):
    monkeypatch.setattr(sentinel, "PING_AFTER", 0.2)
    vanishing = group.sentinels[0]

    def listening():
        return {each["id"] for each in vanishing.client.client_list(_type="pubsub") if each["name"] == "herenow"}

    async with opened(group.url):
        await asyncio.to_thread(wait_for, listening, "nobody listens")
        [before] = listening()
        vanishing.stop_the_clock()
        await asyncio.sleep(1)  # longer than two silence limits
        vanishing.go_on()
        await asyncio.to_thread(wait_for, lambda: listening() - {before}, "nobody listens again")


async def test_an_idle_subscription_to_a_redis_sentinel_is_kept_open(group, monkeypatch):
    monkeypatch.setattr(sentinel, "PING_AFTER", 0.05)
    asked = []
    send = RedisConnection.send

    def counted(connection, command):
        asked.append(connection)
        send(connection, command)

    monkeypatch.setattr(RedisConnection, "send", counted)
    async with opened(group.url):
        async with asyncio.timeout(PATIENCE):
            while len(asked) < 12:
                await asyncio.sleep(0.01)
        assert len(set(asked)) == 3, "one connection to each sentinel, asked again and again"


# Cluster


@pytest.fixture
def cluster():
    group = ClusterGroup(replicas=1, down_after=1_500)
    try:
        yield group.start()
    finally:
        group.close()


def owner(cluster, shard):
    slot = ShardKeys("herenow", shard).slot
    bounds = (5461, 10923, 16384)
    return next(m for m, bound in zip(cluster.masters, bounds, strict=True) if slot < bound)


async def test_when_a_redis_cluster_master_dies_only_its_shards_are_unavailable(cluster):
    async with opened(cluster.url) as engine:
        nodes = [await joined(engine, shard) for shard in range(16)]
        for node in nodes:
            await node.write(Write(user_of(engine, node.shard), None, record(1)))
        for master in cluster.masters:
            assert master.client.wait(1, 5_000) == 1
        victim = owner(cluster, 0)
        elsewhere = next(node for node in nodes if owner(cluster, node.shard) is not victim)
        victim.kill()
        with pytest.raises((Unavailable, UnknownOutcome)):
            await engine.commit(nodes[0].batch())
        found = await engine.due(range(16), NOW, 10)
        assert 0 not in found
        assert elsewhere.shard in found
        await elsewhere.commit()
        answer = await sooner_or_later(lambda: engine.commit(nodes[0].batch()))
        assert isinstance(answer, Committed | Fenced)
        assert await stored(engine, user_of(engine, 0)) == record(1)


async def test_when_a_redis_cluster_master_freezes_only_the_logs_of_its_shards_cannot_be_read(cluster):
    async with opened(cluster.url) as engine:
        nodes = [await joined(engine, shard) for shard in range(16)]
        victim = owner(cluster, 0)
        silenced = {shard for shard in range(16) if owner(cluster, shard) is victim}
        elsewhere = next(node for node in nodes if node.shard not in silenced)
        heads = await engine.heads()
        victim.stop_the_clock()
        try:
            await sooner_or_later(lambda: engine.tail(heads, 0.1), lambda _: engine.unresponsive == silenced)
            await elsewhere.write(Write(user_of(engine, elsewhere.shard), None, record(1), note=b"n"))
            [part] = await sooner_or_later(lambda: engine.tail(heads, 5), lambda parts: parts)
            assert part.shard == elsewhere.shard
            assert await engine.heads() == {
                shard: head + (shard == part.shard) for shard, head in heads.items() if shard not in silenced
            }
        finally:
            victim.go_on()
        await sooner_or_later(lambda: engine.tail(heads, 0.1), lambda _: not engine.unresponsive)


async def test_a_redis_cluster_slot_that_is_being_moved_is_unavailable_and_never_read_as_empty(cluster):
    async with opened(cluster.url) as engine:
        node, user = await joined(engine), user_of(engine, 0)
        await settled(engine)
        await node.write(Write(user, None, record(1)))
        slot, source = ShardKeys("herenow", 0).slot, owner(cluster, 0)
        target = next(master for master in cluster.masters if master is not source)
        name = {each: each.client.execute_command("CLUSTER", "MYID").decode() for each in (source, target)}
        target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", name[source])
        source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", name[target])
        keys = source.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        away = 0
        for key in keys:
            source.client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
            try:
                assert await engine.load([user]) == [Loaded(record(1), settled=True)]
            except Unavailable:
                away += 1
            with pytest.raises(Unavailable):
                await engine.commit(node.batch(Write(user, record(1), record(2))))
        assert away  # as soon as the header or the bucket was on the other server
        for master in (target, *(m for m in cluster.masters if m is not target)):
            master.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", name[target])
        assert await sooner_or_later(lambda: engine.load([user])) == [Loaded(record(1), settled=True)]
        await node.write(Write(user, record(1), record(2)))
        assert await is_settled(engine, 0)


async def test_a_shard_that_moved_to_another_redis_cluster_server_is_found_by_redirection(cluster_group):
    """MOVED means that nothing was executed: the call is repeated at the right server."""
    async with opened(cluster_group.url, namespace="redirected") as engine:
        node, user = await joined(engine), user_of(engine, 0)
        slot = ShardKeys("redirected", 0).slot
        right = engine._servers._of_slot[slot]
        wrong = next(a for a in set(engine._servers._of_slot.values()) if a != right)
        engine._servers._of_slot[slot] = wrong
        await node.write(Write(user, None, record(1)))
        assert engine._servers._of_slot[slot] == right
        engine._servers._of_slot[slot] = wrong
        assert await stored(engine, user) == record(1)
        assert engine._servers._of_slot[slot] == right
