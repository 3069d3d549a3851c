"""The production page: its systemd unit starts a server, its nginx proxies it, and a browser uses both."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest
import yaml
from playwright.async_api import expect
from tests.browser.stage import MS
from tests.certificates import write_certificate
from tests.docs.nginx import nginx
from tests.docs.reader import Reader, needs
from tests.docs.site import Site
from tests.docs.snippets import ROOT, runs
from tests.docs.test_tutorial import OFFLINE
from tests.ports import free_port

from herenow.client import mint

pytestmark = pytest.mark.asyncio(loop_scope="module")
GUIDE = "docs/how-to/production.md"
PLACES = ("/etc/herenow", "/opt/herenow", "/var/lib/herenow", "/var/backups", "/var/log/nginx", "/etc/ssl")
SYSTEMCTL = """#!/bin/sh
echo "$@" >> {folder}/systemctl.log
"""
PAGE = """<!doctype html><green-dot user="ana"></green-dot><green-dot user="bo"></green-dot>
<script type="module">
  import { Herenow } from "/sdk/herenow.js";
  import { defineGreenDot } from "/sdk/green-dot.js";
  const token = () => fetch("/presence-token").then((answer) => answer.text());
  defineGreenDot(new Herenow("/ws/presence", { token }));
</script>"""


class Machine:
    """A machine set up as on the page, below a folder; `systemctl` only records calls, and the unit's command is run
    directly.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        reader.places = PLACES
        for place in (*PLACES, "/bin"):
            (reader.folder / place.removeprefix("/")).mkdir(parents=True, exist_ok=True)
        systemctl = reader.folder / "bin" / "systemctl"
        systemctl.write_text(SYSTEMCTL.format(folder=reader.folder))
        systemctl.chmod(0o755)
        reader.environment["PATH"] = f"{reader.folder}/bin:{reader.environment['PATH']}"
        (reader.folder / "herenow").symlink_to(ROOT)

    def asked_of_systemd(self) -> list[str]:
        log = self.reader.folder / "systemctl.log"
        asked = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return asked

    async def start(self, unit: str):
        """Runs the unit's command as systemd would."""
        service = read_unit(self.reader.here(unit))["Service"]
        credentials = self.reader.folder / "credentials"
        credentials.mkdir(exist_ok=True)
        for each in service["LoadCredential"]:
            name, source = each.split(":")
            shutil.copy(source, credentials / name)
        terminal = self.reader.terminal()
        for each in service["Environment"]:
            name, value = each.split("=", 1)
            terminal.environment[name] = value.replace("%d", str(credentials))
        terminal.folder = Path(service["WorkingDirectory"][0])
        command = service["ExecStart"][-1].replace("%d", str(credentials))
        await terminal.start(f"exec {command}", "ledger  ")
        return terminal


