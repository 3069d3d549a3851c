"""Runs a history in one world and records everything that viewers get.

The times of all viewer actions depend on the history only. If an action of the hidden twin delays a viewer by a millisecond
of simulated time, the recorded times differ.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, assert_never

from herenow_testing.twins.cases import FAN, FRIEND, GONE, MATE, NEIGHBOUR, PAL, ROOM, STRANGER, TARGET, Case, Exempt
from herenow_testing.twins.hiding import Hiding
from herenow_testing.twins.history import (
    PLATFORMS,
    Act,
    Beat,
    Choose,
    Connect,
    Drop,
    FriendBlocks,
    History,
    Rest,
    SignOut,
    Step,
    Type,
    Write,
)
from herenow_testing.twins.stage import Stage, Tap, Wire

RISE = 5_000
"""Milliseconds for the viewers to connect at the start, and for the last changes to arrive at the end."""

OFF_BEAT = 3
"""Milliseconds by which hiding or leaving is shifted from whole seconds, where timers of viewers end: the order of two
events in the same millisecond is arbitrary. Small enough that both fall into one flush."""

PROBE = 500
"""Milliseconds after a step at which viewers send their requests."""

Record = dict[tuple[str, str], list[bytes]]
"""(viewer, name of a socket, stream or request) → everything received through it, in order. A service that names no
viewer is the viewer ""."""

_RANDOM = ((re.compile(rb'"session_id":"[^"]*"'), b'"session_id":"?"'), (re.compile(rb"retry: \d+"), b"retry: ?"))


class Play:
    def __init__(self, stage: Stage, history: History, hiding: Hiding, cases: Mapping[str, Case | Exempt]) -> None:
        self._stage = stage
        self._history = history
        self._hiding = hiding
        self._cases = cases
        self._target = _Target(stage)
        self._wires: dict[tuple[str, str], Wire] = {}
        self._taps: dict[tuple[str, str], Tap] = {}
        self._late: list[Wire | Tap] = []
        self._answers: Record = {}
        self.shown_at = 0
        """When the target stopped hiding (epoch ms)."""

    async def run(self, *, hides: bool, shows: bool = False) -> Record:
        """Run the history and return what the viewers received. With `hides` the target user hides and goes on;
        otherwise it leaves and does nothing more. With `shows` it stops hiding at the end (`shown_at`)."""
        await self._stage.start()
        await self._seat()
        at = RISE
        for step, pause in self._history.shared:
            await self._stage.until(at)
            self._target.do(step)
            at += pause * 1000
        await self._part(at + OFF_BEAT, hides=hides)
        at += RISE
        for step, pause in self._history.hidden:
            await self._stage.until(at)
            if hides or isinstance(step, FriendBlocks):
                self._target.do(step)
            await self._stage.until(at + PROBE)
            await self._probe()
            at += pause * 1000
        await self._stage.until(at + RISE)
        await self._probe()
        if shows:
            at = await self._come_back(at + 2 * RISE)
        record = dict(self._recorded())
        self._let_go()
        await self._target.done()
        await self._stage.stop()
        return record

    async def _come_back(self, at: int) -> int:
        """Let the target stop hiding at `at` (ms), and then change its status. Returns the time after that."""
        await self._stage.until(at)
        self.shown_at = self._stage.clock.now()
        await self._hiding.show(self._stage)
        for step in (None, Connect("d2"), Act("d2"), Choose("busy")):
            if step is not None:
                self._target.do(step)
            at += 1_000
            await self._stage.until(at)
            await self._probe()
        return at

    # The viewers

    async def _seat(self) -> None:
        viewers = (FRIEND, FAN, PAL)
        pairs = [(TARGET, viewer) for viewer in viewers]
        pairs += [(other, viewer) for other in (NEIGHBOUR, GONE) for viewer in (*viewers, STRANGER)]
        await self._stage.relate(
            *(("follow", *edge) for a, b in pairs for edge in ((a, b), (b, a))),
            *(("room", ROOM, member) for member in (TARGET, FAN, MATE, NEIGHBOUR)),
        )
        for user in (NEIGHBOUR, GONE, FRIEND, FAN, STRANGER, MATE):
            self._wires[user, "socket"] = self._stage.socket(user, f"{user}-1")
        if self._hiding.public:
            await self._stage.rest("PUT", "/api/v1/presence/preferences", by=TARGET, body={"public": True})
        self._say(FRIEND, "presence.subscribe", target_user_id=TARGET, id=1)
        self._say(FRIEND, "presence.subscribe", target_user_ids=[NEIGHBOUR, TARGET, GONE, "unknown"], id=2)
        self._say(FAN, "presence.subscribe", contacts=True)
        self._say(STRANGER, "presence.subscribe", target_user_id=TARGET)
        for member in (FAN, MATE, NEIGHBOUR):
            self._say(member, "room.open", room=ROOM, id="open")
        everybody = f"user_ids={NEIGHBOUR},{TARGET},{GONE}"
        self._taps[PAL, "stream"] = self._stage.stream(everybody, by=PAL)
        self._taps[PAL, "contacts"] = self._stage.stream("contacts=true", by=PAL)
        self._taps[STRANGER, "stream"] = self._stage.stream(everybody, by=STRANGER)
        asked = f"{everybody}&viewer={FRIEND}"
        self._taps[FRIEND, "stream for a service"] = self._stage.stream(asked, by="backend", service=True)

    def _say(self, user: str, type_: str, **fields: object) -> None:
        self._wires[user, "socket"].say(type_, **fields)

    async def _part(self, at: int, *, hides: bool) -> None:
        """Let the target hide (`hides`) or leave at `at` (ms). A neighbour leaves one second later, so that rankings
        contain another offline user."""
        await self._stage.until(at)
        part = self._hiding.hide if hides else self._hiding.leave
        parting = asyncio.get_running_loop().create_task(part(self._stage))
        await self._stage.until(at + 1_000)
        self._say(GONE, "presence.bye")
        await self._stage.until(at + 2_000 + PROBE)
        await self._probe()
        await parting

    async def _probe(self) -> None:
        """Let the viewers send all requests of `cases`, and subscribe through new sockets and streams."""
        self._let_go()
        number = len(self._wires)
        self._say(FRIEND, "presence.typing", to=TARGET, id=f"typing-{number}")
        self._say(FRIEND, "presence.typing", to="unknown", id=f"unknown-{number}")
        self._say(NEIGHBOUR, "presence.typing", to=FRIEND)
        self._say(NEIGHBOUR, "presence.typing", room=ROOM)
        self._say(STRANGER, "presence.subscribe", target_user_id=TARGET, id=number)
        for viewer in (FRIEND, STRANGER):
            wire = self._wires[viewer, f"newcomer {number}"] = self._stage.socket(viewer, f"{viewer}-2")
            wire.say("presence.subscribe", target_user_ids=[TARGET, GONE], id=1)
            wire.say("presence.subscribe", contacts=True, id=2)
            wire.say("presence.unsubscribe", target_user_id=TARGET, id=3)
            wire.say("presence.subscribe", target_user_id=TARGET, id=4)
            query = f"user_ids={TARGET},{GONE}"
            tap = self._taps[viewer, f"new stream {number}"] = self._stage.stream(query, by=viewer)
            self._late += (wire, tap)
        for name, case in self._cases.items():
            if isinstance(case, Case):
                await self._ask(name, case)

    async def _ask(self, name: str, case: Case) -> None:
        for request in case.requests:
            for viewer, by_service in _askers(case):
                path = request.path
                if by_service and viewer:
                    path += f"{'&' if '?' in path else '?'}viewer={viewer}"
                by = "backend" if by_service else viewer
                answer = await self._stage.rest(request.method, path, by=by, body=request.body, service=by_service)
                came = answer.shown if case.keep is bytes else case.keep(answer.body)
                said = b"at %d ms, %b" % (answer.asked_at, came)
                self._answers.setdefault((viewer, f"{name}{' for a service' * by_service}"), []).append(said)

    def _let_go(self) -> None:
        """Close the sockets and streams that the last `_probe` opened."""
        late, self._late = self._late, []
        for each in late:
            if isinstance(each, Wire):
                each.drop()
            else:
                each.cut()

    def _recorded(self) -> Iterator[tuple[tuple[str, str], list[bytes]]]:
        yield from self._answers.items()
        for name, wire in self._wires.items():
            yield name, [b"at %d ms: %b" % (at, _blank(frame)) for at, frame in wire.frames]
        for name, tap in self._taps.items():
            chunks = [b"at %d ms: %b" % (at, _blank(chunk)) for at, chunk in tap.chunks]
            yield name, [tap.head.shown, *chunks]


class _Target:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._wires: dict[str, Wire] = {}
        self._errands: set[asyncio.Task[Any]] = set()

    def do(self, step: Step) -> None:  # noqa: C901 - a table of verbs
        """Start one step of the target user's history, without waiting for its result."""
        match step:
            case Connect(device):
                if not self._is_connected(device):
                    wire = self._wires[device] = self._stage.socket(TARGET, device, PLATFORMS[device])
                    wire.say("presence.subscribe", target_user_ids=[TARGET, FRIEND])
            case Act(device):
                self._say(device, "presence.active")
            case Rest(device):
                self._say(device, "presence.away")
            case Drop(device, vanish):
                self._drop(device, vanish=vanish)
            case SignOut(device):
                self._rest("DELETE", f"/api/v1/presence/devices/{device}")
            case Choose(mode, ends_in):
                self._rest("PUT", "/api/v1/presence/mode", {"mode": mode, "until": self._in(ends_in)})
            case Write(None):
                self._rest("DELETE", "/api/v1/presence/status")
            case Write(text, ends_in):
                self._rest("PUT", "/api/v1/presence/status", {"text": text, "expires_at": self._in(ends_in)})
            case Type(room, device):
                self._say(device, "presence.typing", **({"room": ROOM} if room else {"to": FRIEND}))
            case Beat(activity):
                body = {"device_id": "by-rest", "activity_type": activity}
                self._rest("POST", "/api/v1/presence/heartbeat", body)
            case FriendBlocks():
                self._begin(self._stage.rest("PUT", f"/api/v1/blocks/{TARGET}", by=FRIEND))
            case _:
                assert_never(step)

    async def done(self) -> None:
        for wire in self._wires.values():
            wire.drop()
        await asyncio.gather(*self._errands)

    def _is_connected(self, device: str) -> bool:
        return device in self._wires and self._wires[device].is_open and not self._wires[device].silent

    def _say(self, device: str, type_: str, **fields: object) -> None:
        if self._is_connected(device):
            self._wires[device].say(type_, **fields)

    def _drop(self, device: str, *, vanish: bool) -> None:
        if self._is_connected(device):
            if vanish:
                self._wires[device].silent = True
            else:
                self._wires[device].drop()

    def _in(self, seconds: int | None) -> int | None:
        return None if seconds is None else self._stage.clock.now() + seconds * 1000

    def _rest(self, method: str, path: str, body: object = None) -> None:
        self._begin(self._stage.rest(method, path, by=TARGET, body=body))

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="target")
        self._errands.add(task)


def _askers(case: Case) -> Iterator[tuple[str, bool]]:
    """Yield the senders of a case's requests as (viewer, whether a service sends them). The viewer is "" if the service
    names none."""
    if case.by_service:
        yield "", True
    else:
        yield from ((FRIEND, False), (STRANGER, False), (FRIEND, True))


def _blank(came: bytes) -> bytes:
    """Replace the values in received bytes that are random in every run, so that two runs can be compared."""
    for pattern, blank in _RANDOM:
        came = pattern.sub(blank, came)
    return came
