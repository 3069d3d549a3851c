"""Situations A: which sessions are alive, and when dead ones are found."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.node.scenes import Stalled, meet

from herenow.core.model import Mode, Platform
from herenow.node.sessions.liveness import BUDGET
from herenow.wire.inputs import Activity
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_a1_a_client_that_only_answers_pings_becomes_away_and_never_offline(world):
    _, _, bob = await meet(world)
    await world.sleep(900)
    assert bob.saw("ana") == ["online", "away"]
    away = bob.last("ana")
    online = bob.shown["ana"][0]
    assert online.since is not None
    assert away.since == online.since  # since the last activity, which was connecting
    assert 0 <= away.at - (online.since + 300_000) <= 1000


async def test_a2_a_user_with_a_half_open_socket_is_offline_after_dead_after_timeout_and_reconnect_window(world):
    node, ana, bob = await meet(world)
    await world.sleep(7.3)
    ana.pong()
    evidence = world.now
    ana.vanish()
    await world.sleep(89)
    assert node.node.context.metrics.sessions == 2
    await world.sleep(2)
    assert node.node.context.metrics.sessions == 1
    assert bob.saw("ana") == ["online"]
    await world.until(evidence + 119_900)
    assert bob.saw("ana") == ["online"]
    await world.sleep(1.1)
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").last_seen == pytest.approx(evidence, abs=1)
    assert bob.last("ana").at - (evidence + 120_000) <= 1000


async def test_a3_a_heartbeat_in_the_millisecond_in_which_a_session_would_end_keeps_the_session(world):
    node, ana, bob = await meet(world)
    ana.stop()
    for _ in range(2):
        await world.until(ana.connection.session.seen_at + 90_000)
        ana.beat()
    await world.sleep(60)
    assert ana.connected
    assert bob.saw("ana") == ["online"]


async def test_a4_a_stalled_session_reaper_does_not_end_the_session_of_a_user_who_returned(world):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    bob = world.client("bob")
    await bob.connect(n1)
    await n1.node.sessions.beat_by_rest("ana", "phone", Platform.MOBILE, None)
    await bob.watch("ana")
    Stalled(n1.node.context.engine, "due")  # n1 never reaps
    await world.sleep(89)
    commits = Stalled(n2.node.context.engine, "commit")
    await world.sleep(1.5)
    assert commits.waiting == 1  # n2 has found her due
    await n1.node.sessions.beat_by_rest("ana", "phone", Platform.MOBILE, None)
    await commits.release()
    await world.sleep(60)
    assert n2.node.context.metrics.conflicts == 1
    assert bob.saw("ana") == ["online"]


async def test_a5_two_session_reapers_that_expire_a_user_at_once_show_one_change(world):
    _, ana, bob = await meet(world)
    others = await world.start_all("n2", "n3")
    far = world.client("bob", "far")
    await far.connect(others[0])
    await far.watch("ana")
    ana.close()
    await world.sleep(40)
    # ana and bob connected, ana left
    assert sum(node.node.context.metrics.changes for node in world.nodes.values()) == 3
    assert [shown.status for shown in bob.shown["ana"]] == ["online", "offline"]
    assert [shown.status for shown in far.shown["ana"]] == ["online", "offline"]


@pytest.mark.parametrize(("mode", "seen"), [(Mode.BUSY, "busy"), (Mode.AWAY, "away"), (Mode.INVISIBLE, "offline")])
async def test_a6_a_heartbeat_changes_neither_the_mode_nor_what_viewers_see(world, mode, seen):
    node, ana, bob = await meet(world)
    await node.node.sessions.set_mode("ana", mode, None)
    bob.forget()
    for _ in range(5):
        await world.sleep(10)
        ana.beat()
    assert bob.shown == {}
    assert (await node.node.viewing.presence("ana")).mode is mode


async def test_a6_a_heartbeat_of_an_idle_user_leaves_them_away(world):
    _, ana, bob = await meet(world)
    await world.sleep(310)
    assert bob.saw("ana") == ["online", "away"]
    for _ in range(5):
        ana.beat()
        await world.sleep(10)
    assert bob.saw("ana") == ["online", "away"]


async def test_a7_heartbeats_every_10_ms_cause_no_writes_and_keep_the_session_alive(world):
    node, ana, bob = await meet(world)
    ana.stop()
    await world.sleep(6)
    commits, dropped = node.node.context.metrics.commits, node.node.context.metrics.beats_dropped
    for _ in range(1000):
        await world.sleep(0.01)
        ana.beat()
    assert node.node.context.metrics.beats_dropped - dropped >= 990
    assert node.node.context.metrics.commits == commits
    assert ana.connected
    await world.sleep(88)
    assert ana.connected


async def test_a7_activity_in_a_heartbeat_that_comes_too_soon_still_counts(world):
    _, ana, bob = await meet(world)
    ana.beat()
    ana.beat(Activity.IDLE)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "away"]
    ana.beat(Activity.ACTIVE)
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "away", "online"]


async def test_a8_a_throttled_tab_whose_browser_answers_pings_is_away_and_never_offline(world):
    _, ana, bob = await meet(world)
    for _ in range(20):
        await world.sleep(60)
        ana.beat()
    assert bob.saw("ana") == ["online", "away"]


async def test_a9_a_machine_clock_two_hours_off_has_no_effect(world):
    await world.befriend("ana", "bob")
    ahead = await world.start("ahead", ahead=7_200_000)
    behind = await world.start("behind", ahead=-7_200_000)
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(ahead)
    await bob.connect(behind)
    await bob.watch("ana")
    evidence = world.now
    ana.close()
    await world.sleep(31)
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").last_seen == pytest.approx(evidence, abs=2)
    assert bob.last("ana").at - (evidence + 30_000) <= 1000


async def test_a_node_that_is_often_busy_finds_silent_sockets_in_time(world):
    """A busy node is not a frozen one: extra time for pings is granted once, not after every busy moment."""
    node, ana, bob = await meet(world)
    ana.pong()
    evidence = world.now
    ana.vanish()
    while world.now < evidence + 126_000:
        node.freeze()
        await world.sleep(2.5)
        node.thaw()
        await world.sleep(0.5)
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").at - (evidence + 120_000) <= 2 * 3_000  # found once and reaped once between two such moments


async def test_a_heartbeat_that_waits_unread_in_the_socket_at_the_deadline_keeps_the_session(world):
    node, ana, bob = await meet(world)
    ana.stop()
    suspected = []

    class ReadLater(list):
        def append(self, session):
            super().append(session)
            suspected.append(session.device)
            ana.beat()  # unread in the socket

    node.node.sessions.liveness._suspects = ReadLater()
    await world.sleep(91)
    assert suspected == [ana.device]
    await world.sleep(60)
    assert ana.connected
    await world.sleep(100)
    assert bob.saw("ana") == ["online", "offline"]


async def test_many_silent_sessions_are_ended_in_portions_over_several_event_loop_iterations(world):
    node, *_ = await meet(world)
    for number in range(3 * BUDGET):
        connected = node.node.sessions.connect(
            f"user{number}",
            "d1",
            Platform.WEB,
            send=lambda frame: None,
            end=lambda code, reason: None,
            abort=lambda: None,
        )
        assert connected.user == f"user{number}"
    connections = node.node.sessions.connections
    loop, lose, turns = asyncio.get_running_loop(), connections.on_silent, [0]

    def noted(session, at):
        if not turns[-1]:
            loop.call_soon(turns.append, 0)
        turns[-1] += 1
        lose(session, at)

    connections.on_silent = noted
    await world.sleep(91)
    assert sum(turns) == 3 * BUDGET
    assert max(turns) <= BUDGET


async def test_an_error_while_ending_one_silent_session_does_not_keep_other_silent_sessions_alive():
    world = World()
    node = await world.start("n1")
    clients = [world.client(f"user{number}") for number in range(BUDGET + 2)]
    for client in clients:
        await client.connect(node)
        client.vanish()
    connections, unlucky = node.node.sessions.connections, []
    lose = connections.on_silent

    def stumble(session, lost_at):
        if not unlucky:
            unlucky.append(session)
            raise RuntimeError("a mistake")
        lose(session, lost_at)

    connections.on_silent = stumble  # type: ignore[method-assign]
    with capture_logs() as logs:
        await world.sleep(91)
        assert unlucky[0].lost_at is None
        assert node.node.context.metrics.sessions == 1
        await world.sleep(2)
        assert node.node.context.metrics.sessions == 0
        assert unlucky[0].lost_at == unlucky[0].seen_at + 90_000
    assert [line["event"] for line in logs if line.get("exc_info")] == ["silence.failed"]
    await world.close()
