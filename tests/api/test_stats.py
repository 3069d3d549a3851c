"""Statistics of several workers at one address: any worker answers for all."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.world import SERVICE, problem, serving

from herenow.api.ops.stats import Trouble
from herenow.api.ops.stats_collect import encode_report
from herenow.api.ops.stats_merge import merge_metrics, merge_reports
from herenow.core.model import Mode
from herenow.errors import Unavailable
from herenow.ports import Lease
from herenow.workers.worker_link import Told

pytestmark = pytest.mark.asyncio(loop_scope="module")


def of(world, worker, restarts=0):
    auth: Any = SimpleNamespace(trouble=None)
    return Told(worker, restarts, encode_report(world.node, auth))


async def test_every_worker_process_has_its_own_series_in_metrics():
    async def everyone():
        return [of(one, 1), of(two, 2, restarts=4), Told(3, 1, None)]

    async with serving(worker_reports=everyone) as one, serving() as two:
        await two.connect("ana")
        two.node.context.metrics.closes[1012] += 3
        answer = await one.get("/metrics", by=SERVICE)
        families = list(text_string_to_metric_families(answer.text))
        found = {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}
    assert len({family.name for family in families}) == len(families)
    assert found["herenow_connections", ("worker", "1")] == 0
    assert found["herenow_connections", ("worker", "2")] == 1
    assert found["herenow_closes_total", ("code", "1012"), ("worker", "2")] == 3
    assert found["process_resident_memory_bytes", ("worker", "1")] > 0
    assert [found["herenow_worker_up", ("worker", str(n))] for n in (1, 2, 3)] == [1, 1, 0]
    assert [found["herenow_worker_restarts_total", ("worker", str(n))] for n in (1, 2, 3)] == [0, 4, 1]
    assert all(any(label[0] == "worker" for label in name[1:]) for name in found)


async def test_metrics_of_a_single_process_have_no_worker_label(world):
    assert "worker" not in (await world.get("/metrics", by=SERVICE)).text


async def test_statistics_are_summed_over_workers_and_name_unresponsive_workers():
    async def everyone():
        return [of(one, 1), of(two, 2), Told(3, 0, None)]

    async with serving(worker_reports=everyone) as one, serving() as two:
        await one.connect("ana")
        await two.connect("bo")
        await two.connect("cy")
        two.node.records.ledger_writer.is_late = True
        stats = (await one.get("/api/v1/stats", by=SERVICE)).json()
    assert (stats["workers"], stats["connections"], stats["sessions"], stats["ready"]) == (2, 3, 3, True)
    assert [trouble["what"] for trouble in stats["degraded"]] == ["workers", "ledger_backlog"]
    assert stats["degraded"][0]["detail"] == "1 of 3 workers do not answer."


async def test_statistics_list_the_same_problem_of_several_workers_once():
    async with serving() as one:
        one.node.context.authority.renewed = float("-inf")
        stats = merge_reports([of(one, 1), of(one, 2)])
    assert [trouble.what for trouble in stats.degraded] == ["lease"]
    assert all(isinstance(trouble, Trouble) for trouble in stats.degraded)


async def test_a_worker_without_its_supervisor_returns_503_for_statistics():
    async def nobody():
        raise Unavailable("The supervisor does not answer.")

    async with serving(worker_reports=nobody) as world:
        for path in ("/metrics", "/api/v1/stats"):
            problem(await world.get(path, by=SERVICE), 503, "unavailable")


async def test_without_any_worker_report_statistics_are_unavailable():
    with pytest.raises(Unavailable):
        merge_reports([Told(1, 0, None)])
    assert [family.name for family in merge_metrics([Told(1, 0, None)])] == [
        "herenow_worker_up",
        "herenow_worker_restarts",
    ]


# --- History and top targets


async def watched(world, target, *viewers):
    await world.befriend(*((viewer, target) for viewer in viewers))
    for viewer in viewers:
        connection, _ = await world.connect(viewer)
        await world.node.viewing.subscribe(connection.outbox, [target])


async def told_lately(world, steps=1):
    """Let `steps` intervals of two seconds pass."""
    for _ in range(steps):
        world.hands.advance(2)
        world.node.admin.history.look()


async def test_rates_latency_and_history_in_statistics_combine_all_workers():
    async def everyone():
        return [of(one, 1), of(two, 2, restarts=3)]

    async with serving(worker_reports=everyone) as one, serving() as two:
        for world, changes in ((one, 10), (two, 30)):
            world.node.context.metrics.changes += changes
            world.node.context.metrics.refusals["not_found"] += changes
            world.node.context.metrics.delivery_seconds.observe(0.0005 if world is one else 0.2, 50)
            await told_lately(world)
        await two.connect("ana")
        stats = (await one.get("/api/v1/stats", by=SERVICE)).json()
        with_history = (await one.get("/api/v1/stats?since=0", by=SERVICE)).json()
        later = (await one.get(f"/api/v1/stats?since={with_history['now']}", by=SERVICE)).json()
    assert stats["per_second"]["changes"] == 20.0  # 40 in two seconds
    assert stats["delivery"]["p50"] == pytest.approx(0.001)
    assert 0.1 < stats["delivery"]["p99"] <= 0.25
    assert stats["refusals"] == {"not_found": 40}
    assert [(p["worker"], p["restarts"], p["connections"]) for p in stats["processes"]] == [(1, 0, 0), (2, 3, 1)]
    assert stats["history"] == later["history"] == []
    [point] = with_history["history"]
    assert (point["changes"], point["refusals"]) == (20.0, 20.0)
    assert point["p50"] == pytest.approx(0.001)


async def test_current_rates_in_statistics_cover_ten_seconds_and_older_samples_are_history(world):
    world.node.context.metrics.changes += 1_000
    await told_lately(world)
    await told_lately(world, 10)
    stats = (await world.get("/api/v1/stats?since=0", by=SERVICE)).json()
    assert stats["per_second"]["changes"] == 0
    assert stats["delivery"] == {"p50": None, "p99": None}
    assert max(point["changes"] for point in stats["history"]) == 500.0


async def test_statistics_with_an_invalid_since_parameter_are_refused(world):
    for since in ("x", "-1", "1.5", "9" * 30):
        answer = await world.get(f"/api/v1/stats?since={since}", by=SERVICE)
        assert answer.status_code == 400


async def test_statistics_list_the_users_with_most_deliveries_under_pseudonyms():
    async with serving() as world:
        await watched(world, "celebrity", "v1", "v2", "v3")
        await watched(world, "friend", "v4")
        for user in ("friend", "celebrity"):
            await world.connect(user)
        text = (await world.get("/api/v1/stats", by=SERVICE)).text
        [most, less] = msgspec.json.decode(text)["targets"]
        assert (most["viewers"], most["deliveries"], less["viewers"], less["deliveries"]) == (3, 3, 1, 1)
        assert "celebrity" not in text
        assert "friend" not in text
        both = merge_reports([of(world, 1), of(world, 2)])
        assert [(t.target, t.viewers) for t in both.targets] == [(most["target"], 6), (less["target"], 2)]
    async with serving() as elsewhere:
        await watched(elsewhere, "celebrity", "v1")
        await elsewhere.connect("celebrity")
        [other] = (await elsewhere.get("/api/v1/stats", by=SERVICE)).json()["targets"]
        assert other["target"] != most["target"]  # another ledger, another key


async def test_statistics_do_not_list_a_hidden_user_among_those_with_most_deliveries():
    async with serving() as world:
        await watched(world, "hidden", "v1", "v2")
        await world.put("/api/v1/presence/mode", {"mode": "invisible"}, by="hidden")
        await world.connect("hidden")
        await world.put("/api/v1/presence/status", {"text": "still here"}, by="hidden")
        assert (await world.get("/api/v1/stats", by=SERVICE)).json()["targets"] == []
        await world.put("/api/v1/presence/mode", {"mode": "auto"}, by="hidden")
        [target] = (await world.get("/api/v1/stats", by=SERVICE)).json()["targets"]
        assert target["deliveries"] == 2


async def test_statistics_list_the_state_of_every_node_of_the_cluster():
    async with serving() as world:
        engine, lease = world.node.context.engine, world.node.cluster.lease
        await engine.renew(Lease("moves", 1, 0), begins=True)
        await engine.renew(Lease("stands", 1, 0), begins=True)
        await engine.renew(Lease("died", 1, 0), begins=True)
        await engine.mark_dead("died", 1)
        await lease.keep()
        third = world.node.context.settings.node_lease / 3
        for counter in (2, 3, 4):
            world.hands.advance(third * 0.8)
            await engine.renew(Lease("moves", counter, 0))
            await lease.keep()
        stats = (await world.get("/api/v1/stats", by=SERVICE)).json()
        found = {member["epoch"]: member["state"] for member in stats["members"]}
        own = world.node.context.authority.epoch
        assert found == {own: "well", "moves": "well", "stands": "overdue", "died": "dead"}
        assert [member["here"] for member in stats["members"]] == [True, False, False, False]
        [trouble] = stats["degraded"]
        assert trouble["what"] == "nodes"
        assert trouble["fix"]


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("127.0.0.1:6379 refuses: OOM command not allowed when used memory > 'maxmemory'.", "full"),
        ("10.0.0.1:6379 refuses: READONLY You can't write against a read only replica.", "replica"),
        ("there was no answer within 2 s", "does not answer"),
        ("10.0.0.1:6379 failed: ERR who knows", "does not answer"),
    ],
)
async def test_readyz_describes_a_store_error_in_a_sentence_without_the_address_of_the_store(said, word):
    async with serving() as world:
        world.node.cluster.lease.trouble = said
        answer = await world.get("/readyz")
        [trouble] = answer.json()["degraded"]
        assert word in trouble["detail"]
        assert "6379" not in answer.text


async def test_readyz_names_a_store_that_fails_to_drop_saved_records_until_it_recovers():
    async with serving() as world:
        engine = world.node.context.engine
        await world.node.sessions.set_mode("ana", Mode.BUSY, None)
        with mock.patch.object(engine, "saved", side_effect=Unavailable("OOM command not allowed")):
            await world.node.sessions.set_mode("ana", Mode.AWAY, None)
            [trouble] = (await world.get("/readyz")).json()["degraded"]
            assert trouble["what"] == "marks"
            assert "full" in trouble["detail"]
        await world.node.sessions.set_mode("ana", Mode.AUTO, None)
        assert (await world.get("/readyz")).json()["degraded"] == []


async def test_frames_caused_by_staleness_or_a_block_do_not_count_as_slow_deliveries():
    async with serving() as world:
        await watched(world, "ana", "v1", "v2")
        await world.connect("ana")
        took = world.node.context.metrics.delivery_seconds
        before = sum(took.counts)
        world.hands.advance(100)
        shard = world.node.context.people.find("ana").shard
        for stale in (True, False):
            world.node.delivery.set_stale(shard, stale=stale)
            await asyncio.sleep(0.1)  # a tick
        await world.put("/api/v1/blocks/v1", by="ana")
        await asyncio.sleep(0.1)
        assert sum(took.counts) >= before + 5
        assert took.sum < 1


async def test_a_node_that_is_still_starting_returns_statistics():
    async with serving(start=False) as world:
        stats = (await world.get("/api/v1/stats?since=0", by=SERVICE)).json()
    assert (stats["ready"], stats["processes"][0]["lease_renewed_ago"]) == (False, None)
