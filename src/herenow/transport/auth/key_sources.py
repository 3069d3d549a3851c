"""Reads the bytes of a JWKS document from a file of the operator or from a URL of the issuer.

Size and time are limited; redirects and compressed responses are errors. `jwks` parses the bytes, `keyring` schedules reads.
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

DEADLINE = 2.0  # seconds for a whole document, from the DNS lookup to the last byte

LONGEST = 300.0
SHORTEST = 30.0
"""Bounds, in seconds, of a document's `max-age`: a key that the issuer withdrew must disappear soon."""


@dataclass(frozen=True, slots=True)
class Read:
    raw: bytes
    fresh_for: float  # seconds for which the document counts as fresh


class Source(Protocol):
    where: str  # path or URL (without password) for messages
    patience: float
    """Least seconds between two reads that are caused by unknown keys, because any token can cause them."""

    async def read(self) -> Read | None:
        """Read the JWKS document. Return None if it has not changed since the last read. Raises `BadKeys` if it cannot
        be read."""


class FileSource:
    """Reads the file only if its inode, modification time or size changed."""

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
            # Not str(error): it may contain the URL with its password.
            raise BadKeys(f"it cannot be reached ({type(error).__name__})") from None

    async def _fetch(self) -> Read:
        # A new client each time: one request every few minutes is not worth a kept connection.
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
                raise BadKeys("it answers compressed, which was not requested")
            raw = bytearray()
            async for chunk in answer.aiter_raw():
                raw += chunk
                if len(raw) > MAX_BYTES:
                    raise BadKeys(f"it is larger than {MAX_BYTES} bytes")
            return Read(bytes(raw), _fresh_for(answer.headers.get("cache-control", "")))


def _fresh_for(cache_control: str) -> float:
    max_age = re.search(r"(?:^|[\s,])max-age=([0-9]{1,9})(?:$|[\s,;])", cache_control.lower())
    return LONGEST if max_age is None else min(LONGEST, max(SHORTEST, float(max_age[1])))
