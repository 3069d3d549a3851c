"""A shard or the whole store loses data: no user is shown offline, and no user who left is restored."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.node.scenes import Stalled, Underway, meet

from herenow.core.model import Mode
from herenow.core.shards import shard_of
from herenow_testing.faults.faulty_engine import Fault, Rule

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def cast(world):
    """ana on n1, invisible iris on n1 and n2, zoe who has left; bob and far watch from both nodes."""
    await world.befriend("ana", "bob", "iris", "zoe")
    n1, n2 = await world.start_all("n1", "n2")
    ana, iris, phone, zoe = (
        world.client("ana"),
        world.client("iris"),
        world.client("iris", "phone"),
        world.client("zoe"),
    )
    bob, far = world.client("bob"), world.client("bob", "far")
    await ana.connect(n1)
    await iris.connect(n1)
    await phone.connect(n2)
    await zoe.connect(n1)
    await bob.connect(n1)
    await far.connect(n2)
    await n1.node.sessions.set_mode("iris", Mode.INVISIBLE, None)
    await zoe.bye()
    for viewer in (bob, far):
        await viewer.watch("ana", "iris", "zoe")
    await world.sleep(5)
    return n1, n2, ana, bob, far


def as_it_was(viewer):
    return [viewer.saw(user) for user in ("ana", "iris", "zoe")] == [["online"], ["offline"], ["offline"]]


def assert_nobody_noticed(world, *viewers):
    assert all(shard.settled for shard in world.store.shards)
    assert all(as_it_was(viewer) for viewer in viewers)
    assert not any(viewer.last("ana").stale for viewer in viewers)


@pytest.mark.parametrize("what", ["everything", "each shard"])
async def test_e16_an_emptied_store_is_refilled_without_a_visible_change(world, what):
    n1, n2, ana, bob, far = await cast(world)
    for shard in [None] if what == "everything" else range(4):
        world.store.empty(shard)
        await world.sleep(0.3)
    await world.sleep(30)
    assert as_it_was(bob)
    assert as_it_was(far)
    assert not bob.last("ana").stale
    assert {s.device for s in world.stored("iris").sessions} == {"d1", "phone"}
    assert world.stored("ana").live
    assert n1.node.context.metrics.shards_lost == n2.node.context.metrics.shards_lost == 4, (
        "also where nobody knows anybody"
    )
    assert all(shard.settled for shard in world.store.shards)


async def test_nodes_whose_leases_the_store_lost_write_them_again_and_keep_their_sessions(world):
    n1, n2, ana, bob, far = await cast(world)
    before = {n1.node.context.authority.epoch, n2.node.context.authority.epoch}
    world.store.empty()
    commits = n1.node.context.metrics.commits + n2.node.context.metrics.commits
    await world.sleep(40)
    assert world.store.leases.keys() == before == {n1.node.context.authority.epoch, n2.node.context.authority.epoch}
    assert all(not lease.dead for lease in world.store.leases.values())
    assert n1.node.context.metrics.commits + n2.node.context.metrics.commits == commits, "offers have done it all"
    assert bob.saw("ana") == far.saw("ana") == ["online"]


async def test_nodes_keep_their_leases_when_an_emptied_store_master_is_replaced_by_its_replica(world):
    """A master comes back empty and stays master for a moment before its replica takes over."""
    n1, n2, ana, bob, far = await cast(world)
    before = {n1.node.context.authority.epoch, n2.node.context.authority.epoch}
    await world.sleep(30)
    replica = world.store.snapshot()
    world.store.empty()
    await world.sleep(4)
    assert world.store.leases.keys() == before, "they were put back"
    world.store.restore(None, replica)
    await world.sleep(60)
    assert {n1.node.context.authority.epoch, n2.node.context.authority.epoch} == before
    assert not any(lease.dead for lease in world.store.leases.values())
    assert_nobody_noticed(world, bob, far)


async def test_a_node_declared_dead_while_it_was_cut_off_continues_under_a_new_run_id(world):
    """The node renewed until now, at a master that no other node uses any more."""
    n1, n2, ana, bob, far = await cast(world)
    old = n1.node.context.authority.epoch
    for shard in range(4):
        await n2.node.context.engine.retire(shard, old)
    await n2.node.context.engine.drop_lease(old)
    await world.sleep(60)
    assert n1.node.context.authority.epoch != old
    assert n1.node.context.metrics.shards_lost == n2.node.context.metrics.shards_lost == 0, "nothing was"
    assert world.stored("ana").sessions[0].holder == n1.node.context.authority.epoch
    assert world.store.leases.keys() == {n1.node.context.authority.epoch, n2.node.context.authority.epoch}
    assert_nobody_noticed(world, bob, far)


async def test_a_node_declared_dead_that_cannot_renew_its_lease_does_not_block_the_recovery_of_a_shard(world):
    """In a cluster the node may be cut off from only the master with the leases."""
    n1, n2, ana, bob, far = await cast(world)
    leases = ("renew", "leases", "store_time", "mark_dead", "drop_lease")
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n1", calls=leases)):
        await world.sleep(60)
        assert world.store.leases.keys() == {n2.node.context.authority.epoch}
        await n2.node.context.engine.unsettle(0, world.now)
        await world.sleep(60)
        assert world.store.shards[0].settled
        assert not n2.node.delivery.channels.is_stale(0)
    await world.sleep(60)
    assert all(shard.settled for shard in world.store.shards)
    assert far.saw("ana")[-1] == "online"
    assert not far.last("ana").stale


async def test_a_node_whose_expired_lease_the_store_has_lost_continues_under_a_new_run_id(world):
    """Its row is gone, and more than a lease has passed since its renewal, by its own clock or the store's."""
    n1, n2, ana, bob, far = await cast(world)
    old = {n1.node.context.authority.epoch, n2.node.context.authority.epoch}
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("renew",))):
        await world.sleep(n1.node.context.settings.node_lease + 1)
        world.store.empty()
    await world.sleep(60)
    now = {n1.node.context.authority.epoch, n2.node.context.authority.epoch}
    assert not old & now
    assert world.store.leases.keys() == now
    holders = {s.holder for record in world.everybody_stored().values() for s in record.sessions}
    assert holders <= now
    assert all(not shard.fences.keys() - now for shard in world.store.shards)


