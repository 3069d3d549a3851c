"""REST clients for back ends and scripts: `Rest` blocks, `AsyncRest` is for asyncio; both send the requests of `calls`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx2

from herenow.client.errors import Unavailable
from herenow.client.rest.asks import Ask
from herenow.client.rest.calls import RestCalls

P = ParamSpec("P")
T = TypeVar("T")
TIMEOUT = 10.0  # seconds

_requests = RestCalls()


class Rest(RestCalls):
    """The blocking REST client. `url` is the server's address without `/api/v1`; `token` a JWT, or a function that returns
    one and is called for each request; `timeout` is in seconds. An `http` client that is passed in is not closed.

    Every method raises `RestError` if the server refuses the request, `Unavailable` if it does not respond.

    `viewer` (service tokens only) reads exactly what that user would get; without it a service token reads the truth.
    `user` in the setters (service tokens only) acts for that user.
    """

    def __init__(
        self, url: str, token: str | Callable[[], str], *, timeout: float = TIMEOUT, http: httpx2.Client | None = None
    ) -> None:
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token
        self._http = http or httpx2.Client(timeout=timeout)
        self._owned = http is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the HTTP connections; the end of a `with` block does this too."""
        if self._owned:
            self._http.close()

    def ask(self, ask: Ask[T]) -> T:
        """Send a request and return its result. Raises `RestError` if the server refuses it, `Unavailable` if there is
        no response."""
        token = self._token if isinstance(self._token, str) else self._token()
        with _translated():
            answer = self._http.request(
                ask.method,
                self._base + ask.path,
                params=dict(ask.query),
                content=ask.content,
                headers=ask.headers | {"authorization": f"Bearer {token}"},
            )
        return ask.answer(answer.status_code, answer.content, answer.headers)

    @staticmethod
    def _method_of(make: Callable[Concatenate[RestCalls, P], Ask[T]]) -> Callable[..., object]:
        @functools.wraps(make)
        def method(self: Rest, *args: P.args, **kwargs: P.kwargs) -> T:
            return self.ask(make(_requests, *args, **kwargs))

        return method


class AsyncRest(RestCalls):
    """`Rest` for asyncio: the same methods as coroutines. The `token` function may be async."""

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str | Awaitable[str]],
        *,
        timeout: float = TIMEOUT,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token
        self._http = http or httpx2.AsyncClient(timeout=timeout)
        self._owned = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the HTTP connections; the end of an `async with` block does this too."""
        if self._owned:
            await self._http.aclose()

    async def ask(self, ask: Ask[T]) -> T:
        """Send a request and return its result. Raises `RestError` if the server refuses it, `Unavailable` if there is
        no response."""
        token = self._token if isinstance(self._token, str) else self._token()
        if inspect.isawaitable(token):
            token = await token
        with _translated():
            answer = await self._http.request(
                ask.method,
                self._base + ask.path,
                params=dict(ask.query),
                content=ask.content,
                headers=ask.headers | {"authorization": f"Bearer {token}"},
            )
        return ask.answer(answer.status_code, answer.content, answer.headers)

    @staticmethod
    def _method_of(make: Callable[Concatenate[RestCalls, P], Ask[T]]) -> Callable[..., object]:
        @functools.wraps(make)
        async def method(self: AsyncRest, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self.ask(make(_requests, *args, **kwargs))

        return method


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except httpx2.RequestError as error:
        raise Unavailable(f"the server does not answer: {error!r}") from error
