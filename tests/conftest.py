"""What every test relies on."""

import asyncio

# Before Python 3.14 the policy makes an event loop for whoever merely asks for one, as looptime does before each test;
# nobody closes it, and warnings are errors here. Once a loop (even none) was set, none is made unasked.
asyncio.set_event_loop(None)

pytest_plugins = ["tests.redis_servers", "tests.postgres_fixtures"]
