"""Who hides costs what who left costs: the store and the ledger are asked as often, and nobody waits for more.

A stopwatch over a real server is `python -m bench twins`; here the work itself is counted.
"""

import pytest

from herenow.core.model import Custom, Mode

pytestmark = pytest.mark.looptime(noop_cycles=0)


class Counted:
    """Calls of the store and the ledger that a viewer's question costs."""

    def __init__(self, node):
        self.calls = []
        self._wrap(node.faulty, "load", len)
        self._wrap(node.node.ledger, "remembered", len)

    def _wrap(self, part, name, measure):
        call = getattr(part, name)

        async def counted(users, *rest):
            self.calls.append((name, measure(users)))
            return await call(users, *rest)

        setattr(part, name, counted)

    async def of(self, work):
        self.calls.clear()
        await work
        return list(self.calls)


async def apart(world, *, text=None):
    """Ana hides, with a device that lives on; Gil leaves. Bob knows both and watches nobody."""
    node = await world.start("n1")
    await world.befriend("ana", "bob")
    await world.befriend("gil", "bob")
    clients = {user: world.client(user) for user in ("ana", "gil", "bob")}
    for client in clients.values():
        await client.connect(node)
    if text is not None:
        for user in ("ana", "gil"):
            await node.node.choices.set_custom(user, Custom(text))
    await node.node.choices.set_mode("ana", Mode.INVISIBLE, None)
    await clients["gil"].bye()
    await world.sleep(10)  # what Gil leaves behind is written down
    return node, clients


@pytest.mark.parametrize("text", [None, "kept in the store, whoever leaves"])
async def test_reading_the_hidden_costs_what_reading_the_gone_costs(world, text):
    node, clients = await apart(world, text=text)
    counted, views = Counted(node), node.node.views
    for pause in (1, 1, 59, 61, 1):
        hidden = await counted.of(views.statuses("bob", ["ana"]))
        gone = await counted.of(views.statuses("bob", ["gil"]))
        assert hidden == gone
        assert ("load", 1) in gone
        clients["ana"].act()
        clients["ana"].rest()
        await node.node.choices.set_custom("ana", Custom(f"secret {pause}"))
        await world.sleep(pause)


async def test_beginning_to_watch_the_hidden_costs_what_watching_the_gone_costs(world):
    node, clients = await apart(world)
    counted = Counted(node)
    hidden = await counted.of(clients["bob"].watch("ana"))
    gone = await counted.of(clients["bob"].watch("gil"))
    assert hidden == gone == [("load", 1), ("remembered", 1)]
    assert clients["bob"].saw("ana") == clients["bob"].saw("gil") == ["offline"]
    await node.node.choices.set_mode("ana", Mode.AUTO, None)
    await world.sleep(1)
    assert clients["bob"].saw("ana") == ["offline", "online"]


async def test_what_the_ledger_says_of_somebody_in_the_store_is_not_believed_later(world):
    """The ledger does not know yet when Gil was last seen; when it does, nobody is told the older word."""
    node, clients = await apart(world)
    await clients["gil"].connect(node)
    await world.sleep(100)
    await clients["gil"].bye()
    left = world.now
    [soon] = await node.node.reader.look(["gil"])
    await world.sleep(5)
    [later] = await node.node.reader.look(["gil"])
    assert soon[0].last_seen == later[0].last_seen == pytest.approx(left, abs=2)


async def test_nobody_waits_for_those_who_hear_the_typing(world):
    node, clients = await apart(world)
    await clients["ana"].watch("bob")
    await node.node.typing.typing(clients["bob"].connection, "ana", None, typing=True)
    assert clients["ana"].of_type("presence.typing") == []  # Bob is answered first, as if nobody heard it
    await world.sleep(0.1)
    assert [frame["user_id"] for frame in clients["ana"].of_type("presence.typing")] == ["bob"]
