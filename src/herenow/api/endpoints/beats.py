"""Heartbeats by REST: of a user's own device, and batches from an external gateway.

Each beat of a batch is accepted, dropped or refused on its own. Beats of one user are processed in order, those of different
users concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from herenow.api.description.operations import Access, BodyDoc, Operation, ResponseDoc
from herenow.api.http.problems import as_protocol_error
from herenow.api.http.request import Call, plain_id, user_id
from herenow.api.http.request_body import Decoder
from herenow.api.http.responses import json_response
from herenow.api.request_shapes import Beat, Heartbeat
from herenow.errors import ProtocolError, Unavailable, UnknownOutcome
from herenow.node import Node
from herenow.wire.answers import BadBeat, BatchAnswer, Beaten
from herenow.wire.inputs import Activity, Scope, parse_activity, parse_platform

MOST = 10_000
"""Maximum beats per batch."""

PART = 1_000
"""Users of a batch that are read from the store with one call."""

AT_ONCE = 256
"""Users of a batch that are processed concurrently: enough to fill a commit of every shard."""

YIELD_EVERY = 100
"""Users after which a worker yields to the event loop, in case nothing made it wait."""

DEVICE = "rest"
"""The device id if the request has none. It is fixed, so that a client without a stored id is one device, not many."""

_heartbeat = Decoder(Heartbeat, "an object with only the fields device_id, activity_type and platform")
_batch = Decoder(list[msgspec.Raw], "an array of heartbeats", repeated_keys=True)
_beat = msgspec.json.Decoder(Beat)


async def beat(call: Call) -> Response:
    """POST /presence/heartbeat: take a heartbeat of the caller's own device."""
    body = await call.body(_heartbeat)
    device = DEVICE if body.device_id is None else plain_id(body.device_id, "device")
    platform, activity = parse_platform(body.platform), parse_activity(body.activity_type)
    await call.node.sessions.beat_by_rest(call.caller.user, device, platform, activity, issued_at=call.caller.issued_at)
    every = call.settings.beat_every
    stale = call.node.records.unwritable(call.caller.user)
    answer = Beaten(device, int(every) if every == int(every) else every, stale=stale or UNSET)
    return json_response(answer, status=202 if stale else 200)


async def batch(call: Call) -> Response:
    """POST /heartbeats: take heartbeats of many users from an external gateway."""
    items = await call.body(_batch)
    if len(items) > MOST:
        raise ProtocolError("too_many_rows", f"A batch may have at most {MOST} heartbeats; this one has {len(items)}.")
    answer = await _BatchRun(call.node).take(items)
    return json_response(answer, status=200 if answer.stale is UNSET else 202)


class _BatchRun:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._accepted = 0
        self._dropped = 0
        self._errors: dict[int, str] = {}
        self._unreachable = False
        """The store is unreachable: the remaining beats that cannot be kept fail at once."""
        self._stale = False
        """A beat was kept that the store does not have yet."""

    async def take(self, items: Sequence[msgspec.Raw]) -> BatchAnswer:
        waiting = iter(self._by_user(items).items())
        while part := dict(islice(waiting, PART)):
            async with self._node.records.preloaded(part):
                await self._take_part(part)
        errors = [BadBeat(index, self._errors[index]) for index in sorted(self._errors)]
        return BatchAnswer(self._accepted, self._dropped, errors, stale=self._stale or UNSET)

    def _by_user(self, items: Sequence[msgspec.Raw]) -> dict[str, list[tuple[int, Beat]]]:
        users: dict[str, list[tuple[int, Beat]]] = {}
        for index, item in enumerate(items):
            try:
                beat = _beat.decode(item)
                users.setdefault(user_id(beat.user_id), []).append((index, beat))
            except msgspec.ValidationError:
                self._errors[index] = "bad_shape"
            except ProtocolError as error:
                self._errors[index] = error.code
        return users

    async def _take_part(self, part: dict[str, list[tuple[int, Beat]]]) -> None:
        waiting = iter(part.items())
        await asyncio.gather(*(self._work(waiting) for _ in range(min(AT_ONCE, len(part)))))

    async def _work(self, waiting: Iterator[tuple[str, list[tuple[int, Beat]]]]) -> None:
        for count, (user, beats) in enumerate(waiting, start=1):
            for index, beat in beats:
                await self._one(user, index, beat)
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _one(self, user: str, index: int, beat: Beat) -> None:
        if self._unreachable and (beat.gone or beat.device_id is None):
            self._errors[index] = "unavailable"
            return
        try:
            if await self._beat(user, beat):
                self._accepted += 1
            else:
                self._dropped += 1
        except (ProtocolError, Unavailable, UnknownOutcome) as error:
            if isinstance(error, Unavailable):
                self._unreachable = True
            self._errors[index] = as_protocol_error(error).code

    async def _beat(self, user: str, beat: Beat) -> bool:
        """Apply one heartbeat of the batch; False if it had no effect. All values are checked before any change."""
        activity, platform = parse_activity(beat.activity_type), parse_platform(beat.platform)
        sessions = self._node.sessions
        if beat.device_id is None:
            if beat.gone:
                raise ProtocolError("bad_shape", "The field gone needs a device_id.")
            if activity is Activity.IDLE:
                raise ProtocolError("invalid_activity", "The activity_type idle needs a device_id.")
            return await sessions.act_by_rest(user)
        device = plain_id(beat.device_id, "device")
        if beat.gone:
            await sessions.lose_by_rest(user, device)
            return True
        counts = await sessions.beat_by_rest(user, device, platform, activity)
        self._stale = self._stale or self._node.records.unwritable(user)
        return counts


OPERATIONS = (
    Operation(
        "POST",
        "/api/v1/presence/heartbeat",
        beat,
        "Send a heartbeat without a WebSocket",
        {
            200: ResponseDoc("The device counts as connected for the next `dead_after` seconds.", Beaten),
            202: ResponseDoc(
                "The live store is unreachable. The heartbeat is kept and counts when it is back.", Beaten
            ),
        },
        about=f"Without `device_id`, the device is `{DEVICE}`. A device that has a WebSocket keeps that session.",
        scope=Scope.BEATS,
        body=BodyDoc(Heartbeat, required=False),
        codes=("invalid_id", "invalid_activity", "invalid_platform", "too_many_sessions"),
    ),
    Operation(
        "POST",
        "/api/v1/heartbeats",
        batch,
        "Send heartbeats of many users, from an external gateway",
        {
            200: ResponseDoc(
                "How many were accepted and dropped; `errors` lists each refused one by its index.", BatchAnswer
            ),
            202: ResponseDoc(
                "The live store is unreachable. Accepted heartbeats are kept and count later.", BatchAnswer
            ),
        },
        about=f"At most {MOST} heartbeats. Each is processed on its own: a refused one does not affect the others.",
        access=Access.SERVICE,
        scope=Scope.BEATS,
        body=BodyDoc(list[Beat]),
        codes=("too_many_rows",),
    ),
)
