"""The settings that all nodes on one store must agree on.

The first node writes them into the store. A node with other values refuses to start, and `herenow doctor` names the
difference. Add a setting here if the meaning of stored records depends on it.
"""

from __future__ import annotations

import hashlib

from herenow.settings.model import Settings

SAME_EVERYWHERE = ("beat_every", "dead_after", "idle_after", "grace", "online_delay", "node_lease", "token_max_ttl")
"""All of them in seconds."""


def agreed_terms(settings: Settings, ledger_id: str, secret: str | None) -> dict[str, str]:
    """Return the names and values that all nodes on one store must share, as written to the store. The secret is
    included as a fingerprint only."""
    return {
        "ledger": ledger_id,
        "secret": "none" if secret is None else hashlib.sha256(secret.encode()).hexdigest()[:16],
        "shards": str(settings.shards),
        **{name: f"{getattr(settings, name):g}" for name in SAME_EVERYWHERE},
    }
