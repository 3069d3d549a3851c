"""Operations of a back end on a user, on one node and on several: disconnect, revoke, delete (J7)."""

import pytest
from tests.node.scenes import Stalled, meet

from herenow.core.model import Custom, Mode, Platform, Presence
from herenow.core.timeline import REMEMBER_SIGN_OUT
from herenow.errors import ProtocolError, Unavailable, UnknownOutcome
from herenow.node.people import Person
from herenow.ports import LedgerChange, RelationRow, Remembered
from herenow_testing.faults.faulty_engine import Fault, Rule
from herenow_testing.world.settings import node_settings

pytestmark = pytest.mark.looptime(noop_cycles=0)


async def two_nodes(world):
    """Ana on n1; bob on n2 and her friend cy on n1 watch her."""
    n1, n2 = await world.start_all("n1", "n2")
    await world.befriend("ana", "bob", "cy")
    ana, bob, cy = world.client("ana"), world.client("bob"), world.client("cy")
    await ana.connect(n1)
    await bob.connect(n2)
    await cy.connect(n1)
    await bob.watch("ana")
    await cy.watch("ana")
    await world.sleep(1)
    return n1, n2, ana, bob, cy


def codes(client):
    return [code for _, code, _ in client.closed_with]


# --- Disconnect


@pytest.mark.parametrize("through", ["n1", "n2"])
async def test_a_user_disconnected_by_a_service_is_signed_out_on_all_nodes_without_a_reconnect_window(world, through):
    n1, n2, ana, bob, _ = await two_nodes(world)
    tablet = world.client("ana", "tablet")
    await tablet.connect(n2)
    await world.sleep(1)
    await world.nodes[through].run(world.nodes[through].node.admin.disconnect("ana", None))
    await world.sleep(0.5)
    assert codes(ana) == codes(tablet) == [4409]
    assert bob.saw("ana") == ["online", "offline"]
    assert bob.last("ana").last_seen is not None
    assert world.stored("ana") is None or not world.stored("ana").sessions


async def test_a_service_can_disconnect_one_device_of_a_user_and_the_others_stay(world):
    n1, n2, ana, bob, _ = await two_nodes(world)
    tablet = world.client("ana", "tablet")
    await tablet.connect(n2)
    await world.sleep(1)
    await n2.run(n2.node.admin.disconnect("ana", "d1"))
    await world.sleep(0.5)
    assert codes(ana) == [4409]
    assert tablet.connected
    assert bob.saw("ana") == ["online"]


async def test_a_disconnect_by_a_service_takes_effect_even_if_the_message_between_nodes_is_lost(world):
    _, n2, ana, bob, _ = await two_nodes(world)
    with world.faults.during(Rule(Fault.MESSAGE_LOST)):
        await n2.run(n2.node.admin.disconnect("ana", None))
        await world.sleep(1.5)
    assert world.faults.taken[Fault.MESSAGE_LOST]
    assert codes(ana) == [4409]
    assert bob.saw("ana") == ["online", "offline"]


async def test_a_user_disconnected_by_a_service_may_reconnect(world):
    n1, _, ana, bob, _ = await two_nodes(world)
    await n1.run(n1.node.admin.disconnect("ana", None))
    await world.sleep(0.5)
    await ana.connect(n1)
    await world.sleep(0.5)
    assert bob.saw("ana") == ["online", "offline", "online"]


async def test_disconnecting_an_unknown_user_creates_no_record(world):
    n1 = await world.start("n1")
    await n1.run(n1.node.admin.disconnect("nobody", None))
    await world.sleep(5)
    assert world.stored("nobody") is None
    assert "nobody" not in world.ledger.people


# --- Revoke


async def test_a_token_revocation_closes_only_connections_with_older_tokens_on_every_node(world):
    n1, n2, ana, bob, _ = await two_nodes(world)
    before = world.now
    await world.sleep(1)
    fresh = world.client("ana", "fresh")
    await fresh.connect(n2)
    await world.sleep(1)
    await n2.run(n2.node.admin.revoke("ana", before + 500))
    await world.sleep(0.2)
    assert [(code, reason) for _, code, reason in ana.closed_with] == [(4401, "token_revoked")]
    assert fresh.connected
    assert bob.connected
    assert bob.saw("ana") == ["online"]


