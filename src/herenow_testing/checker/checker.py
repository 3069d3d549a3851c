"""Checks that viewers are shown what other users did.

A `Checker` is the `Witness` of a `Scene` such as `World`. It records what every client did (sockets, heartbeats, sign-outs,
choices), which faults were active, and every status that a viewer received. It knows the promises of the design but not how
a node keeps them. It collects violations in `problems`, each a sentence with a time:

    false offline   a user was shown offline during a live session or its grace
    ghost           a user was shown as online, away or busy long after the last session ended
    hidden          an invisible user was shown
    equal           the same status was pushed twice in a row
    older           an older status arrived after a newer one
    invented        a value was shown that the user never chose
    returned        a signed-out session stays, or is in the record again although the device did not return
    missing         without faults: a viewer did not receive what the record has contained for a while
    last seen       an offline user was shown with a last seen before or after the true one
    differs         after everything healed: a view, response, record, count or the ledger differs from the truth

During faults a node may be late, and a viewer may receive `stale`; `truth.Bounds` defines how late. `notes` records,
`showing` checks each status, `lingering` checks repeatedly, `agreement` checks after faults and at the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from herenow_testing.checker.agreement import Agreement
from herenow_testing.checker.lingering import Lingering
from herenow_testing.checker.notes import Notes
from herenow_testing.checker.showing import Showing
from herenow_testing.world.scene import Device, Scene, Shown


class Checker(Notes):
    def __init__(self, scene: Scene, viewers: Iterable[str]) -> None:
        super().__init__(scene, viewers)
        self._showing = Showing(self)
        self._lingering = Lingering(self)
        self._agreement = Agreement(self)

    def shown(self, client: Device, shown: Shown) -> None:
        self._showing.shown(client, shown)

    def typing(self, client: Device, user: str) -> None:
        self._showing.typing(client, user)

    def look_around(self) -> None:
        """Check for states that must not last, such as a user who left but is shown online. Call this about every
        second."""
        self._lingering.look_around()

    def differences(self) -> list[str]:
        """List the current differences between what viewers see, the records in the store and what clients did. To wait
        for the end of a fault, call this until it returns none."""
        return self._agreement.differences()

    @property
    def quiet_at(self) -> int:
        """The time (epoch ms) from which no record may contain any of the sessions that have ended so far."""
        return self._agreement.quiet_at

    def healed(self) -> None:
        """Check that viewers see no connected user as offline, unless invisible, and none as stale. Call this when
        `Bounds.healed` has passed since the last fault."""
        self._agreement.healed()

    async def conclude(self) -> None:
        """Check that records, views, user counts and the ledger agree with what clients did. Call this after a long
        time without faults and client actions."""
        await self._agreement.conclude()
