"""Does a request come from this very machine? For what only its own people may see without a token."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

FORWARDED = frozenset({"forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "via"})
"""Headers by which a proxy says that the request comes from elsewhere, besides all that begin with `x-forwarded-` or
end with `-connecting-ip`."""


def is_local(peer: str | None, header_names: Iterable[str]) -> bool:
    """The peer is on this machine, and nothing says that it only passes on what comes from elsewhere."""
    return is_loopback(peer or "") and not any(_tells_of_a_proxy(name) for name in header_names)


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
