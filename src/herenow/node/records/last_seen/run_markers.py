"""Run markers: rows of the ledger for users that are visible now, in case store and nodes are lost together.

A user with a committed, live session on this node gets a marker in the ledger unless hidden, and the run (the node's epoch)
is stamped every few seconds. A marker is removed when the user leaves or hides. The last seen of a user with a marker is no
earlier than the last stamp, so heartbeats cost nothing.

An event only queues the user; a flush then compares the markers in the ledger with the record as this node knows it. Every
stamp follows such a flush. It is `LAG` older than the flush, except with an embedded store: if a user hides through another
node, this node has read it in the log by then, so no stamp is later than the hiding. A node that was suspended does not
stamp before it had time to read the log.

A run ends with its node. The node that retires a dead one closes its run, with no last seen after the last renewal of its
lease, as in the records; a run of a node that died with the store is closed when its stamp has not moved for a minute. If
another node closes the run of a node that holds its lease, that node writes its markers again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

import structlog

from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import read_within, write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE

STAMP_EVERY = 5.0  # seconds between two stamps
STAMP_EMBEDDED_EVERY = 1.0  # seconds between two stamps of an embedded run: the error of last seen after a kill

LAG = 5_000
"""Milliseconds by which a stamp is older than the markers: longer than a commit and its log entry take."""

SUSPENDED = 3.0  # intervals without a stamp after which this process counts as suspended
UNMOVED = 60.0  # seconds without a new stamp after which other nodes close a run
LOOK_EVERY = 4  # stamps between two reads of the runs of others
PART = 2_000  # users per flush of the ledger
SLICE = 500  # users checked per iteration of the event loop

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Run:
    epoch: str = ""  # empty: no run has begun
    written: set[str] = field(default_factory=set)  # users with a marker
    unsure: set[str] = field(default_factory=set)  # users that may have a marker: the ledger did not answer
    closed: bool = False  # True: another node closed it, and this node held no lease
    obsolete: bool = False  # True: it must be ended, because its markers may be out of date


class RunMarkers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._on = context.settings.last_seen_marks == "on"
        self._embedded = context.settings.engine_in_memory
        self.every = STAMP_EMBEDDED_EVERY if self._embedded else STAMP_EVERY
        self._run = _Run()
        self._superseded = ""  # epoch of this node's earlier run, while the ledger still has it
        self._to_check: dict[str, None] = {}
        self._writing = asyncio.Lock()
        self._stamps = 0
        self._stamped_at = context.clock.monotonic()
        self._observed: dict[str, tuple[int, float]] = {}  # run of another node → stamp, when it was first read

    @property
    def run(self) -> str:
        """The epoch of this node under which run markers (ledger rows of visible users) are written; empty: no run has
        begun."""
        return self._run.epoch

    def check(self, user: str) -> None:
        """Queue the user, so that the next flush adds or removes the user's run marker, the ledger row of a visible
        user. Call when the user's record or sessions changed."""
        if self._on:
            self._to_check[user] = None

    def start_over(self) -> None:
        """Have all run markers deleted and written again at the next flush. Call when the database was reset to an
        earlier state, in which markers may be missing or outdated."""
        if self.run:
            self._run.obsolete = True
            self._check_all()

    def _check_all(self) -> None:
        """Queue all users with sessions on this node, and forget which of them have a run marker, so that all markers
        are written again."""
        self._run.written.clear()
        self._run.unsure.clear()
        for person in self._context.people:
            if person.held:
                self.check(person.user)

    async def flush(self) -> None:
        """Add or remove the run markers of all queued users in the ledger; raises the ledger's errors."""
        async with self._writing:
            if self._to_check and await self._begin():
                while self._to_check:
                    await self._write_part()

    async def _begin(self) -> bool:
        """Begin a run (the ledger's entry for an epoch of this node) if the epoch is new, or if another node closed the
        run. Returns False if no marker may be written: the run was closed, and this node holds no lease."""
        epoch = self._context.authority.epoch
        if self._run.obsolete:
            await write_within(self._context.ledger.end_run(self.run), LEDGER_DEADLINE)
            self._run = _Run(self.run, closed=True)
        if self.run == epoch and not self._run.closed:
            return True
        if self.run == epoch and not self._context.authority.holds_lease:
            return False
        await write_within(self._context.ledger.stamp_run(epoch, self._stamp_time()), LEDGER_DEADLINE)
        if self.run != epoch:
            self._superseded = self.run
        self._run = _Run(epoch)
        self._check_all()
        return True

    async def _write_part(self) -> None:
        part = list(islice(self._to_check, PART))
        here: dict[str, int] = {}
        gone: list[str] = []
        for user in part:
            del self._to_check[user]
            visible_at = self._visible_at(user)
            if visible_at is None:
                if user in self._run.written or user in self._run.unsure:
                    gone.append(user)
            elif user not in self._run.written:
                here[user] = visible_at
        if not here and not gone:
            return
        self._run.unsure.update(here)
        try:
            await write_within(self._context.ledger.open_marks(self.run, here, gone), LEDGER_DEADLINE)
        except BaseException:
            self._to_check |= dict.fromkeys(part)
            raise
        self._run.unsure.difference_update(here, gone)
        self._run.written.update(here)
        self._run.written.difference_update(gone)

    def _visible_at(self, user: str) -> int | None:
        """Return the last sign of life (ms) of the user's sessions that this node holds and the record has; None: there
        are none, or the user is hidden as far as this node knows."""
        person = self._context.people.find(user)
        if person is None or not person.held:
            return None
        presence = self._context.people.shown(user, person.record.presence)
        if presence.hidden:
            return None
        epoch = self._context.authority.epoch
        seen_at: int | None = None
        for session in person.held:
            if session.lost_at is None and (found := session.in_record(epoch)) is not None and found.live:
                seen_at = max(session.seen_at, seen_at or person.record.presence.shown_at or 0)
        return seen_at

    async def stamp(self) -> None:
        """Write to the ledger the time until which the users with a marker were visible, and close the runs of dead
        nodes. Call every `every` seconds."""
        now = self._context.clock.monotonic()
        suspended = now - self._stamped_at > SUSPENDED * self.every
        self._stamped_at = now
        try:
            if self._on and (self.run or self._to_check):
                await self._stamp(suspended=suspended)
            if not self._embedded:
                await self._close_unmoved(suspended=suspended)
        except (Unavailable, UnknownOutcome):
            self._context.metrics.ledger_errors += 1

    async def _stamp(self, *, suspended: bool) -> None:
        if not self._embedded:
            await self._check_written()
        at = self._stamp_time()
        await self.flush()
        if not self.run or self._run.closed or (suspended and not self._embedded):
            return
        if not await write_within(self._context.ledger.stamp_run(self.run, at), LEDGER_DEADLINE):
            await self._on_closed()
        elif self._superseded:
            await write_within(self._context.ledger.end_run(self._superseded), LEDGER_DEADLINE)
            self._superseded = ""

    def _stamp_time(self) -> int:
        return self._context.clock.now() - (0 if self._embedded else LAG)

    async def _check_written(self) -> None:
        """Queue the users that have a run marker and are no longer visible, in case the change did not queue them
        itself."""
        for number, user in enumerate(list(self._run.written)):
            if self._visible_at(user) is None:
                self.check(user)
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)

    async def _on_closed(self) -> None:
        """Handle that another node has removed this node's run from the ledger. If this node holds its lease, that was
        a mistake: write all run markers again. If not, the other node has probably retired this one and saved the last
        seens: write no markers until this node has a lease."""
        self._run.closed = not self._context.authority.holds_lease
        if self._run.closed:
            await write_within(self._context.ledger.end_run(self.run), LEDGER_DEADLINE)
        self._check_all()

    async def _close_unmoved(self, *, suspended: bool) -> None:
        """Close the runs of other nodes that have written no new time stamp to the ledger for `UNMOVED` seconds, which
        saves the last seen of their users. Those nodes died together with the store, so no node has retired them.
        `suspended`: this process was suspended, so earlier observations do not count."""
        self._stamps += 1
        if suspended:
            self._observed.clear()
        if self._stamps % LOOK_EVERY:
            return
        now = self._context.clock.monotonic()
        found = await read_within(self._context.ledger.open_runs(), LEDGER_DEADLINE)
        others = {run: at for run, at in found.items() if run not in (self.run, self._superseded)}
        self._observed = {
            run: seen if (seen := self._observed.get(run)) is not None and seen[0] == at else (at, now)
            for run, at in others.items()
        }
        for run, (_, since) in self._observed.items():
            if now - since >= UNMOVED:
                await self._close(run, None)

    async def close_retired(self, dead: Mapping[str, int]) -> None:
        """Close the runs of retired nodes (epoch → time of the last lease renewal), which saves the last seen of their
        users. Call after their records were changed. If the ledger is unreachable, the runs are closed later."""
        if self._embedded:
            return
        try:
            for run, renewed_at in dead.items():
                await self._close(run, renewed_at)
        except (Unavailable, UnknownOutcome):
            self._context.metrics.ledger_errors += 1

    async def _close(self, run: str, latest: int | None) -> None:
        users = await write_within(self._context.ledger.close_run(run, latest), LEDGER_DEADLINE)
        if users:
            log.info("run.closed", run=run, users=users)

    async def finish(self) -> None:
        """Remove this node's runs and all their markers from the ledger. Call when the node stops and has saved every
        last seen; raises the ledger's errors."""
        for run in (self._superseded, self.run):
            if run:
                await write_within(self._context.ledger.end_run(run), LEDGER_DEADLINE)