async def test_nodes_write_the_newest_records_back_to_a_shard_that_was_rolled_back(world):
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    world.faults.remember(shard)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    world.faults.roll_back(shard)
    await world.sleep(30)
    assert bob.saw("ana") == far.saw("ana") == ["online", "busy"]
    assert world.stored("ana").mode is Mode.BUSY


async def test_a_rollback_of_a_shard_is_detected_even_if_new_log_entries_reuse_the_lost_numbers(world):
    """The number of the lost entry was used again before the check: the log looks complete."""
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    neighbour = next(user for user in (f"cy{n}" for n in range(100)) if shard_of(user, 4) == shard)
    world.faults.remember(shard)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    world.faults.roll_back(shard)
    head = world.store.shards[shard].log.head
    with world.faults.during(Rule(Fault.DELAY, calls=("tail", "heads"), limit=0.9)):
        await world.client(neighbour).connect(n2)
        await n2.node.sessions.set_mode(neighbour, Mode.AWAY, None)
        assert world.store.shards[shard].log.head > head
        await world.sleep(20)
    await world.sleep(10)
    assert far.saw("ana") == ["online", "busy"]
    assert world.stored("ana").mode is Mode.BUSY


async def test_while_a_shard_recovers_from_data_loss_its_statuses_are_stale_and_do_not_change(world):
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    bob.forget()
    world.store.empty(shard)
    await world.sleep(1.5)
    assert (bob.last("ana").status, bob.last("ana").stale) == ("online", True)
    ana.rest()
    await world.sleep(2)
    assert bob.last("ana").status == "online"
    await world.sleep(5)
    assert (bob.last("ana").status, bob.last("ana").stale) == ("away", False)


async def test_a_user_who_connects_while_their_shard_recovers_from_data_loss_is_shown_afterwards(world):
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("zoe", 4)
    world.store.empty(shard)
    zoe = world.client("zoe", "again")
    await zoe.connect(n2)
    await world.sleep(10)
    assert bob.saw("zoe") == far.saw("zoe") == ["offline", "online"]


