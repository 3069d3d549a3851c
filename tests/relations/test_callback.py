"""The application is asked over real sockets. Whatever it does, an answer is right or a failure."""

import asyncio
import gzip
import json

import pytest
from structlog.testing import capture_logs
from tests.relations.application import SECRET, answer, application

from herenow.errors import Unavailable
from herenow.kit.retry import Backoff
from herenow.ports import Relation, SourceHealth
from herenow.relations.callback import CallbackRelations, Failed, signed_client
from herenow.relations.callback.questions import MOST_CONTACTS, MOST_PAIRS

NOW = 1_800_000_000_000
MUTUAL = Relation(mutual_follow=True)


@pytest.fixture
async def app():
    async with application() as app:
        yield app


@pytest.fixture
def health():
    return SourceHealth()


@pytest.fixture
async def source(app, health):
    source = CallbackRelations(app.url, SECRET, now=lambda: NOW, health=health)
    yield source
    await source.close()


@pytest.fixture
def hasty(monkeypatch):
    """A short deadline, so that tests of timeouts are fast."""
    monkeypatch.setattr("herenow.relations.callback.source.DEADLINE", 0.2)


# --- A correct application


async def test_relations_asked_from_the_application_are_returned_in_the_order_asked(app, source):
    app.relate("ana", "bo")
    app.contacts["ana", "cy"] = None
    app.contacts["ana", "dee"] = NOW + 1
    app.contacts["ana", "eve"] = NOW
    found = await source.between("ana", ["eve", "dee", "x", "cy", "bo", "bo", "ana"], NOW)
    assert found == [
        Relation(),  # it has ended
        Relation(contact=True, contact_until=NOW + 1),
        Relation(),
        Relation(contact=True),
        MUTUAL,
        MUTUAL,
        Relation(),
    ]


async def test_contact_lists_of_the_application_become_sorted_unique_and_without_the_user(app, source):
    app.lists["ana"] = ["cy", "bo", "cy", "ana", 7]
    assert await source.contacts("ana", NOW) == ["7", "bo", "cy"]


async def test_the_application_is_asked_whether_a_user_is_a_member_of_a_room(app, source):
    app.members.add(("r", "ana"))
    assert await source.is_member("r", "ana")
    assert not await source.is_member("r", "bo")


async def test_integer_user_ids_in_answers_of_the_application_become_strings(app, source):
    async def with_integers(writer, question):
        await answer(writer, {"pairs": [{"a": 2, "b": 10, "mutual_follow": True, "contact": False}]})

    app.behave = with_integers
    assert await source.between("2", ["10"], NOW) == [MUTUAL]


