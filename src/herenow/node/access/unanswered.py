"""Questions about who may see whom that nobody answered: whoever they concern looks again as soon as there are answers.

One doubt of each kind per user, so that nobody fills this with what is never answered. A few are tried, by chance, for some
may never be; one answer is enough to have all look again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

MOST = 50_000
"""Doubts that are remembered; if there are more, they are about everybody."""

TRIED = 3
"""Of them, to find out whether there are answers."""


class UnansweredLookups:
    def __init__(
        self,
        is_answered: Callable[[str, str, str], Awaitable[bool]],
        on_answers: Callable[[list[str] | None], Awaitable[None]],
    ) -> None:
        """`is_answered(question, user, other)`: try it. `on_answers`: these viewers (None: all) should look again."""
        self._is_answered = is_answered
        self._on_answers = on_answers
        self._doubts: dict[tuple[str, str], str] = {}
        """(`between`, viewer) → a target or "", (`contacts`, user) → "", (`member`, user) → a room."""
        self._resolving = False

    def add(self, question: str, user: str, other: str) -> None:
        if len(self._doubts) < MOST:
            self._doubts[question, user] = other

    @property
    def waiting(self) -> bool:
        """There are some, and nobody is about to `resolve` them."""
        return bool(self._doubts) and not self._resolving

    async def resolve(self) -> None:
        """Is there an answer now? Then all who are in doubt look again."""
        self._resolving = True
        try:
            tried = random.sample(list(self._doubts.items()), min(len(self._doubts), TRIED))
            if not any(await asyncio.gather(*(self._is_answered(*key, other) for key, other in tried))):
                return
            doubts, self._doubts = self._doubts, {}
            viewers = {user: None for question, user in doubts if question != "member"}
            await self._on_answers(list(viewers) if len(doubts) < MOST else None)
        finally:
            self._resolving = False
