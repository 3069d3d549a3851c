"""Three nodes, a few users and random faults, in an order given by a seed.

Devices, viewers, choices and faults are independent actors with their own random generators, so that removing one
changes the others as little as possible. `trace` records what happened.
"""

import asyncio
import random
from dataclasses import replace
from random import Random

from herenow.core.model import Custom, Mode, Platform
from herenow.core.settle import Timings
from herenow.errors import HerenowError
from herenow.wire.codes import Close
from herenow_testing.checker.checker import Checker
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.settings import node_settings
from herenow_testing.world.world import Gone, World

TIMINGS = Timings(idle_after=25_000, dead_after=20_000, grace=8_000)
SETTINGS = node_settings(timings=TIMINGS, node_lease=6.0, beat_min=1.0, embedded=False)
NODES = ("n1", "n2", "n3")
VIEWERS = ("vera", "vito", "vlad")
SHARDS = 4

CALLS = ("commit", "load", "renew", "leases", "due", "offer", "settle", "unsettle", "join", "jump", "retire", "saved")


class Schedule:
    def __init__(self, seed, *, chaos=60.0, users=5, faults=None, spoil=None, store=None):
        """`faults`: only these kinds; `spoil`: modifies every node that starts; `store`: instead of memory."""
        self.seed = seed
        self.chaos = chaos
        self.kinds = FAULTS if faults is None else {kind: FAULTS[kind] for kind in faults}
        self._spoil = spoil
        self._rng = Random(f"schedule {seed}")
        # In half of the runs no user becomes idle: then no spontaneous change can hide a mistake.
        timings = TIMINGS if seed % 2 == 0 else replace(TIMINGS, idle_after=600_000)
        settings = node_settings(SETTINGS, timings=timings)
        self.world = World(shards=SHARDS, seed=seed, settings=settings, store=store)
        self.world.pong_every = 5.0
        self.checker = Checker(self.world, VIEWERS)
        self.users = [f"u{number}" for number in range(users)]
        self.trace = []
        self._over = False
        self._tasks = []

    async def run(self):
        world = self.world
        random.seed(self.seed)  # a stopping node spreads the reconnects of its clients at random
        await world.befriend(*VIEWERS, *self.users)
        for name in NODES:
            await self._start(name)
        for name in VIEWERS:
            self._act(self._viewer(name))
        for user in self.users:
            for number in range(self._rng.randint(1, 3)):
                self._act(self._device(user, f"d{number}"))
            if self._rng.random() < 0.4:
                self._act(self._rest_device(user, "rest"))
            self._act(self._chooser(user))
        self._act(self._snapshots())
        self._act(self._watcher())
        await world.sleep(5)
        self._act(self._misfortune(calls=True))
        self._act(self._misfortune(calls=False))
        await world.sleep(self.chaos)
        await self._calm_down()
        await self.checker.conclude()
        return self.checker.problems

    async def _calm_down(self):
        self._over = True
        self.note("calm")
        for _ in range(200):  # faults end by themselves
            if not any(task.get_name() == "misfortune" and not task.done() for task in self._tasks):
                break
            await self.world.sleep(0.5)
        for name in NODES:
            if name not in self.world.nodes:
                await self._start(name)
        await self.world.faults.run_late()
        bounds = self.checker.bounds
        await self.world.sleep((bounds.healed + 3_000) / 1000)
        self.checker.healed()
        await self.world.sleep((bounds.longest + 5_000) / 1000)

    async def close(self):
        self._over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.world.close()

    def note(self, what):
        self.trace.append(f"{self.world.now - 1_700_000_000_000:7d} {what}")

    def _act(self, work, name="actor"):
        name = "misfortune" if "_misfortune" in work.__qualname__ else name
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    def _dice(self, what):
        return Random(f"{self.seed} {what}")

    # Nodes

    async def _start(self, name):
        node = await self.world.start(name)
        if self._spoil is not None:
            self._spoil(node.node)
        self.note(f"{name} started as {node.node.context.authority.epoch}")
        return node

    def _some_node(self, rng, *, awake=False):
        nodes = [node for _, node in sorted(self.world.nodes.items()) if not (awake and node.frozen)]
        nodes = [node for node in nodes if node.node.ready]
        return rng.choice(nodes) if nodes else None

    # Users

    async def _viewer(self, name):
        rng = self._dice(f"viewer {name}")
        client = self.world.client(name)
        client.witness = self.checker
        while True:
            if client.link is None:
                node = self._some_node(rng)
                if node is not None:
                    client.open(node)
                    await self._subscribe(client)
            elif not self._over and rng.random() < 0.02:
                client.close()
            await self.world.sleep(rng.uniform(0.2, 1.0))

    async def _subscribe(self, client):
        link = client.link
        while client.link is link:
            try:
                async with asyncio.timeout(10):
                    denied = await client.watch(*self.users)
                if not denied:
                    return
            except TimeoutError:
                if client.link is link:
                    client.vanish()
                return
            except (HerenowError, Gone):
                pass
            await self.world.sleep(0.5)

    async def _device(self, user, device):
        rng = self._dice(f"device {user} {device}")
        client = self.world.client(user, device, rng.choice(list(Platform)))
        client.witness = self.checker
        client.on_closed = lambda _, code: self.note(f"{user} {device} was closed with {code}")
        await self.world.sleep(rng.uniform(0, 5))
        patience = rng.choice([2.0, 6.0, 20.0])
        while not self._over:
            if client.link is None:
                signed_out = client.closed_with and client.closed_with[-1][1] == Close.SIGNED_OUT
                if rng.random() < (0.2 if signed_out else 0.7):
                    node = self._some_node(rng)
                    if node is not None:
                        self.note(f"{user} {device} opens on {node.name}")
                        client.open(node)
            else:
                await self._move(client, rng)
            await self.world.sleep(rng.expovariate(1 / patience))

    async def _move(self, client, rng):
        who = f"{client.user} {client.device}"
        action = rng.choices(
            ("act", "rest", "beat", "type", "close", "vanish", "bye", "reload", "move"), (7, 3, 2, 3, 3, 2, 1, 2, 2)
        )[0]
        self.note(f"{who} {action}")
        if action in ("act", "rest", "beat", "close", "vanish"):
            getattr(client, action)()
        elif action == "type":
            await self._type(client, rng)
        elif action == "bye":
            try:
                async with asyncio.timeout(10):
                    await client.bye()
            except TimeoutError:
                if client.link is not None:
                    client.vanish()
            except (HerenowError, Gone):
                if client.link is not None:
                    client.close()
        else:
            node = client.node if action == "reload" else self._some_node(rng)
            client.close()
            await self.world.sleep(rng.choice([0, 0.001, 0.3, 2.0]))
            if node is not None and node.alive and node.node.ready and client.link is None:
                client.open(node)

    async def _type(self, client, rng):
        link = client.link
        client.act()
        if link.connection is not None:
            typing = link.node.node.viewing.type(link.connection, rng.choice(VIEWERS), None, typing=True)
            await self._try(link.node, typing, f"{client.user} types")

    async def _rest_device(self, user, device):
        rng = self._dice(f"rest {user} {device}")
        while not self._over:
            await self.world.sleep(rng.uniform(1, 20))
            for _ in range(rng.randint(1, 8)):
                node = self._some_node(rng, awake=True)
                if node is None or self._over:
                    break
                try:
                    async with asyncio.timeout(8):
                        await node.run(node.node.sessions.beat_by_rest(user, device, Platform.MOBILE, None))
                    self.checker.beat(user, device, node.name)
                except (HerenowError, Gone, TimeoutError):
                    self.checker.may_have_beaten(user, device, node.name)
                await self.world.sleep(rng.uniform(2, 6))

    async def _chooser(self, user):
        rng = self._dice(f"chooser {user}")
        number = 0
        while not self._over:
            await self.world.sleep(rng.uniform(2, 12))
            node = self._some_node(rng, awake=True)
            if node is None or self._over:
                continue
            what = rng.random()
            if what < 0.45:
                mode = rng.choice([Mode.AUTO, Mode.AUTO, Mode.BUSY, Mode.AWAY, Mode.INVISIBLE])
                self.checker.asks_mode(user, mode)
                if await self._try(node, node.node.sessions.set_mode(user, mode, None), f"{user} {mode.word}"):
                    self.checker.has_mode(user, mode)
            elif what < 0.85:
                number += 1
                self.checker.asks_text(user, number)
                text = Custom(str(number))
                if await self._try(node, node.node.sessions.set_custom(user, text), f"{user} says {number}"):
                    self.checker.has_text(user, number)
            else:
                device = rng.choice(["d0", "d1", "rest"])
                self.checker.signs_out(user, device)
                sign_out = self._sign_out(node, user, device)
                await self._try(node, sign_out, f"{user} signs {device} out")

    async def _sign_out(self, node, user, device):
        # Otherwise the device did not exist, and the caller got that answer.
        if await node.node.sessions.sign_out(user, device):
            self.checker.is_signed_out(user, device)

    async def _try(self, node, work, what):
        try:
            async with asyncio.timeout(15):
                await node.run(work)
        except (HerenowError, Gone, TimeoutError) as error:
            self.note(f"{what} through {node.name} failed: {error!r}")
            return False
        self.note(f"{what} through {node.name}")
        return True

    async def _watcher(self):
        while True:
            await self.world.sleep(1)
            self.checker.look_around()

    # Faults

    async def _snapshots(self):
        """Snapshots that a failing store may be restored to."""
        while not self._over:
            for shard in range(SHARDS):
                self.world.faults.remember(shard, most=5)
            self.world.faults.remember(None, most=5)
            await self.world.sleep(0.7)

    async def _misfortune(self, *, calls):
        rng = self._dice(f"misfortune {calls}")
        kinds = [kind for kind, (of_calls, _) in self.kinds.items() if of_calls is calls]
        while kinds and not self._over:
            await self.world.sleep(rng.uniform(1, 6))
            if not self._over:
                await self.kinds[rng.choice(kinds)][1](self, rng)

    async def _rule(self, rng, rule, seconds=None):
        kind = rule.fault.name.lower()
        self.note(f"{kind} {rule.node or 'all'} {rule.calls} p={rule.probability:.2f}")
        # A node that cannot renew counts as cut off, whichever calls fail; a frozen store affects all nodes.
        trouble = self.checker.trouble(kind, rule.node, cuts=rule.fault is not Fault.FROZEN)
        with self.world.faults.during(rule):
            await self.world.sleep(rng.uniform(1, 8) if seconds is None else seconds)
        self.checker.over(trouble)
        self.note(f"{kind} over")

    async def _calls_fail(self, rng, fault):
        node = rng.choice([*NODES, None])
        calls = () if rng.random() < 0.4 else (rng.choice(CALLS),)
        await self._rule(rng, Rule(fault, probability=rng.choice([0.1, 0.3, 0.6]), node=node, calls=calls, limit=0.5))

    async def _cut_off(self, rng):
        seconds = rng.choice([2.0, 5.0, 9.0, 20.0])
        await self._rule(rng, Rule(Fault.SILENCE, node=rng.choice(NODES)), seconds)

    async def _store_stands_still(self, rng):
        await self._rule(rng, Rule(Fault.FROZEN), rng.choice([1.0, 4.0, 12.0]))

    async def _deaf(self, rng):
        await self._rule(rng, Rule(Fault.TAIL_SILENCE, node=rng.choice(NODES)), rng.choice([2.0, 8.0]))

    async def _log_gap(self, rng):
        await self._rule(rng, Rule(Fault.LOG_GAP, probability=0.5), rng.choice([1.0, 4.0]))

    async def _store_loses(self, rng, what, shard):
        faults = self.world.faults
        kind = f"{what} {'store' if shard is None else 'shard'}"
        self.note(f"{kind} {shard}")
        trouble = self.checker.trouble(kind, loses=True)
        if what == "empty":
            faults.empty(shard)
        else:
            faults.roll_back(shard, rng.randint(1, 3))
        self.checker.over(trouble)
        await self.world.sleep(rng.uniform(0, 8))

    async def _detour(self, rng):
        """A master comes back empty and stays master for a moment until its replica takes over."""
        faults = self.world.faults
        self.note("empty master")
        trouble = self.checker.trouble("detour", loses=True)
        replica_takes_over = faults.replica()
        faults.empty()
        await self.world.sleep(rng.choice([0.5, 3.0, 6.0, 12.0]))
        self.note("replica")
        replica_takes_over()
        self.checker.over(trouble)
        await self.world.sleep(rng.uniform(0, 8))

    async def _kill(self, rng):
        node = self._some_node(rng, awake=True)
        if node is None or sum(not other.frozen for other in self.world.nodes.values()) < 2:
            return
        self.note(f"kill {node.name}")
        trouble = self.checker.trouble("kill", node.name, kills=True)
        node.kill()
        self.checker.over(trouble)
        await self.world.sleep(rng.choice([0.1, 3.0, 12.0]))
        await self._start_somehow(node.name)

    async def _start_somehow(self, name):
        while True:
            try:
                await self._start(name)
                return
            except HerenowError as error:
                self.note(f"{name} does not start: {error}")
                self.world.nodes[name].kill()
                await self.world.sleep(1)

    async def _freeze(self, rng):
        node = self._some_node(rng, awake=True)
        if node is None:
            return
        self.note(f"freeze {node.name}")
        trouble = self.checker.trouble("freeze", node.name, cuts=True, stops=True)
        node.freeze()
        await self.world.sleep(rng.choice([1.0, 4.0, 9.0, 18.0]))
        self.note(f"thaw {node.name}")
        node.thaw()
        self.checker.over(trouble)

    async def _restart(self, rng):
        node = self._some_node(rng, awake=True)
        if node is None or len(self.world.nodes) < 2:
            return
        self.note(f"stop {node.name}")
        trouble = self.checker.trouble("restart", node.name, kills=True)
        try:
            await node.stop()
        except Gone:
            return
        finally:
            self.checker.over(trouble)
        self.note(f"{node.name} stopped")
        await self.world.sleep(rng.choice([0.1, 2.0]))
        await self._start_somehow(node.name)


