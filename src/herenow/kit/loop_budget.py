"""A storm of work shares the event loop with everything else: so much in one turn of it, and no more.

Thousands who come back at once, each with hundreds of people to look at, are seconds of work. Done as it comes, all of it
is ready in the same turn of the loop, and until it is done nothing else happens in this process: no lease is renewed, no
change is heard, and every time limit has passed when it is looked at next. So whoever has much to do takes a turn first.
Turns are given in the order in which they were asked for; who asks when nobody else does gets one at once.

This module knows nothing of what is done. What a unit of work costs would be a reason to change it.
"""

from __future__ import annotations

import asyncio
from collections import deque

A_TURN = 500
"""Units in a turn of the loop. One is somebody who is looked at, about 15 µs: below the 20 ms of a tick."""


class Turns:
    __slots__ = ("_taken", "_waiting")

    def __init__(self) -> None:
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, units: int) -> None:
        """Returns when so much may be done, which the caller does before it next awaits. More than a turn's worth is a
        turn of its own."""
        if self._waiting or not self._has_room(units):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((units, turn))
            await turn
        else:
            self._give(units)

    def _has_room(self, units: int) -> bool:
        return not self._taken or self._taken + units <= A_TURN

    def _give(self, units: int) -> None:
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._next)
        self._taken += max(1, units)

    def _next(self) -> None:
        self._taken = 0
        while self._waiting and self._has_room(self._waiting[0][0]):
            units, turn = self._waiting.popleft()
            if not turn.done():  # somebody may have given up
                self._give(units)
                turn.set_result(None)
