"""The terms: settings that all nodes on one store must share, and what to do if they differ.

A value is one word, or several of which one must be shared: a node may have two secrets while they are being replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "ledger": "point the setting ledger at theirs, or take another namespace",
        "shards": "take their number of shards, or another namespace",
        "secret": "to change it, first give every node the old and the new one (one per line, and SIGHUP), and when all "
        "have both, the new one alone",
    }
)


def agree(here: str, there: str) -> bool:
    """True if two values of a term agree: they share a word."""
    return not set(here.split()).isdisjoint(there.split())


def remedy(term: str, namespace: str) -> str:
    """Return the words that tell an operator what to do if this term differs."""
    return _REMEDIES.get(term) or (
        f"to change it, first run HDEL {{{namespace}}}:terms {term} in the store, and then restart the nodes one after the "
        "other, all with the new value"
    )


def disagreement(term: str, here: str, there: str, namespace: str) -> str:
    """Return the sentence for a node that is refused because this term differs."""
    return (
        f"{term} is {here!r} here but {there!r} in the store: nodes that share a store must agree on it; "
        f"{remedy(term, namespace)}."
    )