async def test_a_token_revocation_takes_effect_in_two_seconds_if_the_message_between_nodes_is_lost(world):
    _, n2, ana, _, _ = await two_nodes(world)
    with world.faults.during(Rule(Fault.MESSAGE_LOST)):
        await n2.run(n2.node.admin.revoke("ana", world.now))
        revoked = world.now
        await world.sleep(2)
    assert codes(ana) == [4401]
    assert ana.closed_with[0][0] - revoked <= 2_000


async def test_a_user_with_a_revoked_token_who_returns_with_a_new_one_is_never_shown_offline(world):
    n1, _, ana, bob, _ = await two_nodes(world)
    await n1.run(n1.node.admin.revoke("ana", world.now))
    await world.sleep(1)
    await ana.connect(n1)
    await world.sleep(60)
    assert ana.connected
    assert bob.saw("ana") == ["online"]


async def test_a_node_that_starts_later_knows_which_tokens_were_revoked_before(world):
    n1 = await world.start("n1")
    before = world.now
    await n1.run(n1.node.admin.revoke("ana", before))
    n2 = await world.start("n2")
    assert n2.node.admin.revocations.is_void("ana", before - 1)
    assert n2.node.admin.revocations.is_void("ana", None)
    assert not n2.node.admin.revocations.is_void("ana", before)
    assert not n2.node.admin.revocations.is_void("bob", None)


async def test_of_two_token_revocations_of_a_user_the_later_time_counts(world):
    n1 = await world.start("n1")
    before = world.now
    assert await n1.run(n1.node.admin.revoke("ana", before)) == before
    assert await n1.run(n1.node.admin.revoke("ana", before - 5_000)) == before
    assert n1.node.admin.revocations.is_void("ana", before - 1)


async def test_a_token_revocation_that_cannot_be_written_to_the_ledger_has_no_effect(world):
    n1, _, ana, _, _ = await two_nodes(world)
    world.ledger.away = True
    with pytest.raises(Unavailable):
        await n1.run(n1.node.admin.revoke("ana", world.now))
    await world.sleep(2)
    assert ana.connected
    assert not n1.node.admin.revocations.is_void("ana", 0)


async def test_in_a_ledger_outage_tokens_known_to_be_revoked_stay_refused_and_others_are_accepted(world):
    n1, n2, ana, _, _ = await two_nodes(world)
    await n1.run(n1.node.admin.revoke("zoe", world.now))
    await world.sleep(2)
    world.ledger.away = True
    await world.sleep(120)
    assert not n2.node.admin.revocations.whole
    assert n2.node.admin.revocations.is_void("zoe", 0)
    assert not n2.node.admin.revocations.is_void("ana", 0)
    assert ana.connected
    world.ledger.away = False
    await world.sleep(5)
    assert n2.node.admin.revocations.whole


async def test_a_token_revocation_reaches_a_node_without_access_to_the_ledger_by_message(world):
    n1, n2, ana, _, _ = await two_nodes(world)

    async def away(*_, **__):
        raise Unavailable("cut off")

    class Away:
        def __getattr__(self, _name):
            return away

    real = n1.node.access._ledger, n1.node.admin.revocations._ledger
    n1.node.admin.revocations._ledger = n1.node.access._ledger = Away()
    await world.sleep(60)
    await n2.run(n2.node.admin.revoke("ana", world.now))
    await world.sleep(0.5)
    assert codes(ana) == [4401]
    n1.node.access._ledger, n1.node.admin.revocations._ledger = real


async def test_token_revocations_missed_by_a_frozen_node_take_effect_when_it_resumes(world):
    n1, n2, ana, _, _ = await two_nodes(world)
    n1.freeze()
    before = world.now
    await n2.run(n2.node.admin.revoke("ana", before))
    world.ledger._changes.clear()  # all rows have expired
    n1.thaw()
    n1.node.access._feed.read_at = float("-inf")
    await world.sleep(5)
    assert n1.node.admin.revocations.is_void("ana", before - 1)
    assert codes(ana) == [4401]


