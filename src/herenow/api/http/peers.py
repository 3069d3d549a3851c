"""Does a request come from this machine? Such requests may read statistics without a token."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

FORWARDED = frozenset(
    {"forwarded", "via", "x-real-ip", "x-forwarded", "x-proxyuser-ip", "x-varnish", "cf-ray", "cdn-loop"}
)
"""Headers that proxies add."""

FORWARDED_PREFIXES = ("x-forwarded-", "x-original-", "x-envoy-", "x-amzn-", "x-amz-cf-", "x-azure-", "x-appengine-")
FORWARDED_SUFFIXES = ("-client-ip", "-connecting-ip", "-forwarded-for")


def is_local(peer: str | None, headers: Mapping[str, str]) -> bool:
    """True if the peer has a loopback address, the Host is a loopback name, and no header shows that a proxy forwarded the
    request. The Host check prevents DNS rebinding: the host name of a foreign web page that resolves to this machine."""
    host = _host(headers.get("host", ""))
    return (
        is_loopback(peer or "")
        and (host == "localhost" or is_loopback(host))
        and not any(_is_proxy_header(name) for name in headers)
    )


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    """True if the text is a loopback address, also one of IPv4 in IPv6 notation; False if it is not an IP address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if ip.version == 6 else None
    return (mapped or ip).is_loopback


def _is_proxy_header(name: str) -> bool:
    return name in FORWARDED or name.startswith(FORWARDED_PREFIXES) or name.endswith(FORWARDED_SUFFIXES)
