"""What a client may send before nothing is read from it, and what waits meanwhile; with a clock that the test moves."""

import asyncio
import json
import re
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.processes import SECRET, token
from tests.processes import Server as Process
from tests.transport.test_websocket_rig import HANDSHAKE, IMPLEMENTATIONS, TEXT, Client, frame, lines

from herenow.core.limits import CONNECTION_BUDGET, CREDIT, FRAME_COST, HEARTBEAT_COST, LONGEST_PAUSE
from herenow.core.model import Platform
from herenow.transport.auth import Auth, mint
from herenow.transport.server import WebSocketServer
from herenow.transport.session import MAX_WAITING, MAX_WAITING_BYTES, ClientSession
from herenow.transport.websocket import Pause, Sockets
from herenow_testing.world.world import World

simulated = pytest.mark.looptime(noop_cycles=0)

BEAT = b'{"type":"presence.heartbeat"}'


class Line:
    """A socket that records frames and pauses. Frames of the client wait while it is not read from."""

    def __init__(self, session):
        self.session = session
        self.pauses = Pause(0)
        self.times_paused = 0
        self.answers = []
        self.ended = None
        self._unread = []
        session.on_open(self)

    def say(self, *frames):
        self._unread += frames
        self.read()

    def read(self):
        while self._unread and not self.pauses:
            self.session.on_text(self._unread.pop(0))

    @property
    def unread(self):
        return len(self._unread)

    def send_text(self, payload):
        self.answers.append(json.loads(payload))

    def ids(self):
        return [frame["id"] for frame in self.answers if "id" in frame]

    def pause_reading(self, why):
        self.pauses |= why
        self.times_paused += why is not Pause.ITERATION

    def resume_reading(self, why):
        self.pauses &= ~why
        if why is not Pause.ITERATION:
            self.read()

    def ping(self): ...
    def close(self, code, reason=""):
        self.ended = code, reason

    def abort(self): ...
    def buffered(self):
        return 0


class Gateway:
    def __init__(self, world, server):
        self.world = world
        self.server = server
        self.lines = []
        self.pauses = server.node.context.metrics.reading_pauses

    def come(self, user="ana", device=None):
        clock = self.server.node.context.clock
        claims = self.server.auth.check(mint(SECRET, user, scope=None, ttl=3600, now=clock.now() / 1000))
        line = Line(ClientSession(self.server, claims, device, Platform.WEB))
        self.lines.append(line)
        return line


@asynccontextmanager
async def a_gateway():
    """Not a fixture: its simulated time would differ from the test's."""
    world = World()
    node = (await world.start("n1")).node
    server = WebSocketServer(node, Auth((SECRET,), node.context.clock, 86_400.0), Sockets(100), world.settings)
    server.start()
    gateway = Gateway(world, server)
    yield gateway
    for line in gateway.lines:
        line.session.on_closed(None, "")
    await server.stop()
    await world.close()


def beat(number):
    return json.dumps({"type": "presence.heartbeat", "id": number}).encode()


@simulated
async def test_a_hundred_heartbeats_and_thirty_commands_a_second_are_read_without_a_pause():
    async with a_gateway() as gateway:
        line = gateway.come()
        for tenth in range(600):
            line.say(*[BEAT] * 10, *map(beat, range(tenth * 3, tenth * 3 + 3)))
            await gateway.world.sleep(0.1)
        assert line.times_paused == 0
        assert line.ids() == list(range(1_800))


