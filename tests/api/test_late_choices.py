"""REST answers to modes, custom statuses and preferences while the store cannot be written: 202 with `stale`."""

import pytest
from tests.api.world import NOW, SERVICE, serving

from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.errors import Unavailable

OWN, OF_ANA = "/api/v1/presence", "/api/v1/users/ana"


class ReadOnly(MemoryEngine):
    refuses = False

    async def commit(self, batch):
        if self.refuses:
            raise Unavailable("The store refuses writes.")
        return await super().commit(batch)


@pytest.fixture
async def read_only(monkeypatch):
    """A server that is asked while its store refuses writes."""
    monkeypatch.setattr("herenow.node.records.decider.WAIT", 0.01)
    engine = ReadOnly(MemoryStore(4, clock=lambda: NOW))
    async with serving(engine=engine) as world:
        await world.put(f"{OWN}/status", {"text": "lunch"}, by="ana")
        await world.put(f"{OF_ANA}/status", {"text": "lunch"}, by=SERVICE)
        await world.put(f"{OF_ANA}/mode", {"mode": "busy"}, by=SERVICE)
        engine.refuses = True
        await world.put(f"{OWN}/mode", {"mode": "invisible"}, by="ana")
        yield world
        engine.refuses = False


@pytest.mark.parametrize(
    ("path", "by", "body", "answer"),
    [
        (f"{OWN}/mode", "ana", {"mode": "busy"}, {"mode": "busy", "until": None}),
        (f"{OF_ANA}/mode", SERVICE, {"mode": "away", "source": "call"}, {"mode": "away", "until": None}),
        (f"{OWN}/status", "ana", {"text": "tea"}, {"custom_status": {"text": "tea", "emoji": "", "expires_at": None}}),
        (
            f"{OF_ANA}/status",
            SERVICE,
            {"text": "tea"},
            {"custom_status": {"text": "tea", "emoji": "", "expires_at": None}},
        ),
    ],
    ids=["own mode", "mode by a service", "own status", "status by a service"],
)
async def test_a_mode_or_status_set_while_the_store_refuses_writes_is_answered_202_with_stale(
    read_only, path, by, body, answer
):
    response = await read_only.put(path, body, by=by)
    assert (response.status_code, response.json()) == (202, {**answer, "stale": True})
    saved = (await read_only.node.context.ledger.remembered(["ana"]))["ana"].choice
    assert saved is not None
    assert saved.version > 0


@pytest.mark.parametrize(
    ("path", "by"),
    [(f"{OWN}/status", "ana"), (f"{OF_ANA}/status", SERVICE), (f"{OF_ANA}/mode", SERVICE)],
    ids=["own status", "status by a service", "mode by a service"],
)
async def test_a_mode_or_status_cleared_while_the_store_refuses_writes_is_answered_202_with_stale(read_only, path, by):
    response = await read_only.call("DELETE", path, by=by)
    assert (response.status_code, response.json()) == (202, {"stale": True})


@pytest.mark.parametrize("change", [{"visibility": "nobody"}, {"share_last_seen": False}, {"idle_after": 60}])
async def test_a_preference_set_while_the_store_refuses_writes_is_answered_202_with_stale(read_only, change):
    response = await read_only.put(f"{OWN}/preferences", change, by="ana")
    usual = {"visibility": "contacts", "share_last_seen": True, "idle_after": None, "public": False}
    assert (response.status_code, response.json()) == (202, usual | change | {"stale": True})


async def test_the_metrics_count_users_with_choices_that_wait_for_the_store(read_only):
    await read_only.put(f"{OWN}/mode", {"mode": "busy"}, by="ana")
    page = (await read_only.get("/metrics", by=SERVICE)).text
    assert "herenow_late_choices 1" in page
