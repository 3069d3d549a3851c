"""Nodes broken on purpose, to show that the checker finds it. Each makes one plausible mistake.

Each function modifies a node that has just started. The table lists the faults that reveal the mistake, and the problem
that the checker must report.
"""

from herenow.core.record import decode
from herenow.core.values import replace
from herenow.core.visibility import ViewScope
from herenow.node.authority import Authority
from herenow.ports import Committed, Loaded


def forgets_what_it_holds(node):
    """Decides by the record alone if there is one: a second device is never asserted."""
    decide = node.records.decider._steps.decide

    def forgetful(person):
        held = person.held
        if person.record.stored is not None:
            person.held = tuple([session for session in held if session.asserted or session.lost_at is not None])
        try:
            return decide(person)
        finally:
            person.held = held

    node.records.decider._steps.decide = forgetful


def drops_a_publish(node):
    """Publishes every seventh change to no viewer."""
    publish, count = node.delivery.publish, 0

    def lossy(person):
        nonlocal count
        count += 1
        if count % 7:
            publish(person)
        else:
            person.watchers.published = person.record.revision

    node.delivery.publish = lossy


def repeats_itself(node):
    """Sends each frame twice."""
    deliver = node.delivery.hub._flush.deliver

    def twice(channel, had):
        deliver(channel, had)
        for outbox in list(channel.outboxes):
            outbox.send(node.delivery.channels.frame(channel))

    node.delivery.hub._flush.deliver = twice


def decides_in_unsettled_shards(node):
    """Treats absence as evidence in unsettled shards too, and does not recover lost data."""
    engine = node.context.engine
    load, commit = engine.load, engine.commit

    async def sure_load(users):
        return [Loaded(found.record, settled=True) for found in await load(users)]

    async def sure_commit(batch):
        answer = await commit(batch)
        if isinstance(answer, Committed):
            return Committed(answer.results, settled=True)
        await engine.join(batch.shard, batch.epoch, batch.last)
        return await sure_commit(batch)

    def never_mind(shard, row, asked=None):
        pass

    engine.load, engine.commit = sure_load, sure_commit
    node.records._events.on_loss = never_mind


def offers_nothing(node):
    """Offers no records to a shard that lost data."""

    async def nothing(shard):
        pass

    node.cluster.recovery._offer = nothing


def ignores_gaps(node):
    """Ignores gaps in the log."""

    async def never_mind(shard):
        pass

    node.cluster.log_reader._verify = never_mind


def keeps_its_epoch(node):
    """Keeps its epoch after it was marked dead."""
    renew = node.context.engine.renew

    async def granted(lease, *, begins=False):
        await renew(lease, begins=begins)
        return True

    node.context.engine.renew = granted
    node.context.authority.__class__ = _Unimpressed


class _Unimpressed(Authority):
    __slots__ = ()

    retired = property(lambda self: False, lambda self, value: None)


def counts_from_one_again(node):
    """Writes a lost lease again with a counter that starts from one."""
    put_back = node.cluster.lease._put_back

    async def from_one():
        node.cluster.lease._counter = 0
        return await put_back()

    node.cluster.lease._put_back = from_one
    node.context.authority.__class__ = _Unimpressed


def never_looks_after_the_dead(node):
    """Marks dead nodes but never sweeps their sessions."""

    async def let_them_lie(dead):
        pass

    node.cluster.sweep.retire = let_them_lie


def does_not_reap(node):
    """Never finds a due user."""

    async def nobody(shard):
        return 60.0

    node.cluster.reaper.look = nobody


def shows_the_hidden(node):
    """Shows the true status to every viewer who may see the user."""
    hub = node.delivery.hub
    channel = hub._channel
    hub._channel = lambda person, sight: channel(person, ViewScope.TRUTH if sight is ViewScope.FULL else sight)


def asserts_what_was_signed_out(node):
    """Ignores sign-outs by other nodes."""
    steps = node.records.decider._steps
    note_held = steps._note_held

    def stubborn(decision):
        for session, _ in decision.held:
            if session.device in decision.outcome.signed_out:
                session.asserted, session.asserted_by = 0, ""
                decision.person.record.dirty = True
        decision.outcome = replace(decision.outcome, signed_out=())
        note_held(decision)

    steps._note_held = stubborn


def gives_no_grace(node):
    """Treats every lost socket as a sign-out."""
    connections, grace = node.sessions.connections, node.context.timings.grace
    lose = connections._lose
    connections._lose = lambda session, lost_at: lose(session, lost_at - grace)


def believes_what_it_hears_last(node):
    """Applies log entries even if they are older than the known record."""
    log_reader = node.cluster.log_reader
    apply = log_reader._apply

    def gullible(shard, entry):
        apply(shard, entry)
        person = node.context.people.find(entry.user)
        if person is not None and entry.record is not None and person.record.stored != entry.record:
            person.record.adopt(entry.record, decode(entry.record))
            node.delivery.publish(person)

    log_reader._apply = gullible


def loses_what_was_asked_for(node):
    """Acknowledges before it has committed."""
    apply = node.records.apply

    async def hasty(user, edit):
        if edit.__qualname__.startswith("set_"):
            return node.context.people.get(user).record.presence
        return await apply(user, edit)

    node.records.apply = hasty


BROKEN = [
    (forgets_what_it_holds, (), "differs"),
    (drops_a_publish, (), "missing"),
    (repeats_itself, (), "equal"),
    (decides_in_unsettled_shards, ("empty shard", "empty store"), "false offline"),
    (offers_nothing, ("empty shard", "empty store"), "false offline"),
    (ignores_gaps, ("log gap",), "missing"),
    (keeps_its_epoch, ("freeze",), "differs"),
    (counts_from_one_again, ("detour",), "differs"),
    (never_looks_after_the_dead, ("kill",), "ghost"),
    (does_not_reap, (), "ghost"),
    (shows_the_hidden, (), "hidden"),
    (asserts_what_was_signed_out, (), "returned"),
    (gives_no_grace, (), "false offline"),
    (believes_what_it_hears_last, ("deaf",), "older"),
    (loses_what_was_asked_for, (), "differs"),
]
