"""The port to the source of relations: who is connected with whom, and how the source reports its health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Relation:
    """What connects two users, without direction: both follow each other; they have an open conversation."""

    mutual_follow: bool = False
    contact: bool = False
    contact_until: int | None = None
    """When `contact` ends by itself; None: never."""


STRANGERS, MUTUAL, IN_CONTACT = Relation(), Relation(mutual_follow=True), Relation(contact=True)
"""What nearly all pairs are. A source that answers with these very ones saves everybody the comparing."""


@dataclass(slots=True)
class SourceHealth:
    """What a source of relations says of itself, for metrics and `readyz`. Written by the source, read by the node."""

    errors: Counter[str] = field(default_factory=Counter)
    """Failures by kind."""
    trouble: str | None = None
    """A sentence while it does not answer."""


class Relations(Protocol):
    """Tells which users are connected. By default the ledger's tables; docs/relations-callback.md has others."""

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> Sequence[Relation | None]:
        """In the order asked. An edge whose end is at or before `now` is no edge. None: nothing can be said of this one,
        and the others do not suffer for it; `Unavailable`: of none of them."""

    async def contacts(self, user: str, now: int) -> list[str]:
        """All mutual followers and DM contacts, sorted by id."""

    async def is_member(self, room: str, user: str) -> bool: ...