async def test_a_relations_request_to_the_application_is_signed_and_has_a_timestamp(app, source):
    await source.between("ana", ["bo"], NOW)
    assert app.headers[0]["herenow-timestamp"] == str(NOW // 1000)
    assert app.asked == [{"ask": "between", "pairs": [["ana", "bo"]]}]


async def test_a_relations_request_signed_with_a_wrong_secret_is_refused_by_the_application(app, health):
    stranger = CallbackRelations(app.url, SECRET + "!", now=lambda: NOW, health=health)
    with pytest.raises(Failed, match="relations_secret") as caught:
        await stranger.between("ana", ["bo"], NOW)
    assert caught.value.kind == "refused"
    await stranger.close()


# --- Batching


async def test_concurrent_questions_about_relations_go_to_the_application_in_one_request(app, source):
    app.relate("user-7", "ana")
    asks = [source.between(f"user-{n}", ["ana", "bo"], NOW) for n in range(100)]
    asks += [source.between("ana", [f"user-{n}"], NOW) for n in range(100)]
    found = await asyncio.gather(*asks)
    assert [n for n, facts in enumerate(found) if facts[0] == MUTUAL] == [7, 107]
    [question] = app.asked
    assert len(question["pairs"]) == 200  # a pair has one key, whichever side asks


async def test_a_question_about_very_many_relations_is_split_into_several_requests(app, source):
    targets = [f"user-{n}" for n in range(2 * MOST_PAIRS + 1)]
    app.relate("ana", targets[-1])
    found = await source.between("ana", targets, NOW)
    assert found.index(MUTUAL) == 2 * MOST_PAIRS
    assert sorted(len(question["pairs"]) for question in app.asked) == [1, MOST_PAIRS, MOST_PAIRS]


async def test_a_question_about_a_relation_does_not_reuse_the_answer_to_an_earlier_question(app, source):
    """first asks ─▶ the answer is computed ─▶ the relation ends ─▶ second asks ─▶ the first answer arrives"""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(writer, question):
        made = app.answer_to(question)
        arrived.set()
        await go_on.wait()
        await answer(writer, made)

    app.relate("ana", "bo")
    app.behave = slowly
    first = asyncio.create_task(source.between("ana", ["bo"], NOW))
    await arrived.wait()
    app.part("ana", "bo")
    app.behave = app.honest
    second = asyncio.create_task(source.between("ana", ["bo"], NOW))
    assert await second == [Relation()]
    go_on.set()
    assert await first == [MUTUAL]


async def test_a_cancelled_caller_does_not_cancel_a_relations_request_shared_with_others(app, source):
    app.relate("ana", "bo")
    impatient = asyncio.create_task(source.between("ana", ["bo"], NOW))
    patient = asyncio.create_task(source.between("bo", ["ana"], NOW))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == [MUTUAL]


async def test_the_number_of_concurrent_relations_requests_to_the_application_is_limited(app, source):
    under_way = most = 0

    async def counting(writer, question):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        await app.honest(writer, question)

    app.behave = counting
    await asyncio.gather(*(source.between("ana", [f"{n}-{m}" for m in range(MOST_PAIRS)], NOW) for n in range(20)))
    assert most == signed_client.AT_A_TIME


async def test_questions_about_relations_over_the_limit_of_waiting_ones_fail_at_once(app, source, monkeypatch):
    monkeypatch.setattr("herenow.relations.callback.source.MOST_WAITING", 10)
    with pytest.raises(Failed, match="wait"):
        await source.between("ana", [f"user-{n}" for n in range(11)], NOW)
    await asyncio.sleep(0.02)
    await source.between("ana", ["bo"], NOW)


# --- Wrong answers

PAIR = {"a": "ana", "b": "bo", "mutual_follow": True, "contact": False}
OTHER = {**PAIR, "b": "cy"}


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ([], "shape"),
        ({}, "shape"),
        (None, "shape"),
        ({"pairs": None}, "shape"),
        ({"pairs": [PAIR], "more": 1}, "shape"),
        ({"pairs": [{**PAIR, "mutual_follow": 1}]}, "shape"),
        ({"pairs": [{**PAIR, "mutual_follow": "true"}]}, "shape"),
        ({"pairs": [{**PAIR, "contact": None}]}, "shape"),
        ({"pairs": [{**PAIR, "contact_until": "tomorrow"}]}, "shape"),
        ({"pairs": [{**PAIR, "contact_until": True}]}, "shape"),
        ({"pairs": [{**PAIR, "contact_until": -1}]}, "shape"),
        ({"pairs": [{**PAIR, "contact_until": 1 << 63}]}, "shape"),
        ({"pairs": [{**PAIR, "mutual_folow": True}]}, "shape"),
        ({"pairs": [{"a": "ana", "b": "bo"}]}, "shape"),
        ({"pairs": [{**PAIR, "a": "a na"}]}, "shape"),
        ({"pairs": [{**PAIR, "a": 1.5}]}, "shape"),
        ({"pairs": []}, "mismatch"),
        ({"pairs": [OTHER]}, "mismatch"),
        ({"pairs": [PAIR, OTHER]}, "mismatch"),
        ({"pairs": [PAIR, {**PAIR, "mutual_follow": False}]}, "mismatch"),
        (b"", "not_json"),
        (b"<html>", "not_json"),
        (b'{"pairs": [', "not_json"),
        (b'{"pairs": [{"a": "\xff"}]}', "not_json"),
        (b"[" * 100_000, "shape"),
    ],
)
async def test_a_malformed_answer_of_the_application_or_one_about_other_users_counts_as_an_error(
    app, source, health, said, kind
):
    async def lie(writer, question):
        await answer(writer, said)

    app.behave = lie
    with pytest.raises(Failed) as caught:
        await source.between("ana", ["bo"], NOW)
    assert caught.value.kind == kind
    assert health.errors == {kind: 1}
    assert kind in (health.trouble or "")
    app.behave = app.honest
    assert await source.between("ana", ["bo"], NOW) == [Relation()]
    assert health.trouble is None


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"lists": []},
        {"lists": [{"user": "ana", "contacts": "bo"}]},
        {"lists": [{"user": "ana", "contacts": [None]}]},
        {"lists": [{"user": "ana", "contacts": ["b o"]}]},
        {"lists": [{"user": "ana", "contacts": [True]}]},
        {"lists": [{"user": "bo", "contacts": []}]},
        {"lists": [{"user": "ana", "contacts": []}, {"user": "bo", "contacts": []}]},
        {"lists": [{"user": "ana", "contacts": []}, {"user": "ana", "contacts": ["bo"]}]},
    ],
)
async def test_a_malformed_contact_list_of_the_application_counts_as_an_error(app, source, said):
    async def lie(writer, question):
        await answer(writer, said)

    app.behave = lie
    with pytest.raises(Failed, match="answer"):
        await source.contacts("ana", NOW)


