"""The settings that all nodes on one store must agree on.

The first node writes them into the store. A node with other values refuses to start, and `herenow doctor` names the
difference. Add a setting here if the meaning of stored records depends on it.
"""

from __future__ import annotations

import hashlib

from herenow.settings.model import Settings

SAME_EVERYWHERE = ("beat_every", "dead_after", "idle_after", "grace", "online_delay", "node_lease", "token_max_ttl")
"""All of them in seconds."""


def fingerprint(secret: str) -> str:
    """Return the name of a secret, which does not reveal it: 16 hex digits of its SHA-256. A token may have it as `kid`."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


def agreed_terms(settings: Settings, ledger_id: str, secrets: tuple[str, ...]) -> dict[str, str]:
    """Return the names and values that all nodes on one store must share, as written to the store. Secrets are included
    as fingerprints only, separated by spaces: nodes that share one of them agree (`ports.terms`)."""
    return {
        "ledger": ledger_id,
        "secret": " ".join(map(fingerprint, secrets)) or "none",
        "shards": str(settings.shards),
        **{name: f"{getattr(settings, name):g}" for name in SAME_EVERYWHERE},
    }
