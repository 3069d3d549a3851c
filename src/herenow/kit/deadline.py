"""Deadlines for calls to a store that may hang. Without an answer, a read is `Unavailable` and a write `UnknownOutcome`.

A call that never waits, as to a store in memory, gets no timer, which would cost more than the call: each call runs up to
its first wait, and only then gets a timer.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from herenow.errors import Unavailable, UnknownOutcome

DEADLINE = 1.5
"""Seconds for one call, by default: after them a store that does not answer counts as unreachable."""

Answer = TypeVar("Answer")


async def read_within(call: Coroutine[Any, Any, Answer], deadline: float = DEADLINE) -> Answer:
    """Await a call that changes nothing; raise `Unavailable` after `deadline` seconds."""
    try:
        return await _within(deadline, call)
    except TimeoutError:
        raise Unavailable(f"there was no answer within {deadline:g} s") from None


async def write_within(call: Coroutine[Any, Any, Answer], deadline: float = DEADLINE) -> Answer:
    """Await a call that changes something; raise `UnknownOutcome` after `deadline` seconds."""
    try:
        return await _within(deadline, call)
    except TimeoutError:
        raise UnknownOutcome(f"there was no answer within {deadline:g} s; the outcome is unknown") from None


async def _within(deadline: float, call: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        waits_for = call.send(None)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    async with asyncio.timeout(deadline):
        return await resume(call, waits_for)


@types.coroutine
def resume(call: Coroutine[Any, Any, Answer], waits_for: object) -> Generator[Any, Any, Answer]:
    """Run the remaining steps of a coroutine and return its result. The caller made the first step with `send`, which
    returned `waits_for`."""
    while True:
        try:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - passed on to the coroutine
                waits_for = call.throw(error)
            else:
                waits_for = call.send(sent)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
