"""Situations that many tests begin with."""

import asyncio
from dataclasses import replace

from herenow.core.settle import Timings
from herenow_testing.world.settings import node_settings


async def meet(world, name="n1"):
    """A node with two friends on it; bob looks at ana, who has just come."""
    node = await world.start(name)
    await world.befriend("ana", "bob")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(node)
    await bob.connect(node)
    await bob.watch("ana")
    return node, ana, bob


def with_timings(world, **timings):
    """Milliseconds; the rest as by default."""
    world.settings = node_settings(world.settings, timings=replace(Timings(), **timings))


class Stalled:
    """Some calls of an engine do not come back until released; what they do is done then."""

    def __init__(self, engine, name):
        self._call = getattr(engine, name)
        self._waiting = []
        self.on = True
        setattr(engine, name, self._stall)

    @property
    def waiting(self):
        return len(self._waiting)

    async def _stall(self, *args, **kwargs):
        if self.on:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return await self._call(*args, **kwargs)

    async def release(self):
        self.on = False
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
        self._waiting.clear()
        await asyncio.sleep(0.001)


class Underway(Stalled):
    """The same, but what they do is done at once: only the answers wait."""

    async def _stall(self, *args, **kwargs):
        answer = await self._call(*args, **kwargs)
        if self.on:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return answer


async def slow_look(world, node, viewer, target):
    """The viewer has asked for a target that its node does not know, and the store has not answered yet. It does when what
    is returned is awaited; whoever asks meanwhile is answered at once."""
    loads = Stalled(node.node.context.engine, "load")
    looks = asyncio.create_task(viewer.watch(target))
    await world.sleep(0.1)
    assert loads.waiting == 1
    loads.on = False

    async def answer():
        await loads.release()
        await looks

    return answer
