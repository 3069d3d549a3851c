"""The README of the JavaScript SDK in a browser; the React part is bundled as in an application."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from playwright.async_api import Page, expect
from tests.browser.stage import MS
from tests.clients.test_javascript import FOLDER, node
from tests.docs.reader import Reader
from tests.docs.snippets import runs
from tests.processes import token

__all__ = ["node"]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("javascript")]
SDK = "clients/js/README.md"

ALIASES = ["herenow", "herenow/rest", "herenow/green-dot"]
REACT = """
import { createRoot } from "react-dom/client";
import { createElement } from "react";
import { Herenow } from "herenow";
import { %(name)s } from "%(path)s";
import { HerenowProvider } from "herenow/react";
const here = new Herenow("%(url)s", { token: () => fetch("/presence-token").then((answer) => answer.text()) });
globalThis.here = here;
createRoot(document.getElementById("root")).render(%(render)s);
"""


def modules(reader: Reader) -> str:
    """An import map, as a bundler resolves the package names."""
    files = {"herenow": "herenow.js", "herenow/rest": "rest.js", "herenow/green-dot": "green-dot.js"}
    imports = {name: f"{reader.server.url}/sdk/{file}" for name, file in files.items()}
    return f'<script type="importmap">{json.dumps({"imports": imports})}</script>'


def at_home(reader: Reader, text: str) -> str:
    return text.replace("wss://here.example", reader.server.url.replace("http", "ws", 1)).replace(
        "https://here.example", reader.server.url
    )


@runs(SDK, "herenow", "value", "rest", "dots")
async def test_the_code_blocks_without_react_of_the_javascript_readme_work(reader, site, tabs, snippets):
    await reader.server.befriend("ana", "bo", "me")
    script = at_home(reader, snippets["herenow"]) + "\nglobalThis.here = here;\n"
    notes = "<script>painted = []; paint = (now) => painted.push(now); bubble = () => {};</script>"
    site.files["/"] = f'<!doctype html>{modules(reader)}{notes}<script type="module">{script}</script>'
    page = await tabs.show(site, "me")
    await page.wait_for_function("painted.length >= 2")
    await page.wait_for_function("here.me.get()?.mode === 'auto' && here.me.get().custom?.text === 'In a meeting'")
    value = await page.evaluate("here.get('ana')")
    shown = re.sub(r"\{[^{}]*\}", "", snippets["value"].strip()[1:-1])
    needed = set(re.findall(r"(\w+):", shown))
    optional = set(re.findall(r"(\w+)\?:", shown))
    assert set(value) - optional == needed, (value, needed)

    rest = at_home(reader, snippets["rest"])
    site.files["/rest"] = (
        f"<!doctype html>{modules(reader)}<script type='module'>const token = {json.dumps(token('me'))};\n"
        + rest.replace('import { Rest } from "herenow/rest";', "")
        + "document.title = 'done';</script>"
    ).replace("<script type='module'>", "<script type='module'>import { Rest } from 'herenow/rest';")
    assert 'import { Rest } from "herenow/rest";' in rest
    page = await tabs.show(site, "me", "/rest")
    await expect(page).to_have_title("done", timeout=MS)
    assert (await reader.server.rest("GET", "/blocks", "me", service=False)) == {"blocked": ["bo"]}

    page = await tabs.put(reader, snippets["dots"], "me")
    await expect(page.locator("green-dot")).to_have_attribute("status", "offline", timeout=MS)


def bundle(found: str, folder: Path, reader: Reader, block: str, name: str, render: str) -> str:
    (folder / "block.jsx").write_text(block)
    url = reader.server.url.replace("http", "ws", 1) + "/ws/presence"
    entry = REACT % {"name": name, "path": str(folder / "block.jsx"), "url": url, "render": render}
    (folder / "main.jsx").write_text(entry)
    done = subprocess.run(
        [found, "--input-type=module", "-"],
        input=f"""
import {{ build }} from {json.dumps((FOLDER / "node_modules/esbuild/lib/main.js").as_uri())};
await build({{ entryPoints: [{json.dumps(str(folder / "main.jsx"))}], bundle: true, format: "esm", jsx: "automatic",
  outfile: {json.dumps(str(folder / "out.js"))}, nodePaths: [{json.dumps(str(FOLDER / "node_modules"))}],
  alias: {json.dumps({"herenow": f"{FOLDER}/src/index.ts", "herenow/react": f"{FOLDER}/src/react.ts"})},
  define: {{ "process.env.NODE_ENV": '"development"' }} }});
""",
        text=True,
        capture_output=True,
        cwd=FOLDER,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "out.js").read_text()


async def application(site, tabs, script, user):
    site.files["/app.js"] = script
    site.files["/"] = '<!doctype html><div id="root"></div><script type="module" src="/app.js"></script>'
    return await tabs.show(site, user)


@runs(SDK, "react")
async def test_the_react_code_block_of_the_javascript_readme_works(node, reader, site, tabs, snippets, tmp_path):
    await reader.server.befriend("ana", "bo", "me")
    for user in ("ana", "me"):
        await reader.server.rest("PUT", f"/rooms/lobby/members/{user}")
    script = bundle(node, tmp_path, reader, snippets["react"], "App", "createElement(App, { here })")
    me = await application(site, tabs, script, "me")
    await expect(me.locator("main")).to_have_attribute("data-phase", "connected", timeout=MS)
    await expect(me.locator("#team")).to_have_text("offline offline", timeout=MS)
    ana = await tabs.show(site, "ana")
    await expect(me.locator("#ana")).to_have_text("online", timeout=MS)
    await expect(me.locator("#team")).to_have_text("online offline", timeout=MS)
    await ana.get_by_role("button", name="auto").click()
    await expect(me.locator("#ana")).to_have_text("busy", timeout=MS)
    await ana.get_by_role("button", name="In a meeting").click()
    await ana.get_by_role("button", name="busy").click()
    await expect(me.locator("#ana")).to_have_text("online", timeout=MS)
    await typed(ana, me, "ana")


@runs("docs/how-to/rooms-and-typing.md", "room.jsx")
async def test_the_react_code_block_for_rooms_of_the_javascript_readme_works(
    node, reader, site, tabs, snippets, tmp_path
):
    await reader.server.befriend("ana", "me")
    for user in ("ana", "me"):
        await reader.server.rest("PUT", f"/rooms/team/members/{user}")
    render = 'createElement(HerenowProvider, { client: here }, createElement(Room, { room: "team" }))'
    script = bundle(node, tmp_path, reader, snippets["room.jsx"], "Room", render)
    ana, me = [await application(site, tabs, script, user) for user in ("ana", "me")]
    await typed(ana, me, "ana typing…")


async def typed(by: Page, seen: Page, text: str) -> None:
    for _ in range(int(MS / 100)):
        await by.locator("input").press("x")
        if text in (await seen.locator("p").last.text_content() or ""):
            return
        await by.wait_for_timeout(100)
    raise AssertionError(f"{text!r} was never shown")
