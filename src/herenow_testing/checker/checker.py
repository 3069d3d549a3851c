"""Does what people are shown agree with what others truly did?

A `Checker` is the witness of a `Scene`, such as a `World`: it writes down what every client did (the truth: sockets, beats,
sign-outs, choices), which faults were in force, and every status that anybody was shown. It knows the promises of the
design and nothing of how a node keeps them. What it finds wrong is collected in `problems`, each a sentence with a time.

    false offline   shown offline while a session lived, or its grace was not over
    ghost           shown as here long after the last session had ended
    hidden          an invisible user was shown
    equal           the same value was pushed twice in a row
    older           an older value came after a newer one
    invented        a value nobody ever chose
    returned        a session that was signed out stays, or is there again though nobody came back
    missing         while nothing fails: somebody who looks was not told of what the record has said for a while
    last seen       shown offline with a last seen that is earlier or later than what truly happened
    differs         after everything has healed: a view, an answer, a record, a count, the ledger is not what is true

In trouble a node is allowed to be late, and a viewer to be told `stale`. How late is written once, in
`truth.Bounds`. What is written down, and what is checked when, is in `herenow_testing.checks`.
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
        """State that should not last: called every second or so."""
        self._lingering.look_around()

    def differences(self) -> list[str]:
        """Where the views of people who look, and the store, are not what is true, as of a moment ago: whoever waits for
        the end of a fault asks until there is none."""
        return self._agreement.differences()

    @property
    def quiet_at(self) -> int:
        """When nobody who has left can be in the record any more."""
        return self._agreement.quiet_at

    def healed(self) -> None:
        """The last fault ended so long ago that everybody who is here must be seen by everybody."""
        self._agreement.healed()

    async def conclude(self) -> None:
        """Nothing has failed for so long, and nobody did anything: now all must agree."""
        await self._agreement.conclude()