async def test_a_node_cut_off_while_a_shard_recovers_writes_its_records_back_afterwards(world):
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    with world.faults.during(Rule(Fault.SILENCE, node="n1")):
        await world.sleep(1)
        world.store.empty(shard)
        await world.sleep(6)
    await world.sleep(20)
    assert as_it_was(bob)
    assert as_it_was(far)
    assert world.stored("ana").live


async def test_a_shard_that_is_emptied_again_during_its_recovery_recovers(world):
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    for _ in range(4):
        world.store.empty(shard)
        await world.sleep(2)
    await world.sleep(20)
    assert as_it_was(bob)
    assert as_it_was(far)
    assert world.stored("ana").live


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.EXECUTED, Fault.NOT_EXECUTED, Fault.LATE])
async def test_a_shard_recovers_despite_store_errors_during_recovery(world, fault):
    n1, n2, ana, bob, far = await cast(world)
    with world.faults.during(Rule(fault, probability=0.4)):
        world.store.empty()
        await world.sleep(15)
    await world.sleep(30)
    assert bob.saw("ana") == far.saw("ana") == ["online"]
    assert bob.saw("iris") == far.saw("iris") == ["offline"]


async def test_a_session_that_ended_during_a_store_outage_is_not_restored_by_the_recovery_of_the_store(world):
    """n2 offers the last record it knows of ana; only n1 knows that she left."""
    n1, n2, ana, bob, far = await cast(world)
    with world.faults.during(Rule(Fault.SILENCE)):
        await world.sleep(1)
        ana.close()
        await world.sleep(2)
        world.store.empty()
    await world.sleep(60)
    assert bob.last("ana").status == far.last("ana").status == "offline"
    assert world.stored("ana") is None or not world.stored("ana").sessions


async def test_an_outdated_record_written_back_to_an_emptied_store_is_corrected(world):
    """The newest record was dropped from the store because the ledger has it; n2 still has an older one."""
    n1, n2, ana, bob, far = await cast(world)
    old = n2.node.context.people.find("ana")
    record, presence = old.record.stored, old.record.presence
    await ana.bye()
    await world.sleep(5)
    assert world.stored("ana") is None
    old.record.stored, old.record.presence = record, presence
    world.store.empty()
    await world.sleep(7)
    assert world.stored("ana") is not None
    await world.sleep(60)
    assert world.stored("ana") is None or not world.stored("ana").sessions
    cy = world.client("bob", "third")
    await cy.connect(n1)
    await cy.watch("ana")
    assert cy.last("ana").status == "offline"


async def test_a_device_signed_out_by_another_node_stays_signed_out_when_the_store_is_emptied(world):
    n1, n2, ana, bob, far = await cast(world)
    await n2.node.sessions.sign_out("ana", "d1")
    world.store.empty()
    await world.sleep(60)
    assert not ana.connected
    assert bob.last("ana").status == far.last("ana").status == "offline"


async def test_a_single_node_refills_an_emptied_store_by_itself(world):
    n1, ana, bob = await meet(world)
    await world.sleep(5)
    world.store.empty()
    await world.sleep(30)
    assert bob.saw("ana") == ["online"]
    assert world.stored("ana").live
    ana.close()
    await world.sleep(31)
    assert bob.saw("ana") == ["online", "offline"]


async def test_a_mode_lost_by_a_rollback_of_the_store_is_restored_even_if_its_record_was_overwritten(world):
    """n3 knows no user and commits over the rolled-back record before the loss is noticed: its version is the newest."""
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    world.faults.remember(shard)
    await n1.node.sessions.set_mode("ana", Mode.INVISIBLE, None)
    await world.sleep(1)
    n3 = await world.start("n3")  # after the change, which the ledger reports to all nodes
    assert bob.saw("ana") == far.saw("ana") == ["online", "offline"]
    tails = [Stalled(node.node.context.engine, "tail") for node in (n1, n2)]
    await world.sleep(1.1)
    world.faults.roll_back(shard)
    phone = world.client("ana", "phone")
    phone.open(n3)
    await world.sleep(0.02)
    assert world.stored("ana").mode is Mode.AUTO
    for tail in tails:
        await tail.release()
    await world.sleep(30)
    assert bob.saw("ana") == far.saw("ana") == ["online", "offline"]
    assert world.stored("ana").mode is Mode.INVISIBLE
    assert {session.device for session in world.stored("ana").sessions} == {"d1", "phone"}
    assert ana.connected


