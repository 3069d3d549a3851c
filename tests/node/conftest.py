"""A world per test under simulated time; a task that died or a decision that failed unexpectedly fails the test."""

import pytest
from structlog.testing import capture_logs

from herenow_testing.world.world import World


@pytest.fixture
async def world():
    with capture_logs() as logs:
        world = World()
        yield world
        await world.close()
    assert not [line for line in logs if line["event"] in ("task.died", "decide.failed") or line.get("exc_info")]
