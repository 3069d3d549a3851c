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


async def test_a7_a_user_may_sign_out_120_devices_a_minute_by_rest_and_60_at_once(world):
    async def sign_out(device):
        return await world.delete(f"/api/v1/presence/devices/{device}", by="hasty")

    codes = [(await sign_out(f"d{number}")).status_code for number in range(61)]
    assert codes == [404] * 60 + [429]
    await world.connect("hasty", "phone")
    refused = await sign_out("phone")
    assert "120 devices a minute" in problem(refused, 429, "signing_out_too_fast")
    assert refused.headers.get_list("retry-after") == ["1"]
    assert len((await world.get("/api/v1/presence/devices", by="hasty")).json()["devices"]) == 1
    world.hands.advance(0.5)
    assert (await sign_out("phone")).status_code == 204


async def test_a7_presence_bye_of_a_socket_is_not_limited_by_the_rate_of_sign_outs(world):
    for number in range(61):
        await world.delete(f"/api/v1/presence/devices/d{number}", by="leaving")
    for number in range(3):
        connection, _ = await world.connect("leaving", f"e{number}")
        assert await world.node.sessions.sign_out("leaving", f"e{number}", but=connection)


async def test_a7_requests_with_a_service_token_have_no_rate_limit_of_sign_outs(world):
    codes = {(await world.delete(f"/api/v1/presence/devices/d{n}", by=SERVICE)).status_code for n in range(70)}
    assert codes == {404}
