"""`herenow import` writes a graph into the ledger, in whole batches."""

import asyncio
from pathlib import Path

import pytest

from herenow.cli import import_graph
from herenow.ledgers import open_ledger

NOW = 1_790_000_000_000


def test_herenow_import_reads_relations_from_a_csv_file(herenow):
    Path("graph.csv").write_text(
        "kind,a,b,until\nfollow,ana,bob\nfollow,bob,ana\nroom,r1,ana\ncontact,ana,eva,1790000000001\n"
    )
    result = herenow("import", "graph.csv")
    assert result.exit_code == 0
    assert result.stdout == "Imported 4 rows; 4 of them were new.\n"
    assert contacts("ana") == ["bob", "eva"]
    assert member("r1", "ana")


def test_herenow_import_reads_relations_from_an_ndjson_file(herenow):
    Path("graph.ndjson").write_text('{"kind":"contact","a":"ana","b":7}\n\n')
    assert herenow("import", "graph.ndjson").exit_code == 0
    assert contacts("ana") == ["7"]


@pytest.mark.parametrize("text", ["contact,ana,bob\n", '{"kind":"contact","a":"ana","b":"bob"}\n'])
def test_herenow_import_recognises_csv_or_ndjson_on_standard_input_by_the_first_line(herenow, text):
    assert herenow("import", "-", stdin=text).exit_code == 0
    assert contacts("ana") == ["bob"]


@pytest.mark.parametrize(
    ("relations", "line", "said"),
    [
        ("open", "contact,ana,bob\n", "it stores no contacts"),
        ("http://127.0.0.1:1/", "follow,ana,bob\n", "come from the application"),
        ("http://127.0.0.1:1/", "room,r,bob\n", "this server stores no rooms"),
    ],
)
def test_herenow_import_refuses_relations_that_the_relations_setting_would_ignore(
    herenow, monkeypatch, relations, line, said
):
    monkeypatch.setenv("HERENOW_RELATIONS", relations)
    monkeypatch.setenv("HERENOW_RELATIONS_SECRET", "x" * 32)
    result = herenow("import", "-", stdin=line)
    assert result.exit_code == 1
    assert said in result.stderr
    assert contacts("ana") == []


def test_herenow_import_accepts_room_memberships_with_open_relations(herenow, monkeypatch):
    monkeypatch.setenv("HERENOW_RELATIONS", "open")
    assert herenow("import", "-", stdin="room,r,ana\n").exit_code == 0
    assert member("r", "ana")


def test_herenow_import_can_be_repeated_with_the_same_file(herenow):
    Path("graph.csv").write_text("contact,ana,bob\n")
    herenow("import", "graph.csv")
    assert herenow("import", "graph.csv").stdout == "Imported 1 rows; 0 of them were new.\n"


def test_herenow_import_accepts_an_empty_file(herenow):
    Path("graph.csv").write_text("")
    assert herenow("import", "graph.csv").stdout == "Imported 0 rows; 0 of them were new.\n"


def test_herenow_import_names_a_bad_line_and_writes_nothing_of_its_batch(herenow, monkeypatch):
    monkeypatch.setattr(import_graph, "BATCH", 2)
    Path("graph.csv").write_text("contact,ana,b1\ncontact,ana,b2\ncontact,ana,b3\nlikes,ana,b4\n")
    result = herenow("import", "graph.csv")
    assert result.exit_code == 1
    assert "Line 4: The kind is one of follow, contact, room." in result.stderr
    assert "2 rows before it were imported" in result.stderr
    assert contacts("ana") == ["b1", "b2"]


def test_herenow_import_of_a_missing_file_is_a_usage_error(herenow):
    assert herenow("import", "no.csv").exit_code == 2


def contacts(user):
    return ask(lambda ledger: ledger.contacts(user, NOW))


def member(room, user):
    return ask(lambda ledger: ledger.is_member(room, user))


def ask(question):
    async def opened():
        ledger = open_ledger("sqlite:///herenow.db")
        await ledger.open()
        try:
            return await question(ledger)
        finally:
            await ledger.close()

    return asyncio.run(opened())
