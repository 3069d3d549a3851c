"""How does somebody hide? Each way is a class: what the hidden twin does, what the other one does instead, from whom.

A new way to hide (a block, a preference) is one small class here.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import quote

from herenow.testing.twins.cases import TARGET
from herenow.testing.twins.stage import Stage


class Hiding(Protocol):
    modes: tuple[str, ...]
    """What the hidden one may choose and is still hidden."""

    async def hide(self, stage: Stage) -> None:
        """At this moment, without waiting."""

    async def leave(self, stage: Stage) -> None:
        """What the other twin does at the same moment: `sign_out_everywhere`, as a rule."""

    def hides_from(self, viewer: str) -> bool:
        """What these may see is compared. A service that asks in nobody's name is the viewer ""."""


class Invisible:
    """The mode: hidden from everybody."""

    modes: tuple[str, ...] = ("invisible",)

    async def hide(self, stage: Stage) -> None:
        answer = await stage.rest("PUT", "/api/v1/presence/mode", by=TARGET, body={"mode": "invisible"})
        assert answer.status == 200, answer

    async def leave(self, stage: Stage) -> None:
        await sign_out_everywhere(stage)

    def hides_from(self, viewer: str) -> bool:
        return True


async def sign_out_everywhere(stage: Stage) -> None:
    """Every device at once: they are asked for before the first is decided, and so they are one change."""
    presence = await stage.node.views.presence(TARGET)
    devices = sorted({session.device for session in presence.sessions})
    await asyncio.gather(
        *(stage.rest("DELETE", f"/api/v1/presence/devices/{quote(each)}", by=TARGET) for each in devices)
    )
