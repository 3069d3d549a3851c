"""An HTTP client that sends one signed request to the application and returns the response body.

Limits: one deadline for the whole exchange (also for a slowly dripping response), few requests at a time, a maximum size.
Redirects, environment proxies, cookies and compression are not used. Every failure is a `Failed`, counted and logged once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from herenow import __version__
from herenow.kit.circuit_breaker import CircuitBreaker
from herenow.kit.retry import Backoff, retry
from herenow.ports import SourceHealth
from herenow.relations.callback.failures import Failed
from herenow.relations.callback.signature import signed
from herenow.relations.callback.source_health import HealthReporter

DEADLINE = 2.0  # seconds for a response, including the wait for a free connection: a viewer is waiting for it
AT_A_TIME = 4  # concurrent requests at most
MOST_BYTES = 4 << 20  # maximum size of a response: 20 000 contacts with the longest ids need less

TRIES = 2
"""A kept-alive connection may be closed by the peer just when it is used. Requests are idempotent, so one retry is safe."""

NO_PAUSE = Backoff(0.0)
CONNECTION_BROKEN = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)

FAILURES = 3  # failures in a row after which the circuit breaker opens

PAUSES = Backoff(0.5, 5.0)
"""Seconds that the circuit breaker stays open; the longest is also how late a recovery is noticed."""

BUSY = frozenset({429, 502, 503, 504})  # statuses of an overloaded application, or of a proxy before it


class SignedClient:
    def __init__(self, url: str, secret: str, *, now: Callable[[], int], health: SourceHealth, silent: bool) -> None:
        self._url = url
        self._secret = secret
        self._now = now
        self._permits = asyncio.Semaphore(AT_A_TIME)
        self._circuit = CircuitBreaker(FAILURES, PAUSES)
        self._health = HealthReporter(health, silent=silent)
        self._client = httpx2.AsyncClient(
            headers={
                "accept": "application/json",
                "accept-encoding": "identity",
                "content-type": "application/json",
                "user-agent": f"herenow/{__version__}",
            },
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            follow_redirects=False,
            limits=httpx2.Limits(max_connections=AT_A_TIME, max_keepalive_connections=AT_A_TIME),
            timeout=None,  # `ask` has a deadline for the whole exchange
            trust_env=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, body: bytes, deadline: float) -> bytes:
        """Send a signed request, and return the body of the response. `deadline` is a time of the event loop. Raises
        `Failed`, also for any status other than 200."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._permits.acquire()
        except TimeoutError:
            raise self.failed(Failed("busy", "Other requests to the application used up the time limit.")) from None
        try:
            return await self._post_if_allowed(body, deadline)
        finally:
            self._permits.release()

    def understood(self) -> None:
        """Report to operators that the application gave a valid response."""
        self._health.answered(_time())

    def failed(self, failed: Failed) -> Failed:
        """Count and log a failure, and return it for the caller to raise."""
        self._health.failed(failed, _time())
        return failed

    async def _post_if_allowed(self, body: bytes, deadline: float) -> bytes:
        """Send a request, unless the circuit breaker is open, and report the outcome to the breaker. It is checked here
        and not before the wait for a free connection, because it may have opened meanwhile."""
        if not self._circuit.allows(_time()):
            raise self.failed(Failed("resting", "The application failed several times; requests to it are paused."))
        try:
            answer = await self._post_within(deadline, body)
        except Failed as failed:
            if failed.away:
                self._circuit.failed(_time())
            else:
                self._circuit.succeeded()
            raise self.failed(failed) from None
        except BaseException:
            self._circuit.abandoned()
            raise
        self._circuit.succeeded()
        return answer

    async def _post_within(self, deadline: float, body: bytes) -> bytes:
        try:
            async with asyncio.timeout_at(deadline):
                return await retry(lambda: self._post(body), NO_PAUSE, errors=CONNECTION_BROKEN, attempts=TRIES)
        except TimeoutError:
            raise Failed("timeout", f"No complete answer within {DEADLINE:g} s.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise Failed("unreachable", f"{type(error).__name__}: {str(error)[:200]}") from None

    async def _post(self, body: bytes) -> bytes:
        headers = signed(self._secret, self._now() // 1000, body)
        async with self._client.stream("POST", self._url, content=body, headers=headers) as response:
            _check(response)
            parts: list[bytes] = []
            length = 0
            async for part in response.aiter_raw():
                length += len(part)
                if length > MOST_BYTES:
                    raise _too_large()
                parts.append(part)
            return b"".join(parts)


def _check(response: httpx2.Response) -> None:
    status = response.status_code
    if 300 <= status < 400:
        raise Failed("redirect", f"It redirects (status {status}); the setting must name the final address.")
    if status in (401, 403):
        raise Failed("refused", f"It rejects the request (status {status}): is relations_secret the same there?")
    if status != 200:
        raise Failed("status", f"It answers with status {status}.", away=status in BUSY)
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise Failed("not_json", "The answer is compressed, which was not requested.")
    media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise Failed("not_json", f"The answer is not application/json but {media[:64]!r}.")
    announced = response.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:20]) > MOST_BYTES:
        raise _too_large()


def _too_large() -> Failed:
    return Failed("too_large", f"The answer is larger than {MOST_BYTES} bytes.")


def _time() -> float:
    return asyncio.get_running_loop().time()