async def test_a_contact_list_of_the_application_over_the_size_limit_counts_as_an_error(app, source):
    app.lists["ana"] = list(range(MOST_CONTACTS + 1))
    with pytest.raises(Failed, match="at most"):
        await source.contacts("ana", NOW)
    millions = b'{"lists":[{"user":"ana","contacts":[7' + b",7" * 2_500_000 + b"]}]}"

    async def boast(writer, question):
        await answer(writer, millions)

    app.behave = boast
    with pytest.raises(Failed) as caught:
        await source.contacts("ana", NOW)
    assert caught.value.kind == "too_large"


@pytest.mark.parametrize(
    "said",
    [
        {"members": []},
        {"members": [{"room": "r", "user": "bo", "member": True}]},
        {"members": [{"room": "r", "user": "ana", "member": "yes"}]},
    ],
)
async def test_a_missing_or_malformed_room_membership_answer_of_the_application_counts_as_an_error(app, source, said):
    async def lie(writer, question):
        await answer(writer, said)

    app.behave = lie
    with pytest.raises(Failed):
        await source.is_member("r", "ana")


async def test_a_too_long_contact_list_of_one_user_does_not_affect_other_users_of_the_same_request(app, source):
    app.lists["ana"] = list(range(MOST_CONTACTS + 1))
    app.lists["bo"] = ["cy"]
    users = ["ana", "bo", *(f"user-{n}" for n in range(48))]
    found = await asyncio.gather(*(source.contacts(user, NOW) for user in users), return_exceptions=True)
    assert isinstance(found[0], Failed)
    assert found[1:] == [["cy"], *([[]] * 48)]


# --- Failures


async def hang(writer, question):
    await asyncio.sleep(3600)


async def drip(writer, question):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def drip_headers(writer, question):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def break_off(writer, question):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
    await writer.drain()
    writer.transport.abort()


async def babble(writer, question):
    writer.write(b"\x00\x01\x02 this is not HTTP\r\n\r\n")
    await writer.drain()


async def redirect(writer, question):
    await answer(writer, {}, status=307, extra="location: http://127.0.0.1:9/elsewhere\r\n")


async def fail(writer, question):
    await answer(writer, {"pairs": [PAIR]}, status=500)


async def overloaded(writer, question):
    await answer(writer, {}, status=503)


async def huge(writer, question):
    await answer(writer, b" " * 10_000_000 + json.dumps({"pairs": [PAIR]}).encode())


async def huge_and_unannounced(writer, question):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(200):
        writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        await writer.drain()


async def bomb(writer, question):
    await answer(writer, BOMB, extra="content-encoding: gzip\r\n")


BOMB = gzip.compress(b" " * 5_000_000)


async def as_a_page(writer, question):
    await answer(writer, {"pairs": [PAIR]}, media="text/html")


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (hang, "timeout"),
        (drip, "timeout"),
        (drip_headers, "timeout"),
        (break_off, "unreachable"),
        (babble, "unreachable"),
        (redirect, "redirect"),
        (fail, "status"),
        (overloaded, "status"),
        (huge, "too_large"),
        (huge_and_unannounced, "too_large"),
        (bomb, "not_json"),
        (as_a_page, "not_json"),
    ],
)
async def test_a_failing_relations_request_grants_no_relation_and_its_kind_of_error_is_counted(
    app, source, health, monkeypatch, behaviour, kind
):
    if kind == "timeout":
        monkeypatch.setattr("herenow.relations.callback.source.DEADLINE", 0.2)
    app.behave = behaviour
    with pytest.raises(Unavailable) as caught:
        await source.between("ana", ["bo"], NOW)
    assert isinstance(caught.value, Failed)
    assert caught.value.kind == kind
    assert health.errors == {kind: 1}
    monkeypatch.undo()
    app.behave = app.honest
    app.relate("ana", "bo")
    assert await source.between("ana", ["bo"], NOW) == [MUTUAL]
    assert health.trouble is None


