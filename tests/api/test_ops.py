"""Probes and statistics: readiness, degraded parts, access to metrics, and their correctness."""

import asyncio
from dataclasses import fields

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.world import SERVICE, STRANGER, problem, serving

from herenow.node.metrics import BOUNDS

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def numbers(world):
    answer = await world.get("/metrics", by=SERVICE)
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


# --- Probes


async def test_healthz_is_ok_before_the_node_has_started():
    async with serving(start=False) as world:
        assert (await world.get("/healthz")).json() == {"status": "ok"}


async def test_a_node_is_ready_once_started_and_no_longer_when_draining(world):
    assert (await world.get("/readyz")).json() == {"status": "ready", "degraded": []}
    async with serving(start=False) as other:
        answer = await other.get("/readyz")
        assert "starting" in problem(answer, 503, "not_ready")
        assert answer.headers["retry-after"] == "1"
        other.node.draining = True
        assert "draining" in problem(await other.get("/readyz"), 503, "not_ready")


async def test_a_draining_node_still_answers_rest_requests(world, monkeypatch):
    monkeypatch.setattr(world.node, "ready", False)
    monkeypatch.setattr(world.node, "draining", True)
    assert (await world.get("/api/v1/presence/me", by="ana")).status_code == 200


async def test_readyz_and_statistics_list_the_degraded_parts_of_a_node(world, monkeypatch):
    node = world.node
    monkeypatch.setattr(node.access._feed, "trouble", "The ledger is away.")
    monkeypatch.setattr(node.records.ledger_writer, "is_late", True)
    monkeypatch.setattr(node.access, "_trusted", False)
    monkeypatch.setattr(node.context.authority, "renewed", float("-inf"))
    node.delivery.set_stale(2, stale=True)
    answer = await world.get("/readyz")
    stats = await world.get("/api/v1/stats", by=SERVICE)
    node.delivery.set_stale(2, stale=False)
    assert answer.status_code == 200
    named = [trouble["what"] for trouble in answer.json()["degraded"]]
    assert named == ["stale_shards", "lease", "ledger", "ledger_backlog", "relations"]
    assert [trouble["what"] for trouble in stats.json()["degraded"]] == named


# --- Access to statistics


@pytest.fixture(params=["/metrics", "/api/v1/stats"])
def path(request):
    return request.param


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
async def test_a_loopback_peer_may_read_statistics_without_a_token(world, path, peer):
    assert (await get(world, path, peer)).status_code == 200


@pytest.mark.parametrize("peer", ["203.0.113.7", "10.0.0.1", "::2", "::ffff:10.0.0.1", "fe80::1%lo", "localhost", ""])
async def test_a_remote_peer_needs_a_token_for_statistics(world, path, peer):
    problem(await get(world, path, peer), 401, "token_missing")


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "X-Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "Via",
        "X-Forwarded",
        "X-Original-Forwarded-For",
        "X-Cluster-Client-IP",
        "Fastly-Client-IP",
        "X-Envoy-External-Address",
        "X-Amzn-Trace-Id",
        "CDN-Loop",
    ],
)
async def test_a_forwarded_request_from_loopback_needs_a_token_for_statistics(world, path, header):
    problem(await get(world, path, "127.0.0.1", {header: "127.0.0.1"}), 401, "token_missing")


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"])
async def test_statistics_need_no_token_for_a_loopback_request_with_a_loopback_host_header(world, path, host):
    assert (await get(world, path, "127.0.0.1", {"host": host})).status_code == 200


@pytest.mark.parametrize("host", ["rebound.example:8080", "127.0.0.1.evil.example", "localhost.evil", "[", ""])
async def test_statistics_need_a_token_for_a_loopback_request_with_a_foreign_host_header(world, path, host):
    problem(await get(world, path, "127.0.0.1", {"host": host}), 401, "token_missing")


async def test_from_any_address_a_service_token_gives_access_to_statistics_and_a_user_token_does_not(world, path):
    for peer in ("127.0.0.1", STRANGER[0]):
        for by, status in (("ana", 403), (SERVICE, 200)):
            scope = "service" if by == SERVICE else None
            headers = {"authorization": f"Bearer {world.token(by, scope=scope)}"}
            assert (await get(world, path, peer, headers)).status_code == status


