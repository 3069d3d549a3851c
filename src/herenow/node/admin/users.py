"""What a back end may do to a user: end their connections, void their tokens, delete them.

    disconnect   signs devices out: their sockets are closed everywhere (4409), without grace. Tokens stay good.
    revoke       voids tokens: sockets they opened are closed everywhere (4401), into grace. A new token may come at once.
    delete       both, and everything that was known of the user goes, here, in the store and in the ledger.

Other nodes hear of it by a message at once, and should that be lost: of a sign-out by the record (see `core`), of a void
token by the ledger's change table, of a deletion by both.

A deletion is written to the ledger first, in one transaction. From then on every node that decides about this user makes
sure that nothing from before is left in the store (`bar`), whoever else wrote what meanwhile; so a late commit, a late
flush of a recorder or a shard that was rolled back does not bring the user back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import structlog

from herenow.core.edits import erase, sign_out_all
from herenow.core.model import Presence
from herenow.core.settle import Edit, droppable
from herenow.core.values import replace
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.clock import Clock
from herenow.kit.deadline import write_within
from herenow.kit.tasks import Tasks
from herenow.node.access.relation_cache import Acquaintances
from herenow.node.admin.revocations import Revocations
from herenow.node.deadlines import CLOCK_SKEW, LEDGER_DEADLINE
from herenow.node.people import People, Person, lacking
from herenow.node.records.authority import Standing
from herenow.node.records.decider import Decider
from herenow.node.records.reader import Reader
from herenow.node.sessions.connections import Sessions
from herenow.node.viewing.streams import Streams
from herenow.ports import Engine, Ledger, Void

AGAIN = 1.0
"""Seconds after which a deletion that the store did not take is tried again."""

log = structlog.get_logger(__name__)


class EndMessage(msgspec.Struct, frozen=True, tag="end"):
    """To the other nodes: close this user's sockets, or those of one device."""

    origin: str
    user: str
    device: str | None


class VoidMessage(msgspec.Struct, frozen=True, tag="void"):
    """To the other nodes: a row of the table of void tokens."""

    origin: str
    user: str
    before: int
    until: int
    erased: int | None


class Users:
    def __init__(
        self,
        *,
        engine: Engine,
        ledger: Ledger,
        people: People,
        reader: Reader,
        decider: Decider,
        sessions: Sessions,
        streams: Streams,
        relations: Acquaintances,
        revocations: Revocations,
        standing: Standing,
        clock: Clock,
        tasks: Tasks,
        origin: str,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._people = people
        self._reader = reader
        self._decider = decider
        self._sessions = sessions
        self._streams = streams
        self._relations = relations
        self._revocations = revocations
        self._standing = standing
        self._clock = clock
        self._tasks = tasks
        self._origin = origin
        revocations.listen(self._heard)

    # Verbs

    async def disconnect(self, user: str, device: str | None) -> None:
        """Raises `Unavailable` or `UnknownOutcome` when the store is away; what this node holds is closed all the same."""
        await self._tell(EndMessage(self._origin, user, device))
        if device is not None:
            await self._sessions.sign_out(user, device)
            return
        self._sessions.drop(user)
        await self._decider.ask(user, sign_out_all((self._standing.epoch,)))

    async def revoke(self, user: str, before: int) -> int:
        """Void what was issued before; answers the instant in force, which may be later."""
        void = self._revocations.made(user, before)
        await self._revocations.write(void)
        await self._tell_void(void)
        known = self._revocations.of(user)
        return void.before if known is None else known.before

    async def delete(self, user: str) -> None:
        """Raises `Unavailable` when nothing was done, `UnknownOutcome` when the store has yet to follow the ledger: it
        will, and asking again does no harm."""
        now = self._clock.now()
        void = self._revocations.made(user, now, erased=now)
        changes = await write_within(self._ledger.erase(void), LEDGER_DEADLINE)
        self._revocations.learn(void)
        await self._tell_void(void)
        try:
            await self._decider.ask(user, erase(now, (self._standing.epoch,)))
        except (Unavailable, UnknownOutcome):
            raise UnknownOutcome(
                "The ledger has forgotten this user; the store is out of reach and follows when it is back."
            ) from None
        finally:
            for change in changes:
                self._relations.changed(change)

    # Hearing

    def receive(self, message: EndMessage | VoidMessage) -> None:
        """From another node."""
        if message.origin == self._origin:
            return
        match message:
            case EndMessage():
                self._sessions.drop(message.user, message.device)
            case VoidMessage():
                self._revocations.learn(Void(message.user, message.before, message.until, message.erased))

    def _heard(self, void: Void) -> None:
        self._streams.end_void(void.user, void.before)
        if void.erased is None:
            self._sessions.end_void(void.user, void.before)
            return
        self._reader.forget(void.user)
        self._sessions.drop_void(void.user, void.before)
        self._tasks.spawn(self._make_sure(void.user), "erase")

    async def _make_sure(self, user: str) -> None:
        """Until the store has nothing from before: somebody else may have been told to do it, and died."""
        while True:
            try:
                await self._decider.decided(user)
                return
            except (Unavailable, UnknownOutcome):
                await asyncio.sleep(AGAIN)

    def bar(self, person: Person) -> list[Edit]:
        """Before every decision: a deleted user holds nothing here under a token from before, and what the record still
        says from before is erased."""
        erased_at = person.presence.erased_at
        void = self._revocations.of(person.user)
        if erased_at is not None and (
            void is None or (void.erased or 0) < erased_at
        ):  # the record was faster
            self._revocations.learn(self._revocations.made(person.user, erased_at, erased=erased_at))
            void = self._revocations.of(person.user)
        if void is None or void.erased is None:
            return []
        self._sessions.drop_void(person.user, void.before)
        if person.lost is not None:
            person.lost = _since(person.lost, void.erased)
        if _is_from_before(person.presence, void.erased):
            return [erase(void.erased, (self._standing.epoch,))]
        return []

    # Telling

    async def _tell_void(self, void: Void) -> None:
        with suppress(Unavailable, UnknownOutcome):  # they hear of it by the change table within a second
            await self._tell(VoidMessage(self._origin, void.user, void.before, void.until, void.erased))

    async def _tell(self, message: EndMessage | VoidMessage) -> None:
        await write_within(self._engine.send(msgspec.json.encode(message)))


def _since(lost: Presence, erased: int) -> Presence | None:
    """What of it is not from before: what is only a little younger may be by another clock."""
    chosen = lost if lost.chosen >= erased + CLOCK_SKEW else _NOBODY
    seen = lost.last_seen if (lost.last_seen or 0) >= erased + CLOCK_SKEW else None
    return lacking(_NOBODY, replace(chosen, last_seen=seen))


_NOBODY = Presence()


def _is_from_before(presence: Presence, erased: int) -> bool:
    """Version 0: the ledger's word, which has nothing from before."""
    if not 0 < presence.version < erased + CLOCK_SKEW or (presence.erased_at or 0) >= erased:
        return False
    return not (droppable(presence) and presence.last_seen is None and presence.idle_after is None)
