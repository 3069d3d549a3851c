"""Event streams on a whole node, over real sockets: what viewers get, and how clients may behave."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.processes import PATIENCE, token
from tests.transport.test_contract_over_websocket import Here, settings

from herenow import app
from herenow.api import application as api
from herenow.app import running
from herenow.core.model import Custom
from herenow.transport.http import Listener, sse

Event = dict[str, Any]


class Stream:
    """A raw HTTP client that keeps everything it received."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.lines: list[str] = []
        """Lines of events, comments and hints, in order."""
        self.ended = False

    async def begin(self) -> None:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(head[0].split(" ")[1])
        self.headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)

    async def chunk(self) -> bool:
        """Reads one more chunk; False at the end."""
        async with asyncio.timeout(PATIENCE):
            size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
            text = (await self.reader.readexactly(size + 2))[:size].decode()
        if size == 0:
            self.ended = True
            return False
        self.lines += [line for line in text.split("\n") if line]
        return True

    @property
    def events(self) -> list[Event]:
        return [json.loads(line.removeprefix("data: ")) for line in self.lines if line.startswith("data: ")]

    @property
    def parts(self) -> list[Event]:
        """The events; one with several statuses is split into one per status."""
        return [part for event in self.events for part in event.get("statuses", [event])]

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        while True:
            for part in self.parts:
                if wanted(part):
                    return part
            assert await self.chunk(), self.lines

    async def sees(self, user: str, status: str) -> Event:
        return await self.until(lambda part: part.get("user_id") == user and part.get("status") == status)

    async def end(self) -> list[Event]:
        """Reads to the end; returns all events."""
        while await self.chunk():
            pass
        assert await self.reader.read() == b""
        return self.events

    def shown(self, user: str) -> list[str]:
        return [part["status"] for part in self.parts if part.get("user_id") == user]


class Node(Here):
    def __init__(self, url: str, inner: Any) -> None:
        super().__init__(url)
        self.node = inner
        self.opened: list[asyncio.StreamWriter] = []

    async def raw(self, path: str, *, more: str = "", receive_buffer: int | None = None) -> Stream:
        place = urlsplit(self.url)
        tcp = socket.socket()
        if receive_buffer is not None:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        tcp.setblocking(False)
        await asyncio.get_running_loop().sock_connect(tcp, (place.hostname, place.port))
        reader, writer = await asyncio.open_connection(sock=tcp, limit=2**20)
        self.opened.append(writer)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n{more}\r\n".encode())
        stream = Stream(reader, writer)
        async with asyncio.timeout(PATIENCE):
            await stream.begin()
        return stream

    @asynccontextmanager
    async def stream(
        self, query: str, by: str = "ana", *, scope: str | None = None, ttl: float = 3600, **how: Any
    ) -> AsyncIterator[Stream]:
        path = f"/api/v1/presence/stream?{query}&token={token(by, scope, ttl)}"
        stream = await self.raw(path, **how)
        try:
            yield stream
        finally:
            stream.writer.close()

    async def beat(self, user: str) -> None:
        await self.by(user, "POST", "/presence/heartbeat")

    async def by(self, user: str, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token(user)}"}
        async with httpx2.AsyncClient(base_url=self.url + "/api/v1", headers=headers) as http:
            return await http.request(method, path, **options)

    async def acquaint(self, pairs: Iterable[tuple[str, str]]) -> None:
        rows = "\n".join(json.dumps({"kind": "contact", "a": a, "b": b}) for a, b in pairs)
        await self.put("/relations", "POST", content=rows, headers={"content-type": "application/x-ndjson"})

    async def settled(self, streams: int) -> None:
        """Wait until so many streams are open."""
        async with asyncio.timeout(PATIENCE):
            while self.node.context.metrics.streams != streams:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> AsyncIterator[Node]:
    """A node in this process, accessible for the test."""
    made: list[Any] = []
    make_app = api.make_app

    def watched(node: Any, *rest: Any, **named: Any) -> Any:
        made.append(node)
        return make_app(node, *rest, **named)

    monkeypatch.setattr(app, "make_app", watched)
    chosen = settings(**changed)
    with Listener(chosen) as listener:
        async with running(chosen, listener):
            node = Node(listener.url, made[0])
            yield node
    for writer in node.opened:
        writer.close()


