"""A session is lost at the time its close was read, however late the close is processed."""

from types import SimpleNamespace

import pytest
from tests.processes import SECRET
from tests.transport.test_expiry import a_door

from herenow.core.model import Platform
from herenow.transport.auth import mint
from herenow.transport.session import ClientSession
from herenow.wire.codes import Close

pytestmark = pytest.mark.looptime(noop_cycles=0)


class Line:
    """A peer that reads and sends nothing."""

    def send_text(self, payload): ...
    def ping(self): ...
    def close(self, code, reason=""): ...
    def abort(self): ...
    def pause_reading(self, why): ...
    def resume_reading(self, why): ...
    def buffered(self):
        return 0


def come(door, device="d1"):
    clock = door.gateway.node.context.clock
    claims = door.gateway.auth.check(mint(SECRET, "ana", scope=None, ttl=3600, now=clock.now() / 1000))
    session = ClientSession(door.gateway, claims, device, Platform.WEB)
    session.on_open(Line())
    return session


async def lost_at(door):
    await door.world.sleep(0.5)
    [session] = door.world.stored("ana").sessions
    return session.lost_at


async def test_the_reconnect_window_begins_when_the_client_closes_and_not_when_the_close_is_processed():
    async with a_door() as door:
        ana = come(door)
        await door.world.sleep(5)
        ana.on_leaving()
        left = door.gateway.node.context.clock.now()
        await door.world.sleep(2)
        ana.on_closed(None, "")
        assert await lost_at(door) == left


async def test_the_reconnect_window_of_a_reset_connection_begins_at_once():
    async with a_door() as door:
        ana = come(door)
        await door.world.sleep(5)
        ana.on_closed(None, "")
        now = door.gateway.node.context.clock.now()
        assert await lost_at(door) == now


async def test_the_reconnect_window_of_a_session_closed_by_the_server_begins_when_the_close_completes():
    async with a_door() as door:
        ana = come(door)
        await door.world.sleep(5)
        ana.end(Close.UNAUTHORIZED, "token_expired")
        await door.world.sleep(2)
        ana.on_closed(Close.UNAUTHORIZED, "")
        now = door.gateway.node.context.clock.now()
        assert await lost_at(door) == now


async def test_the_reconnect_window_of_a_device_begins_when_the_later_of_two_tabs_closes():
    async with a_door() as door:
        one, other = come(door), come(door)
        await door.world.sleep(5)
        one.on_leaving()
        await door.world.sleep(1)
        other.on_leaving()
        left = door.gateway.node.context.clock.now()
        await door.world.sleep(1)
        other.on_closed(None, "")
        one.on_closed(None, "")
        assert await lost_at(door) == left


async def test_no_reconnect_window_begins_for_a_user_who_reconnects_before_the_close_is_processed():
    async with a_door() as door:
        ana = come(door)
        await door.world.sleep(5)
        ana.on_leaving()
        again = come(door)
        await door.world.sleep(1)
        ana.on_closed(None, "")
        assert await lost_at(door) is None
        assert again.expires_at is not None


async def test_the_reconnect_window_begins_at_a_reset_and_not_when_the_close_is_processed():
    async with a_door() as door:
        ana = come(door)
        await door.world.sleep(5)
        waiting = []
        door.gateway.close_queue = SimpleNamespace(take=waiting.append, finish=lambda: None)
        ana.on_closed(None, "")
        left = door.gateway.node.context.clock.now()
        await door.world.sleep(2)
        [depart] = waiting
        depart()
        assert await lost_at(door) == left
