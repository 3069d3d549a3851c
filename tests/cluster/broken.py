"""Nodes that are broken on purpose, to show that the checker finds it. Each is one mistake somebody could make.

A function here does something to a node that has just started; the table says which faults bring the mistake to light.
"""

from herenow.core.model import Status
from herenow.core.values import replace
from herenow.ports import Committed, Loaded


def forgets_what_it_holds(node):
    """Decides by the record alone once there is one: a device that comes second is never asserted."""
    settle = node.decider._settle

    async def forgetful(person):
        held = person.sessions
        if person.record is not None:
            person.sessions = [session for session in held if session.asserted or session.lost_at is not None]
        try:
            await settle(person)
        finally:
            person.sessions = [s for s in held if s in person.sessions or s.asserted == 0] + [
                s for s in person.sessions if s not in held
            ]

    node.decider._settle = forgetful


def drops_a_publish(node):
    """Every seventh change is told to nobody."""
    publish, count = node.hub.publish, 0

    def lossy(person):
        nonlocal count
        count += 1
        if count % 7:
            publish(person)
        else:
            person.unpublished = False

    node.hub.publish = lossy


def repeats_itself(node):
    """Sends what it has just sent."""
    fan_out = node.hub._fan_out

    def twice(channel, had):
        fan_out(channel, had)
        for outbox in list(channel.outboxes):
            outbox.send(node.hub._frame(channel))

    node.hub._fan_out = twice


def does_not_bar_late_batches(node):
    """After a doubtful commit, goes on as if it had not been taken."""

    async def assume(lane, batch):
        row = await node.engine.jump(lane.shard, batch.epoch, 0)  # only looks
        lane.number = batch.last if row is None else row

    node.writer._resolve = assume


def believes_an_empty_shard(node):
    """Takes absence for evidence, settled or not, and never heals."""
    load, commit = node.engine.load, node.engine.commit

    async def sure_load(users):
        return [Loaded(found.record, settled=True) for found in await load(users)]

    async def sure_commit(batch):
        answer = await commit(batch)
        if isinstance(answer, Committed):
            return Committed(answer.results, settled=True)
        await node.engine.join(batch.shard, batch.epoch, batch.last)
        return await sure_commit(batch)

    def lost(shard, row):
        pass

    node.engine.load, node.engine.commit = sure_load, sure_commit
    node.reader._on_loss = node.writer._on_loss = node.tail._on_loss = lost


def ignores_gaps(node):
    """Goes on after a gap in the log as if nothing had happened."""

    async def no_matter(shard):
        pass

    node.tail._close_gap = no_matter


def keeps_its_epoch(node):
    """Does not mind being taken for dead."""
    renew = node.engine.renew

    async def granted(lease):
        await renew(lease)
        return True

    node.engine.renew = granted


def never_looks_after_the_dead(node):
    async def let_them_rest(dead):
        pass

    async def nor_here(shard):
        pass

    node.sweep.retire, node.sweep.orphans = let_them_rest, nor_here


def does_not_reap(node):
    async def nobody_is_due(shard):
        return 60.0

    node.reaper.reap = nobody_is_due


def shows_the_hidden(node):
    """Everybody sees the truth."""
    from herenow.core.visibility import Sight

    channel = node.hub._channel
    node.hub._channel = lambda person, sight: channel(person, Sight.TRUTH if sight is Sight.FULL else sight)


def asserts_what_was_signed_out(node):
    """A sign-out by somebody else is not for it."""
    note_held = node.decider._note_held

    def deaf(person, outcome, held):
        for session, _ in held:
            if session.device in outcome.signed_out:
                session.asserted, session.asserted_by = 0, ""
                person.dirty = True
        note_held(person, replace(outcome, signed_out=()), held)

    node.decider._note_held = deaf


def lets_records_go_while_others_offer(node):
    """Drops what the ledger has while a shard heals, so that something older takes its place."""
    node.recorder._may_drop = lambda shard: True


def gives_no_grace(node):
    """Takes every lost socket for a sign-out."""
    lose = node.sessions._lose

    def at_once(session, lost_at):
        lose(session, lost_at - node.settings.timings.grace)

    node.sessions._lose = at_once


def offers_nothing(node):
    """Lets others rebuild what the store lost."""

    async def nothing(shard):
        pass

    node.healing._offer = nothing


def goes_back(node):
    """Believes whatever it reads last."""
    from herenow.core.record import decode
    from herenow.service.people import Person

    learn = node.tail._apply

    def gullible(shard, entry):
        person = node.people.find(entry.user)
        learn(shard, entry)
        if person is not None and entry.record is not None and person.record != entry.record:
            person.adopt(entry.record, decode(entry.record))
            node.hub.publish(person)

    assert Person
    node.tail._apply = gullible


BROKEN = {
    forgets_what_it_holds: ("delay",),
    drops_a_publish: (),
    repeats_itself: ("delay",),
    does_not_bar_late_batches: ("late",),
    believes_an_empty_shard: ("empty shard", "empty store"),
    ignores_gaps: ("log gap", "deaf"),
    keeps_its_epoch: ("freeze", "cut off"),
    never_looks_after_the_dead: ("kill",),
    does_not_reap: ("delay",),
    shows_the_hidden: ("delay",),
    asserts_what_was_signed_out: (),
    lets_records_go_while_others_offer: ("empty shard", "empty store", "delay"),
    gives_no_grace: ("delay",),
    offers_nothing: ("empty shard", "empty store"),
    goes_back: ("deaf",),
}

assert Status