async def test_relations_requests_to_a_dead_application_are_paused_until_it_returns(app, source, health, monkeypatch):
    monkeypatch.setattr(signed_client, "PAUSES", Backoff(0.05))
    await source.between("ana", ["bo"], NOW)
    await app.die()
    while not health.errors["resting"]:
        with pytest.raises(Failed):
            await source.between("ana", ["bo"], NOW)
    assert health.errors["unreachable"] == signed_client.FAILURES
    await app.start()
    app.relate("ana", "bo")
    async with asyncio.timeout(30):
        while True:
            try:
                assert await source.between("ana", ["bo"], NOW) == [MUTUAL]
                break
            except Failed:
                await asyncio.sleep(0.01)
    assert health.trouble is None


async def test_relations_requests_to_the_application_are_paused_after_a_few_timeouts(app, source, health, hasty):
    app.behave = hang
    for _ in range(10):
        with pytest.raises(Failed):
            await source.between("ana", ["bo"], NOW)
    assert health.errors == {"timeout": signed_client.FAILURES, "resting": 10 - signed_client.FAILURES}
    assert len(app.asked) == signed_client.FAILURES


async def test_a_queued_relations_request_to_the_application_waits_at_most_until_its_deadline(
    app, source, health, hasty
):
    app.behave = hang
    asks = [source.between("ana", [f"{n}-{m}" for m in range(MOST_PAIRS)], NOW) for n in range(20)]
    found = await asyncio.gather(*asks, return_exceptions=True)
    assert all(isinstance(one, Failed) for one in found)
    # A slot may be passed on while all deadlines pass, but no request waits for a second one.
    assert len(app.asked) <= 2 * signed_client.AT_A_TIME
    assert health.errors["timeout"] + health.errors["busy"] + health.errors["resting"] == 20


async def test_a_keep_alive_connection_closed_by_the_application_does_not_count_as_an_error(app, source, health):
    async def and_close(writer, question):
        await app.honest(writer, question)
        writer.close()

    app.behave = and_close
    app.relate("ana", "bo")
    for _ in range(20):
        assert await source.between("ana", ["bo"], NOW) == [MUTUAL]
    assert not health.errors


# --- An id that makes it fail


async def test_a_user_id_that_makes_the_application_fail_does_not_affect_other_callers(app, source, health):
    app.poison = "drop-table"
    app.relate("user-1", "ana")
    good = [source.between(f"user-{n}", ["ana"], NOW) for n in range(900)]
    bad = source.between("mallory", ["drop-table"], NOW)
    *found, failure = await asyncio.gather(*good, bad, return_exceptions=True)
    assert found[1] == [MUTUAL]
    assert found.count([Relation()]) == 899
    assert isinstance(failure, Failed)


async def test_a_user_id_that_makes_the_application_fail_gives_none_and_other_ids_get_answers(app, source):
    app.poison = "drop-table"
    app.relate("ana", "bo")
    found = await source.between("ana", ["bo", "drop-table", "cy", "ana"], NOW)
    assert found == [MUTUAL, None, Relation(), Relation()]


async def test_an_application_that_always_fails_gets_few_relations_requests(app, source):
    app.behave = fail
    asks = [source.between("ana", [f"user-{n}" for n in range(500)], NOW) for _ in range(3)]
    assert all(isinstance(one, Failed) for one in await asyncio.gather(*asks, return_exceptions=True))
    before = len(app.asked)
    assert before < 60
    with pytest.raises(Failed):
        await source.between("ana", [f"user-{n}" for n in range(500)], NOW)
    assert len(app.asked) == before + 1


# --- Reporting


async def test_repeated_errors_of_the_application_are_counted_but_logged_once(app, source, health):
    app.behave = as_a_page
    with capture_logs() as lines:
        for n in range(50):
            with pytest.raises(Failed):
                await source.contacts(f"user-{n}", NOW)
    assert health.errors["not_json"] == 50
    assert [line["kind"] for line in lines] == ["not_json"]
    assert SECRET not in json.dumps(lines)


async def test_closing_the_relation_source_ends_a_pending_question_with_an_error(app, health):
    source = CallbackRelations(app.url, SECRET, now=lambda: NOW, health=health)
    app.behave = hang
    asking = asyncio.create_task(source.between("ana", ["bo"], NOW))
    while not app.asked:
        await asyncio.sleep(0.001)
    await source.close()
    with pytest.raises(Unavailable):
        await asking
