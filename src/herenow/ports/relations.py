"""The port to the source of relations: which users are connected, and the health of the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Relation:
    """The connection of two users, without direction: they follow each other; they have an open conversation."""

    mutual_follow: bool = False
    contact: bool = False
    contact_until: int | None = None
    """When `contact` ends by itself; None: never."""


STRANGERS, MUTUAL, IN_CONTACT = Relation(), Relation(mutual_follow=True), Relation(contact=True)
"""Nearly all pairs. A source that returns these very objects saves the callers a comparison."""


@dataclass(slots=True)
class SourceHealth:
    """State of a source of relations, for metrics and `readyz`. Written by the source, read by the node."""

    errors: Counter[str] = field(default_factory=Counter)
    """Failures by kind."""
    trouble: str | None = None
    """A sentence, while the source does not answer."""


class Relations(Protocol):
    """A source of relations: by default the ledger's tables; docs/relations-callback.md has others."""

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> Sequence[Relation | None]:
        """Return the relation of the viewer to each target, in the order of `targets`; None for a target without an answer.
        A contact that ends at or before `now` does not count. Raises `Unavailable` if there is no answer for any target."""

    async def contacts(self, user: str, now: int) -> list[str]:
        """Return all mutual followers and contacts of the user, sorted by id."""

    async def is_member(self, room: str, user: str) -> bool: ...
