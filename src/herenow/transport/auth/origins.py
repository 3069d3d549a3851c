"""May a page of this origin talk to us? The server's own pages and those the operator names.

A request without an Origin does not come from a page; its token must do.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_allowed(origin: str | None, *, host: str, secure: bool, origins: Collection[str]) -> bool:
    """`host` as in the Host header; `secure`: the request came by TLS."""
    if origin is None or origin.lower() in origins:
        return True
    return _place(origin) == _place(f"{'https' if secure else 'http'}://{host}")


def _place(url: str) -> tuple[str, str, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or ""), parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
