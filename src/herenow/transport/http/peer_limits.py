"""The limits of what one peer, or all peers together, may take from the process, and the address that a peer counts as.

Values only: `admission` counts connections, `http.uvicorn_patches` measures what a peer is waited for.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from herenow.settings import Settings
from herenow.transport.websocket import connections_within, descriptors_allowed

Network = IPv4Network | IPv6Network

IPV6_PREFIX = 64
"""Bits of an IPv6 address that count: what one subscriber gets, who may choose the other bits freely."""


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """Connections of this process, seconds and bytes."""

    max_open: int = sys.maxsize
    """Connections of any kind, TLS handshakes included."""
    max_per_address: int = sys.maxsize
    trusted: tuple[Network, ...] = ()
    """Proxies, whose connections are those of many people: `max_per_address` is not for them."""
    exempt_loopback: bool = True
    head_within: float = 10.0
    """From the first byte of a request to the end of its head; for a new connection with TLS, from accepting it."""
    transfer_within: float = 10.0
    """For a body to come and for an answer to be read; longer by a second for each `least_rate` bytes that have passed."""
    least_rate: int = 1024
    """Bytes per second: less than the slowest mobile network."""
    check_every: float = 1.0
    """Between two looks at all connections, by which a deadline may be late."""


def peer_limits(settings: Settings) -> PeerLimits:
    descriptors = descriptors_allowed()
    return PeerLimits(
        max_open=connections_within(descriptors),
        max_per_address=settings.max_connections_per_address or max(1, descriptors // 4),
        trusted=settings.trusted_networks,
    )


def counted_address(host: str, limits: PeerLimits) -> str | None:
    """What connections of this host are counted under; None: they are not counted by address."""
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