async def test_a_revocation_is_removed_from_the_ledger_when_all_affected_tokens_have_expired(world):
    n1 = await world.start("n1", settings=node_settings(world.settings, token_max_ttl=600.0))
    await n1.run(n1.node.admin.revoke("ana", world.now))
    await world.sleep(605)
    assert n1.node.admin.revocations.is_void("ana", 0)
    await world.sleep(700)
    assert not n1.node.admin.revocations.is_void("ana", 0)
    assert await world.ledger.voids("", 10) == []


# --- Delete


async def deleted(world, node, user="ana"):
    await node.run(node.node.admin.delete(user))


def nothing_is_left_of(world, user):
    stored = world.stored(user)
    assert stored is None or (stored.last_seen, stored.mode, stored.custom, stored.sessions, stored.chosen) == (
        None,
        Mode.AUTO,
        None,
        (),
        0,
    )
    assert world.ledger.people.get(user, Remembered()) == Remembered()
    assert not any(user in run.open for run in world.ledger.runs.values())


@pytest.mark.parametrize("through", ["n1", "n2"])
async def test_j7_a_deleted_user_is_removed_from_nodes_store_and_ledger(world, through):
    n1, n2, ana, bob, cy = await two_nodes(world)
    tablet = world.client("ana", "tablet")
    await tablet.connect(n2)
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    await n1.run(n1.node.sessions.set_custom("ana", Custom("lunch")))
    await n1.run(n1.node.sessions.set_idle_after("ana", 60_000))
    await n1.run(
        n1.node.viewing.apply_relations([RelationRow("room", "r", "ana"), RelationRow("contact", "ana", "bob")])
    )
    await world.sleep(3)
    at = world.now
    await deleted(world, world.nodes[through])
    await world.sleep(1)
    assert [(c, r) for _, c, r in [*ana.closed_with, *tablet.closed_with]] == [(4401, "user_deleted")] * 2
    for viewer in (bob, cy):
        last = viewer.last("ana")
        assert (last.status, last.since, last.last_seen, last.custom, last.platforms) == (
            "offline",
            None,
            None,
            None,
            (),
        )
        assert last.at - at <= 1_000
        assert [shown.status for shown in viewer.shown["ana"]].count("offline") == 1
    assert await world.ledger.contacts("ana", world.now) == []
    assert not await world.ledger.is_member("r", "ana")
    nothing_is_left_of(world, "ana")
    for node in (n1, n2):
        assert node.node.admin.revocations.is_void("ana", at - 1)
    await world.sleep(REMEMBER_SIGN_OUT / 1000 + 10)
    assert world.stored("ana") is None
    nothing_is_left_of(world, "ana")


async def test_viewers_see_the_deletion_of_a_user_even_if_every_message_between_nodes_is_lost(world):
    _, n2, ana, bob, cy = await two_nodes(world)
    with world.faults.during(Rule(Fault.MESSAGE_LOST)):
        await deleted(world, n2)
        await world.sleep(1.5)
    assert codes(ana) == [4401]
    assert cy.last("ana").last_seen is None
    assert cy.saw("ana") == ["online", "offline"]


async def test_a_deleted_user_who_returns_has_no_old_data_and_a_higher_record_version(world):
    n1, n2, ana, bob, _ = await two_nodes(world)
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    await world.sleep(2)
    version = world.stored("ana").version
    await deleted(world, n2)
    await world.sleep(1)
    await ana.connect(n1)
    await world.befriend("ana", "bob")
    await world.sleep(2)
    assert bob.saw("ana") == ["online", "busy", "offline", "online"]
    assert bob.last("ana").last_seen is None
    assert world.stored("ana").version > version
    assert world.stored("ana").mode is Mode.AUTO
    await n1.run(n1.node.sessions.set_custom("ana", Custom("back")))
    ana.close()
    await world.sleep(60)
    assert bob.last("ana").last_seen is not None
    assert world.ledger.people["ana"].last_seen is not None
    assert world.ledger.people["ana"].choice.custom == Custom("back")


