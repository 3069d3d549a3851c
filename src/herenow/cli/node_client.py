"""Reads the stats of running nodes over HTTP, for `herenow top` and `herenow doctor`.

A node on this machine needs no token. For other machines the token is given, or minted with the configured secret.
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
from herenow.secret import resolve_secrets, secret_path
from herenow.settings import Settings

if TYPE_CHECKING:
    from herenow.api.ops.stats import Stats

DEADLINE = 4.0
"""Seconds to wait for a response: longer than a node waits for its own workers."""

TTL = 300.0
"""Lifetime in seconds of a token minted here."""

ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - where we ask, not where we listen

Token = Callable[[str], str | None]
"""Node URL → the token to send, None for a request without one."""


class NoAnswer(Enum):
    """Why a node sent no stats."""

    AWAY = auto()
    """It is not running or does not respond: a retry may succeed."""
    REFUSED = auto()
    """A retry of the same request will not succeed."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The stats of one node, or the reason why there are none."""

    url: str
    stats: Stats | None = None
    sentence: str = ""
    """The reason as a sentence, if `stats` is None."""
    why: NoAnswer | None = None


async def ask_nodes(client: httpx2.AsyncClient, urls: Sequence[str], token: Token) -> list[NodeAnswer]:
    """Read the statistics of all nodes at once, in the order of `urls`. Each request may take `DEADLINE` seconds."""
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
            sentence=f"{url} accepts connections but does not answer within {DEADLINE:g} s: the process hangs or is "
            "frozen.",
            why=NoAnswer.AWAY,
        )
    except httpx2.ConnectError as error:
        return _unreached(url, error)
    except httpx2.HTTPError as error:
        return NodeAnswer(
            url, sentence=f"{url}: the request failed ({str(error) or type(error).__name__}).", why=NoAnswer.AWAY
        )
    return _read(url, answer)


def _unreached(url: str, error: Exception) -> NodeAnswer:
    """Explain why the connection to a node failed. A wrong certificate or an unknown host name counts as refused,
    because a retry would not help."""
    said = str(error)
    if "certificate" in said.lower():
        return NodeAnswer(url, sentence=f"{url} has a certificate that is not trusted here.", why=NoAnswer.REFUSED)
    if "name" in said.lower() or "address associated" in said.lower():
        return NodeAnswer(url, sentence=f"{url}: the host name cannot be resolved.", why=NoAnswer.REFUSED)
    return NodeAnswer(url, sentence=f"{url} cannot be reached: nothing listens there.", why=NoAnswer.AWAY)


def _read(url: str, answer: httpx2.Response) -> NodeAnswer:
    from herenow.api.ops.stats import Stats

    match answer.status_code:
        case 200:
            try:
                return NodeAnswer(url, msgspec.json.decode(answer.content, type=Stats))
            except msgspec.DecodeError:
                return NodeAnswer(
                    url, sentence=f"{url} is not a herenow server, or has another version.", why=NoAnswer.REFUSED
                )
        case 401 | 403:
            return NodeAnswer(
                url,
                sentence=f"{url} refuses the token ({_code(answer)}): give one that herenow token NAME --scope read "
                "prints with the secret of that server.",
                why=NoAnswer.REFUSED,
            )
        case 502 | 503 | 504:
            return NodeAnswer(url, sentence=f"{url} is not ready ({_code(answer)}).", why=NoAnswer.AWAY)
        case status:
            return NodeAnswer(
                url,
                sentence=f"{url} answers with status {status}: it is not the address of a herenow server.",
                why=NoAnswer.REFUSED,
            )


def _code(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["code"])
    except (ValueError, KeyError, TypeError):
        return str(answer.status_code)


# --- Addresses, certificates, tokens


def checked_url(text: str) -> str:
    """Normalise a node's address: add `http://`, remove the path of the dashboard or stats and the query. Raises
    `ConfigurationError` if it is not an HTTP address."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, fits = urlsplit(""), False
    if not fits:
        raise ConfigurationError(f"{text!r} is not the address of a node: it should look like http://127.0.0.1:8000.")
    path = parts.path.rstrip("/").removesuffix("/dashboard").removesuffix("/api/v1/stats")
    return f"{parts.scheme}://{parts.netloc}{path}"


def own_url(settings: Settings) -> str:
    """The address of the node that runs on this machine with these settings."""
    host = ANYWHERE.get(settings.host, f"[{settings.host}]" if ":" in settings.host else settings.host)
    return f"{'http' if settings.tls_cert is None else 'https'}://{host}:{settings.port}"


def own_certificate(settings: Settings) -> ssl.SSLContext | bool:
    """The argument `verify` of the HTTP client for the local node: trusts the node's configured certificate with any
    host name. True (the usual checks) without TLS, or if the certificate cannot be read."""
    if settings.tls_cert is None:
        return True
    try:
        context = ssl.create_default_context(cafile=settings.tls_cert)
    except (OSError, ssl.SSLError):
        return True
    context.check_hostname = False
    return context


def tokens(settings: Settings, given: str | None) -> Token:
    """Return a function that chooses the token for a node's URL: `given` if it is set; none for this machine if the
    node trusts it (`trust_loopback`); otherwise one that is minted with the secret, if there is a secret."""
    from herenow.api.http.peers import is_loopback

    def token(url: str) -> str | None:
        if given is not None:
            return given
        host = urlsplit(url).hostname or ""
        if settings.trust_loopback == "on" and (host == "localhost" or is_loopback(host)):
            return None
        return _minted(settings)

    return token


def _minted(settings: Settings) -> str | None:
    from herenow.transport.auth import Expected, mint
    from herenow.wire.inputs import Scope

    path = secret_path(settings)
    if settings.secret is None and (path is None or not path.exists() or not settings.accepts_secret):
        return None
    expected = Expected(settings.jwt_issuer, settings.jwt_audience)
    ttl = min(TTL, settings.token_max_ttl)
    secret, *_ = resolve_secrets(settings)
    return mint(secret, "herenow-top", scope=Scope.READ, ttl=ttl, now=time.time(), expected=expected)
