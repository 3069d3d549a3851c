"""The origin check: pages of this server and of the operator's `origins` may connect.

A request without an Origin header does not come from a web page; its token is the only check.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def is_allowed(origin: str | None, *, host: str, secure: bool, origins: Collection[str]) -> bool:
    """Return True if a page of this origin may connect: a page of this server, one that the operator allows, or no page
    (None).

    `host`: the Host header; `secure`: the request came by TLS; `origins`: lower-case origins that the operator
    allows."""
    if origin is None or origin.lower() in origins:
        return True
    page = _scheme_host_port(origin)
    return page is not None and page == _scheme_host_port(f"{'https' if secure else 'http'}://{host}")


def _scheme_host_port(url: str) -> tuple[str, str, int | None] | None:
    """Return the parts of an address that make its origin; None if it is malformed or names no host."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None
