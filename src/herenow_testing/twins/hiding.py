"""How does somebody hide? Each way is a class: what the hidden twin does, what the other one does instead, from whom.

A new way to hide is one small class here.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import quote

from herenow_testing.twins.cases import FRIEND, TARGET
from herenow_testing.twins.stage import Stage


class Hiding(Protocol):
    modes: tuple[str, ...]
    """What the hidden one may choose and is still hidden."""
    public: bool
    """Whether the target has a public profile. Whoever hides from some alone has none: it is shown without asking who
    looks."""

    async def hide(self, stage: Stage) -> None:
        """At this moment, without waiting."""

    async def leave(self, stage: Stage) -> None:
        """What the other twin does at the same moment: `sign_out_everywhere`, as a rule."""

    def hides_from(self, viewer: str) -> bool:
        """What these may see is compared. A service that asks in nobody's name is the viewer ""."""


class Invisible:
    """The mode: hidden from everybody."""

    modes: tuple[str, ...] = ("invisible",)
    public: bool = True

    async def hide(self, stage: Stage) -> None:
        answer = await stage.rest("PUT", "/api/v1/presence/mode", by=TARGET, body={"mode": "invisible"})
        assert answer.status == 200, answer

    async def leave(self, stage: Stage) -> None:
        await sign_out_everywhere(stage)

    def hides_from(self, viewer: str) -> bool:
        return True


class Blocked:
    """The target blocks the friend: hidden from that one, and from nobody else."""

    modes: tuple[str, ...] = ("auto", "busy", "away", "invisible")
    public: bool = False

    async def hide(self, stage: Stage) -> None:
        answer = await stage.rest("PUT", f"/api/v1/blocks/{FRIEND}", by=TARGET)
        assert answer.status in (200, 204), answer

    async def leave(self, stage: Stage) -> None:
        await sign_out_everywhere(stage)

    def hides_from(self, viewer: str) -> bool:
        return viewer == FRIEND


class Nobody:
    """The preference: hidden from every user. The operator's services see the truth."""

    modes: tuple[str, ...] = ("auto", "busy", "away", "invisible")
    public: bool = True

    async def hide(self, stage: Stage) -> None:
        body = {"visibility": "nobody"}
        answer = await stage.rest("PUT", "/api/v1/presence/preferences", by=TARGET, body=body)
        assert answer.status == 200, answer

    async def leave(self, stage: Stage) -> None:
        await sign_out_everywhere(stage)

    def hides_from(self, viewer: str) -> bool:
        return bool(viewer)


async def sign_out_everywhere(stage: Stage) -> None:
    """Every device at once: they are asked for before the first is decided, and so they are one change."""
    presence = await stage.node.viewing.presence(TARGET)
    devices = sorted({session.device for session in presence.sessions})
    await asyncio.gather(
        *(stage.rest("DELETE", f"/api/v1/presence/devices/{quote(each)}", by=TARGET) for each in devices)
    )
