"""Three processes on one store, with helpers that connect users and viewers; used by the tests of many nodes."""

import asyncio
from collections import Counter

import pytest
from tests.faults.lab import PATIENCE
from tests.faults.people import Client

from herenow.core.model import Status, public
from herenow_testing.world.scene import Witness


class Notes(Witness):
    """The statuses a viewer received, in order."""

    def __init__(self):
        self.all = []

    def shown(self, client, shown):
        self.all.append(shown)

    def words(self, user):
        """Statuses without repetitions caused by other fields."""
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
        """New friends with unused names."""
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
        await self.until(lambda: {shown.user for shown in client.witness.all} == {*targets}, "no snapshot came")
        return client

    async def until(self, true, why):
        try:
            async with asyncio.timeout(PATIENCE):
                while not true():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(why)

    async def until_stored(self, true, patience=PATIENCE):
        """Wait until `true()` holds for the store, which is read repeatedly."""
        async with asyncio.timeout(patience):
            while not (await self.fleet.look() and true()):
                await asyncio.sleep(0.1)

    def holds(self, user, live):
        """True if the last read of the store has so many live sessions of live nodes, and none in grace if there are
        any.
        """
        known = self.fleet.everybody_stored().get(user)
        sessions = () if known is None else known.sessions
        here = [session for session in sessions if session.live and session.holder in self.fleet.epochs]
        return len(here) == live and (not live or len(sessions) == live)

    async def until_counted(self, member, metric, above):
        async with asyncio.timeout(PATIENCE):
            while (await member.metrics()).get(metric, 0) <= above:
                await asyncio.sleep(0.1)

    async def counts_agree(self):
        """Assert that the user counts of every node equal a full count of the store."""
        async with asyncio.timeout(PATIENCE):
            while True:
                said = [(await member.counts()).users for member in self.fleet.up()]
                await self.fleet.look()
                stored = Counter(
                    Status(public(presence).status).word for presence in self.fleet.everybody_stored().values()
                )
                del stored["offline"]
                if all(each == stored for each in said):
                    return
                await asyncio.sleep(0.1)

    async def sees(self, viewer, user, status):
        notes = viewer.witness
        await self.until(lambda: notes.words(user)[-1:] == [status], f"{viewer.user} saw {notes.words(user)} of {user}")

    async def settled(self):
        """Wait until every node agrees with the store and none is stale."""
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
