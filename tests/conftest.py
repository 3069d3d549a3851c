"""Settings for all tests, and the order in which several workers run them."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before Python 3.14 the policy creates an event loop for every caller of `get_event_loop`, as looptime is before each
# test. Such a loop is never closed, and warnings are errors here. After any call of `set_event_loop`, even with None,
# no loop is created implicitly.
asyncio.set_event_loop(None)

# No deadline per example: the time of an example depends on the load of the machine.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Contract suites get the same assertion messages as tests.
pytest.register_assert_rewrite("herenow_testing.contracts")

pytest_plugins = ["tests.redis_servers", "tests.postgres_fixtures"]

HERE = Path(__file__).parent
LONG = ("faults", "scenarios", "docs", "browser", "clients", "cli", "twins", "cluster")
"""Folders whose tests take long or wait for other processes, the longest first."""
SHORT = ("api", "core", "kit", "node", "wire")
"""Folders of many short tests. Tests of one file often share a fixture."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config, items):
    """With several workers: run long tests first, then fill up with short ones, one file at a time."""
    if not hasattr(config, "workerinput"):
        return
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(folder_of(item), len(LONG) + (folder_of(item) in SHORT)))
    for item in items:
        if folder_of(item) in SHORT and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(HERE))))


def folder_of(item):
    return item.path.relative_to(HERE).parts[0]
