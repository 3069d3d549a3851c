"""Numbers where several workers share an address: whichever answers, answers for all."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.world import SERVICE, problem, serving

from herenow.api.reports import Trouble, metrics_of_all, report_of, stats_of_all
from herenow.errors import Unavailable
from herenow.workers.link import Told

pytestmark = pytest.mark.asyncio(loop_scope="module")


def of(world, worker, restarts=0):
    auth: Any = SimpleNamespace(trouble=None)
    return Told(worker, restarts, report_of(world.node, auth))


async def test_every_worker_is_a_series_of_its_own():
    async def everyone():
        return [of(one, 1), of(two, 2, restarts=4), Told(3, 1, None)]

    async with serving(everyone=everyone) as one, serving() as two:
        await two.connect("ana")
        two.node.metrics.closes[1012] += 3
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


async def test_a_lone_process_has_no_label_worker(world):
    assert "worker" not in (await world.get("/metrics", by=SERVICE)).text


async def test_numbers_for_people_are_added_up_and_who_is_silent_is_named():
    async def everyone():
        return [of(one, 1), of(two, 2), Told(3, 0, None)]

    async with serving(everyone=everyone) as one, serving() as two:
        await one.connect("ana")
        await two.connect("bo")
        await two.connect("cy")
        two.node.recorder.is_late = True
        stats = (await one.get("/api/v1/stats", by=SERVICE)).json()
    assert (stats["workers"], stats["connections"], stats["sessions"], stats["ready"]) == (2, 3, 3, True)
    assert [trouble["what"] for trouble in stats["degraded"]] == ["workers", "ledger_backlog"]
    assert stats["degraded"][0]["detail"] == "1 of 3 workers do not answer."


async def test_the_same_trouble_of_all_is_told_once():
    async with serving() as one:
        one.node.standing.renewed = float("-inf")
        stats = stats_of_all([of(one, 1), of(one, 2)])
    assert [trouble.what for trouble in stats.degraded] == ["lease"]
    assert all(isinstance(trouble, Trouble) for trouble in stats.degraded)


async def test_without_its_supervisor_a_worker_does_not_pretend_to_speak_for_all():
    async def nobody():
        raise Unavailable("The supervisor does not answer.")

    async with serving(everyone=nobody) as world:
        for path in ("/metrics", "/api/v1/stats"):
            problem(await world.get(path, by=SERVICE), 503, "unavailable")


async def test_where_nobody_answers_there_are_no_sums():
    with pytest.raises(Unavailable):
        stats_of_all([Told(1, 0, None)])
    assert [family.name for family in metrics_of_all([Told(1, 0, None)])] == [
        "herenow_worker_up",
        "herenow_worker_restarts",
    ]
