"""Repeat a failed call, with a growing pause before each attempt. `Backoff` is the sequence of pauses, for callers with a
loop of their own; `retry` is the loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from herenow.errors import Unavailable, UnknownOutcome

T = TypeVar("T")

DOUBLINGS = 30
"""More would overflow a float."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds between attempts: `first`, then twice as long each time, but at most `longest`."""

    first: float
    longest: float | None = None
    """None: every pause is `first`."""
    jitter: float = 0.0
    """The random part of each pause, 0 to 1, so that callers that failed together do not retry together."""

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this number of failures in a row (1 or more)."""
        pause = self.first
        if self.longest is not None:
            pause = min(pause * 2.0 ** min(failures - 1, DOUBLINGS), self.longest)
        return pause if self.jitter == 0.0 else pause * (1.0 - self.jitter * random.random())


async def retry(
    call: Callable[[], Awaitable[T]],
    backoff: Backoff,
    *,
    errors: tuple[type[Exception], ...] = (Unavailable, UnknownOutcome),
    attempts: int | None = None,
    on_error: Callable[[Exception], object] | None = None,
) -> T:
    """Repeat `call` until it succeeds, and return its result. `on_error` gets each error that is followed by another
    attempt. Raises errors not among `errors`, and the error of the last of `attempts` (None: no limit)."""
    failures = 0
    while True:
        try:
            return await call()
        except errors as error:
            failures += 1
            if failures == attempts:
                raise
            if on_error is not None:
                on_error(error)
        await asyncio.sleep(backoff.pause(failures))
