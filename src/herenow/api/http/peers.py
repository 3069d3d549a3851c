"""Does a request come from this very machine? For what only its own people may see without a token."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

FORWARDED = frozenset({"forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "via"})
"""Headers by which a proxy says that the request comes from elsewhere, besides all that begin with `x-forwarded-` or
end with `-connecting-ip`."""


def is_local(peer: str | None, headers: Mapping[str, str]) -> bool:
    """The peer is on this machine, calls it by a name of its own (a page elsewhere may have its own name lead here, and a
    browser would let it read the answer), and nothing says that it only passes on what comes from elsewhere."""
    host = _host(headers.get("host", ""))
    return (
        is_loopback(peer or "")
        and (host == "localhost" or is_loopback(host))
        and not any(_tells_of_a_proxy(name) for name in headers)
    )


def _host(header: str) -> str:
    """Without the port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    """False also for what is no address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if ip.version == 6 else None
    return (mapped or ip).is_loopback


def _tells_of_a_proxy(name: str) -> bool:
    return name in FORWARDED or name.startswith("x-forwarded-") or name.endswith("-connecting-ip")
