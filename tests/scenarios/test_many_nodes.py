"""Three `herenow serve` processes on one Valkey: what viewers see when nodes and ways fail. One fleet for all of it.

The fault bench (`tests/faults`) does the same at random and all at once; here each situation stands alone, with its name.
"""

import asyncio

import pytest
import pytest_asyncio
from tests.faults.fleet import Fleet
from tests.faults.lab import PATIENCE
from tests.faults.people import Client
from tests.redis_servers import running

from herenow.testing.scene import Witness

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("many nodes")]


class Notes(Witness):
    """What a viewer was shown, in its order."""

    def __init__(self):
        self.all = []

    def shown(self, client, shown):
        self.all.append(shown)

    def words(self, user):
        """Statuses; what was repeated because of something else is left out."""
        words = []
        for shown in self.all:
            if shown.user == user and (not words or words[-1] != shown.status):
                words.append(shown.status)
        return words


class Stage:
    def __init__(self, fleet, store):
        self.fleet = fleet
        self.store = store
        self.people = []
        self.number = 0

    async def cast(self, *names):
        """Friends whom nobody has seen before."""
        self.number += 1
        users = [f"{name}{self.number}" for name in names]
        await self.fleet.befriend(*users)
        return users

    async def comes(self, user, node, device="d1"):
        client = Client(self.fleet, user, device, Notes())
        self.people.append(client)
        assert await client.open(self.fleet.members[node])
        return client

    async def watches(self, user, node, *targets):
        client = await self.comes(user, node)
        await client.say("presence.subscribe", target_user_ids=list(targets), id="watch")
        await self.until(
            lambda: {shown.user for shown in client.witness.all} == {*targets}, "no snapshot came"
        )
        return client

    async def until(self, true, why):
        try:
            async with asyncio.timeout(PATIENCE):
                while not true():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(why)

    async def sees(self, viewer, user, status):
        notes = viewer.witness
        await self.until(
            lambda: notes.words(user)[-1:] == [status], f"{viewer.user} saw {notes.words(user)} of {user}"
        )

    async def settled(self):
        """Every node knows what the store holds, and none doubts it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                metrics = [await member.metrics() for member in self.fleet.up()]
                if not sum(each["herenow_stale_shards"] for each in metrics) and all(
                    each["herenow_lease_held"] for each in metrics
                ):
                    return
                await asyncio.sleep(0.1)

    async def clear(self):
        for client in self.people:
            await client.close()
            await client.stop()
            self.fleet.clients.remove(client)
        self.people.clear()
        for member in self.fleet.members.values():
            member.back.heal()
            if not member.alive:
                await member.start()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory):
    with running() as store:
        fleet = Fleet(tmp_path_factory.mktemp("fleet"), store.url)
        try:
            await fleet.start()
            yield Stage(fleet, store)
        finally:
            await fleet.close()


@pytest_asyncio.fixture(loop_scope="module")
async def stage(whole):
    await whole.settled()
    yield whole
    await whole.clear()


GONE = 11.0
"""Seconds after which a silent device is lost and its grace is over, and a little."""


async def test_e1_who_returns_elsewhere_before_the_first_node_notices_is_not_seen_to_leave(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n3", ana)
    device = await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    device.vanish()
    await device.open(stage.fleet.members["n2"])
    await asyncio.sleep(GONE)
    assert viewer.witness.words(ana) == ["offline", "online"]


async def test_b1_who_moves_to_another_node_within_grace_is_not_seen_to_leave(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n3", ana)
    device = await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    before = len(viewer.witness.all)
    await device.close()
    await asyncio.sleep(1)
    await device.open(stage.fleet.members["n2"])
    await asyncio.sleep(4)
    assert viewer.witness.all[before:] == []


async def test_e2_e3_of_a_killed_node_that_starts_again_at_once_only_who_stays_away_is_seen_to_leave(stage):
    ana, gil, bob = await stage.cast("ana", "gil", "bob")
    viewer = await stage.watches(bob, "n2", ana, gil)
    stays, leaves = await stage.comes(ana, "n1"), await stage.comes(gil, "n1")
    await stage.sees(viewer, ana, "online")
    await stage.sees(viewer, gil, "online")
    n1 = stage.fleet.members["n1"]
    killed_at = stage.fleet.now
    await n1.kill()
    await stage.until(lambda: stays.link is None and leaves.link is None, "their sockets did not end")
    await stays.open(stage.fleet.members["n3"])
    await n1.start()
    await stage.sees(viewer, gil, "offline")
    assert viewer.witness.words(ana) == ["offline", "online"]
    assert viewer.witness.words(gil) == ["offline", "online", "offline"]
    [last] = [shown.last_seen for shown in viewer.witness.all if shown.user == gil and shown.last_seen][-1:]
    assert killed_at - stage.fleet.lease <= last <= killed_at + 1_000
    await stage.settled()
    answers = [await node.answers(bob, [ana, gil]) for node in stage.fleet.members.values()]
    assert [[each.status for each in one] for one in answers] == [["online", "offline"]] * 3


async def test_d4_a_mode_ends_on_time_though_the_node_that_took_it_is_dead(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n3")
    await stage.sees(viewer, ana, "online")
    n1 = stage.fleet.members["n1"]
    await n1.ask("PUT", "/presence/mode", ana, mode="busy", until=stage.fleet.now + 5_000)
    await stage.sees(viewer, ana, "busy")
    await n1.kill()
    await stage.sees(viewer, ana, "online")
    assert viewer.witness.words(ana) == ["offline", "online", "busy", "online"]


async def test_e5_a_node_cut_off_from_the_store_shows_nobody_anything(stage):
    ana, bob, cy = await stage.cast("ana", "bob", "cy")
    here = await stage.watches(cy, "n1", ana, bob)
    there = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n1")
    await stage.sees(there, ana, "online")
    await stage.sees(here, ana, "online")
    way = stage.fleet.members["n1"].back
    way.blackhole()
    await stage.until(lambda: any(shown.stale for shown in here.witness.all), "nothing was called stale")
    way.heal()
    await stage.settled()
    await stage.until(
        lambda: not [shown for shown in here.witness.all if shown.user == bob][-1].stale, "stale for ever"
    )
    assert there.witness.words(ana) == ["offline", "online"]
    assert here.witness.words(bob) == ["offline", "online"]
    assert here.witness.words(ana) == ["offline", "online"]


async def test_a10_a_node_that_slept_longer_than_its_lease_asserts_its_people_anew(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    n1 = stage.fleet.members["n1"]
    epochs = (await n1.metrics())["herenow_epochs_total"]
    n1.freeze()
    await asyncio.sleep(2.5 * stage.fleet.lease / 1000)
    n1.thaw()
    await stage.settled()
    await stage.sees(viewer, ana, "online")
    assert (await n1.metrics())["herenow_epochs_total"] > epochs
    words = viewer.witness.words(ana)
    assert words in (["offline", "online"], ["offline", "online", "offline", "online"])


async def test_e16_a_store_that_is_emptied_shows_nobody_offline_and_the_invisible_to_nobody(stage):
    ana, tom, bob = await stage.cast("ana", "tom", "bob")
    viewer = await stage.watches(bob, "n2", ana, tom)
    await stage.comes(ana, "n1")
    for number, node in enumerate(("n1", "n3")):
        await stage.comes(tom, node, f"d{number}")
    await stage.sees(viewer, tom, "online")
    await stage.fleet.members["n3"].ask("PUT", "/presence/mode", tom, mode="invisible")
    await stage.sees(viewer, tom, "offline")
    await stage.sees(viewer, ana, "online")
    before = len(viewer.witness.all)
    stage.store.client.flushall()
    await stage.until(lambda: any(shown.stale for shown in viewer.witness.all[before:]), "nobody noticed")
    await stage.settled()
    since = viewer.witness.all[before:]
    assert {shown.status for shown in since if shown.user == ana} <= {"online"}
    assert {shown.status for shown in since if shown.user == tom} <= {"offline"}
    answers = await stage.fleet.members["n1"].answers(bob, [ana, tom])
    assert [each.status for each in answers] == ["online", "offline"]


async def test_e17_a_store_that_was_away_for_longer_than_a_lease_sweeps_nobody(stage):
    ana, bob = await stage.cast("ana", "bob")
    viewer = await stage.watches(bob, "n2", ana)
    await stage.comes(ana, "n1")
    await stage.sees(viewer, ana, "online")
    stage.store.stop_the_clock()
    await asyncio.sleep(1.5 * stage.fleet.lease / 1000)
    stage.store.go_on()
    await stage.settled()
    await asyncio.sleep(stage.fleet.timings.grace / 1000 + 2)
    assert viewer.witness.words(ana) == ["offline", "online"]
