"""Common starting situations."""

import asyncio
from dataclasses import replace

from herenow.core.settle import Timings
from herenow_testing.world.settings import node_settings


async def meet(world, name="n1"):
    """A node with two friends; bob watches ana, who has just connected."""
    node = await world.start(name)
    await world.befriend("ana", "bob")
    ana, bob = world.client("ana"), world.client("bob")
    await ana.connect(node)
    await bob.connect(node)
    await bob.watch("ana")
    return node, ana, bob


def with_timings(world, **timings):
    """Timings in milliseconds; the others keep their defaults."""
    world.settings = node_settings(world.settings, timings=replace(Timings(), **timings))


class Stalled:
    """Calls of an engine method are delayed until `release`, before they are executed."""

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
    """Like `Stalled`, but calls are executed at once and only their answers are delayed."""

    async def _stall(self, *args, **kwargs):
        answer = await self._call(*args, **kwargs)
        if self.on:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return answer


async def slow_look(world, node, viewer, target):
    """The viewer subscribes to a target that its node does not know; the store's answer is delayed until the returned
    awaitable is awaited. Later calls are answered at once.
    """
    loads = Stalled(node.node.context.engine, "load")
    looks = asyncio.create_task(viewer.watch(target))
    await world.sleep(0.1)
    assert loads.waiting == 1
    loads.on = False

    async def answer():
        await loads.release()
        await looks

    return answer