async def test_a_user_who_returned_after_a_deletion_can_be_deleted_again(world):
    n1, n2, ana, bob, _ = await two_nodes(world)
    await deleted(world, n1)
    await world.sleep(2)
    await ana.connect(n2)
    await n2.run(n2.node.sessions.set_mode("ana", Mode.BUSY, None))
    await world.sleep(2)
    await deleted(world, n1)
    await world.sleep(2)
    assert codes(ana) == [4401, 4401]
    nothing_is_left_of(world, "ana")


async def test_an_offline_user_can_be_deleted(world):
    n1, _, ana, bob, _ = await two_nodes(world)
    ana.close()
    await world.sleep(60)
    assert world.ledger.people["ana"].last_seen is not None
    bob.forget()
    await deleted(world, n1)
    await world.sleep(1)
    assert bob.last("ana").last_seen is None
    nothing_is_left_of(world, "ana")


async def test_a_store_write_in_flight_during_a_deletion_does_not_restore_the_deleted_user(world):
    """n1 decides by its old record; its batch arrives after the deletion."""
    n1, n2, ana, _, _ = await two_nodes(world)
    slow = Stalled(n1.faulty, "commit")
    task = n1.freezer.spawn(n1.node.sessions.set_mode("ana", Mode.BUSY, None, saved=False), "late")
    await world.sleep(0.1)
    assert slow.waiting
    await deleted(world, n2)
    await slow.release()
    await world.sleep(0.5)
    task.cancel()
    await world.sleep(5)
    stored = world.stored("ana")
    assert not stored.sessions
    assert stored.last_seen is None
    assert "ana" not in world.ledger.people or world.ledger.people["ana"].last_seen is None
    assert codes(ana) == [4401]


@pytest.mark.parametrize("fault", [Fault.LATE, Fault.EXECUTED, Fault.NOT_EXECUTED])
async def test_store_writes_of_unknown_outcome_during_a_deletion_do_not_restore_the_deleted_user(world, fault):
    n1, n2, ana, _, _ = await two_nodes(world)
    with world.faults.during(Rule(fault, calls=("commit",), probability=0.6)):
        ana.rest()
        ana.act()
        try:
            await deleted(world, n2)
        except UnknownOutcome:
            pass
        await world.sleep(3)
    await world.sleep(10)
    assert world.faults.taken[fault]
    assert codes(ana) == [4401]
    nothing_is_left_of(world, "ana")


async def test_a_late_write_to_the_ledger_does_not_restore_a_deleted_user(world, monkeypatch):
    n1, n2, ana, _, _ = await two_nodes(world)
    flush = n1.node.records.ledger_writer.flush

    async def not_yet():
        pass

    monkeypatch.setattr(n1.node.records.ledger_writer, "flush", not_yet)
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None, saved=False))
    ana.close()
    await world.sleep(2)
    assert n1.node.records.backlog
    await deleted(world, n2)
    await world.sleep(1)
    await n1.run(flush())
    assert not n1.node.records.backlog
    nothing_is_left_of(world, "ana")


async def test_a_user_stays_deleted_when_the_store_is_rolled_back_to_before_the_deletion(world):
    n1, n2, ana, bob, _ = await two_nodes(world)
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    world.faults.remember()
    await deleted(world, n2)
    await world.sleep(0.5)
    world.faults.roll_back()
    await world.sleep(40)
    assert bob.last("ana").last_seen is None
    assert bob.last("ana").status == "offline"
    nothing_is_left_of(world, "ana")


async def test_the_deletion_of_a_user_during_a_store_outage_is_completed_afterwards(world):
    n1, n2, ana, _, _ = await two_nodes(world)
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    await world.sleep(2)
    with world.faults.during(Rule(Fault.UNAVAILABLE, calls=("commit", "load", "send"))):
        with pytest.raises(UnknownOutcome):
            await deleted(world, n2)
    await world.sleep(30)
    assert codes(ana) == [4401]
    nothing_is_left_of(world, "ana")


