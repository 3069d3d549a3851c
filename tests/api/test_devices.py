"""A user's own devices, and signing one out."""

import pytest
from tests.api.world import NOW, SERVICE, problem

from herenow.core.model import Platform
from herenow.wire.codes import Close

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_devices_of_a_user_are_listed_once_each_sorted_by_id(world):
    await world.connect("ana", "phone")
    await world.connect("ana", "phone")
    await world.connect("ana", "laptop", Platform.DESKTOP)
    answer = await world.get("/api/v1/presence/devices", by="ana")
    assert answer.json() == {
        "devices": [
            {"device_id": "laptop", "platform": "desktop", "active": True, "since": NOW},
            {"device_id": "phone", "platform": "mobile", "active": True, "since": NOW},
        ]
    }


async def test_a_user_who_never_connected_has_no_devices(world):
    assert (await world.get("/api/v1/presence/devices", by="nobody")).json() == {"devices": []}


async def test_signing_out_a_device_closes_all_its_tabs_and_no_other_device(world):
    _, tab = await world.connect("bob", "phone")
    _, other_tab = await world.connect("bob", "phone")
    _, laptop = await world.connect("bob", "laptop")
    assert (await world.delete("/api/v1/presence/devices/phone", by="bob")).status_code == 204
    assert [code for code, _ in tab + other_tab] == [Close.SIGNED_OUT] * 2
    assert laptop == []
    left = (await world.get("/api/v1/presence/devices", by="bob")).json()["devices"]
    assert [device["device_id"] for device in left] == ["laptop"]


async def test_signing_out_the_last_device_makes_the_user_offline_at_once(world):
    await world.connect("leaver", "a/b")
    assert (await world.delete("/api/v1/presence/devices/a%2Fb", by="leaver")).status_code == 204
    status = (await world.get("/api/v1/presence/leaver", by=SERVICE)).json()
    assert (status["status"], status["last_seen"], status["platforms"]) == ("offline", NOW, [])


async def test_signing_out_an_unknown_device_returns_404(world):
    detail = problem(await world.delete("/api/v1/presence/devices/fax", by="ana"), 404, "device_unknown")
    assert "'fax'" in detail


async def test_signing_out_a_device_of_another_user_returns_404_and_the_device_stays(world):
    _, closed = await world.connect("owner", "shared")
    problem(await world.delete("/api/v1/presence/devices/shared", by="thief"), 404, "device_unknown")
    assert closed == []
    assert len((await world.get("/api/v1/presence/devices", by="owner")).json()["devices"]) == 1
