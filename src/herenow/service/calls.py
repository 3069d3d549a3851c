"""A call to a store that may hang gets a deadline, and its failure gets its honest name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from herenow.errors import Unavailable, UnknownOutcome

DEADLINE = 2.0
"""Seconds for one call to a store: an answer that takes longer is no longer an answer for presence."""

LEDGER_DEADLINE = 10.0
"""Seconds for one call to a ledger: a disk may be busy, and nobody's dot waits for it."""

Answer = TypeVar("Answer")


async def reading(call: Awaitable[Answer], deadline: float = DEADLINE) -> Answer:
    """For calls that change nothing: no answer is `Unavailable`."""
    try:
        async with asyncio.timeout(deadline):
            return await call
    except TimeoutError:
        raise Unavailable(f"the store did not answer within {deadline:g} s") from None


async def writing(call: Awaitable[Answer], deadline: float = DEADLINE) -> Answer:
    """For calls that change something: no answer is `UnknownOutcome`."""
    try:
        async with asyncio.timeout(deadline):
            return await call
    except TimeoutError:
        raise UnknownOutcome(f"the store did not answer within {deadline:g} s") from None
