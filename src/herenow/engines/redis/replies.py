"""Narrow a reply to the type that its command returns."""

from __future__ import annotations

from herenow.engines.redis.client import Reply


def list_of(reply: Reply) -> list:  # type: ignore[type-arg] # the items' types depend on the command
    assert isinstance(reply, list), reply
    return reply


def bytes_of(reply: Reply) -> bytes:
    assert isinstance(reply, bytes), reply
    return reply
