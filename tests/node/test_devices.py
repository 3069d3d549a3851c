"""Situations C: several devices, tabs and platforms of one user."""

import asyncio

import pytest
from tests.node.scenes import meet, with_timings

from herenow.core.model import Mode, Platform
from herenow.wire.codes import Close
from herenow_testing.world.settings import node_settings

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def test_c1_signing_out_the_active_device_shows_away_since_the_activity_of_the_idle_one(world):
    node, ana, bob = await meet(world)
    since = world.now
    phone = world.client("ana", "phone", Platform.MOBILE)
    await phone.connect(node)
    await world.sleep(5)
    phone.rest()
    ana.act()
    await world.sleep(1)
    assert bob.saw("ana") == ["online"]
    await ana.bye()
    await world.sleep(0.1)
    assert bob.saw("ana") == ["online", "away"]
    assert bob.last("ana").since == pytest.approx(since, abs=10)


async def test_c1_losing_the_active_device_shows_no_change_until_its_reconnect_window_ends(world):
    node, ana, bob = await meet(world)
    phone = world.client("ana", "phone", Platform.MOBILE)
    await phone.connect(node)
    await world.sleep(1)
    phone.rest()
    ana.close()
    await world.sleep(29)
    assert bob.saw("ana") == ["online"]
    await world.sleep(2)
    assert bob.saw("ana") == ["online", "away"]


async def test_c2_connecting_and_losing_a_second_device_shows_no_change(world):
    node, ana, bob = await meet(world)
    statuses = bob.saw("ana")
    phone = world.client("ana", "phone")
    await phone.connect(node)
    await world.sleep(10)
    phone.vanish()
    for _ in range(10):
        await world.sleep(20)
        ana.act()
    assert bob.saw("ana") == statuses == ["online"]


async def test_c3_two_tabs_with_one_device_id_are_one_device(world):
    node, ana, bob = await meet(world)
    tab = world.client("ana", "d1")
    await tab.connect(node)
    await world.sleep(1)
    assert [device["device_id"] for device in tab.own()["devices"]] == ["d1"]
    assert node.node.context.metrics.sessions == 2
    ana.close()
    await world.sleep(60)
    assert bob.saw("ana") == ["online"]
    assert [session.live for session in world.stored("ana").sessions] == [True]
    tab.close()
    await world.sleep(31)
    assert bob.saw("ana") == ["online", "offline"]
    assert node.node.context.metrics.sessions == 1


async def test_c4_using_a_device_id_of_another_user_does_not_affect_them(world):
    node, ana, bob = await meet(world)
    thief = world.client("mallory", "d1")
    await thief.connect(node)
    await thief.bye()
    await world.sleep(1)
    assert bob.saw("ana") == ["online"]
    assert ana.connected


async def test_c5_the_21st_connection_of_a_user_to_a_node_is_refused_and_the_others_stay(world):
    node = await world.start("n1")
    tabs = [world.client("ana", f"d{number}") for number in range(21)]
    for tab in tabs:
        await tab.connect(node)
    assert [tab.connected for tab in tabs] == [True] * 20 + [False]
    assert tabs[-1].closed_with[0][1:] == (Close.TOO_MANY_CONNECTIONS, "too_many_connections")
    tabs[0].close()
    await world.sleep(1)
    await tabs[-1].connect(node)
    assert tabs[-1].connected


async def test_c5_a_session_over_the_limit_is_refused_unless_it_replaces_one_in_its_reconnect_window(world):
    with_timings(world, max_sessions=3)
    n1, n2 = await world.start_all("n1", "n2")
    devices = [world.client("ana", f"d{number}") for number in range(5)]
    for device, node in zip(devices[:4], (n1, n2, n1, n2), strict=True):
        await device.connect(node)
        await world.sleep(1)
    assert [device.connected for device in devices[:4]] == [True, True, True, False]
    assert devices[3].closed_with[0][1] == Close.TOO_MANY_CONNECTIONS
    devices[0].close()
    await world.sleep(1)
    await devices[4].connect(n2)
    await world.sleep(1)
    assert devices[4].connected
    assert {s.device for s in world.stored("ana").sessions} == {"d1", "d2", "d4"}


async def test_c5_the_51st_session_of_a_user_in_the_cluster_is_refused_and_the_others_stay(world):
    nodes = await world.start_all("n1", "n2", "n3")
    devices = [world.client("ana", f"d{number}") for number in range(51)]
    for number, device in enumerate(devices):
        await device.connect(nodes[number % 3])
        await world.sleep(0.2)
    assert [device.connected for device in devices] == [True] * 50 + [False]
    assert devices[50].closed_with[0][1:] == (Close.TOO_MANY_CONNECTIONS, "too many sessions")
    assert len(world.stored("ana").sessions) == 50


async def test_c6_a_mode_set_on_one_device_is_pushed_to_the_other_even_when_invisible(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    phone = world.client("ana", "phone")
    await phone.connect(n2)
    await world.sleep(1)
    for mode in (Mode.BUSY, Mode.INVISIBLE, Mode.AUTO):
        await n1.node.sessions.set_mode("ana", mode, None)
        await world.sleep(0.1)
        assert ana.own()["mode"] == phone.own()["mode"] == mode.word
    assert phone.own()["status"] == "online"


async def test_c7_two_devices_that_set_different_modes_at_once_end_with_the_same_mode(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    phone = world.client("ana", "phone")
    await phone.connect(n2)
    await world.sleep(1)
    await asyncio.gather(
        n1.node.sessions.set_mode("ana", Mode.BUSY, None), n2.node.sessions.set_mode("ana", Mode.AWAY, None)
    )
    await world.sleep(1)
    assert ana.own()["mode"] == phone.own()["mode"] == world.stored("ana").mode.word
    assert bob.last("ana").status == ana.own()["mode"]


async def test_c8_platforms_agree_with_the_status_and_are_empty_when_offline_or_hidden(world):
    node, ana, bob = await meet(world)
    phone = world.client("ana", "phone", Platform.MOBILE)
    await phone.connect(node)
    await world.sleep(1)
    ana.rest()
    phone.rest()
    await world.sleep(1)
    assert bob.last("ana").status == "away"
    assert bob.last("ana").platforms == ("web", "mobile")
    await ana.bye()
    await world.sleep(0.1)
    assert bob.last("ana").platforms == ("mobile",)
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(0.1)
    assert (bob.last("ana").status, bob.last("ana").platforms) == ("offline", ())
    await node.node.sessions.set_mode("ana", Mode.AUTO, None)
    await phone.bye()
    await world.sleep(0.1)
    assert (bob.last("ana").status, bob.last("ana").platforms) == ("offline", ())


async def test_a_device_connected_to_two_nodes_is_listed_once_and_survives_the_loss_of_either(world):
    n1, ana, bob = await meet(world)
    n2 = await world.start("n2")
    again = world.client("ana", "d1")
    await again.connect(n2)
    await world.sleep(1)
    assert len(again.own()["devices"]) == 1
    ana.close()
    await world.sleep(60)
    assert bob.saw("ana") == ["online"]
    assert len(world.stored("ana").sessions) == 1


async def test_the_limit_of_connections_of_a_user_is_counted_on_each_node_separately(world):
    world.settings = node_settings(world.settings, max_connections_per_user=1)
    n1, n2 = await world.start_all("n1", "n2")
    first, second = world.client("ana", "d1"), world.client("ana", "d2")
    await first.connect(n1)
    await second.connect(n2)
    await world.sleep(1)
    assert first.connected
    assert second.connected