FAULTS = {
    # kind: (affects single calls, function)
    "unavailable": (True, lambda s, rng: s._calls_fail(rng, Fault.UNAVAILABLE)),
    "executed": (True, lambda s, rng: s._calls_fail(rng, Fault.EXECUTED)),
    "not executed": (True, lambda s, rng: s._calls_fail(rng, Fault.NOT_EXECUTED)),
    "late": (True, lambda s, rng: s._calls_fail(rng, Fault.LATE)),
    "delay": (True, lambda s, rng: s._calls_fail(rng, Fault.DELAY)),
    "message lost": (True, lambda s, rng: s._calls_fail(rng, Fault.MESSAGE_LOST)),
    "deaf": (True, Schedule._deaf),
    "log gap": (True, Schedule._log_gap),
    "cut off": (False, Schedule._cut_off),
    "frozen store": (False, Schedule._store_stands_still),
    "rollback shard": (False, lambda s, rng: s._store_loses(rng, "rollback", rng.randrange(SHARDS))),
    "rollback store": (False, lambda s, rng: s._store_loses(rng, "rollback", None)),
    "empty shard": (False, lambda s, rng: s._store_loses(rng, "empty", rng.randrange(SHARDS))),
    "empty store": (False, lambda s, rng: s._store_loses(rng, "empty", None)),
    "detour": (False, Schedule._detour),
    "kill": (False, Schedule._kill),
    "freeze": (False, Schedule._freeze),
    "restart": (False, Schedule._restart),
}
