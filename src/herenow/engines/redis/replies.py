"""Replies of Redis as the types that a command is known to answer with."""

from __future__ import annotations

from herenow.engines.redis.client import Reply


def list_of(reply: Reply) -> list:  # type: ignore[type-arg] # what stands in it depends on the command
    assert isinstance(reply, list), reply
    return reply


def bytes_of(reply: Reply) -> bytes:
    assert isinstance(reply, bytes), reply
    return reply
