"""The twin test: a hidden user must look exactly like one that signed out, for herenow's own rules and for yours.

It runs two worlds, each a whole node with its WebSocket server and API under simulated time. In both, a target user does
the same while friends, strangers and services watch. Then, at the same time, the target hides and stays active in one
world, and signs out in the other. Everything that viewers receive or read from then on is recorded (bytes, order, number,
headers, sizes, times) and must be equal.

    from hypothesis import given
    from herenow_testing.twins import Invisible, Twins
    from herenow_testing.twins.strategies import histories

    @given(histories())
    def test_nobody_can_tell(history):
        Twins(Invisible()).check(history)

A way to hide is a class (`Hiding`). To test a node with your own rules, pass a subclass of `Stage` as `make_stage`. `cases`
lists the requests of the viewers; `missing` names operations and frames without an entry there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import closing

from structlog.testing import capture_logs

from herenow_testing.twins.cases import CASES, FRAMES, TARGET, Case, Exempt, Request, missing
from herenow_testing.twins.hiding import Blocked, Hiding, Invisible, Nobody, sign_out_everywhere
from herenow_testing.twins.history import TOUR, History
from herenow_testing.twins.play import Play, Record
from herenow_testing.twins.stage import Stage
from herenow_testing.world.moved_loop import MovedLoop

__all__ = [
    "CASES",
    "FRAMES",
    "TOUR",
    "Blocked",
    "Case",
    "Exempt",
    "Hiding",
    "History",
    "Invisible",
    "Nobody",
    "Record",
    "Request",
    "Stage",
    "Twins",
    "missing",
    "sign_out_everywhere",
]

SOON = 500
"""Milliseconds after the end of hiding in which a status begins with it, and not with the target's next act."""

EXCERPT = 400
"""Bytes of each side that a reported difference shows, starting shortly before the first different byte."""


class Twins:
    def __init__(
        self, hiding: Hiding, *, make_stage: Callable[[], Stage] = Stage, cases: Mapping[str, Case | Exempt] = CASES
    ) -> None:
        self._hiding = hiding
        self._make_stage = make_stage
        self._cases = cases

    def record(self, history: History, *, hides: bool) -> Record:
        """Simulate the history once, with a target user that hides (`hides`) or signs out, and return what viewers
        received. Viewers that the target does not hide from are left out."""
        return self._play(history, hides=hides, shows=False)[0]

    def _play(self, history: History, *, hides: bool, shows: bool) -> tuple[Record, int]:
        """Do what `record` does. With `shows` the target stops hiding at the end; returns also when it did (epoch ms)."""

        async def play() -> tuple[Record, int]:
            play = Play(self._make_stage(), history, self._hiding, self._cases)
            return await play.run(hides=hides, shows=shows), play.shown_at

        with capture_logs() as logs, closing(MovedLoop()) as loop:
            record, shown_at = loop.run_until_complete(play())
        broken = [line for line in logs if line["log_level"] in ("error", "critical") or line.get("exc_info")]
        assert not broken, broken
        return {name: came for name, came in record.items() if self._hiding.hides_from(name[0])}, shown_at

    def differences(self, history: History) -> list[str]:
        """Simulate the history twice, with a target user that hides and with one that signs out, and describe each
        difference in what viewers received. Empty if viewers cannot distinguish the two."""
        hidden, gone = self.record(history, hides=True), self.record(history, hides=False)
        return [
            f"{viewer or 'a service'}, {way}: {_parting(hidden.get(name, []), gone.get(name, []))}"
            for name in sorted(hidden.keys() | gone.keys())
            if hidden.get(name) != gone.get(name)
            for viewer, way in [name]
        ]

    def check_return(self, history: History) -> None:
        """Simulate the history with a target user that hides and then stops hiding. Raises an `AssertionError` if a viewer
        receives anything from the time of hiding: the target must look as if it arrived then, on one device."""
        record, shown_at = self._play(history, hides=True, shows=True)
        known = {b"null"} | {last_seen for came in record.values() for last_seen in _shown_until(came, shown_at)}
        found = [
            f"{viewer or 'a service'}, {way}: {wrong}"
            for (viewer, way), came in record.items()
            for wrong in _from_before(came, shown_at, known)
        ]
        assert not found, "\n".join([f"the one who stopped hiding at {shown_at} shows what was before:", *found])

    def check(self, history: History) -> None:
        """Simulate the history twice, as `differences` does. Raises an `AssertionError` that lists each difference with
        its viewer."""
        found = self.differences(history)
        assert not found, "\n".join(["the hidden one can be told from the one who left:", *found])


_STATUS = re.compile(
    rb'"user_id":"%b","status":"(\w+)","since":(null|\d+),"last_seen":(null|\d+),.*?"platforms":\[(.*?)\]'
    % TARGET.encode()
)
_AS_OF = re.compile(rb'"as_of":(\d+)')


def _as_of(entry: bytes) -> int:
    """Return the latest time (epoch ms) as of which a status in this entry is true; 0: it has none."""
    return max(map(int, _AS_OF.findall(entry)), default=0)


def _shown_until(came: list[bytes], shown_at: int) -> Iterator[bytes]:
    """Yield the last seens of the target that one viewer received before `shown_at` (epoch ms)."""
    for entry in came:
        if 0 < _as_of(entry) < shown_at:
            yield from (last_seen for status, _, last_seen, _ in _STATUS.findall(entry) if status == b"offline")


def _from_before(came: list[bytes], shown_at: int, known: Container[bytes]) -> Iterator[str]:
    """Yield the statuses of the target among what one viewer received that show something from before `shown_at` (epoch
    ms), when the target stopped hiding: an earlier time, or a second device at the same time. Last seens that viewers knew
    before are `known`."""
    for entry in came:
        for status, since, last_seen, platforms in _STATUS.findall(entry) if _as_of(entry) >= shown_at else ():
            early = last_seen not in known and int(last_seen) < shown_at
            if status != b"offline" and since != b"null":
                early = int(since) < shown_at or (int(since) < shown_at + SOON and b"," in platforms)
            if early:
                yield entry.decode()


def _parting(hidden: list[bytes], gone: list[bytes]) -> str:
    """Describe the first difference between what a viewer received of a hidden target user and of one that signed
    out."""
    index = next(
        (number for number, (a, b) in enumerate(zip(hidden, gone, strict=False)) if a != b), min(len(hidden), len(gone))
    )
    a, b = (side[index] if index < len(side) else b"(nothing)" for side in (hidden, gone))
    same = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    start = max(0, same - EXCERPT // 4)
    return (
        f"entry {index} of {len(hidden)} and {len(gone)}\n"
        f"  hidden: {a[start : start + EXCERPT]!r}\n  gone:   {b[start : start + EXCERPT]!r}"
    )
