"""Limits on connections and on slow peers, and the address under which a connection is counted.

Values only: `admission` counts connections, `uvicorn_patches` measures time and progress."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from herenow.settings import Settings
from herenow.transport.websocket import connections_within, descriptors_allowed

Network = IPv4Network | IPv6Network

IPV6_PREFIX = 64
"""Bits of an IPv6 address that are counted: one subscriber gets a /64 and may choose the other bits freely."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    max_open: int = sys.maxsize  # connections of any kind, TLS handshakes included
    max_per_address: int = sys.maxsize
    trusted: tuple[Network, ...] = ()
    """Proxies, which connect for many users: `max_per_address` does not apply to them."""
    exempt_loopback: bool = True
    head_within: float = 10.0
    """Seconds from the first byte of a request to the end of its head; for a new connection with TLS, from `accept`."""
    transfer_within: float = 10.0
    """Seconds to send a body or to read an answer, plus one for each `least_rate` bytes transferred."""
    least_rate: int = 1024  # bytes per second: less than the slowest mobile network
    check_every: float = 1.0  # seconds between two checks of all connections: a deadline may be late by this


def peer_limits(settings: Settings) -> PeerLimits:
    descriptors = descriptors_allowed()
    return PeerLimits(
        max_open=connections_within(descriptors),
        max_per_address=settings.max_connections_per_address or max(1, descriptors // 4),
        trusted=settings.trusted_networks,
    )


def counted_address(host: str, limits: PeerLimits) -> str | None:
    """Return the address or IPv6 network under which connections of this host are counted; None if no limit per address
    applies to it."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if (limits.exempt_loopback and address.is_loopback) or any(address in network for network in limits.trusted):
        return None
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, IPV6_PREFIX), strict=False))
    return str(address)
