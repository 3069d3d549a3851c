"""Streams: viewers without a session, so that watching does not make them online.

A stream has an outbox like that of a socket, so rules, conflation and limits are the same; it has no device and no
heartbeat. It names its targets at the start and cannot ask again, so none is denied: a target that it may not see is shown
as never seen, and is updated if that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from herenow.core.model import NOBODY_HERE
from herenow.errors import ProtocolError
from herenow.node.context import Context
from herenow.node.delivery import Delivery
from herenow.node.people import Outbox
from herenow.node.viewing.subscriptions import Subscriptions
from herenow.wire.codes import Close
from herenow.wire.shapes import dated_statuses_frame, denied_list_frame, status_body


@dataclass(slots=True, eq=False, repr=False)
class Stream:
    outbox: Outbox
    bearer: str
    issued_at: int
    end: Callable[[int, str], None]

    @property
    def user(self) -> str:
        """The id of the viewer; empty for a service."""
        return self.outbox.user


class Streams:
    def __init__(self, context: Context, delivery: Delivery, subscriptions: Subscriptions) -> None:
        self._people = context.people
        self._metrics = context.metrics
        self._max_connections = context.settings.max_connections_per_user
        self._max_subscriptions = context.settings.max_subscriptions
        self._delivery = delivery
        self._subscriptions = subscriptions
        self._open: dict[Stream, None] = {}

    def __iter__(self) -> Iterator[Stream]:
        return iter(tuple(self._open))

    def open(
        self,
        viewer: str | None,
        *,
        bearer: str,
        issued_at: int | None,
        send: Callable[[bytes], None],
        end: Callable[[int, str], None],
        abort: Callable[[], None],
    ) -> Stream:
        """Open a stream, which watches no user yet. `viewer` None: a service, which sees the true status of all users.
        `bearer`: the user of the token. `end`: closes the stream, with code and reason. Raises `ProtocolError`
        (too_many_connections)."""
        outbox = Outbox(viewer or "", send, abort)
        if viewer is None:
            outbox.truth = True
        else:
            person = self._people.get(viewer)
            if len(person.watchers.outboxes) >= self._max_connections:
                self._people.release(person)
                raise ProtocolError(
                    "too_many_connections",
                    f"A user may have {self._max_connections} connections to one node, streams included.",
                )
            self._delivery.add_outbox(person, outbox)
        stream = Stream(outbox, bearer, issued_at or 0, end)
        self._open[stream] = None
        self._metrics.streams += 1
        return stream

    async def look(self, stream: Stream, targets: Sequence[str]) -> list[bytes]:
        """Let the stream watch these targets. Returns its first frames, which the caller must send before its next
        await. Raises `ProtocolError` (too_many_subscriptions)."""
        if len(targets) > self._max_subscriptions:
            raise ProtocolError(
                "too_many_subscriptions",
                f"A stream may watch {self._max_subscriptions} users; this one asks for {len(targets)}.",
            )
        granted = await self._subscriptions.subscribe(stream.outbox, targets)
        unseen = frozenset(target for target, _ in granted.denied)
        stream.outbox.pending_targets = unseen
        shown = iter(granted.statuses)
        statuses = [self._unseen(user) if user in unseen else next(shown, None) for user in targets]
        return [dated_statuses_frame([status for status in statuses if status is not None])]

    async def look_at_contacts(self, stream: Stream) -> list[bytes]:
        """Let the stream watch all contacts of its viewer, now and later. Returns its first frames, as `look`; contacts
        above the limit are in a frame of denials."""
        granted = await self._subscriptions.subscribe_contacts(stream.outbox)
        frames = [dated_statuses_frame(granted.statuses)]
        if granted.denied:
            frames.append(denied_list_frame(granted.denied))
        return frames

    def gone(self, stream: Stream) -> None:
        if stream not in self._open:
            return
        del self._open[stream]
        self._metrics.streams -= 1
        person = self._people.find(stream.user)
        self._delivery.forget(stream.outbox)
        if person is not None:
            self._people.release(person)

    def end_void(self, user: str, before: int) -> None:
        """End the streams that were opened with tokens of this user issued before `before` (ms), because these are
        revoked."""
        for stream in self:
            if stream.bearer == user and stream.issued_at < before:
                stream.end(Close.UNAUTHORIZED, "token_revoked")

    def end_all(self, code: int, reason: Callable[[], str]) -> None:
        for stream in self:
            stream.end(code, reason())

    def _unseen(self, user: str) -> tuple[bytes, int]:
        shard = self._people.shard_of(user)
        body = status_body(user, NOBODY_HERE, stale=self._delivery.is_stale(shard))
        return body, self._delivery.as_of(shard)
