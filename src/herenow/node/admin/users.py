"""Operations of a back end on a user: end connections, revoke tokens, delete.

    disconnect   signs devices out: their sockets are closed on all nodes (4409), without grace. Tokens stay valid.
    revoke       revokes tokens: sockets they opened are closed on all nodes (4401), into grace. New tokens are accepted.
    delete       both, and all data of the user is deleted, on nodes, in the store and in the ledger.

Other nodes get a message at once. If it is dropped, they learn of a sign-out by the record (see `core`), of a revoked token
by the ledger's change table, of a deletion by both.

A deletion is written to the ledger first, in one transaction. From then on every node that decides about this user ensures
that the store has nothing older (`enforce_deletion`): late writes or a shard that was rolled back do not restore the user.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import structlog

from herenow.core.edits import erase, sign_out_all
from herenow.core.model import Presence
from herenow.core.settle import Edit, droppable
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import write_within
from herenow.kit.retry import Backoff, retry
from herenow.node.access import RelationCache
from herenow.node.admin.revocations import Revocations
from herenow.node.cluster import NodeMessages
from herenow.node.context import Context
from herenow.node.deadlines import CLOCK_SKEW, LEDGER_DEADLINE
from herenow.node.people import Person
from herenow.node.records import Records
from herenow.node.sessions import Sessions
from herenow.node.viewing import Viewing
from herenow.ports import Void

AGAIN = Backoff(1.0)
"""Seconds before a deletion that the store did not accept is repeated."""

log = structlog.get_logger(__name__)


class EndMessage(msgspec.Struct, frozen=True, tag="end"):
    """To the other nodes: close this user's sockets, or those of one device."""

    origin: str
    user: str
    device: str | None


class VoidMessage(msgspec.Struct, frozen=True, tag="void"):
    origin: str
    user: str
    before: int
    until: int
    erased: int | None


class Users:
    def __init__(
        self,
        context: Context,
        records: Records,
        sessions: Sessions,
        messages: NodeMessages,
        access: RelationCache,
        viewing: Viewing,
        revocations: Revocations,
    ) -> None:
        self._context = context
        self._records = records
        self._sessions = sessions
        self._messages = messages
        self._access = access
        self._viewing = viewing
        self._revocations = revocations
        revocations.subscribe(self._on_void)
        messages.handle(EndMessage, self.receive)
        messages.handle(VoidMessage, self.receive)

    async def disconnect(self, user: str, device: str | None) -> None:
        """Sign out one device of the user (None: all devices) on all nodes, without grace. Connections to this node are
        closed in any case. Raises `Unavailable` or `UnknownOutcome` if the store is unreachable: connections to other
        nodes may stay."""
        self._sessions.drop(user, device)
        await self._messages.send(EndMessage(self._messages.origin, user, device))
        if device is not None:
            await self._sessions.sign_out(user, device)
            return
        await self._records.apply(user, sign_out_all((self._context.authority.epoch,)))

    async def revoke(self, user: str, before: int) -> int:
        """Revoke the user's tokens that were issued before `before` (ms), on all nodes. Returns the limit in force,
        which is later if an earlier call had a later one."""
        void = self._revocations.make_void(user, before)
        await self._revocations.write(void)
        await self._send_void(void)
        known = self._revocations.of(user)
        return void.before if known is None else known.before

    async def delete(self, user: str) -> None:
        """Delete all data of the user, close all connections and revoke all tokens; may be repeated. Raises
        `Unavailable` (nothing was done) or `UnknownOutcome` (the ledger may have deleted the user; then the store
        follows)."""
        now = self._context.clock.now()
        void = self._revocations.make_void(user, now, erased=now)
        changes = await write_within(self._context.ledger.erase(void), LEDGER_DEADLINE)
        self._revocations.learn(void)
        await self._send_void(void)
        try:
            await self._records.apply(user, erase(now, (self._context.authority.epoch,)))
        except (Unavailable, UnknownOutcome):
            raise UnknownOutcome(
                "The database has deleted this user; the live store is unreachable and will follow when it is back."
            ) from None
        finally:
            for change in changes:
                self._access.changed(change)

    def receive(self, message: EndMessage | VoidMessage) -> None:
        if message.origin == self._messages.origin:
            return
        match message:
            case EndMessage():
                self._sessions.drop(message.user, message.device)
            case VoidMessage():
                self._revocations.learn(Void(message.user, message.before, message.until, message.erased))

    def _on_void(self, void: Void) -> None:
        self._viewing.end_void_streams(void.user, void.before)
        if void.erased is None:
            self._sessions.end_void(void.user, void.before)
            return
        self._records.forget(void.user)
        self._sessions.drop_void(void.user, void.before)
        self._context.tasks.spawn(self._until_erased(void.user), "erase")

    async def _until_erased(self, user: str) -> None:
        """Compute and commit the user's record, with retries, until the store has nothing from before the deletion.
        Every node does this, because the node that deletes may have died."""
        await retry(lambda: self._records.wait_decided(user), AGAIN)

    def enforce_deletion(self, person: Person) -> list[Edit]:
        """If the user was deleted, remove the sessions with older tokens, and return an edit that erases older data
        from the record, if there is any. Called before every decision."""
        erased_at = person.record.presence.erased_at
        void = self._revocations.of(person.user)
        if erased_at is not None and (void is None or (void.erased or 0) < erased_at):  # the record arrived first
            self._revocations.learn(self._revocations.make_void(person.user, erased_at, erased=erased_at))
            void = self._revocations.of(person.user)
        if void is None or void.erased is None:
            return []
        self._sessions.drop_void(person.user, void.before)
        self._records.forget_lost_before(person, void.erased)
        if _has_older_data(person.record.presence, void.erased):
            return [erase(void.erased, (self._context.authority.epoch,))]
        return []

    async def _send_void(self, void: Void) -> None:
        with suppress(Unavailable, UnknownOutcome):  # the change table has it within a second
            message = VoidMessage(self._messages.origin, void.user, void.before, void.until, void.erased)
            await self._messages.send(message)


def _has_older_data(presence: Presence, erased: int) -> bool:
    """True if the record has data from before the user's deletion at `erased` (ms). A presence with version 0 was read
    from the ledger, which has no such data."""
    if not 0 < presence.version < erased + CLOCK_SKEW or (presence.erased_at or 0) >= erased:
        return False
    return not (droppable(presence) and presence.last_seen is None and presence.idle_after is None)
