"""A hidden user costs the same work as an offline user: the same calls of store and ledger, and no extra wait.

`python -m bench twins` measures times of a real server; here the calls are counted.
"""

import pytest

from herenow.core.model import Custom, Mode
from herenow.core.visibility import PreferencesEdit, Visibility

pytestmark = pytest.mark.looptime(noop_cycles=0)


class Counted:
    """Counts the calls of store and ledger caused by a viewer's request."""

    def __init__(self, node):
        self.calls = []
        self._wrap(node.faulty, "load", len)
        self._wrap(node.node.context.ledger, "remembered", len)

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


async def become_invisible(node):
    await node.node.sessions.set_mode("ana", Mode.INVISIBLE, None)


async def block_bob(node):
    await node.node.viewing.block("ana", "bob")


async def be_seen_by_nobody(node):
    await node.node.viewing.change_preferences("ana", PreferencesEdit(visibility=Visibility.NOBODY))


WAYS = [become_invisible, block_bob, be_seen_by_nobody]


async def apart(world, hide=become_invisible, *, text=None):
    """Ana hides while a device stays connected; Gil leaves. Bob may see both and watches neither."""
    node = await world.start("n1")
    await world.befriend("ana", "bob")
    await world.befriend("gil", "bob")
    clients = {user: world.client(user) for user in ("ana", "gil", "bob")}
    for client in clients.values():
        await client.connect(node)
    if text is not None:
        for user in ("ana", "gil"):
            await node.node.sessions.set_custom(user, Custom(text))
    await hide(node)
    await clients["gil"].bye()
    await world.sleep(10)  # Gil's last seen is written to the ledger
    return node, clients


@pytest.mark.parametrize("hide", WAYS)
@pytest.mark.parametrize("text", [None, "kept in the store, whoever leaves"])
async def test_reading_a_hidden_user_makes_the_same_store_calls_as_reading_an_offline_user(world, hide, text):
    node, clients = await apart(world, hide, text=text)
    counted, views = Counted(node), node.node.viewing.views
    for pause in (1, 1, 59, 61, 1):
        hidden = await counted.of(views.statuses("bob", ["ana"]))
        gone = await counted.of(views.statuses("bob", ["gil"]))
        assert hidden == gone
        assert ("load", 1) in gone
        clients["ana"].act()
        clients["ana"].rest()
        await node.node.sessions.set_custom("ana", Custom(f"secret {pause}"))
        await world.sleep(pause)


@pytest.mark.parametrize("hide", WAYS)
async def test_counting_and_ranking_hidden_users_makes_the_same_store_calls_as_offline_users(world, hide):
    node, _ = await apart(world, hide)
    await world.befriend("ana", "cy")
    if hide is block_bob:
        await node.node.viewing.block("ana", "cy")
    await world.befriend("gil", "eve")
    counted, views = Counted(node), node.node.viewing.views
    for pause in (1, 61, 1):
        assert await counted.of(views.count("cy")) == await counted.of(views.count("eve"))
        await world.sleep(pause)
        assert await counted.of(views.leaderboard("cy", 10)) == await counted.of(views.leaderboard("eve", 10))
        await world.sleep(pause)


@pytest.mark.parametrize("hide", WAYS)
async def test_subscribing_to_a_hidden_user_makes_the_same_store_calls_as_to_an_offline_user(world, hide):
    node, clients = await apart(world, hide)
    counted = Counted(node)
    hidden = await counted.of(clients["bob"].watch("ana"))
    gone = await counted.of(clients["bob"].watch("gil"))
    assert hidden == gone == [("load", 1), ("remembered", 1)]
    assert clients["bob"].saw("ana") == clients["bob"].saw("gil") == ["offline"]


async def test_a_user_watched_while_hidden_is_shown_when_they_become_visible(world):
    node, clients = await apart(world)
    await clients["bob"].watch("ana")
    await node.node.sessions.set_mode("ana", Mode.AUTO, None)
    await world.sleep(1)
    assert clients["bob"].saw("ana") == ["offline", "online"]


async def test_a_ledger_answer_about_a_user_who_has_a_record_in_the_store_is_not_cached(world):
    """The ledger does not yet have Gil's last seen; later reads must not return the older value."""
    node, clients = await apart(world)
    await clients["gil"].connect(node)
    await world.sleep(100)
    await clients["gil"].bye()
    left = world.now
    [soon] = await node.node.records.read(["gil"])
    await world.sleep(5)
    [later] = await node.node.records.read(["gil"])
    assert soon[0].last_seen == later[0].last_seen == pytest.approx(left, abs=2)


async def test_a_typing_command_is_answered_before_the_typing_is_delivered(world):
    node, clients = await apart(world)
    await clients["ana"].watch("bob")
    await node.node.viewing.type(clients["bob"].connection, "ana", None, typing=True)
    assert clients["ana"].of_type("presence.typing") == []  # Bob gets his answer before the typing is delivered
    await world.sleep(0.1)
    assert [frame["user_id"] for frame in clients["ana"].of_type("presence.typing")] == ["bob"]
