"""A real node asks the example application, in separate processes: a relation the application does not confirm shows no
user.
"""

import asyncio
import json
import os
import runpy
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.processes import PATIENCE, Server, token

EXAMPLE = Path(__file__).parents[2] / "examples" / "relations_app.py"
SHARED = "shared by herenow and the application, long enough"


class App:
    """The example as a process that can die and return at the same address."""

    def __init__(self, folder):
        self.graph = folder / "graph.json"
        self.port = 0
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None
        self.write(follows=[], contacts=[], rooms={})

    def write(self, **graph):
        draft = self.graph.with_suffix(".new")
        draft.write_text(json.dumps(graph))
        draft.rename(self.graph)

    def friends(self, *pairs, **rest):
        follows = [edge for a, b in pairs for edge in ([a, b], [b, a])]
        self.write(**{"follows": follows, "contacts": [], "rooms": {}, **rest})

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLE),
            str(self.graph),
            str(self.port),
            stdout=-1,
            env={**os.environ, "SHARED_SECRET": SHARED},
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            self.url = (await self.process.stdout.readline()).decode().strip()
        self.port = urlsplit(self.url).port or 0

    async def die(self):
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.communicate()


@pytest.fixture
async def app(tmp_path):
    app = App(tmp_path)
    await app.start()
    yield app
    await app.die()


@pytest.fixture
async def server(tmp_path, app):
    server = Server(
        tmp_path, {"relations": app.url, "relations_secret": SHARED, "grace": 0.2, "dead_after": 60, "beat_every": 20}
    )
    await server.start()
    yield server
    await server.stop()


def tell(server, **changed):
    """Reports changes with the example's own function."""
    told = runpy.run_path(str(EXAMPLE))["tell"]
    return asyncio.to_thread(told, server.url, token("app", "service"), **changed)


async def degraded(server):
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return [trouble["what"] for trouble in (await http.get(f"{server.url}/readyz")).json()["degraded"]]


async def until(question):
    async with asyncio.timeout(PATIENCE):
        while not await question():
            await asyncio.sleep(0.05)


async def test_the_application_decides_who_may_see_whom_and_who_is_in_a_room(app, server):
    app.friends(("ana", "bob"), rooms={"lobby": ["ana", "bob"]})
    async with server.client("ana") as ana, server.client("bob") as bob, server.client("eve") as eve:
        assert (await bob.watch("ana"))["status"] == "online"
        assert (await eve.watch("ana"))["reason"] == "not_mutual_followers"
        await eve.send("room.open", room="lobby", id="door")
        assert (await eve.receive("presence.error"))["code"] == "not_a_member"
        await bob.send("room.open", room="lobby", id="door")
        await bob.receive("presence.ok")
        await bob.send("presence.subscribe", contacts=True, id="all")
        typing = asyncio.ensure_future(bob.receive("presence.typing"))
        while not typing.done():  # an overloaded node drops typing: clients send it again, and so does this one
            await ana.send("presence.typing", room="lobby")
            await asyncio.wait([typing], timeout=3)
        assert (await typing)["user_id"] == "ana"


async def test_a_relation_change_reported_by_the_application_hides_and_later_shows_a_watched_user(app, server):
    app.friends(("ana", "bob"), ("ana", "cy"))
    async with server.client("ana"), server.client("bob") as bob, server.client("cy") as cy:
        await bob.watch("ana")
        await cy.watch("ana")
        app.friends(("ana", "cy"))
        await tell(server, pairs=[["bob", "ana"]])
        hidden = await bob.sees("ana", "offline")
        assert (hidden["last_seen"], hidden["since"]) == (None, None)
        app.friends(("ana", "bob"), ("ana", "cy"))
        before = len(bob.frames)
        await tell(server, users=["ana"])
        await bob.sees("ana", "online", before)
        await cy.in_step()
        assert cy.shown("ana") == ["online"]


async def test_a_user_change_reported_by_the_application_checks_all_relations_and_rooms_of_the_user_again(app, server):
    app.friends(("ana", "bob"), ("cy", "bob"), rooms={"lobby": ["ana", "bob"]})
    async with server.client("ana") as ana, server.client("bob") as bob, server.client("cy"):
        await bob.send("presence.subscribe", contacts=True, id="all")
        await bob.sees("ana", "online")
        await ana.watch("bob")
        await ana.send("room.open", room="lobby", id="door")
        await ana.receive("presence.ok")
        app.friends(("cy", "bob"), ("cy", "ana"), rooms={"lobby": ["bob"]})
        await tell(server, users=["ana"])
        await bob.sees("ana", "offline")
        await ana.sees("bob", "offline")
        await bob.send("presence.typing", room="lobby", id="typed")
        await bob.until(lambda frame: frame.get("id") == "typed")
        await ana.in_step()
        assert not [frame for frame in ana.frames if frame["type"] == "presence.typing"]
        assert "offline" not in bob.shown("cy")


async def test_while_the_application_is_dead_users_with_unconfirmed_relations_are_hidden_until_it_returns(app, server):
    app.friends(("ana", "bob"), ("ana", "cy"))
    async with server.client("ana"), server.client("bob") as bob, server.client("cy") as cy:
        await bob.watch("ana")
        await app.die()
        assert (await cy.watch("ana"))["status"] == "offline"  # no answer about this relation
        assert bob.shown("ana") == ["online"]  # known relations are trusted for a while
        await tell(server, pairs=[["ana", "bob"]])  # the last report about it
        await bob.sees("ana", "offline")
        assert "relations_source" in await degraded(server)
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            numbers = (await http.get(f"{server.url}/metrics")).text
        assert 'herenow_relations_errors_total{kind="unreachable"}' in numbers
        [seen] = await server.rest("GET", "/presence?user_ids=ana&viewer=bob")
        assert seen["status"] == "offline"
        before = len(bob.frames)
        await app.start()
        await bob.sees("ana", "online", before)

        async def well():
            return not await degraded(server)

        await until(well)
        assert (await cy.watch("ana"))["status"] == "online"


async def test_relations_changed_during_an_application_outage_take_effect_on_its_return(app, server):
    app.friends(("ana", "bob"), ("ana", "cy"))
    async with server.client("ana"), server.client("bob") as bob, server.client("cy") as cy:
        await bob.watch("ana")
        await cy.watch("ana")
        await app.die()
        await tell(server, users=["ana"])
        await bob.sees("ana", "offline")
        await cy.sees("ana", "offline")
        app.friends(("ana", "cy"))
        before = len(cy.frames)
        await app.start()
        await cy.sees("ana", "online", before)
        await bob.in_step()
        assert bob.shown("ana") == ["online", "offline"]


async def test_requests_that_edit_relations_are_refused_when_the_application_keeps_the_relations(app, server):
    headers = {"authorization": f"Bearer {token('app', 'service')}"}
    async with httpx2.AsyncClient(base_url=f"{server.url}/api/v1", headers=headers, timeout=PATIENCE) as http:
        for path in ("/follows/a/b", "/contacts/a/b", "/rooms/r/members/a"):
            for method in ("PUT", "DELETE", "GET"):
                told = await http.request(method, path)
                assert (told.status_code, told.json()["code"]) == (409, "relations_elsewhere")
