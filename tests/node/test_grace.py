"""Situations B: online at once, offline late, away on time."""

import asyncio

import pytest
from tests.node.scenes import meet, with_timings

from herenow.core.model import Platform, Presence, Session, Status
from herenow.core.record import encode
from herenow.core.settle import Timings
from herenow.core.shards import shard_of
from herenow.engines.memory import MemoryEngine, MemoryStore
from herenow.node import Node, make_context
from herenow.node.people import Connection
from herenow.ports import Offer
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.settings import node_settings

pytestmark = pytest.mark.looptime(noop_cycles=0)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_b1_a_user_who_returns_within_the_reconnect_window_shows_viewers_no_change(world, elsewhere):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    bob.forget()
    ana.close()
    await world.sleep(29)
    await ana.connect(n2 if elsewhere else n1)
    await world.sleep(100)
    assert bob.shown == {}


@pytest.mark.parametrize(("late", "seen"), [(-1, []), (1, ["offline", "online"])])
async def test_b2_the_reconnect_window_ends_at_its_exact_millisecond(world, late, seen):
    node, ana, bob = await meet(world)
    bob.forget()
    ana.close()
    await world.sleep(0.5)
    [session] = world.stored("ana").sessions
    await world.until(session.lost_at + 30_000 + late)
    ana.open(node)
    await world.sleep(40)
    assert bob.saw("ana") == seen


async def test_b3_a_sign_out_takes_effect_at_once_and_does_not_affect_other_devices(world):
    node, ana, bob = await meet(world)
    other = world.client("ana", "d2")
    await other.connect(node)
    await ana.bye()
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online"]
    before = world.now
    await other.bye()
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").last_seen == pytest.approx(before, abs=2)


async def test_b4_after_a_return_and_a_second_disconnect_only_the_second_reconnect_window_counts(world):
    node, ana, bob = await meet(world)
    ana.close()
    await world.sleep(20)
    await ana.connect(node)
    await world.sleep(5)
    ana.close()
    left = world.now
    await world.sleep(29)
    assert bob.saw("ana") == ["online"]
    await world.sleep(2)
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").last_seen == pytest.approx(left, abs=2)
    await world.sleep(60)
    assert bob.saw("ana") == ["online", "offline"]


async def test_b4_fast_page_reloads_show_viewers_no_change_and_leave_one_session(world):
    """Close and open at the same instant repeatedly: no change is shown and one session is left."""
    node, ana, bob = await meet(world)
    bob.forget()
    for _ in range(20):
        ana.close()
        ana.open(node)
        await world.sleep(0.002)
    await world.sleep(1)
    assert bob.shown == {}
    assert len(ana.connection.session.person.held) == 1
    assert [session.live for session in world.stored("ana").sessions] == [True]


async def test_b5_an_idle_user_who_returns_within_the_reconnect_window_is_away_not_online(world):
    node, ana, bob = await meet(world)
    started = world.now
    await world.sleep(295)
    ana.close()
    await world.sleep(10)
    assert bob.saw("ana") == ["online"]  # the status is frozen during grace
    await ana.connect(node)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "away"]
    assert bob.last("ana").since == pytest.approx(started, abs=10)


@pytest.mark.parametrize("nodes", [1, 3])
async def test_b6_activity_just_before_the_idle_timer_fires_shows_no_change(world, nodes):
    node, ana, bob = await meet(world)
    for name in ("n2", "n3")[: nodes - 1]:
        await world.start(name)
    bob.forget()
    [session] = world.stored("ana").sessions
    for before_due in (299_999, 295_500, 290_000):
        [session] = world.stored("ana").sessions
        await world.until(max(session.active_at, ana.connection.session.active_at) + before_due)
        ana.act()
    await world.sleep(200)
    assert bob.shown == {}


async def test_b6_idleness_is_counted_from_the_last_activity(world):
    _, ana, bob = await meet(world)
    await world.sleep(100)
    ana.act()
    acted = world.now
    await world.sleep(299)
    assert bob.saw("ana") == ["online"]
    await world.sleep(2)
    assert bob.saw("ana") == ["online", "away"]
    assert bob.last("ana").since == pytest.approx(acted, abs=2)


