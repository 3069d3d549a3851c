"""Two `herenow serve` processes on one Valkey: changes on one are seen on the other, whatever happens to either."""

import asyncio
import random
import sqlite3
from contextlib import closing

import pytest
from tests.processes import PATIENCE, Server
from tests.redis_servers import running

from herenow.core.record import decode
from herenow.engines import make_engine
from herenow.ledgers import open_ledger

pytestmark = pytest.mark.xdist_group("real processes")


@pytest.fixture
def store():
    with running() as server:
        yield server


@pytest.fixture
def settings(store, request):
    usual = {"engine": store.url, "capacity": 10_000, "grace": 3, "node_lease": 3, "dead_after": 10}
    return usual | getattr(request, "param", {})


@pytest.fixture
async def nodes(settings, tmp_path):
    pair = [Server(tmp_path, settings) for _ in range(2)]
    try:
        await asyncio.gather(*(node.start() for node in pair))
        yield pair
    finally:
        for node in pair:
            if node.process is not None and node.process.returncode is None:
                await node.kill()


def is_fresh(frame):
    return frame.get("user_id") == "ana" and "status" in frame and not frame.get("stale")


async def test_a_status_change_on_one_node_reaches_a_viewer_on_another_node(nodes):
    n1, n2 = nodes
    await n1.befriend("ana", "bob")
    async with n2.client("bob") as bob:
        await bob.watch("ana")
        async with n1.client("ana") as ana:
            await bob.sees("ana", "online")
            await ana.send("presence.set", mode="busy")
            await bob.sees("ana", "busy")
            before = len(bob.frames)
            await ana.send("presence.typing", to="bob")
            await bob.receive("presence.typing", before)
            await ana.send("presence.bye")
        await bob.sees("ana", "offline", before)
        assert (await n1.rest("GET", "/presence/ana"))["status"] == "offline"
        assert bob.shown("ana")[1:] == ["online", "busy", "offline"]


async def test_a_user_who_moves_between_two_nodes_within_the_reconnect_window_is_not_shown_offline(nodes):
    n1, n2 = nodes
    await n1.befriend("ana", "bob")
    async with n2.client("bob") as bob:
        async with n1.client("ana", "phone"):
            await bob.watch("ana")
            await bob.sees("ana", "online")
        async with n2.client("ana", "phone"):
            await asyncio.sleep(4)
            await bob.in_step()
            assert set(bob.shown("ana")) <= {"offline", "online"}
            assert bob.shown("ana")[-1] == "online"
            assert bob.shown("ana").count("offline") <= 1


async def test_users_of_a_killed_node_who_do_not_return_are_shown_offline_once(nodes):
    n1, n2 = nodes
    await n1.befriend("ana", "bob")
    async with n2.client("bob") as bob:
        await bob.watch("ana")
        async with n1.client("ana"):
            seen = await bob.sees("ana", "online")
            await n1.kill()
        before = len(bob.frames)
        gone = await bob.sees("ana", "offline", before)
        assert gone["last_seen"] >= seen["since"] - 4_000
        assert bob.shown("ana")[-2:] == ["online", "offline"]


# A node that gets no CPU time for longer than a shard takes to settle counts as dead; on a busy machine grace is the
# time it has to return.
@pytest.mark.parametrize("settings", [{"grace": 12}], indirect=True)
async def test_a_live_store_that_comes_back_empty_is_refilled_and_no_user_is_shown_offline(nodes, store):
    n1, n2 = nodes
    await n1.befriend("ana", "bob")
    async with n1.client("ana"), n2.client("bob") as bob:
        await bob.watch("ana")
        await bob.sees("ana", "online")
        await bob.until(is_fresh)
        before = len(bob.frames)
        await asyncio.to_thread(store.kill)
        await bob.until(lambda f: f.get("user_id") == "ana" and f.get("stale"), before)
        await asyncio.to_thread(store.start)
        await bob.until(is_fresh, before)
        shown = [
            frame["status"] for frame in bob.frames[before:] if frame.get("user_id") == "ana" and "status" in frame
        ]
        assert set(shown) == {"online"}, (bob.frames[before:], n1.told())
        assert (await n2.rest("GET", "/presence/ana"))["status"] == "online"


