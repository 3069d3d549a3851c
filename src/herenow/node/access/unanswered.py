"""Relation lookups without an answer: their viewers are reevaluated as soon as there are answers.

One entry per kind of lookup and user, so that lookups that never succeed do not fill the memory. Some of them may never
succeed, so a few random ones are retried; one answer is enough to reevaluate all viewers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

MOST = 50_000
"""Lookups kept at most. When there are so many, all viewers are reevaluated."""

TRIED = 3


class UnansweredLookups:
    """Lookups to retry. `is_answered(question, user, other)`: retry one, and return True if it is answered. `on_answers`:
    reevaluate these viewers (None: all)."""

    def __init__(
        self,
        is_answered: Callable[[str, str, str], Awaitable[bool]],
        on_answers: Callable[[list[str] | None], Awaitable[None]],
    ) -> None:
        self._is_answered = is_answered
        self._on_answers = on_answers
        self._entries: dict[tuple[str, str], str] = {}
        """(`between`, viewer) → a target or "", (`contacts`, user) → "", (`member`, user) → a room."""
        self._resolving = False

    def add(self, question: str, user: str, other: str) -> None:
        if len(self._entries) < MOST:
            self._entries[question, user] = other

    @property
    def waiting(self) -> bool:
        """True if relation lookups without an answer wait for a retry, and `resolve` is not running."""
        return bool(self._entries) and not self._resolving

    async def resolve(self) -> None:
        """Retry a few of the relation lookups without an answer. If one is answered, drop all of them and reevaluate
        what their viewers see."""
        self._resolving = True
        try:
            tried = random.sample(list(self._entries.items()), min(len(self._entries), TRIED))
            if not any(await asyncio.gather(*(self._is_answered(*key, other) for key, other in tried))):
                return
            entries, self._entries = self._entries, {}
            viewers = {user: None for question, user in entries if question != "member"}
            await self._on_answers(list(viewers) if len(entries) < MOST else None)
        finally:
            self._resolving = False