def read_unit(text: str) -> dict[str, dict[str, list[str]]]:
    """Parses a unit; keys may be repeated."""
    sections: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in filter(None, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        else:
            name, value = line.split("=", 1)
            sections.setdefault(section, {}).setdefault(name, []).append(value)
    return sections


@pytest.fixture
def machine(follow) -> Machine:
    needs("openssl", "sqlite3")
    return Machine(follow(8000, 9000, **OFFLINE))


@pytest.mark.usefixtures("with_nginx_at_hand")
@runs(GUIDE)
async def test_the_systemd_and_nginx_files_of_the_production_guide_work_on_one_machine(
    machine, tabs, browser, snippets
):
    reader = machine.reader
    root = reader.terminal()
    await root.run(snippets["install"])
    await root.run(snippets["secret"])
    secret_file = reader.folder / "etc/herenow/secret"
    secret = secret_file.read_text().strip()
    assert (secret_file.stat().st_mode & 0o777, len(secret) >= 32) == (0o600, True)
    reader.save("etc/herenow/herenow.toml", snippets["herenow.toml"])
    verify(reader.save("herenow.service", snippets["herenow.service"]))
    node = await machine.start(snippets["herenow.service"])
    assert str(reader.ports[8000]) in node.said
    await root.run("cd " + str(reader.folder))
    assert json.loads(await root.run(snippets["start"])) == {"status": "ready", "degraded": []}
    assert machine.asked_of_systemd() == ["daemon-reload", "enable --now herenow"]
    said = await root.run(
        f"HERENOW_SECRET_FILE={secret_file} /opt/herenow/bin/herenow doctor --config /etc/herenow/herenow.toml"
    )
    assert not re.search(r"^(?!ok )", said.strip(), re.MULTILINE), said

    await with_nginx(machine, browser, tabs, snippets, secret)
    await metrics_are_there(reader, yaml.safe_load(reader.here(snippets["prometheus.yml"])))

    # A backup, a mistake, and the restore.
    here = service(reader, secret)
    await here.put("/follows/ana/bo")
    await root.run(snippets["backup"])
    await here.delete("/follows/ana/bo")
    assert (await here.get("/follows/ana/bo")).status_code == 404
    stop, *rest, start = snippets["restore"].splitlines()
    await root.run(stop)
    await node.interrupt()
    await root.run("\n".join(rest))
    await root.run(start)
    node = await machine.start(snippets["herenow.service"])
    assert machine.asked_of_systemd() == ["stop herenow", "start herenow"]
    assert (await here.get("/follows/ana/bo")).status_code == 200

    install, restart, wait = snippets["upgrade"].splitlines()
    await root.run(install)
    await root.run(restart)
    await node.interrupt()
    await machine.start(snippets["herenow.service"])
    assert machine.asked_of_systemd() == ["restart herenow"]
    assert json.loads(await root.run(wait))["status"] == "ready"
    await here.aclose()


def service(reader: Reader, secret: str) -> httpx2.AsyncClient:
    token = mint(secret, "ops", service=True)
    return httpx2.AsyncClient(base_url=reader.url(8000) + "/api/v1", headers={"authorization": f"Bearer {token}"})


def verify(unit: Path) -> None:
    """Checks the unit with systemd, if it is installed."""
    if shutil.which("systemd-analyze") is None:
        return
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    about = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert not about, about
    assert done.returncode == 0, done.stderr


async def with_nginx(machine, browser, tabs, snippets, secret) -> None:
    reader = machine.reader
    write_certificate(reader.folder / "etc/ssl/app.example.org.pem")
    shutil.copy(reader.folder / "etc/ssl/app.example.org.pem", reader.folder / "etc/ssl/app.example.org.key")
    product = Site(secret)
    await product.start(reader.ports[9000])
    product.files["/"] = PAGE
    reader.ports[443] = port = free_port()
    listening = snippets["site.conf"].replace("listen 443", "listen 127.0.0.1:443")
    assert listening != snippets["site.conf"]
    site = reader.here(listening)
    here = service(reader, secret)
    for a, b in (("ana", "bo"), ("bo", "ana")):
        assert (await here.put(f"/follows/{a}/{b}")).status_code < 300
    async with nginx(reader.folder, snippets["nginx.conf"], site, f"127.0.0.1:{port}"):
        url = f"https://127.0.0.1:{port}"
        pages = []
        for user in ("ana", "bo"):
            context = await browser.new_context(ignore_https_errors=True)
            await context.add_cookies([{"name": "user", "value": user, "url": url}])
            pages.append(await context.new_page())
            await pages[-1].goto(url + "/")
        for page in pages:
            for user in ("ana", "bo"):
                dot = page.locator(f"green-dot[user={user}]")
                await expect(dot).to_have_attribute("status", "online", timeout=MS)
        for page in pages:
            await page.context.close()
        await only_these_paths(url, secret)
    log = (reader.folder / "var/log/nginx/presence.log").read_text()
    assert " /ws/presence 101 " in log
    assert "token=" not in log
    assert secret not in log
    await product.stop()
    await here.aclose()


async def only_these_paths(url: str, secret: str) -> None:
    token = mint(secret, "ana")
    async with httpx2.AsyncClient(base_url=url, verify=False) as http:
        for path in ("/metrics", "/docs", "/openapi.json", "/readyz"):
            assert (await http.get(path)).status_code == 404, path
        headers = {"authorization": f"Bearer {token}"}
        assert (await http.get("/api/v1/presence/me", headers=headers)).status_code == 200
        # Events of a stream arrive at once, not when a buffer is full.
        async with http.stream("GET", f"/api/v1/presence/stream?user_ids=bo&token={token}") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    break
        stranger = await http.get("/api/v1/presence/me", headers=headers | {"origin": "https://evil.example"})
        assert stranger.status_code == 403
        large = b'{"kind":"follow","a":"x","b":"y"}\n' * 35_000
        answer = await http.post("/api/v1/relations", content=large, headers=headers)
        assert answer.status_code == 403, "by herenow, for the token, and not by nginx for the size"


async def metrics_are_there(reader: Reader, config: dict) -> None:
    [target] = config["scrape_configs"][0]["static_configs"][0]["targets"]
    async with httpx2.AsyncClient() as http:
        metrics = (await http.get(f"http://{target}/metrics")).text
    page = (ROOT / GUIDE).read_text(encoding="utf-8")
    named = set(re.findall(r"\b((?:herenow|process)_[a-z_]+)\b", page[page.index("## Metrics") :]))
    assert len(named) > 6
    for name in named:
        assert re.search(rf"^# HELP {name} ", metrics, re.MULTILINE), name
