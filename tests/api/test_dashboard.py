"""The dashboard page: public, without data of its own, and connecting only to this server."""

import re
from importlib.resources import files

import httpx2 as httpx
import pytest
from tests.api.world import STRANGER, problem

from herenow.api.ops.dashboard import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def get(world, path, peer=STRANGER, **headers):
    transport = httpx.ASGITransport(app=world.app, client=peer)
    async with httpx.AsyncClient(transport=transport, base_url="http://herenow.test") as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize("path", FILES)
async def test_dashboard_files_need_no_token_and_may_only_connect_to_this_server(world, path):
    answer = await get(world, path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(FILES[path][1])
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == policy["script-src"] == policy["style-src"] == "'self'"
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-cache", "nosniff")


async def test_the_dashboard_path_may_end_with_a_slash(world):
    assert (await get(world, "/dashboard/")).text == (await get(world, "/dashboard")).text


async def test_the_dashboard_page_loads_only_files_of_this_server_and_all_exist(world):
    page = (await get(world, "/dashboard")).text
    named = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page)
    assert set(named) | {"/dashboard", "/dashboard/uplot.js"} == set(FILES)
    script = (await get(world, "/dashboard/dashboard.js")).text
    assert '"/dashboard/uplot.js"' in script
    for path in FILES:
        text = (await get(world, path)).text
        links = set(re.findall(r"https?://[^\s\"'`)]+", text))
        assert links <= {"http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot,"}


async def test_statistics_need_a_service_token(world):
    problem(await get(world, "/api/v1/stats?since=0"), 401, "token_missing")
    user = f"Bearer {world.token('ana')}"
    problem(await get(world, "/api/v1/stats?since=0", authorization=user), 403, "forbidden")
    service = f"Bearer {world.token('ops', scope='service')}"
    assert (await get(world, "/api/v1/stats?since=0", authorization=service)).status_code == 200


async def test_the_licence_of_the_chart_library_is_shipped_with_it():
    folder = files("herenow.api").joinpath("static", "dashboard")
    assert "MIT License" in folder.joinpath("uplot.LICENSE").read_text()
    assert folder.joinpath("uplot.js").read_text().startswith("/* uPlot ")