async def test_e20_a_node_whose_settings_differ_from_those_in_the_live_store_is_refused_with_an_explanation(
    nodes, tmp_path, store, settings
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    unlike: list[tuple[dict[str, object], str]] = [
        ({"grace": 4}, "grace is '4' here but '3' in the store"),
        ({"shards": 8}, "shards is '8' here but '16' in the store"),
        ({"ledger": f"sqlite:///{elsewhere / 'other.db'}"}, "ledger is '.+' here but '.+' in the store"),
        ({"secret": "a secret that the others do not have"}, "secret is '.+' here but '.+' in the store"),
    ]
    for change, sentence in unlike:
        other = Server(elsewhere, settings | {"ledger": f"sqlite:///{tmp_path / 'herenow.db'}"} | change)
        if "secret" in change:
            other.environment = {"HERENOW_SECRET": str(change["secret"])}
        try:
            with pytest.raises(AssertionError, match=sentence):
                await other.start()
            assert other.process is not None
            async with asyncio.timeout(PATIENCE):
                assert await other.process.wait() == 2
        finally:
            if other.runs:
                await other.kill()
        assert "that the others do not have" not in other.told()


async def test_h3_last_seen_survives_the_loss_of_the_live_store_and_a_restart_of_all_nodes(nodes, store):
    n1, n2 = nodes
    await n1.befriend("ana", "bob")
    async with n2.client("bob") as bob:
        await bob.watch("ana")
        async with n1.client("ana") as ana:
            online = await bob.sees("ana", "online")
            await ana.send("presence.bye")
            gone = await bob.sees("ana", "offline", bob.frames.index(online))
    async with asyncio.timeout(PATIENCE):
        while saved(n1.ledger, "ana") is None:
            await asyncio.sleep(0.05)
    await asyncio.gather(*(node.kill() for node in nodes), asyncio.to_thread(store.kill))
    await asyncio.to_thread(store.start)
    await asyncio.gather(*(node.start() for node in nodes))
    for node in nodes:
        seen = await node.rest("GET", "/presence/ana")
        assert (seen["status"], seen["last_seen"]) == ("offline", gone["last_seen"])


def saved(ledger, user):
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        return db.execute("select at from last_seen where user = ?", (user,)).fetchone()


async def test_modes_set_through_two_nodes_at_once_end_equal_in_live_store_and_database(nodes, store, tmp_path):
    n1, n2 = nodes
    dice = random.Random(7)
    async with n1.client("ana", "phone") as phone, n2.client("ana", "laptop") as laptop:
        for number in range(40):
            for device in (phone, laptop):  # without waiting for answers: their choices conflict
                what = dice.choice(["auto", "busy", "away", "invisible", None])
                choice = {"custom_status": {"text": f"{number}"}} if what is None else {"mode": what}
                await device.send("presence.set", **choice, id=f"{number}")
        for device in (phone, laptop):
            last = await device.until(lambda frame: frame.get("id") == "39")
            assert last["type"] == "presence.ok"
        refused = [frame for device in (phone, laptop) for frame in device.frames if "code" in frame]
        assert not refused
        assert sum(await asyncio.gather(*map(_conflicts, nodes))) > 0  # conflicts did happen

        async def agree():
            told = [await node.rest("GET", "/presence/me", "ana", service=False) for node in nodes]
            saw = [(each["mode"], (each["custom_status"] or {}).get("text")) for each in told]
            stored, saved = await _in_store(store), await _in_ledger(tmp_path)
            return saw == [stored, stored] and saved == stored

        async with asyncio.timeout(PATIENCE):
            while not await agree():
                await asyncio.sleep(0.05)
        chosen = await _in_store(store)
    for node in nodes:
        assert await node.stop() == 0
    assert await _in_ledger(tmp_path) == chosen


async def _conflicts(node):
    return (await node.rest("GET", "/stats"))["conflicts"]


async def _in_store(store):
    engine = make_engine(store.url, capacity=10_000)
    try:
        [loaded] = await engine.load(["ana"])
    finally:
        await engine.close()
    assert loaded.record is not None
    return _chosen(decode(loaded.record))


async def _in_ledger(folder):
    ledger = open_ledger(f"sqlite:///{folder / 'herenow.db'}")
    await ledger.open()
    try:
        known = (await ledger.remembered(["ana"]))["ana"]
    finally:
        await ledger.close()
    return _chosen(known.choice)


def _chosen(choice):
    return choice.mode.word, None if choice.custom is None else choice.custom.text