@pytest.fixture
async def here(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    async with serving(monkeypatch) as node:
        await node.befriend("ana", "bo")
        yield node


# Views


async def test_an_event_stream_starts_with_the_status_of_all_requested_users_and_continues_with_changes(
    here: Node,
) -> None:
    await here.beat("bo")
    async with here.stream("user_ids=nobody,bo,nobody") as stream:
        await stream.sees("bo", "online")
        await here.by("bo", "PUT", "/presence/mode", json={"mode": "busy"})
        await stream.sees("bo", "busy")
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["cache-control"] == "no-store"
    assert stream.headers["x-accel-buffering"] == "no"
    assert [line for line in stream.lines if line.startswith("event: ")] == [
        "event: presence.statuses",
        "event: presence.status",
    ]
    snapshot, change = stream.events
    assert [part["user_id"] for part in snapshot["statuses"]] == ["nobody", "bo"]
    assert change["type"] == "presence.status"
    assert not [line for line in stream.lines if line.startswith("id:")]


async def test_events_of_an_event_stream_equal_the_frames_of_a_websocket(here: Node) -> None:
    async with here.client("ana") as ana, here.stream("user_ids=bo") as stream:
        await stream.chunk()
        await ana.watch("bo")
        before = len(ana.frames)
        await here.beat("bo")
        frame = await ana.sees("bo", "online", before)
        await stream.sees("bo", "online")
    assert json.dumps(stream.events[1]) == json.dumps(frame)


async def test_an_event_stream_does_not_make_its_viewer_online(here: Node) -> None:
    async with here.stream("user_ids=ana", "bo") as stream, here.stream("user_ids=bo"):
        await stream.chunk()
    assert stream.shown("ana") == ["offline"]
    assert (await here.by("ana", "GET", "/presence/me")).json()["devices"] == []


async def test_in_an_event_stream_a_user_who_may_not_be_seen_looks_like_an_unknown_user(here: Node) -> None:
    await here.beat("zed")
    async with here.stream("user_ids=zed,unknown") as stream:
        await stream.chunk()
        await here.by("zed", "PUT", "/presence/mode", json={"mode": "busy"})
        await here.beat("bo")
    [snapshot] = stream.events
    zed, unknown = snapshot["statuses"]
    assert zed | {"user_id": ""} == unknown | {"user_id": ""}
    assert (zed["status"], zed["since"], zed["last_seen"]) == ("offline", None, None)


async def test_an_event_stream_shows_users_who_become_visible_and_hides_those_who_cease_to_be(here: Node) -> None:
    await here.beat("zed")
    async with here.stream("user_ids=zed") as stream:
        await stream.chunk()
        await here.befriend("ana", "zed")
        await stream.sees("zed", "online")
        await here.put("/follows/zed/ana", "DELETE")
        await stream.until(lambda part: stream.shown("zed") == ["offline", "online", "offline"])
        await here.befriend("ana", "zed")
        await stream.until(lambda part: stream.shown("zed")[3:] == ["online"])
    assert (stream.parts[2]["since"], stream.parts[2]["last_seen"]) == (None, None)


async def test_an_event_stream_of_contacts_includes_a_new_contact_and_sends_its_status_once(here: Node) -> None:
    await here.beat("zed")
    async with here.stream("contacts=true") as stream:
        await stream.chunk()
        assert stream.shown("bo") == ["offline"]
        await here.befriend("ana", "zed")
        await stream.sees("zed", "online")
        await here.beat("bo")
        await stream.sees("bo", "online")
    assert stream.shown("zed") == ["online"]


async def test_the_event_stream_of_a_service_shows_true_statuses_or_those_a_named_viewer_sees(here: Node) -> None:
    await here.beat("bo")
    await here.by("bo", "PUT", "/presence/mode", json={"mode": "invisible"})
    async with (
        here.stream("user_ids=bo,zed", "backend", scope="service") as truth,
        here.stream("user_ids=bo,zed&viewer=ana", "backend", scope="service") as hers,
        here.stream("user_ids=bo,zed") as ana,
    ):
        for stream in (truth, hers, ana):
            await stream.chunk()
        assert truth.shown("bo") == ["online"]
        await here.beat("zed")
        await truth.sees("zed", "online")
        await here.by("bo", "PUT", "/presence/mode", json={"mode": "busy"})
        for stream in (truth, hers, ana):
            await stream.sees("bo", "busy")
    values = [[{k: v for k, v in part.items() if k != "as_of"} for part in s.parts] for s in (hers, ana)]
    assert values[0] == values[1]
    assert hers.shown("zed") == ["offline"]


async def test_an_event_stream_reports_that_a_user_types_to_the_viewer(here: Node) -> None:
    async with here.client("bo") as bo, here.stream("user_ids=bo") as stream:
        await stream.chunk()
        heard = asyncio.ensure_future(stream.until(lambda part: part.get("type") == "presence.typing"))
        while not heard.done():  # a late node drops typing, so it is sent again, as clients do
            await bo.send("presence.typing", to="ana")
            await asyncio.wait([heard], timeout=3)
        await heard
    assert "event: presence.typing" in stream.lines


# Refusals


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "bad_shape"),
        ("contacts=yes", 400, "bad_shape"),
        ("contacts=", 400, "bad_shape"),
        ("contacts=true&user_ids=bo", 400, "bad_shape"),
        ("user_ids=bo,,", 400, "empty_item"),
        ("user_ids=a%20b", 400, "invalid_user_id"),
        ("user_ids=bo&viewer=bo", 403, "forbidden"),
        ("user_ids=" + ",".join(f"u{n}" for n in range(501)), 400, "too_many_subscriptions"),
        ("user_ids=" + "a" * 9_000, 414, "uri_too_long"),
    ],
)
async def test_an_event_stream_with_an_invalid_query_is_refused(here: Node, query: str, status: int, code: str) -> None:
    answer = await here.by("ana", "GET", f"/presence/stream?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert here.node.context.metrics.streams == 0


async def test_event_streams_refuse_bad_tokens_and_foreign_origins_like_other_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch, origins=["https://app.example"]) as here:
        path = "/api/v1/presence/stream?contacts=true"
        assert (await here.raw(path)).status == 401
        assert (await here.raw(f"{path}&token=x")).status == 401
        bearer = f"Authorization: Bearer {token('ana')}\r\n"
        assert (await here.raw(path, more=bearer + "Origin: https://other.example\r\n")).status == 403
        stream = await here.raw(path, more=bearer + "Origin: https://app.example\r\n")
        assert stream.status == 200
        assert stream.headers["access-control-allow-origin"] == "https://app.example"


