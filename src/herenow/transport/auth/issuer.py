"""Access to an issuer's public keys that imports cryptography and an HTTP client only when a function is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herenow.transport.auth.key_sources import Source


def key_source(url: str | None, file: Path | None) -> Source | None:
    """Return a reader of an issuer's public keys (a JWKS document) from a URL or a file; None if neither is given."""
    if url is None and file is None:
        return None
    from herenow.transport.auth.key_sources import FileSource, UrlSource

    if url is not None:
        return UrlSource(url)
    return None if file is None else FileSource(file)


async def describe_keys(source: Source) -> tuple[str, Sequence[str]]:
    """Read the JWKS document once. Return a text that counts its usable keys, and the reasons why others are not used.
    Raises `BadKeys` if it cannot be read or has no usable key."""
    from herenow.transport.auth.jwks import parse_jwks
    from herenow.transport.auth.keyring import what_keys

    read = await source.read()
    assert read is not None  # the first read of a source always returns the document
    document = parse_jwks(read.raw)
    return what_keys(document), document.left_out
