"""The documented rights of a Redis user are sufficient for every call of an engine."""

import re
from pathlib import Path

from tests.engines.test_twins import EPOCHS, Twins
from tests.redis_servers import running

from herenow.engines import make_engine
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.ports import Lease
from herenow_testing.contracts.engine import NOW, TERMS

MANUAL = Path(__file__).parent.parent.parent / "docs" / "operating.md"
ELSEWHERE = {"CLUSTER|SLOTS", "ROLE", "SELECT"}
"""Used only with Cluster and Sentinel, or if the URL names a database."""


def rights():
    [paragraph] = re.findall(r"- \*\*Rights\*\*.*?(?=\n- )", MANUAL.read_text(), re.DOTALL)
    lists = re.findall(r"`([A-Z][A-Z| \n]+)`", paragraph)
    named = {word for text in lists if text not in ELSEWHERE for word in text.split()}
    return sorted(named - ELSEWHERE)


async def everything(url):
    """Makes every call of an engine at least once."""
    memory, redis = MemoryEngine(MemoryStore(2)), make_engine(url, shards=2, namespace="rights", capacity=1)
    await redis.open(TERMS)
    try:
        twins = Twins(1, memory, redis)
        for shard in range(2):
            await twins.ask(lambda engine, shard=shard: engine.unsettle(shard, NOW))
            assert await twins.ask(lambda engine, shard=shard: engine.settle(shard, NOW, 0))
        for epoch in EPOCHS:
            await twins.ask(lambda engine, epoch=epoch: engine.join(0, epoch, 0))
        for _ in range(80):
            await twins.step()
        for move in (twins.offer, twins.saved, lambda: twins.ask(lambda engine: engine.retire(0, EPOCHS[0]))):
            await move()
        lease = Lease("epoch", 1, NOW)
        assert await twins.ask(lambda engine: engine.renew(lease, begins=True))
        assert await twins.ask(lambda engine: engine.leases()) == [lease]
        assert await twins.ask(lambda engine: engine.mark_dead("epoch", 1))
        await twins.ask(lambda engine: engine.drop_lease("epoch"))
        await redis.store_time()
        assert await redis.tail(await redis.heads(), 0.01) == []
        await redis.send(b"hello")
        assert await redis.receive(5) == [b"hello"]
    finally:
        await redis.close()


async def test_the_redis_rights_listed_in_the_operating_guide_are_sufficient():
    with running() as server:
        server.client.execute_command(
            *("ACL", "SETUSER", "ana", "reset", "on", ">pw", "~{rights*", "&{rights}:mail"),
            *(f"+{command.lower()}" for command in rights()),
        )
        await everything(f"redis://ana:pw@{server.address}")
        denied = server.client.execute_command("ACL", "LOG")
    assert denied == []  # also no command whose refusal a node ignores