async def test_the_deletion_of_a_user_interrupted_by_the_death_of_a_node_is_completed_by_another(world):
    n1, n2, ana, _, _ = await two_nodes(world)
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    await world.sleep(2)
    with world.faults.during(Rule(Fault.UNAVAILABLE, node="n2", calls=("commit", "load", "send"))):
        n2.freezer.spawn(n2.node.admin.delete("ana"), "delete")
        await world.sleep(0.05)
        n2.kill()
    assert world.stored("ana").mode is Mode.BUSY
    await world.sleep(5)
    assert codes(ana) == [4401]
    nothing_is_left_of(world, "ana")


async def test_the_deletion_of_a_user_that_cannot_be_written_to_the_ledger_has_no_effect(world):
    n1, _, ana, bob, _ = await two_nodes(world)
    world.ledger.away = True
    with pytest.raises(Unavailable):
        await deleted(world, n1)
    world.ledger.away = False
    await world.sleep(2)
    assert ana.connected
    assert bob.saw("ana") == ["online"]


async def test_a_node_unaware_of_a_deletion_refuses_a_rest_heartbeat_with_an_old_token_of_the_user(world):
    """n1 does not know the deletion yet when it accepts the heartbeat."""
    n1, n2, ana, _, _ = await two_nodes(world)
    issued = world.now - 1
    with world.faults.during(Rule(Fault.MESSAGE_LOST), Rule(Fault.TAIL_SILENCE, node="n1")):
        await deleted(world, n2)
        with pytest.raises(ProtocolError, match="token_revoked"):
            await n1.run(n1.node.sessions.beat_by_rest("ana", "watch", Platform.OTHER, None, issued_at=issued))
    await world.sleep(150)
    nothing_is_left_of(world, "ana")


async def test_a_rest_heartbeat_with_a_token_from_before_the_deletion_of_the_user_is_refused(world):
    n1, _, _, _, _ = await two_nodes(world)
    issued = world.now - 1
    await deleted(world, n1)
    with pytest.raises(ProtocolError, match="token_revoked"):
        await n1.run(n1.node.sessions.beat_by_rest("ana", "watch", Platform.OTHER, None, issued_at=issued))
    await world.sleep(150)
    nothing_is_left_of(world, "ana")


async def test_a_node_killed_directly_after_the_deletion_of_a_user_leaves_no_last_seen_of_them(world):
    world.settings = node_settings(world.settings, embedded=True)
    node, ana, bob = await meet(world)
    await world.sleep(3)
    assert any("ana" in run.open for run in world.ledger.runs.values())
    await deleted(world, node)
    node.kill()
    await world.ledger.close_runs()
    assert "ana" not in world.ledger.people


def test_a_mode_removed_by_the_deletion_of_a_user_is_not_treated_as_lost_by_the_store():
    person = Person("ana", 0)
    person.record.adopt(b"1", Presence(version=5, mode=Mode.BUSY, chosen=5))
    person.record.adopt(b"2", Presence(version=9, erased_at=8))
    assert person.record.store_lacks is None
    person.record.adopt(b"3", Presence(version=12, mode=Mode.AWAY, chosen=12, erased_at=8))
    person.record.adopt(b"4", Presence(version=13, erased_at=8))
    assert person.record.store_lacks is not None  # this change was really lost by the store


async def test_a_mode_that_the_store_lost_before_the_user_was_deleted_is_not_restored(world):
    n1, n2, ana, _, _ = await two_nodes(world)
    await n1.run(n1.node.sessions.set_mode("ana", Mode.BUSY, None))
    person = n1.node.context.people.find("ana")
    person.record.store_lacks = person.record.presence
    await deleted(world, n2)
    await world.sleep(2)
    nothing_is_left_of(world, "ana")


async def test_the_deletion_of_a_user_writes_one_relation_change_per_friend_to_the_ledger(world):
    n1 = await world.start("n1")
    await world.befriend("ana", "bob")
    head = await world.ledger.changes_head()
    await deleted(world, n1)
    told, _ = await world.ledger.changes(head, 99)
    assert told.count(LedgerChange("relation", "ana", "bob")) == 1
