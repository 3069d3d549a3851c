"""The Django pages, applied to a project: tokens, signing out, synchronised follows, rendered statuses."""

from __future__ import annotations

import httpx2
import pytest
from playwright.async_api import Page, expect
from tests.browser.stage import MS
from tests.docs import django_project
from tests.docs.reader import Reader
from tests.docs.snippets import Snippets, blocks, runs
from tests.processes import SECRET, Server, token

pytestmark = pytest.mark.asyncio(loop_scope="module")

DJANGO = "docs/how-to/django.md"
FOLLOWS = "docs/how-to/follows-in-step.md"
RENDERED = "docs/how-to/server-side-rendering.md"


@pytest.fixture
def project(reader: Reader) -> Reader:
    """A reader with a Django project in the folder."""
    django_project.begin(reader)
    return reader


def take(reader: Reader, snippets: Snippets, *names: str) -> None:
    for name in names:
        if name == "settings.py":
            reader.save(name, snippets[name] + django_project.SETTINGS)
        else:
            reader.save(name, snippets[name])


def as_on(page: str, *names: str) -> dict[str, str]:
    """Blocks of another page that this one builds on."""
    return {block.name: block for block in blocks(page) if block.name in names}


async def runserver(reader: Reader) -> None:
    await reader.terminal().start("python manage.py runserver --noreload 9000", "Quit the server")


async def dot(page: Page, user: int, status: str, *, stale: bool = False) -> None:
    wanted = f"green-dot[user='{user}'][status={status}]" + ("[stale]" if stale else ":not([stale])")
    await expect(page.locator(wanted)).to_be_attached(timeout=MS)


@runs(DJANGO)
async def test_the_code_of_the_django_guide_gives_tokens_from_a_view(project, tabs, snippets):
    reader = project
    take(reader, snippets, "settings.py", "presence/views.py", "urls.py", "templates/base.html")
    take(reader, snippets, "presence/signing_out.py", "presence/apps.py")
    reader.save("templates/authors.html", django_project.AUTHORS % snippets["dot"])
    await django_project.migrate(reader)
    made = await django_project.shell(reader, "print(*(User.objects.create_user(name).pk for name in ('ana', 'bo')))")
    ana, bo = map(int, made.split())
    await reader.server.befriend(str(ana), str(bo))
    await runserver(reader)

    # No user is signed in: no token, no connection, no errors.
    stranger = await tabs.open(reader.url(9000) + "/")
    await dot(stranger, bo, "unknown")
    async with httpx2.AsyncClient(base_url=reader.url(9000)) as http:
        answer = await http.get("/presence-token")
        assert (answer.status_code, answer.text) == (204, "")
        assert "no-store" in answer.headers["cache-control"]

    seen_by_ana = await tabs.open(reader.url(9000) + "/in/ana")
    await seen_by_ana.goto(reader.url(9000) + "/")
    await dot(seen_by_ana, ana, "online")
    await dot(seen_by_ana, bo, "offline")
    at_bo = await tabs.open(reader.url(9000) + "/in/bo")
    await at_bo.goto(reader.url(9000) + "/")
    await dot(at_bo, ana, "online")
    await dot(seen_by_ana, bo, "online")
    async with httpx2.AsyncClient(base_url=reader.url(9000), cookies=await jar(at_bo)) as http:
        before = (await http.get("/presence-token")).text
    await at_bo.evaluate("fetch('/out')")
    await dot(seen_by_ana, bo, "offline")  # long before the grace of this server ends
    await dot(at_bo, ana, "online", stale=True)
    async with httpx2.AsyncClient(base_url=reader.url(8000)) as http:
        answer = await http.get("/api/v1/presence/me", headers={"authorization": f"Bearer {before}"})
        assert answer.json()["code"] == "token_revoked"

    made_by_hand: dict[str, object] = {"secret": SECRET}
    exec(snippets["pyjwt"], made_by_hand)
    async with httpx2.AsyncClient(base_url=reader.url(8000)) as http:
        headers = {"authorization": f"Bearer {made_by_hand['token']}"}
        assert (await http.get("/api/v1/presence/me", headers=headers)).status_code == 200


async def jar(page: Page) -> dict[str, str]:
    return {each["name"]: each["value"] for each in await page.context.cookies()}


