"""Sets a user's modes, custom statuses and own `idle_after`. A mode or custom status is committed to the store first, so it
is accepted while the ledger is away; while the store cannot be written, it is saved in the ledger first, and the store gets
it later (`records/late_choices`). `idle_after` is a preference, which must be in the ledger first."""

from __future__ import annotations

from typing import NamedTuple

from herenow.core.edits import set_custom, set_idle_after, set_mode
from herenow.core.model import Custom, Mode, Presence, Source
from herenow.core.settle import Edit, Timings
from herenow.core.values import replace
from herenow.errors import Unavailable, UnknownOutcome
from herenow.kit.deadline import write_within
from herenow.node.context import Context
from herenow.node.deadlines import LEDGER_DEADLINE
from herenow.node.records import Records


class Chosen(NamedTuple):
    presence: Presence
    stale: bool
    """True: the store could not be written. The ledger has the change, and the store gets it later."""


class Modes:
    def __init__(self, context: Context, records: Records) -> None:
        self._context, self._records = context, records

    async def set_mode(
        self, user: str, mode: Mode, until: int | None, source: Source = Source.USER, *, saved: bool = True
    ) -> Chosen:
        """Set the user's mode of one source, wait for the commit and return the new presence. While the store
        cannot be written, the ledger gets it instead (`Chosen.stale`). `until`: its end (ms);
        None: no end. `saved`: wait a moment until the ledger has it, too (`LedgerWriter.wait_saved`)."""
        return await self._choose(user, set_mode(mode, until, source, self._context.clock.now()), saved=saved)

    async def set_custom(
        self, user: str, custom: Custom | None, source: Source = Source.USER, *, saved: bool = True
    ) -> Chosen:
        return await self._choose(user, set_custom(custom, source), saved=saved)

    async def set_both(
        self, user: str, mode: Mode, until: int | None, custom: Custom | None, *, saved: bool = True
    ) -> Chosen:
        """Set the user's own mode and custom status in one commit, so that no viewer sees one without the other.
        `until`: end of the mode (ms); None: no end. `saved`: as for `set_mode`."""
        first, second = set_mode(mode, until, asked_at=self._context.clock.now()), set_custom(custom)

        def both(presence: Presence, now: int, timings: Timings) -> Presence:
            return second(first(presence, now, timings), now, timings)

        return await self._choose(user, both, saved=saved)

    async def set_idle_after(self, user: str, idle_after: int | None) -> Chosen:
        await write_within(self._context.ledger.set_idle_after(user, idle_after), LEDGER_DEADLINE)
        try:
            return Chosen(await self._records.apply(user, set_idle_after(idle_after)), stale=False)
        except (Unavailable, UnknownOutcome):
            presence = await self._records.late_choices.save_idle_after(user)
            return Chosen(replace(presence, idle_after=idle_after), stale=True)

    async def _choose(self, user: str, edit: Edit, *, saved: bool) -> Chosen:
        try:
            presence = await self._records.apply(user, edit)
        except (Unavailable, UnknownOutcome):
            return Chosen(await self._records.late_choices.choose(user, edit), stale=True)
        if saved:
            await self._records.wait_saved(user)
        return Chosen(presence, stale=False)
