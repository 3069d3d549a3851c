"""The ways to hide, one class each: the action of the hidden twin, that of the other twin, and the affected viewers."""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import quote

from herenow_testing.twins.cases import FRIEND, TARGET
from herenow_testing.twins.stage import Stage


class Hiding(Protocol):
    modes: tuple[str, ...]
    """Modes that the target may set while it stays hidden."""
    public: bool
    """Whether the target has a public profile. It must not if it hides from some viewers only, because the profile shows
    all viewers the same."""

    async def hide(self, stage: Stage) -> None:
        """Hide the target user at once, without letting simulated time pass."""

    async def leave(self, stage: Stage) -> None:
        """Sign the target user out, usually by `sign_out_everywhere`, in the run with which the hidden one is
        compared."""

    async def show(self, stage: Stage) -> None:
        """Let the target user stop hiding."""

    def hides_from(self, viewer: str) -> bool:
        """True if this viewer may not notice whether the target user hid or left. A service that names no viewer is
        ""."""


class Invisible:
    """The mode `invisible`: hidden from all viewers."""

    modes: tuple[str, ...] = ("invisible",)
    public: bool = True

    async def hide(self, stage: Stage) -> None:
        answer = await stage.rest("PUT", "/api/v1/presence/mode", by=TARGET, body={"mode": "invisible"})
        assert answer.status == 200, answer

    async def leave(self, stage: Stage) -> None:
        await sign_out_everywhere(stage)

    async def show(self, stage: Stage) -> None:
        answer = await stage.rest("PUT", "/api/v1/presence/mode", by=TARGET, body={"mode": "auto"})
        assert answer.status == 200, answer

    def hides_from(self, viewer: str) -> bool:
        return True


class Blocked:
    """The target blocks the friend, and is hidden from that viewer only."""

    modes: tuple[str, ...] = ("auto", "busy", "away", "invisible")
    public: bool = False

    async def hide(self, stage: Stage) -> None:
        answer = await stage.rest("PUT", f"/api/v1/blocks/{FRIEND}", by=TARGET)
        assert answer.status in (200, 204), answer

    async def leave(self, stage: Stage) -> None:
        await sign_out_everywhere(stage)

    async def show(self, stage: Stage) -> None:
        answer = await stage.rest("DELETE", f"/api/v1/blocks/{FRIEND}", by=TARGET)
        assert answer.status in (200, 204), answer

    def hides_from(self, viewer: str) -> bool:
        return viewer == FRIEND


class Nobody:
    """The preference `visibility: nobody`: hidden from every user. Services see the truth."""

    modes: tuple[str, ...] = ("auto", "busy", "away", "invisible")
    public: bool = True

    async def hide(self, stage: Stage) -> None:
        body = {"visibility": "nobody"}
        answer = await stage.rest("PUT", "/api/v1/presence/preferences", by=TARGET, body=body)
        assert answer.status == 200, answer

    async def leave(self, stage: Stage) -> None:
        await sign_out_everywhere(stage)

    async def show(self, stage: Stage) -> None:
        body = {"visibility": "contacts"}
        answer = await stage.rest("PUT", "/api/v1/presence/preferences", by=TARGET, body=body)
        assert answer.status == 200, answer

    def hides_from(self, viewer: str) -> bool:
        return bool(viewer)


async def sign_out_everywhere(stage: Stage) -> None:
    """Sign out every device of the target user. The requests run concurrently, so that viewers receive one change
    only."""
    presence = await stage.node.viewing.presence(TARGET)
    devices = sorted({session.device for session in presence.sessions})
    await asyncio.gather(
        *(stage.rest("DELETE", f"/api/v1/presence/devices/{quote(each)}", by=TARGET) for each in devices)
    )
