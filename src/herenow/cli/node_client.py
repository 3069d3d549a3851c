"""Reads a running node's stats over HTTP, for commands that watch nodes: an answer, or one sentence why there is none.

On this machine no token is needed; for other machines it is given, or made with the secret in force for a few minutes. What
the numbers mean is decided by the callers.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import msgspec

from herenow.errors import ConfigurationError
from herenow.secret import resolve_secret, secret_path
from herenow.settings import Settings

if TYPE_CHECKING:
    from herenow.api.ops.stats import Stats

DEADLINE = 4.0
"""Seconds for an answer: longer than a node waits for its own workers."""

TTL = 300.0
"""Seconds that a token made for this lives."""

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - where we ask, not where we listen

Token = Callable[[str], str | None]
"""For a URL; None: without one."""


class NoAnswer(Enum):
    """Why there is no answer."""

    AWAY = auto()
    """Nobody is there, or does not answer: it may be back."""
    REFUSED = auto()
    """Asking again the same way will not help."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """One node's answer."""

    url: str
    stats: Stats | None = None
    sentence: str = ""
    """Why there are no numbers."""
    why: NoAnswer | None = None


async def ask_nodes(client: httpx2.AsyncClient, urls: Sequence[str], token: Token) -> list[NodeAnswer]:
    """In the order of the URLs, each within `DEADLINE`."""
    return list(await asyncio.gather(*(ask_node(client, url, token) for url in urls)))


async def ask_node(client: httpx2.AsyncClient, url: str, token: Token) -> NodeAnswer:
    bearer = token(url)
    headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    try:
        async with asyncio.timeout(DEADLINE):
            answer = await client.get(f"{url}/api/v1/stats", headers=headers)
    except (TimeoutError, httpx2.TimeoutException):
        return NodeAnswer(
            url,
            sentence=f"{url} takes connections but does not answer within {DEADLINE:g} s: the process hangs or is "
            "frozen.",
            why=NoAnswer.AWAY,
        )
    except httpx2.ConnectError as error:
        return _unreached(url, error)
    except httpx2.HTTPError as error:
        return NodeAnswer(url, sentence=f"{url} broke off ({str(error) or type(error).__name__}).", why=NoAnswer.AWAY)
    return _read(url, answer)


def _unreached(url: str, error: Exception) -> NodeAnswer:
    """A certificate that is not trusted will not be later."""
    said = str(error)
    if "certificate" in said.lower():
        return NodeAnswer(url, sentence=f"{url} has a certificate that is not trusted here.", why=NoAnswer.REFUSED)
    if "name" in said.lower() or "address associated" in said.lower():
        return NodeAnswer(url, sentence=f"{url}: the name of that host is not known.", why=NoAnswer.REFUSED)
    return NodeAnswer(url, sentence=f"{url} cannot be reached: nothing listens there.", why=NoAnswer.AWAY)


def _read(url: str, answer: httpx2.Response) -> NodeAnswer:
    from herenow.api.ops.stats import Stats

    match answer.status_code:
        case 200:
            try:
                return NodeAnswer(url, msgspec.json.decode(answer.content, type=Stats))
            except msgspec.DecodeError:
                return NodeAnswer(
                    url, sentence=f"{url} is no herenow, or one of another version.", why=NoAnswer.REFUSED
                )
        case 401 | 403:
            return NodeAnswer(
                url,
                sentence=f"{url} refuses the token ({_code(answer)}): give one that herenow token NAME --scope service "
                "prints with the secret of that server.",
                why=NoAnswer.REFUSED,
            )
        case 502 | 503 | 504:
            return NodeAnswer(url, sentence=f"{url} is not ready ({_code(answer)}).", why=NoAnswer.AWAY)
        case status:
            return NodeAnswer(
                url, sentence=f"{url} answers with {status}: that is no address of a herenow.", why=NoAnswer.REFUSED
            )


def _code(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["code"])
    except (ValueError, KeyError, TypeError):
        return str(answer.status_code)


# --- Where, and with what


def checked_url(text: str) -> str:
    """As it is asked, without what may follow the host. Raises `ConfigurationError`."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, fits = urlsplit(""), False
    if not fits:
        raise ConfigurationError(f"{text!r} is no address of a node: it should look like http://127.0.0.1:8000.")
    path = parts.path.rstrip("/").removesuffix("/dashboard").removesuffix("/api/v1/stats")
    return f"{parts.scheme}://{parts.netloc}{path}"


def own_url(settings: Settings) -> str:
    """Of the node that runs here with these settings."""
    host = ANYWHERE.get(settings.host, f"[{settings.host}]" if ":" in settings.host else settings.host)
    return f"{'http' if settings.tls_cert is None else 'https'}://{host}:{settings.port}"


def own_certificate(settings: Settings) -> ssl.SSLContext | bool:
    """How to verify the node of these settings, which is asked by another name than its certificate's."""
    if settings.tls_cert is None:
        return True
    try:
        context = ssl.create_default_context(cafile=settings.tls_cert)
    except (OSError, ssl.SSLError):
        return True
    context.check_hostname = False
    return context


def tokens(settings: Settings, given: str | None) -> Token:
    """The one that was given; without one none for this machine, and for others one of our own if there is a secret."""
    from herenow.api.http.peers import is_loopback

    def token(url: str) -> str | None:
        if given is not None:
            return given
        host = urlsplit(url).hostname or ""
        if host == "localhost" or is_loopback(host):
            return None
        return _minted(settings)

    return token


def _minted(settings: Settings) -> str | None:
    from herenow.transport.auth import SERVICE, Expected, mint

    path = secret_path(settings)
    if settings.secret is None and (path is None or not path.exists() or not settings.accepts_secret):
        return None
    expected = Expected(settings.jwt_issuer, settings.jwt_audience)
    ttl = min(TTL, settings.token_max_ttl)
    secret = resolve_secret(settings)
    return mint(secret, "herenow-top", scope=SERVICE, ttl=ttl, now=time.time(), expected=expected)
