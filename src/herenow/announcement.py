"""The lines that a server prints when it is ready: its address, engine and ledger."""

from __future__ import annotations

from collections.abc import Collection

from herenow import __version__
from herenow.settings import Settings
from herenow.settings.model import without_password


def reaper_announcement(settings: Settings, shards: Collection[int] | None) -> str:
    """Return the line that a reaper prints when it is ready: its version, shards and engine. `shards` None: all shards."""
    which = "all shards" if shards is None else f"shards {', '.join(map(str, sorted(shards)))}"
    return f"herenow {__version__} processes the timeouts of {which} in {without_password(settings.engine)}"


def announcement(settings: Settings, url: str) -> list[str]:
    lines = [
        f"herenow {__version__} is here: {url}",
        f"  WebSocket  {url.replace('http', 'ws', 1)}/ws/presence",
        f"  engine     {without_password(settings.engine)}",
        f"  ledger     {without_password(settings.ledger)}",
        f"  dashboard  {url}/dashboard",
    ]
    if settings.relations != "ledger":
        lines.append(f"  relations  {without_password(settings.relations)}")
    if settings.workers > 1:
        lines.append(f"  workers    {settings.workers}")
    return lines
