"""What every test relies on."""

import asyncio

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
