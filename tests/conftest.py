"""What every test relies on, and in which order several workers take them."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before Python 3.14 the policy makes an event loop for whoever merely asks for one, as looptime does before each test;
# nobody closes it, and warnings are errors here. Once a loop (even none) was set, none is made unasked.
asyncio.set_event_loop(None)

# How long an example takes says something about the machine, and whatever else it does.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Failures of the contract suites say what was compared, as those of tests do.
pytest.register_assert_rewrite("herenow_testing.contracts")

pytest_plugins = ["tests.redis_servers", "tests.postgres_fixtures"]

HERE = Path(__file__).parent
LONG = ("faults", "scenarios", "docs", "browser", "clients", "cli", "twins", "cluster")
"""Folders whose tests take long or wait for other processes, the longest first."""
SHORT = ("api", "core", "kit", "node", "wire")
"""Folders of many short tests, of which those in one file often share a fixture."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config, items):
    """With several workers: long tests begin first, and the short ones fill up what is left, a file at a time."""
    if not hasattr(config, "workerinput"):
        return
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(folder_of(item), len(LONG) + (folder_of(item) in SHORT)))
    for item in items:
        if folder_of(item) in SHORT and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(HERE))))


def folder_of(item):
    return item.path.relative_to(HERE).parts[0]
