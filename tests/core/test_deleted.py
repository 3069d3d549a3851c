"""A deleted user: nothing is left, nothing is restored, and a returning user starts anew."""

import pytest

from herenow.core.edits import erase, set_custom, set_mode
from herenow.core.model import Custom, Mode, Presence, Status, public
from herenow.core.record import decode, encode
from herenow.core.settle import Held, Timings, droppable, settle
from herenow.core.timeline import REMEMBER_SIGN_OUT

T = 1_800_000_000_000
TIMINGS = Timings()


def here(device="phone", holder="me", **facts):
    return Held(device=device, holder=holder, since=T, seen_at=T, **facts)


def lived(**facts):
    """A record with a session of this node and every other field set."""
    edits = [set_mode(Mode.BUSY, None), set_custom(Custom("lunch"))]
    return settle(
        Presence(last_seen=T - 9, idle_after=60_000), T, TIMINGS, epoch="me", held=[here(**facts)], edits=edits
    ).presence


def test_deleting_a_user_leaves_only_a_tombstone_in_the_record():
    outcome = settle(lived(), T + 1, TIMINGS, epoch="me", edits=[erase(T + 1, ("me",))])
    gone = outcome.presence
    assert (gone.sessions, gone.signed_out, gone.mode, gone.custom, gone.chosen) == ((), (), Mode.AUTO, None, 0)
    assert (gone.last_seen, gone.idle_after, gone.status) == (None, None, Status.OFFLINE)
    assert public(gone) == public(Presence())
    assert outcome.change is not None
    assert gone.erased_at == T + 1
    assert decode(encode(gone)) == gone


def test_deleting_a_user_increases_the_version_of_the_record():
    before = lived()
    assert settle(before, T - 5_000, TIMINGS, edits=[erase(T - 5_000)]).presence.version > before.version


def test_deleting_a_deleted_user_again_does_not_change_the_record():
    gone = settle(lived(), T + 1, TIMINGS, epoch="me", edits=[erase(T + 1, ("me",))]).presence
    assert settle(gone, T + 2, TIMINGS, epoch="me", edits=[erase(T + 1, ("me",))]).presence is gone


def test_after_a_deletion_another_node_does_not_write_its_session_of_the_user_again():
    before = lived()
    gone = settle(before, T + 1, TIMINGS, epoch="other", edits=[erase(T + 1, ("other",))]).presence
    assert [(note.device, note.holder) for note in gone.signed_out] == [("phone", "me")]
    held = here(asserted=before.version, asserted_by="me")
    outcome = settle(gone, T + 2, TIMINGS, epoch="me", held=[held])
    assert outcome.signed_out == ("phone",)
    assert outcome.presence.sessions == ()
    assert outcome.presence.last_seen is None


def test_a_deleted_user_who_returns_is_online_with_a_higher_record_version():
    gone = settle(lived(), T + 1, TIMINGS, epoch="me", edits=[erase(T + 1, ("me",))]).presence
    back = settle(gone, T + 50, TIMINGS, epoch="me", held=[Held("tab", "me", since=T + 50, seen_at=T + 50)])
    assert back.presence.status is Status.ONLINE
    assert back.presence.version > gone.version
    assert back.presence.erased_at == gone.erased_at


@pytest.mark.parametrize(("after", "kept"), [(REMEMBER_SIGN_OUT - 1, True), (REMEMBER_SIGN_OUT, False)])
def test_the_tombstone_of_a_deleted_user_stays_in_the_store_for_ten_minutes(after, kept):
    gone = settle(lived(), T + 1, TIMINGS, epoch="me", edits=[erase(T + 1, ("me",))])
    assert gone.wake_at == T + 1 + REMEMBER_SIGN_OUT
    later = settle(gone.presence, T + 1 + after, TIMINGS)
    assert (later.presence.erased_at is not None) is kept
    assert droppable(later.presence) is not kept
