"""The settings that all nodes on one store must agree on.

The first node writes them into the store; a node that has others refuses to start, and `herenow doctor` says which differ.
A new setting on which the meaning of stored records depends is the reason to change this module.
"""

from __future__ import annotations

import hashlib

from herenow.settings.model import Settings

SAME_EVERYWHERE = ("beat_every", "dead_after", "idle_after", "grace", "online_delay", "node_lease", "token_max_ttl")
"""In seconds."""


def agreed_terms(settings: Settings, ledger_id: str, secret: str | None) -> dict[str, str]:
    """Names and values as the store keeps them. The secret only as a fingerprint."""
    return {
        "ledger": ledger_id,
        "secret": "none" if secret is None else hashlib.sha256(secret.encode()).hexdigest()[:16],
        "shards": str(settings.shards),
        **{name: f"{getattr(settings, name):g}" for name in SAME_EVERYWHERE},
    }
