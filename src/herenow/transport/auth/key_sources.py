"""Where do a JWKS document's bytes come from? A file of the operator, or an address of the issuer.

Reading is bounded in size and time, and believes nobody: what is larger than a document may be is not read to its end, a
redirect is not followed, a compressed answer is not unpacked. What the bytes say is `jwks`; how often they are read is
`keyring`.
"""

from __future__ import annotations

import asyncio
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx2

from herenow.settings.model import without_password
from herenow.transport.auth.jwks import MAX_BYTES
from herenow.transport.auth.public_keys import BadKeys

DEADLINE = 2.0
"""Seconds for a whole document, from the name's look-up to the last byte."""

LONGEST = 300.0
SHORTEST = 30.0
"""Seconds that a document is taken to be fresh, whatever its issuer says: a key that was taken back must go soon."""


@dataclass(frozen=True, slots=True)
class Read:
    raw: bytes
    fresh_for: float
    """Seconds after which it should be read again."""


class Source(Protocol):
    where: str
    """For sentences."""
    patience: float
    """Seconds between two reads because of a key that is not known: others pay for them."""

    async def read(self) -> Read | None:
        """None: nothing has changed since the last time. Raises `BadKeys`."""


class FileSource:
    """Looked at every second, read when it looks different."""

    patience = 1.0

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._path = path
        self._stamp: tuple[int, ...] | None = None

    async def read(self) -> Read | None:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Read | None:
        try:
            found = self._path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise BadKeys("it is not a file")
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp == self._stamp:
                return None
            with self._path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
        except OSError as error:
            self._stamp = None
            raise BadKeys(f"it cannot be read ({error.strerror})") from None
        self._stamp = stamp
        return Read(raw, self.patience)


class UrlSource:
    patience = 30.0

    def __init__(self, url: str, *, deadline: float = DEADLINE) -> None:
        self.where = without_password(url)
        self._url = url
        self._deadline = deadline

    async def read(self) -> Read:
        try:
            async with asyncio.timeout(self._deadline):
                return await self._fetch()
        except TimeoutError:
            raise BadKeys(f"it did not answer within {self._deadline:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            # The error's own words may repeat the address, with its password.
            raise BadKeys(f"it cannot be reached ({type(error).__name__})") from None

    async def _fetch(self) -> Read:
        # One connection per document, every few minutes: nothing to keep open, nothing that goes stale.
        headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "herenow"}
        async with (
            httpx2.AsyncClient(follow_redirects=False, timeout=self._deadline, headers=headers) as client,
            client.stream("GET", self._url) as answer,
        ):
            if answer.is_redirect:
                raise BadKeys(f"it redirects ({answer.status_code}), which is not followed")
            if answer.status_code != 200:
                raise BadKeys(f"it answers with {answer.status_code}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise BadKeys("it answers compressed, which was not asked for")
            raw = bytearray()
            async for chunk in answer.aiter_raw():
                raw += chunk
                if len(raw) > MAX_BYTES:
                    raise BadKeys(f"it is larger than {MAX_BYTES} bytes")
            return Read(bytes(raw), _fresh_for(answer.headers.get("cache-control", "")))


def _fresh_for(cache_control: str) -> float:
    said = re.search(r"(?:^|[\s,])max-age=([0-9]{1,9})(?:$|[\s,;])", cache_control.lower())
    return LONGEST if said is None else min(LONGEST, max(SHORTEST, float(said[1])))