async def test_a_head_request_for_an_event_stream_opens_no_stream(here: Node) -> None:
    answer = await here.by("ana", "HEAD", "/presence/stream?contacts=true")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert here.node.context.metrics.streams == 0


async def test_event_streams_and_websockets_of_a_user_share_one_connection_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch, max_connections_per_user=3) as here:
        async with here.client("ana"), here.stream("user_ids=bo"), here.stream("user_ids=bo") as last:
            refused = await here.by("ana", "GET", "/presence/stream?user_ids=bo")
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_connections")
            assert "retry-after" in refused.headers
            async with here.stream("user_ids=ana", "bo") as other:
                assert other.status == 200
            last.writer.close()
            await here.settled(1)
            async with here.stream("user_ids=bo") as again:
                assert again.status == 200


async def test_an_event_stream_denies_contacts_over_the_subscription_limit_and_shows_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch, max_subscriptions=2) as here:
        for friend in ("bo", "chen", "dara"):
            await here.befriend("ana", friend)
        async with here.stream("contacts=true") as stream:
            await stream.until(lambda part: part.get("type") == "presence.subscribe.denied")
    snapshot, denial = stream.events
    assert len(snapshot["statuses"]) == 2
    assert [row["reason"] for row in denial["denied"]] == ["too_many_subscriptions"]


async def test_a_node_at_its_connection_limit_refuses_event_streams_with_503(
    here: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herenow.transport.websocket.registry.Sockets.full", True)
    answer = await here.by("ana", "GET", "/presence/stream?user_ids=bo")
    assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
    assert here.node.context.metrics.streams == 0


# Ends


async def test_an_event_stream_ends_with_an_error_event_when_its_token_expires(here: Node) -> None:
    async with here.stream("user_ids=bo", ttl=0.5) as stream:
        events = await stream.end()
    assert [event["type"] for event in events] == ["presence.statuses", "presence.error"]
    assert events[1]["code"] == "token_expired"
    await here.settled(0)
    assert here.node.context.metrics.stream_ends == {"token_expired": 1}


async def test_a_shutdown_ends_every_event_stream_with_a_time_to_reconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, grace=30) as here:
        streams = [await here.raw(f"/api/v1/presence/stream?user_ids=bo&token={token('ana')}") for _ in range(20)]
        await here.settled(20)
    for stream in streams:
        events = await stream.end()
        assert events[-1]["code"] == "not_ready"
        hints = [int(line.removeprefix("retry: ")) for line in stream.lines if line.startswith("retry: ")]
        assert len(hints) == 2
        assert 0 <= hints[1] <= 10_000
        stream.writer.close()
    spread = {line for stream in streams for line in stream.lines[3:] if line.startswith("retry: ")}
    assert len(spread) > 5
    assert here.node.context.metrics.streams == 0


