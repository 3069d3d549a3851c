"""The JavaScript files for pages: available, cacheable, and of the right type."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("name", ["herenow.js", "green-dot.js", "rest.js"])
async def test_the_server_serves_the_javascript_sdk(world, name):
    answer = await world.client.get(f"/sdk/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "max-age" in answer.headers["cache-control"]
    assert "export{" in answer.text


async def test_sdk_files_allow_every_origin_so_that_caches_can_share_them(world):
    """The files are public for an hour: a shared cache may serve them to a page of another origin."""
    own = await world.client.get("/sdk/herenow.js")
    assert own.headers["access-control-allow-origin"] == "*"


async def test_unknown_sdk_files_return_404(world):
    for name in ("", "react.js", "../app.py", "%2e%2e/app.py"):
        assert (await world.client.get(f"/sdk/{name}")).status_code == 404
