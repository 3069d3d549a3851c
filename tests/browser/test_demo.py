"""Two users, two browsers, one server: what each sees of the other."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from tests.browser.stage import MS, PHONE

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_visitor_of_the_demo_chooses_which_user_to_be(come):
    ana = await come("ana")
    tab = await ana.tab("")
    await expect(tab.at("#faces a")).to_have_text(["AAna", "BBo", "CChen", "DDara"])
    await tab.at("#faces a").first.click()
    await tab.is_connected()
    assert await tab.page.title() == "Ana · herenow"
    await tab.reads("#hint", "Open a second tab as Bo")
    async with ana.context.expect_page() as second:
        await tab.at("#hint a").click()
    bo = await second.value
    await expect(bo.locator("#my-name")).to_have_text("Bo", timeout=MS)
    await tab.sees("bo", "online")
    await expect(tab.at("#hint")).to_be_hidden(timeout=MS)


async def test_the_demo_shows_a_friend_connecting_busy_custom_status_hiding_and_sign_out(come):
    ana, bo = await (await come("ana")).tab(), await come("bo")
    await ana.sees("bo", "offline")
    bo = await bo.tab()
    await ana.sees("bo", "online")
    await bo.sees("ana", "online")

    await bo.choose("busy")
    await ana.sees("bo", "busy")
    await ana.reads_about("bo", "Do not disturb")

    await bo.at("#edit").click()
    await bo.at("#emojis button").nth(1).click()
    await bo.at("#mine-text").fill("<b>Noodles</b> & tea")
    await bo.at("#mine-save").click()
    await expect(bo.at("#mine")).to_be_hidden(timeout=MS)
    await ana.reads_about("bo", "🍜 <b>Noodles</b> & tea")

    record = await ana.record("bo")
    await bo.choose("invisible")
    await ana.sees("bo", "offline")
    await ana.reads_about("bo", "Last seen just now")
    await bo.reads("#my-line", "others see you offline")
    await expect(bo.at("#my-face green-dot")).to_have_attribute("status", "online", timeout=MS)
    await bo.choose("auto")
    await ana.sees("bo", "online")
    assert await record.looks() == ["busy", "offline", "online"]

    await bo.at("#leave").click()
    await ana.sees("bo", "offline")
    await bo.reads("#banner", "You are signed out")
    await bo.at("#banner-act").click()
    await bo.is_connected()
    await ana.sees("bo", "online")


async def test_a_demo_user_is_away_after_five_idle_minutes_and_online_after_moving_the_mouse(come):
    ana = await (await come("ana")).tab()
    bo = await (await come("bo")).tab(clock=True)
    await ana.sees("bo", "online")
    await bo.page.clock.fast_forward(301_000)
    await ana.sees("bo", "away")
    await bo.reads("#my-line", "Available, but away")
    await bo.page.mouse.move(100, 100)
    await ana.sees("bo", "online")


async def test_the_demo_shows_typing_only_in_the_addressed_conversation(come):
    ana, bo, chen = [await (await come(user)).tab() for user in ("ana", "bo", "chen")]
    await ana.sees("bo", "online")
    await chen.sees("bo", "online")
    await bo.sees("ana", "online")
    await bo.talk_to("ana")
    await bo.at("#text").press_sequentially("Hel")
    await bo.types(ana.row("bo"), "typing…")
    await ana.talk_to("bo")
    await bo.types(ana.at("#typing"), "Bo is typing")
    await bo.at("#text").press("Enter")
    await expect(ana.at("#typing-text")).to_be_empty(timeout=MS)
    await bo.reads("#messages", "Hel")
    await bo.talk_to("#lobby")
    await bo.types(chen.at("#typing"), "Bo is typing")
    await expect(chen.row("bo")).not_to_contain_text("typing")
    await bo.at("#text").fill("")
    await expect(chen.at("#typing-text")).to_be_empty(timeout=MS)


async def test_demo_chat_messages_pass_between_tabs_of_one_browser(come):
    one = await come("ana")
    ana, bo = await one.tab(), await one.tab("user=bo")
    await ana.sees("bo", "online")
    await bo.talk_to("ana")
    await bo.at("#text").fill("Coming along?")
    await bo.at("#text").press("Enter")
    await expect(ana.row("bo").locator(".unread")).to_have_text("1", timeout=MS)
    await ana.talk_to("bo")
    await ana.reads("#messages", "Coming along?")
    await expect(ana.row("bo").locator(".unread")).to_be_hidden()


async def test_a_block_in_the_demo_hides_both_users_from_each_other_until_it_is_lifted(come):
    ana, bo = [await (await come(user)).tab() for user in ("ana", "bo")]
    await ana.sees("bo", "online")
    await bo.sees("ana", "online")
    await ana.talk_to("bo")
    await ana.at("#block").click()
    await ana.reads_about("bo", "Blocked")
    await ana.sees("bo", "offline")
    await bo.sees("ana", "offline")
    await bo.reads_about("ana", "Last seen just now")
    await ana.page.reload()
    await ana.reads_about("bo", "Blocked")
    await ana.talk_to("bo")
    await ana.at("#block").click()
    await ana.sees("bo", "online")
    await bo.sees("ana", "online")


async def test_a_visibility_preference_saved_in_the_demo_takes_effect_at_once(come):
    ana, bo = [await (await come(user)).tab() for user in ("ana", "bo")]
    await bo.sees("ana", "online")
    await ana.at("#edit").click()
    await expect(ana.at("#mine-visibility")).to_be_enabled(timeout=MS)
    await ana.at("#mine-visibility").select_option("nobody")
    await ana.at("#mine-save").click()
    await bo.sees("ana", "offline")
    await ana.at("#edit").click()
    await expect(ana.at("#mine-visibility")).to_be_enabled(timeout=MS)
    await expect(ana.at("#mine-visibility")).to_have_value("nobody")
    await ana.at("#mine-visibility").select_option("contacts")
    await ana.at("#mine-save").click()
    await bo.sees("ana", "online")


async def test_closing_and_reopening_a_demo_tab_shows_friends_no_change(come):
    ana = await (await come("ana")).tab()
    person = await come("bo")
    bo = await person.tab()
    await ana.sees("bo", "online")
    record = await ana.record("bo")
    await bo.close()
    bo = await person.tab()
    await bo.is_connected()
    await bo.page.reload()
    await bo.is_connected()
    await bo.choose("busy")
    await ana.sees("bo", "busy")
    assert await record.looks() == ["online", "busy"]


async def test_two_demo_tabs_share_one_websocket_and_the_second_takes_over_when_the_first_closes(come):
    viewer = await (await come("bo")).tab()
    ana = await come("ana")
    one, two = await ana.tab(), await ana.tab()
    for tab in (one, two):
        await tab.is_connected()
        await tab.sees("bo", "online")
    assert len(ana.sockets) == 1
    await viewer.sees("ana", "online")
    record = await viewer.record("ana")
    await one.close()
    await two.choose("busy")
    await viewer.sees("ana", "busy")
    await two.sees("bo", "online")
    assert len(ana.sockets) == 2
    assert await record.looks() == ["online", "busy"]


async def test_the_demo_is_usable_with_the_keyboard_alone(come):
    ana, bo = [await (await come(user)).tab() for user in ("ana", "bo")]
    await ana.sees("bo", "online")
    await bo.sees("ana", "online")
    keys = ana.page.keyboard
    await ana.at("#modes [aria-checked=true]").focus()
    await keys.press("ArrowRight")
    await bo.sees("ana", "busy")
    await keys.press("ArrowLeft")
    await bo.sees("ana", "online")
    await keys.press("Tab")
    await expect(ana.row("#lobby")).to_be_focused()
    await keys.press("ArrowDown")
    await expect(ana.row("bo")).to_be_focused()
    await keys.press("Enter")
    await expect(ana.at("#text")).to_be_focused()
    await keys.type("Hi")
    await ana.types(bo.row("ana"), "typing…")
    await keys.press("Enter")
    await ana.reads("#messages", "Hi")
    await keys.press("Escape")
    await expect(ana.row("bo")).to_be_focused()
    await ana.at("#edit").focus()
    await keys.press("Enter")
    await expect(ana.at("#mine-text")).to_be_focused()
    await keys.type("Reading")
    await keys.press("Enter")
    await bo.reads_about("ana", "Reading")
    await ana.at("#edit").press("Enter")
    await keys.press("Escape")
    await expect(ana.at("#mine")).to_be_hidden()


async def test_the_demo_page_shows_one_pane_at_a_time_on_a_phone(come):
    bo = await (await come("bo")).tab()
    ana = await (await come("ana", **PHONE)).tab()
    await ana.sees("bo", "online")
    assert await ana.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    await expect(ana.at("#talk")).to_be_hidden()
    await ana.row("bo").tap()
    await expect(ana.at("#side")).to_be_hidden()
    await expect(ana.at("#text")).not_to_be_focused()
    await ana.reads("#title", "Bo")
    await bo.talk_to("ana")
    await bo.types(ana.at("#typing"), "Bo is typing")
    assert await ana.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    await ana.at("#back").tap()
    await expect(ana.at("#people")).to_be_visible()
    await ana.at("#edit").tap()
    await expect(ana.at("#mine-save")).to_be_in_viewport()


async def test_a_screen_reader_gets_roles_names_and_labels_of_the_demo_page(come):
    await (await come("bo")).tab()
    ana = await (await come("ana")).tab()
    await ana.sees("bo", "online")
    row = ana.page.get_by_role("button", name="Bo")
    await expect(row.get_by_role("img", name="online")).to_be_attached()
    await expect(ana.page.get_by_role("radio", name="Available")).to_be_checked()
    await expect(ana.page.get_by_role("log")).to_be_visible()
    await ana.page.get_by_role("button", name="Your status and who sees it").click()
    await expect(ana.page.get_by_role("dialog", name="Your status")).to_be_visible()
    for label in ("What are you up to?", "For how long?", "My presence is for", "Emoji"):
        await expect(ana.page.get_by_label(label, exact=True)).to_be_visible()
