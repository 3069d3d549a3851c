"""Who is at both ends of a connection is asked once, and the answers are not kept with it."""

import asyncio
import gc

import pytest
import uvloop
from uvicorn.protocols.utils import get_local_addr, get_remote_addr

from herenow.transport.websocket.handshake import glance


class Glancing(asyncio.Protocol):
    def __init__(self, glances):
        self._glances = glances

    def connection_made(self, transport):
        self._transport = transport
        with glance(transport) as seen:
            self._glances.append((get_remote_addr(seen), get_local_addr(seen)))
        self.kept = [
            each for each in gc.get_referents(transport.get_extra_info("socket")) if isinstance(each, tuple)
        ]

    def data_received(self, data):
        self._transport.write(data)


async def _connected():
    glances, protocols = [], []
    loop = asyncio.get_running_loop()

    def protocol():
        protocols.append(Glancing(glances))
        return protocols[-1]

    async with await loop.create_server(protocol, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"  # nobody has closed the descriptor
        ends = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        writer.close()
    return glances, ends, protocols[0].kept


@pytest.mark.parametrize("factory", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_both_ends_are_seen_and_not_kept(factory):
    with asyncio.Runner(loop_factory=factory) as runner:
        glances, ends, kept = runner.run(asyncio.wait_for(_connected(), 10))
    assert glances == [ends]
    if factory is uvloop.new_event_loop:
        assert not kept
