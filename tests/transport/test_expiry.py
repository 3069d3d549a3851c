"""The wheel that closes connections with expired tokens keeps no closed session, and few entries per connection."""

import gc
from contextlib import asynccontextmanager

import pytest
from tests.processes import SECRET

from herenow.core.model import Platform
from herenow.transport.auth import Auth, mint
from herenow.transport.server import LOOK_AGAIN, WebSocketServer
from herenow.transport.session import ClientSession
from herenow.transport.websocket import Sockets
from herenow.wire.codes import Close
from herenow.wire.frames import Refresh
from herenow_testing.world.world import World

pytestmark = pytest.mark.looptime(noop_cycles=0)

DAY = 86_400.0


class Line:
    """A peer that answers a CLOSE at once."""

    def __init__(self, session):
        self.session = session
        self.ended = None
        session.on_open(self)

    def send_text(self, payload): ...
    def ping(self):
        self.session.on_sign_of_life()

    def close(self, code, reason=""):
        self.ended = code, reason
        self.session.on_closed(code, reason)


class Door:
    def __init__(self, gateway, world):
        self.gateway = gateway
        self.world = world

    def token(self, ttl):
        return mint(SECRET, "ana", scope=None, ttl=ttl, now=self.gateway.node.context.clock.now() / 1000)

    def come(self, ttl):
        claims = self.gateway.auth.check(self.token(ttl))
        return Line(ClientSession(self.gateway, claims, None, Platform.WEB))


@asynccontextmanager
async def a_door():
    """Not a fixture: its simulated time would differ from the test's."""
    world = World()
    node = (await world.start("n1")).node
    gateway = WebSocketServer(node, Auth((SECRET,), node.context.clock, DAY), Sockets(100), world.settings)
    gateway.start()
    yield Door(gateway, world)
    await gateway.stop()
    await world.close()


def sessions():
    gc.collect()
    return sum(isinstance(thing, ClientSession) for thing in gc.get_objects())


async def test_a_closed_websocket_session_is_freed_from_memory_before_its_token_expires():
    async with a_door() as door:
        before = sessions()
        for _ in range(50):
            door.come(ttl=DAY).session.on_closed(None, "")
        await door.world.sleep(LOOK_AGAIN / 1000 + 1)
        assert sessions() == before


async def test_a_websocket_is_closed_when_its_token_expires_and_not_before():
    async with a_door() as door:
        line = door.come(ttl=300)
        await door.world.sleep(299)
        assert line.ended is None
        await door.world.sleep(2)
        assert line.ended == (Close.UNAUTHORIZED, "token_expired")


async def test_a_renewed_token_may_expire_earlier_and_repeated_renewals_leave_few_timers():
    async with a_door() as door:
        line = door.come(ttl=DAY)
        long, short = door.token(DAY), door.token(30)
        for token in (long, short) * 50:
            await line.session._refresh(line.session._connection, Refresh(token=token))
        assert len(door.gateway._expiry) <= 3
        await door.world.sleep(29)
        assert line.ended is None
        await door.world.sleep(2)
        assert line.ended == (Close.UNAUTHORIZED, "token_expired")