async def test_a_user_whose_last_viewer_leaves_while_records_are_reread_does_not_block_shard_recovery(world):
    """The read finds that the record was dropped, after the last reference to the person was released."""
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n2", calls=("unsaved",))):
        await ana.bye()
        await world.sleep(8)
    assert world.stored("ana") is None
    assert n2.node.context.people.find("ana").record.stored is not None, "it was n1 that let it go"
    loads = Stalled(n2.node.context.engine, "load")
    again = asyncio.create_task(n2.node.cluster.log_reader.read_again(shard))
    await world.sleep(0.1)
    assert loads.waiting
    far.close()
    await world.sleep(0.1)
    assert n2.node.context.people.find("ana") is None
    await loads.release()
    await again
    world.store.empty(shard)
    await world.sleep(40)
    assert n2.node.context.metrics.shards_lost == 1
    assert not n2.node.context.authority.closed_shards


async def test_a_shard_recovers_despite_an_unexpected_error_during_its_recovery(world):
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    offer, fails = n1.node.cluster.recovery._offer, 2

    async def broken(shard):
        nonlocal fails
        fails -= 1
        if fails >= 0:
            raise RuntimeError("a mistake")
        await offer(shard)

    n1.node.cluster.recovery._offer = broken
    with capture_logs() as logs:
        world.store.empty(shard)
        await world.sleep(40)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["heal.failed"] * 2
    assert not n1.node.context.authority.closed_shards
    assert_nobody_noticed(world, bob, far)


async def test_a_read_that_begins_in_shard_recovery_and_ends_after_it_is_not_taken_for_new_data_loss(world):
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    world.store.empty(shard)
    await world.sleep(4.8)
    assert shard in n2.node.context.authority.closed_shards
    loads = Underway(n2.node.context.engine, "load")
    people = [n2.node.context.people.find("ana")]
    reads = [asyncio.create_task(read(people)) for read in (n2.node.records.load, n2.node.records.refresh)]
    await world.sleep(0.01)
    assert loads.waiting == 2
    loads.on = False
    await world.sleep(1.2)
    assert shard not in n2.node.context.authority.closed_shards
    await loads.release()
    await asyncio.gather(*reads)
    await world.sleep(10)
    assert n1.node.context.metrics.shards_lost == n2.node.context.metrics.shards_lost == 1
    assert_nobody_noticed(world, bob, far)


async def test_a_node_on_an_unused_store_reports_no_data_loss(world):
    world.store.empty()
    with capture_logs() as logs:
        n1 = await world.start("n1")
        ana = world.client("ana")
        await ana.connect(n1)
        await world.sleep(15)
    assert [line["log_level"] for line in logs if line["event"] == "store.settling"] == ["info"]
    assert not [line for line in logs if line["event"] == "shard.lost"]
    assert n1.node.context.metrics.shards_lost == 0
    assert all(shard.settled for shard in world.store.shards)
    assert world.stored("ana").live
    world.store.empty(shard_of("ana", 4))
    await world.sleep(15)
    assert n1.node.context.metrics.shards_lost == 1, "a loss is told as ever"


async def test_data_loss_of_a_shard_is_detected_even_while_log_positions_cannot_be_read(world):
    """As in a cluster where the master of another shard is away."""
    n1, n2, ana, bob, far = await cast(world)
    shard = shard_of("ana", 4)
    world.faults.remember(shard)
    await n1.node.sessions.set_mode("ana", Mode.BUSY, None)
    await world.sleep(1)
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("heads",)), Rule(Fault.TAIL_SILENCE)):
        world.faults.roll_back(shard)
        await world.sleep(5)
        assert n1.node.context.metrics.shards_lost == 1


async def test_users_of_a_frozen_node_stay_online_when_the_store_is_emptied_twice(world):
    """The sweep would find n1's lease missing once the shard is settled, while n1 is frozen."""
    n1, _, _, _, far = await cast(world)
    world.store.empty()
    await world.sleep(5)
    while not all(shard.settled for shard in world.store.shards):
        await world.sleep(0.1)
    await world.sleep(8)
    world.store.empty()
    n1.freeze()
    await world.sleep(36)
    n1.thaw()
    await world.sleep(30)
    assert far.saw("ana") == ["online"]
