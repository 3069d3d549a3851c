"""Arrivals before departures: after an outage of the store no user who is connected is shown offline."""

import asyncio
from contextlib import suppress

import pytest
from tests.node.scenes import meet, with_timings

from herenow.core.model import Mode, Platform
from herenow.errors import HerenowError, Unavailable, UnknownOutcome
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)

AWAY = Rule(Fault.UNAVAILABLE)
SILENT = Rule(Fault.SILENCE, limit=3.0)
REFUSING_WRITES = Rule(Fault.UNAVAILABLE, calls=("commit", "renew", "join", "jump"))
OUTAGES = pytest.mark.parametrize("outage", [AWAY, SILENT, REFUSING_WRITES], ids=["away", "silent", "read-only"])

USERS = [f"u{number}" for number in range(10)]


async def scene(world):
    """Two nodes; all users on n1, and a viewer of all of them on each node."""
    n0, n1 = await world.start_all("n0", "n1")
    await world.befriend(*USERS, "v0", "v1")
    users = [world.client(user) for user in USERS]
    viewers = []
    for node, name in ((n0, "v0"), (n1, "v1")):
        viewer = world.client(name)
        await viewer.connect(node)
        viewers.append(viewer)
    for user in users:
        await user.connect(n1)
    for viewer in viewers:
        await viewer.watch(*USERS)
    await world.sleep(5)
    return n0, n1, users, viewers


def seen(viewers):
    return {(viewer.user, user): viewer.saw(user) for viewer in viewers for user in USERS}


def always_online(viewers):
    return {(viewer.user, user): ["online"] for viewer in viewers for user in USERS}


@pytest.mark.parametrize("gone_for", [2, 20], ids=["within seconds", "long after the grace"])
@OUTAGES
async def test_a_user_who_moves_to_another_node_during_a_store_outage_is_not_shown_offline(world, outage, gone_for):
    with_timings(world, grace=1_000)
    n0, _, users, viewers = await scene(world)
    with world.faults.during(outage):
        for user in users:
            user.close()
        await world.sleep(gone_for)
        for user in users:
            user.open(n0)
        await world.sleep(4)
    await world.sleep(30)
    assert seen(viewers) == always_online(viewers)


@OUTAGES
async def test_a_user_with_rest_heartbeats_is_not_shown_offline_after_a_long_store_outage(world, outage):
    with_timings(world, grace=1_000, dead_after=15_000)
    n0, n1 = await world.start_all("n0", "n1")
    await world.befriend("ana", "v0", "v1")

    async def beat(node):
        with suppress(HerenowError):
            await node.run(node.node.sessions.beat_by_rest("ana", "phone", Platform.MOBILE, None))

    await beat(n1)
    viewers = [world.client(name) for name in ("v0", "v1")]
    for node, viewer in zip((n0, n1), viewers, strict=True):
        await viewer.connect(node)
        await viewer.watch("ana")
    beats = []
    with world.faults.during(outage):
        for _ in range(12):
            beats.append(asyncio.ensure_future(beat(n1)))
            await world.sleep(5)
    for _ in range(8):
        beats.append(asyncio.ensure_future(beat(n1)))
        await world.sleep(5)
    assert [viewer.saw("ana") for viewer in viewers] == [["online"], ["online"]]
    await asyncio.gather(*beats)


@pytest.mark.parametrize("leaves", ["signs out", "loses its connection"])
@OUTAGES
async def test_a_user_who_changes_device_and_node_during_a_store_outage_is_not_shown_offline(world, outage, leaves):
    with_timings(world, grace=500)
    n0, n1, users, viewers = await scene(world)
    phones = [world.client(user, "phone") for user in USERS]
    leaving = []
    with world.faults.during(outage):
        await world.sleep(1)
        for phone in phones:
            phone.open(n0)
        await world.sleep(2)
        for user in users:
            if leaves == "signs out":
                leaving.append(asyncio.ensure_future(user.bye()))
            else:
                user.close()
        await world.sleep(3)
    await world.sleep(30)
    await asyncio.gather(*leaving, return_exceptions=True)
    assert seen(viewers) == always_online(viewers)


@OUTAGES
async def test_users_who_left_during_a_store_outage_are_shown_offline_a_third_of_a_lease_after_it(world, outage):
    with_timings(world, grace=1_000)
    n0, n1, users, viewers = await scene(world)
    with world.faults.during(outage):
        for user in users:
            user.close()
        await world.sleep(20)
    await world.sleep(2)
    assert seen(viewers) == always_online(viewers), "sessions of other nodes come first"
    await world.sleep(6)
    assert {key: shown[-1] for key, shown in seen(viewers).items()} == dict.fromkeys(seen(viewers), "offline")


# Answers while the store is away

KNOWN_WITHIN = 1.6
"""Seconds after which a store that does not answer is known to be away."""

AT_ONCE = 0.1


async def seconds_of(world, call):
    begin = world.now
    with suppress(Unavailable, UnknownOutcome):
        await call
    return (world.now - begin) / 1000


@OUTAGES
async def test_writes_are_answered_at_once_while_the_store_is_known_to_be_unreachable(world, outage):
    node, _, _ = await meet(world)
    with world.faults.during(outage):
        assert await seconds_of(world, node.node.sessions.set_mode("ana", Mode.BUSY, None)) <= KNOWN_WITHIN
        for user in ("ana", "bob", "new"):
            await world.sleep(0.3)
            # Another shard is not known to be away before its first write.
            await seconds_of(world, node.node.sessions.set_mode(user, Mode.BUSY, None))
            assert await seconds_of(world, node.node.sessions.set_mode(user, Mode.AWAY, None)) <= AT_ONCE
            with pytest.raises(Unavailable):
                await node.node.sessions.sign_out(user, "none")
            assert await seconds_of(world, node.node.sessions.sign_out(user, "none")) <= AT_ONCE


async def test_mode_changes_that_wait_when_the_store_stops_answering_are_all_answered_in_two_seconds(world):
    node, _, _ = await meet(world)
    with world.faults.during(SILENT):
        calls = [seconds_of(world, node.node.sessions.set_mode("ana", Mode.BUSY, None)) for _ in range(20)]
        assert max(await asyncio.gather(*calls)) <= KNOWN_WITHIN


@OUTAGES
async def test_a_rest_heartbeat_accepted_during_a_store_outage_is_written_afterwards(world, outage):
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob")
    bob = world.client("bob")
    await bob.connect(n2)
    await bob.watch("ana")
    with world.faults.during(outage):
        for _ in range(4):
            begin = world.now
            assert await n1.node.sessions.beat_by_rest("ana", "phone", Platform.MOBILE, None)
            assert (world.now - begin) / 1000 <= KNOWN_WITHIN
            assert n1.node.records.unwritable("ana")
            await world.sleep(10)
    await world.sleep(3)
    assert bob.saw("ana") == ["offline", "online"]
    assert not n1.node.records.unwritable("ana")


async def test_disconnecting_a_user_closes_their_connections_to_the_node_even_during_a_store_outage(world):
    node, ana, _ = await meet(world)
    with world.faults.during(AWAY):
        with pytest.raises(Unavailable):
            await node.node.admin.disconnect("ana", None)
        assert not ana.connected