async def test_an_idle_event_stream_sends_keep_alive_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.05)
    async with serving(monkeypatch) as here, here.stream("user_ids=bo") as stream:
        while stream.lines.count(":") < 3:
            assert await stream.chunk()
    assert len(stream.events) == 1


# Client behaviour


@pytest.mark.parametrize("how", ["finishes", "resets", "half-closes", "talks on"])
async def test_an_event_stream_whose_client_disconnects_is_removed_from_the_node(
    here: Node, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE", 0.1)
    async with here.stream("user_ids=bo,zed") as stream:
        await stream.chunk()
        await here.settled(1)
        tcp = stream.writer.get_extra_info("socket")
        if how == "finishes":
            stream.writer.close()
        elif how == "resets":
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.writer.transport.abort()
        elif how == "half-closes":
            stream.writer.write_eof()
        else:
            stream.writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
            await here.beat("bo")
            await stream.sees("bo", "online")
            stream.writer.close()  # nothing is read while requests wait: the next keep-alive writes find out
        await here.settled(0)
    assert here.node.context.people.find("ana") is None
    assert here.node.context.people.find("zed") is None
    assert here.node.context.metrics.stream_ends == {"client": 1}


async def test_an_event_stream_that_is_not_read_keeps_few_updates_and_is_closed_without_delaying_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ana stops reading. At most the latest status of each user waits for her; Carl, who watches the same users, gets
    everything, and after `stuck_after` her stream is closed. Carl's backlog stays small: he reads in the server's
    thread, and on a busy machine would otherwise count as stuck.
    """
    crowd = [f"u{number}" for number in range(100)]
    async with serving(monkeypatch, stuck_after=1, flush_every=0.005) as here:
        await here.acquaint((viewer, user) for viewer in ("ana", "carl") for user in crowd)
        beats = [{"user_id": user, "device_id": "d"} for user in crowd]
        await here.put("/heartbeats", "POST", json=beats)
        ids = f"user_ids={','.join(crowd)}"
        async with here.stream(ids, receive_buffer=4096) as ana, here.stream(ids, "carl") as carl:
            await carl.chunk()
            await here.settled(2)
            [slow] = [stream for stream in here.node.viewing.streams if stream.user == "ana"]
            latest: dict[str, Event] = {}
            reading = asyncio.create_task(follow(carl, latest))
            async with asyncio.timeout(PATIENCE):
                round_ = 0
                while not slow.outbox.closed:
                    round_ += 1
                    for user in crowd:
                        await here.node.sessions.set_custom(user, custom(round_), saved=False)
                    assert len(slow.outbox.dirty or ()) <= len(crowd)
                    while any(text_of(latest.get(user)) != custom(round_).text for user in crowd):
                        assert not reading.done()
                        await asyncio.sleep(0.005)
            await here.settled(1)
            assert here.node.context.metrics.stream_ends["stuck"] == 1
            await here.by("u7", "PUT", "/presence/mode", json={"mode": "busy"})
            async with asyncio.timeout(PATIENCE):
                while latest["u7"]["status"] != "busy":
                    await asyncio.sleep(0.01)
            reading.cancel()
            assert not ana.ended


def custom(number: int) -> Custom:
    return Custom(f"{number} " + "x" * 15_000)


def text_of(status: Event | None) -> str | None:
    return status["custom_status"]["text"] if status and status["custom_status"] else None


async def follow(stream: Stream, latest: dict[str, Event]) -> None:
    """Reads everything, and keeps only the last status of each user."""
    while await stream.chunk():
        latest.update((part["user_id"], part) for part in stream.parts)
        stream.lines.clear()


async def test_each_of_many_event_streams_shows_only_what_its_own_viewer_may_see(here: Node) -> None:
    viewers = [f"v{number}" for number in range(200)]
    await here.acquaint((viewer, "bo") for viewer in viewers[::2])
    paths = [f"/api/v1/presence/stream?user_ids=bo&token={token(viewer)}" for viewer in viewers]
    streams = await asyncio.gather(*(here.raw(path) for path in paths))
    await here.settled(200)
    await asyncio.gather(*(stream.chunk() for stream in streams))
    await here.beat("bo")
    await asyncio.gather(*(stream.sees("bo", "online") for stream in streams[::2]))
    assert {stream.shown("bo")[-1] for stream in streams[1::2]} == {"offline"}
    for stream in streams:
        stream.writer.transport.abort()
    await here.settled(0)
    assert here.node.context.people.find("v0") is None