async def test_activity_while_idleness_is_being_written_to_the_store_is_not_lost(world):
    node, ana, bob = await meet(world)
    ana.rest()
    await asyncio.sleep(0)  # decided, and being committed
    ana.act()
    await world.sleep(1)
    assert bob.saw("ana")[-1] == "online"


async def test_b8_a_changed_idle_after_setting_counts_from_the_last_stored_activity(world):
    node, _, bob = await meet(world)
    started = world.now
    await world.sleep(100)
    await node.node.sessions.set_idle_after("ana", 60_000)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "away"]
    assert bob.last("ana").since == pytest.approx(started, abs=10)
    await node.node.sessions.set_idle_after("ana", 600_000)
    await world.sleep(1)
    assert bob.saw("ana") == ["online", "away", "online"]
    await world.until(started + 601_500)
    assert bob.saw("ana") == ["online", "away", "online", "away"]


async def test_b9_a_user_who_leaves_within_the_online_delay_is_never_shown(world):
    with_timings(world, online_delay=5_000)
    node = await world.start("n1")
    await world.befriend("ana", "bob", "cy")
    ana, bob = world.client("ana"), world.client("bob")
    await bob.connect(node)
    await bob.watch("ana")
    await ana.connect(node)
    await world.sleep(3)
    assert b'"status":"offline"' in (await node.node.viewing.statuses("bob", ["ana"]))[0]
    assert ana.own()["status"] == "online"
    ana.close()
    await world.sleep(60)
    assert bob.saw("ana") == ["offline"]
    came = world.now
    await ana.connect(node)
    await world.sleep(6.1)
    assert bob.saw("ana") == ["offline", "online"]
    assert 0 <= bob.last("ana").at - (came + 5_000) <= 1000


CROWD = 10_000


@pytest.mark.looptime(False)
async def test_b7_ten_thousand_reconnect_windows_ending_in_one_second_do_not_delay_other_users():
    """In real time, because it is about CPU work: a user who connects meanwhile waits for a few of the ten thousand,
    not for all.
    """
    store = MemoryStore(16)
    await leave_behind(store, store.clock() + 500)
    node = Node(make_context(MemoryEngine(store), MemoryLedger(), node_settings(embedded=False, ledger_flush=60)))
    await node.start({})
    told: list[bytes] = []

    def come(user):
        connection = node.sessions.connect(
            user, "d", Platform.WEB, send=told.append, end=lambda code, reason: None, abort=lambda: None
        )
        connection.welcomed = True
        return connection

    assert node.context.metrics.users[Status.ONLINE] == CROWD
    worst = 0
    late_comers: list[Connection] = []
    while node.context.metrics.users[Status.ONLINE] > len(late_comers):
        changes, before = node.context.metrics.changes, len(told)
        late_comers.append(come(f"v{before}"))
        while len(told) == before:
            await asyncio.sleep(0)
        worst = max(worst, node.context.metrics.changes - changes)
        await asyncio.sleep(0.02)
    for connection in late_comers:
        node.sessions.gone(connection)
    await node.stop()
    assert worst <= CROWD / 10
    assert node.context.metrics.changes == CROWD + len(late_comers)


async def leave_behind(store, first):
    """Write users whose grace ends within one second from `first`."""
    engine, grace = MemoryEngine(store), Timings().grace
    for shard in range(16):
        await engine.unsettle(shard, store.clock())
    for number in range(CROWD):
        user, ends = f"u{number}", first + number * 1000 // CROWD
        lost = ends - grace
        session = Session("d", "AAAAAAAA", since=lost, seen_at=lost, active_at=lost, lost_at=lost)
        presence = Presence(version=lost, sessions=(session,), status=Status.ONLINE, since=lost)
        await engine.offer(shard_of(user, 16), [Offer(user, lost, encode(presence), wake_at=ends, unsaved=True)])
    for shard in range(16):
        await engine.settle(shard, store.clock(), 0)
