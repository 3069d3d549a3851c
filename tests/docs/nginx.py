"""A real nginx: the machine's, or Debian's that `./dev test` unpacked into .dev/. Without one, tests are skipped or
fail with a message.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.docs.snippets import ROOT
from tests.processes import PATIENCE

UNPACKED = ROOT / ".dev" / "nginx" / "usr" / "sbin" / "nginx"
ASIDE = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log stderr;
"""
"""The distribution's own nginx.conf, adapted to run without root."""
AROUND = """
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {site}
}}
"""


def program() -> str:
    for found in (shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), str(UNPACKED)):
        if found and Path(found).exists() and subprocess.run([found, "-v"], capture_output=True).returncode == 0:
            return found
    if os.environ.get("CI") == "true":
        pytest.fail("nginx is not there")
    pytest.skip("nginx is not there; ./dev test fetches it")


@asynccontextmanager
async def nginx(folder: Path, top: str, site: str, ready: str) -> AsyncIterator[None]:
    """`top` is the beginning of nginx.conf, `site` a file that its http block includes; `ready` an address to wait for."""
    config = folder / "nginx.conf"
    user = "" if os.getuid() else "user root;"  # the user who starts it may write into the folder
    config.write_text(ASIDE.format(folder=folder, user=user) + top + AROUND.format(folder=folder, site=site))
    command = [program(), "-c", str(config), "-p", str(folder)]
    checked = await asyncio.to_thread(subprocess.run, [*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr, checked.stderr
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        await _listens(ready)
        yield
    finally:
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            await process.communicate()


async def _listens(ready: str) -> None:
    host, port = ready.split(":")
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