async def get(world, path, peer, headers=None):
    transport = httpx.ASGITransport(app=world.app, client=(peer, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(path, headers=headers)


# --- Correctness


async def test_counts_of_users_connections_and_sessions_in_metrics_are_exact():
    async with serving() as world:
        for user in ("on1", "on2", "busy", "away", "hidden", "left"):
            await world.connect(user)
        for user, mode in (("busy", "busy"), ("away", "away"), ("hidden", "invisible")):
            await world.put("/api/v1/presence/mode", {"mode": mode}, by=user)
        await world.delete("/api/v1/presence/devices/phone", by="left")
        await world.post("/api/v1/presence/heartbeat", {}, by="rest")
        expected = {"online": 3.0, "busy": 1.0, "away": 1.0}
        found = await numbers(world)
        for _ in range(1_000):  # user counts follow the log
            if all(found["herenow_users", status] == count for status, count in expected.items()):
                break
            await asyncio.sleep(0)
            found = await numbers(world)
        assert {status: found["herenow_users", status] for status in expected} == expected
        assert found["herenow_connections",] == 5
        assert found["herenow_sessions",] == 5
        stats = (await world.get("/api/v1/stats", by=SERVICE)).json()
        assert stats["users"] == expected
        assert (stats["connections"], stats["sessions"], stats["ready"]) == (5, 5, True)


async def test_metrics_show_the_counters_of_the_node(world):
    counted = world.node.context.metrics
    counted.refusals.clear()
    counted.beats_accepted, counted.beats_dropped, counted.conflicts, counted.doubtful = 11, 12, 13, 14
    counted.closes[4401] = 3
    counted.delivery_seconds.observe(0.002, 5)
    counted.delivery_seconds.observe(99.0)
    counted.wake_seconds.observe(0.3)
    await world.get("/nope")
    await world.get("/nope")
    await world.put("/api/v1/presence/mode", {"mode": "x"}, by="ana")
    found = await numbers(world)
    assert found["herenow_beats_total", "accepted"] == 11
    assert found["herenow_beats_total", "dropped"] == 12
    assert found["herenow_conflicts_total",] == 13
    assert found["herenow_doubtful_commits_total",] == 14
    assert found["herenow_refusals_total", "not_found"] == 2
    assert found["herenow_refusals_total", "invalid_mode"] == 1
    assert found["herenow_closes_total", "4401"] == 3
    assert found["herenow_delivery_seconds_bucket", "0.001"] == 0
    assert found["herenow_delivery_seconds_bucket", "0.0025"] == 5
    assert found["herenow_delivery_seconds_bucket", "+Inf"] == 6
    assert found["herenow_delivery_seconds_count",] == 6
    assert found["herenow_delivery_seconds_sum",] == pytest.approx(99.01)
    assert found["herenow_wake_lag_seconds_count",] == 1
    assert len([name for name in found if name[0] == "herenow_wake_lag_seconds_bucket"]) == len(BOUNDS) + 1
    assert found["process_resident_memory_bytes",] > 0


async def test_every_counter_of_the_node_is_in_metrics(world):
    told = {
        "users": "herenow_users",
        "beats_accepted": "herenow_beats_total",
        "beats_dropped": "herenow_beats_total",
        "doubtful": "herenow_doubtful_commits_total",
        "refusals": "herenow_refusals_total",
        "closes": "herenow_closes_total",
        "delivery_seconds": "herenow_delivery_seconds_count",
        "wake_seconds": "herenow_wake_lag_seconds_count",
        "connections": "herenow_connections",
        "sessions": "herenow_sessions",
        "streams": "herenow_streams",
    }
    world.node.context.metrics.closes[1000] += 1
    world.node.context.metrics.stream_ends["client"] += 1
    world.node.context.metrics.refusals["not_found"] += 1
    world.node.context.metrics.given_up["typing"] += 1
    world.node.context.metrics.connections_refused["address"] += 1
    world.node.context.metrics.connections_cut["head"] += 1
    world.node.context.metrics.reading_pauses["user"] += 1
    names = {name[0] for name in await numbers(world)}
    for number in [each.name for each in fields(world.node.context.metrics)]:
        assert told.get(number, f"herenow_{number}_total") in names


async def test_no_label_in_metrics_contains_a_user_id(world):
    await world.connect("unmistakable")
    await world.get("/api/v1/presence/unmistakable", by="unmistakable")
    assert "unmistakable" not in (await world.get("/metrics", by=SERVICE)).text


async def test_metrics_are_openmetrics_if_the_client_accepts_it(world):
    headers = {"accept": "application/openmetrics-text; version=1.0.0"}
    headers["authorization"] = f"Bearer {world.token(SERVICE, scope='service')}"
    answer = await world.client.get("/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_without_loopback_trust_a_request_from_this_machine_needs_a_token_for_statistics(path):
    async with serving(trust_loopback="off") as world:
        problem(await get(world, path, "127.0.0.1"), 401, "token_missing")
        assert (await world.get(path, by=SERVICE)).status_code == 200


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=x", "\xff", ";;;", "a/b;c=d=e", "text/plain;q=x"]
)
async def test_metrics_with_a_malformed_accept_header_are_in_a_known_format(world, accept):
    answer = await get(world, "/metrics", "127.0.0.1", {"accept": accept.encode("latin-1")})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(("text/plain", "application/openmetrics-text"))


async def test_readyz_tells_addresses_and_paths_to_operators_only(world):
    health = world.node.relations_health
    health.trouble = "http://10.1.2.3:9000/relations does not answer."
    try:
        for peer, headers, told in [
            ("203.0.113.7", {}, False),
            ("203.0.113.7", {"authorization": "Bearer nonsense"}, False),
            ("127.0.0.1", {"x-forwarded-for": "203.0.113.7"}, False),
            ("127.0.0.1", {}, True),
        ]:
            answer = await get(world, "/readyz", peer, headers)
            assert answer.status_code == 200
            assert answer.json()["degraded"][0]["what"] == "relations_source"
            assert ("10.1.2.3" in answer.text) is told
        assert "10.1.2.3" in (await world.get("/readyz", by=SERVICE)).text
        assert "10.1.2.3" not in (await world.get("/readyz", by="ana")).text
    finally:
        health.trouble = None
