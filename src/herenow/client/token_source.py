"""Requests tokens from an application: from its endpoint by HTTP, or from a function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import httpx2
import msgspec

from herenow.client.tokens import subject

Token: TypeAlias = str | Callable[[], str | Awaitable[str | None] | None]
"""The http(s) address of a token endpoint, a function (sync or async) that returns a JWT, or a JWT. Endpoint and function
are asked again before the token expires, and with increasing delays while they fail. No user is signed in if the endpoint
answers 204 or 401, or the function returns None or an empty string."""

ANSWER = 10.0  # s: without a response by then, the endpoint or function has failed
SIGNED_OUT = (204, 401)


class TokenError(Exception):
    """The endpoint or function answered something that is not a token."""


async def request_token(source: Token) -> str | None:
    """Get a new token from the application's endpoint or function; None if no user is signed in.

    Raises an exception of any type if the endpoint or function fails, does not answer in time or answers something that
    is not a JWT. A fixed token is not checked: a retry would not change it.
    """
    if isinstance(source, str) and not source.startswith(("http://", "https://")):
        return source or None
    async with asyncio.timeout(ANSWER):
        token = await _fetch(source) if isinstance(source, str) else await _call(source)
    if not token:
        return None
    token = token.strip()
    if subject(token) is None:
        raise TokenError("not a JWT")
    return token


async def _call(function: Callable[[], str | Awaitable[str | None] | None]) -> str | None:
    given = function()
    return await given if inspect.isawaitable(given) else given


async def _fetch(address: str) -> str | None:
    async with httpx2.AsyncClient(timeout=ANSWER, follow_redirects=True) as http:
        answer = await http.get(address)
    if answer.status_code in SIGNED_OUT:
        return None
    text = answer.text.strip()
    if not answer.is_success or not text:
        raise TokenError(f"{answer.url.copy_with(userinfo=b'', query=None)} answered {answer.status_code}")
    try:
        said = msgspec.json.decode(text, type=_Answer | str)
    except msgspec.DecodeError:
        return text
    return said if isinstance(said, str) else said.token


class _Answer(msgspec.Struct):
    token: str
