"""A call to a store that may hang gets a deadline, and its failure gets its honest name.

A call that answers without waiting, as every call to the memory engine does, pays for no timer: it is run up to its first
wait, and only then gets one. A timer costs more than such a call itself.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from herenow.errors import Unavailable, UnknownOutcome

DEADLINE = 2.0
"""Seconds for one call to a store: an answer that takes longer is no longer an answer for presence."""

LEDGER_DEADLINE = 10.0
"""Seconds for one call to a ledger: a disk may be busy, and nobody's dot waits for it."""

Answer = TypeVar("Answer")


async def reading(call: Coroutine[Any, Any, Answer], deadline: float = DEADLINE) -> Answer:
    """For calls that change nothing: no answer is `Unavailable`."""
    try:
        return await _within(deadline, call)
    except TimeoutError:
        raise Unavailable(f"the store did not answer within {deadline:g} s") from None


async def writing(call: Coroutine[Any, Any, Answer], deadline: float = DEADLINE) -> Answer:
    """For calls that change something: no answer is `UnknownOutcome`."""
    try:
        return await _within(deadline, call)
    except TimeoutError:
        raise UnknownOutcome(f"the store did not answer within {deadline:g} s") from None


async def _within(deadline: float, call: Coroutine[Any, Any, Answer]) -> Answer:
    try:
        waits_for = call.send(None)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    async with asyncio.timeout(deadline):
        return await _go_on(call, waits_for)


@types.coroutine
def _go_on(call: Coroutine[Any, Any, Answer], waits_for: object) -> Generator[Any, Any, Answer]:
    """The rest of a coroutine that has been started: what it yields goes up, what comes back goes down."""
    while True:
        try:
            try:
                told = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it goes where it belongs
                waits_for = call.throw(error)
            else:
                waits_for = call.send(told)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