@runs(FOLLOWS)
async def test_the_code_of_the_follows_guide_synchronises_follows_after_an_outage_of_herenow(project, snippets):
    reader = project
    for name, text in as_on(DJANGO, "settings.py").items():
        reader.save(name, text + django_project.SETTINGS)
    take(reader, snippets, *(name for name in snippets if name != "all"))
    await django_project.migrate(reader)

    async def act(code: str) -> None:
        await django_project.shell(reader, "from presence.models import Follow, Untold\n" + code)

    async def follows(a: int, b: int) -> bool:
        headers = {"authorization": f"Bearer {token('ops', 'service')}"}
        async with httpx2.AsyncClient(base_url=reader.url(8000)) as http:
            answer = await http.get(f"/api/v1/follows/{a}/{b}", headers=headers)
        return answer.status_code != 404

    await act(
        "for name in ('ana', 'bo', 'chen'): User.objects.create_user(name)\n"
        "Follow.objects.create(follower_id=1, followed_id=2)\n"
        "Follow.objects.create(follower_id=2, followed_id=1)\n"
    )
    assert await follows(1, 2)
    assert await follows(2, 1)
    await act("Follow.objects.get(follower_id=1).delete()\nassert not Untold.objects.exists()")
    assert not await follows(1, 2)

    # A rolled-back change is not reported.
    await act(
        "from django.db import transaction\n"
        "try:\n"
        "    with transaction.atomic():\n"
        "        Follow.objects.create(follower_id=1, followed_id=3)\n"
        "        raise LookupError\n"
        "except LookupError: pass\n"
        "assert not Untold.objects.exists()"
    )
    assert not await follows(1, 3)

    # herenow is away: the application works, and no change is lost.
    await reader.server.stop()
    await act(
        "Follow.objects.create(follower_id=1, followed_id=3)\n"
        "Follow.objects.filter(follower_id=2).delete()\n"
        "assert Untold.objects.count() == 2"
    )
    terminal = reader.terminal()
    with pytest.raises(AssertionError, match="herenow does not listen"):
        await terminal.run("python manage.py tell_herenow")
    await reader.server.start()
    await terminal.run("python manage.py tell_herenow")
    assert await follows(1, 3)
    assert not await follows(2, 1)

    # An account is deleted.
    await reader.server.rest("POST", "/presence/heartbeat", "3", service=False, device_id="phone")
    await act("User.objects.get(pk=3).delete()\nassert not Untold.objects.exists()")
    assert not await follows(1, 3)
    assert (await reader.server.rest("GET", "/presence/3"))["last_seen"] is None

    # A new herenow receives all relations.
    await act(
        "Follow.objects.bulk_create([Follow(follower_id=1, followed_id=2), Follow(follower_id=2, followed_id=1)])"
    )
    assert not await follows(1, 2)
    await terminal.run(snippets["all"])
    assert await follows(1, 2)
    assert await follows(2, 1)


@runs(RENDERED)
async def test_the_server_rendered_page_of_the_django_guide_shows_only_what_its_reader_may_see(project, tabs, snippets):
    reader = project
    for name, text in as_on(DJANGO, "settings.py", "presence/views.py", "templates/base.html").items():
        reader.save(name, text + (django_project.SETTINGS if name == "settings.py" else ""))
    take(reader, snippets, "presence/team.py", "templates/team.html")
    reader.save(
        "urls.py",
        "from django.urls import path\nfrom presence import team, views\n"
        "urlpatterns = [path('team', team.team), path('presence-token', views.presence_token)]\n",
    )
    await django_project.migrate(reader)
    await django_project.shell(reader, "for name in ('ana', 'bo', 'chen', 'dara'): User.objects.create_user(name)")
    server: Server = reader.server
    await server.befriend("1", "2", "3")
    for beating in ("2", "3", "4"):
        await server.rest("POST", "/presence/heartbeat", beating, service=False, device_id="phone")
    await server.rest("PUT", "/users/2/mode", mode="busy")
    await server.rest("PUT", "/users/3/mode", mode="invisible")
    await runserver(reader)

    terminal = reader.terminal()
    assert [status in await terminal.run(snippets["curl"]) for status in ("busy", "online")] == [True, False]

    page = await tabs.open(reader.url(9000) + "/in/ana")
    raw = await page.request.get(reader.url(9000) + "/team")
    wanted = [(2, "busy"), (3, "offline"), (4, "offline")]  # Chen hides, Dara is a stranger
    for user, status in wanted:
        assert f'<green-dot user="{user}" status="{status}"></green-dot>' in await raw.text()
    await page.goto(reader.url(9000) + "/team")
    await dot(page, 1, "online")
    for user, status in wanted:
        await dot(page, user, status)
    await server.rest("PUT", "/users/2/mode", mode="auto")
    await dot(page, 2, "online")

    # Without herenow the page still renders.
    await server.stop()
    raw = await page.request.get(reader.url(9000) + "/team")
    assert '<green-dot user="2" status="unknown"></green-dot>' in await raw.text()