@simulated
async def test_a_heartbeat_without_an_id_costs_the_connection_less_than_another_frame():
    async with a_gateway() as gateway:
        line = gateway.come()
        at_once = CONNECTION_BUDGET.burst // HEARTBEAT_COST
        line.say(*[BEAT] * at_once)
        assert line.times_paused == 0
        line.say(*[BEAT] * (CREDIT // HEARTBEAT_COST + 1))
        assert gateway.pauses == {"connection": 1}


@simulated
async def test_of_a_thousand_commands_sent_at_once_the_burst_is_answered_and_the_others_follow_in_order():
    async with a_gateway() as gateway:
        line = gateway.come()
        await gateway.world.sleep(1)
        line.say(*map(beat, range(1_000)))
        await gateway.world.sleep(0.05)
        assert Pause.BUDGET in line.pauses
        burst = CONNECTION_BUDGET.burst // FRAME_COST
        assert burst <= len(line.ids()) + MAX_WAITING <= burst + CREDIT // FRAME_COST + 2 * MAX_WAITING
        for _ in range(20):
            answered = len(line.ids())
            await gateway.world.sleep(1)
            assert len(line.ids()) - answered <= 2 * CREDIT // FRAME_COST + MAX_WAITING
        assert line.ids() == list(range(1_000))
        assert line.ended is None


@simulated
async def test_many_connections_of_one_user_have_one_budget_together():
    async with a_gateway() as gateway:
        lines = [gateway.come(device=f"d{number}") for number in range(20)]
        for line in lines:  # each is within the budget of a connection
            line.say(*[BEAT] * (CONNECTION_BUDGET.burst // HEARTBEAT_COST))
        assert gateway.pauses["connection"] == 0
        assert gateway.pauses["user"] > 0
        other = gateway.come("bo")
        other.say(*[BEAT] * (CONNECTION_BUDGET.burst // HEARTBEAT_COST))
        assert other.times_paused == 0


@simulated
async def test_a_user_who_reconnects_before_paying_for_frames_is_in_debt_nevertheless():
    async with a_gateway() as gateway:
        budgets = gateway.server.node.context.budgets
        for number in range(60):
            line = gateway.come(device=f"d{number % 5}")
            line.say(*map(beat, range(MAX_WAITING)))  # fewer than it pays for at once
            line.session.on_closed(None, "")
            gateway.lines.remove(line)
        assert gateway.pauses.keys() == {"commands"}
        assert budgets.debt("ana") > LONGEST_PAUSE


@simulated
async def test_a_user_deep_in_debt_is_read_again_after_the_longest_pause():
    async with a_gateway() as gateway:
        line = gateway.come()
        gateway.server.node.context.budgets.spend("ana", 1_000_000)
        line.say(*[BEAT] * 1_000)
        unread = line.unread
        assert unread
        await gateway.world.sleep(LONGEST_PAUSE / 1000 + 0.01)
        assert 0 < line.unread < unread


@simulated
async def test_pings_and_fragments_cost_the_connection_as_much_as_commands():
    async with a_gateway() as gateway:
        line = gateway.come()
        frames = 0
        while not line.pauses & Pause.BUDGET:
            line.session.on_other_frame(0)
            frames += 1
        assert 0 <= frames - CONNECTION_BUDGET.burst // FRAME_COST <= CREDIT // FRAME_COST


@simulated
async def test_large_frames_cost_more_than_small_ones():
    async with a_gateway() as gateway:
        line = gateway.come()
        ignored = json.dumps({"type": "presence.heartbeat", "ignored": "x" * 65_000}).encode()
        line.say(*[ignored] * 100)
        assert 60 < line.unread < 80


@simulated
async def test_a_paused_connection_that_closes_is_forgotten():
    async with a_gateway() as gateway:
        line = gateway.come()
        line.say(*[BEAT] * 2_000)
        assert line.session._paused_by is not None
        line.session.on_closed(None, "")
        assert line.session._paused_by is None
        unread = line.unread
        await gateway.world.sleep(10)
        assert line.unread == unread


# Commands that wait


@simulated
async def test_nothing_is_read_while_thirty_two_commands_wait_and_all_are_answered_in_order():
    async with a_gateway() as gateway:
        line = gateway.come()
        line.say(*map(beat, range(200)))
        assert line.pauses == Pause.COMMANDS
        assert line.unread == 200 - (MAX_WAITING - 1)  # the welcome waits too
        await gateway.world.sleep(1)
        assert line.ids() == list(range(200))
        assert gateway.pauses["commands"] > 0


@simulated
async def test_nothing_is_read_while_256_kilobytes_of_commands_wait():
    async with a_gateway() as gateway:
        line = gateway.come()
        await gateway.world.sleep(1)
        users = [f"{number:060d}" for number in range(1_000)]
        frame = json.dumps({"type": "presence.unsubscribe", "target_user_ids": users}).encode()
        line.say(*[frame] * 20)
        assert Pause.COMMANDS in line.pauses
        assert 20 - line.unread == MAX_WAITING_BYTES // len(frame) + 1


@simulated
async def test_no_answers_are_made_for_a_client_that_does_not_read():
    async with a_gateway() as gateway:
        line = gateway.come()
        await gateway.world.sleep(1)
        line.session.on_pause()
        line.say(*map(beat, range(100)))
        await gateway.world.sleep(1)
        assert line.ids() == []
        assert line.unread == 100 - MAX_WAITING
        line.session.on_resume()
        await gateway.world.sleep(1)
        assert line.ids() == list(range(100))


@simulated
@pytest.mark.parametrize("verb", ["subscribe", "unsubscribe"])
async def test_a_frame_with_more_ids_than_max_bulk_is_refused_and_the_connection_stays(verb):
    async with a_gateway() as gateway:
        line = gateway.come()
        most = gateway.world.settings.max_bulk
        users = [str(user) for user in range(most + 1)]
        for number in range(50):  # it is not a malformed frame
            line.say(json.dumps({"type": f"presence.{verb}", "target_user_ids": users, "id": number}).encode())
        line.say(json.dumps({"type": f"presence.{verb}", "target_user_ids": users[:most], "id": "fits"}).encode())
        await gateway.world.sleep(30)
        refused = [frame for frame in line.answers if frame["type"] == "presence.error"]
        assert [frame["id"] for frame in refused] == list(range(50))
        assert {frame["code"] for frame in refused} == {"too_many_ids"}
        assert line.ids()[-1] == "fits"
        assert line.ended is None


# A whole server


@pytest.fixture(params=IMPLEMENTATIONS)
async def process(tmp_path, request):
    settings = {"ledger": "sqlite://", "websocket": request.param, "beat_every": 30, "dead_after": 90}
    process = await Process(tmp_path, settings).start()
    yield process
    await process.stop()


async def test_a_flood_is_answered_late_and_in_order_while_another_user_is_served(process):
    answered = 0
    with Client(urlsplit(process.url).port) as flood:
        flood.send(lines("GET /ws/presence HTTP/1.1", *HANDSHAKE[1:], f"Authorization: Bearer {token('flood')}"))
        assert (await asyncio.to_thread(flood.read_head)).startswith("HTTP/1.1 101 ")
        flood.send(b"".join(frame(TEXT, beat(number)) for number in range(400)))
        async with process.client("good") as good:
            for number in range(20):
                await good.socket.send(beat(number).decode())
                await good.until(lambda answer, number=number: answer.get("id") == number)
        while answered < 400:
            got = json.loads(await asyncio.to_thread(flood.read_text))
            if got["type"] == "presence.ok":
                assert got["id"] == answered
                answered += 1
    headers = {"authorization": f"Bearer {token('ops', 'service')}"}
    async with httpx2.AsyncClient(base_url=process.url) as http:
        metrics = (await http.get("/metrics", headers=headers)).text
    assert re.search(r'^herenow_reading_pauses_total{reason="connection"} [1-9]', metrics, re.MULTILINE)
    assert "Traceback" not in process.told()
