"""A bench that cannot fail proves nothing: here the witness is lied to, and must find it out."""

import asyncio

from tests.faults.people import Client
from tests.faults.stages import on_one_server


async def test_what_did_not_happen_is_found_out(tmp_path):
    async with on_one_server(tmp_path, 1) as lab:
        fleet, checker = lab.fleet, lab.checker
        await fleet.befriend("vera", "mute", "ghost")
        n1, n2, _ = fleet.members.values()
        vera, mute, ghost = (Client(fleet, user, "d1", checker) for user in ("vera", "mute", "ghost"))
        for client, node in ((mute, n1), (ghost, n1), (vera, n2)):
            assert await client.open(node)
        await vera.say("presence.subscribe", target_user_ids=["mute", "ghost"], id="watch")
        await asyncio.sleep(checker.bounds.late / 1000 + 1)
        assert checker.problems == []
        assert mute.link is not None
        assert mute.link.tunnel is not None
        mute.link.tunnel.silent = True  # the witness is not told, and takes the device for connected
        checker.ended(ghost, "closed")  # the witness is told, and it is not true
        await lab.until(lambda: _found(lab, "false offline"))
        await lab.until(lambda: _found(lab, "ghost"))
        assert all("mute" in problem or "ghost" in problem for problem in checker.problems)


async def _found(lab, what):
    if await lab.fleet.look():
        lab.checker.look_around()
    return any(f" {what}: vera" in problem for problem in lab.checker.problems)
