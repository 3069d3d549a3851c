"""SQLite's single statement returns the same as the four queries of any SQL ledger."""

import random

import pytest

from herenow.core.visibility import PreferencesEdit, Visibility
from herenow.ledgers.sql import SqlLedger
from herenow.ledgers.sqlite import SqliteLedger
from herenow.ledgers.sqlite.pair_facts_query import WALK, WALK_FROM
from herenow.ports import BlockRow, RelationRow
from herenow_testing.contracts.ledger import NOW, contact, follow, mutual, room

PEOPLE = [f"user{number:03}" for number in range(60)] + ["", "'", '"', "é", "Z", "\U0001f600", "a\nb"]


@pytest.fixture
async def ledger():
    ledger = SqliteLedger(None)
    await ledger.open()
    yield ledger
    await ledger.close()


@pytest.mark.parametrize("seed", range(5))
async def test_one_sqlite_query_for_relations_rooms_blocks_and_preferences_equals_four_separate_queries(ledger, seed):
    dice = random.Random(seed)
    await fill(ledger, dice)
    for _ in range(100):
        one, *others = dice.sample(PEOPLE, dice.randint(1, len(PEOPLE)))
        others += dice.choices(others, k=2) if others else []  # a user asked for twice is answered twice
        await compare(ledger, one, others, related=dice.random() < 0.8, rooms=dice.random() < 0.5)


async def test_sqlite_finds_all_relations_of_a_user_with_very_many_contacts(ledger):
    everybody = [f"user{number:05}" for number in range(WALK * WALK_FROM * 3)]
    await ledger.apply([contact("ana", user, NOW + (n % 3) if n % 2 else None) for n, user in enumerate(everybody)])
    for some in (everybody[-WALK_FROM:], everybody[::7], everybody, ["nobody", *everybody[:WALK_FROM]]):
        await compare(ledger, "ana", some, related=True, rooms=False)


@pytest.mark.parametrize("more", [-1, 0, 1])
async def test_sqlite_finds_all_relations_at_the_number_of_contacts_where_its_way_of_searching_changes(ledger, more):
    everybody = [f"user{number:05}" for number in range(WALK * WALK_FROM + more)]
    await ledger.apply([contact("ana", user) for user in everybody])
    await compare(ledger, "ana", everybody[-WALK_FROM:], related=True, rooms=False)
    assert all(relation.contact for relation in await ledger.between("ana", everybody, NOW))


async def fill(ledger, dice):
    rows: list[RelationRow] = []
    for _ in range(400):
        a, b = dice.sample(PEOPLE, 2)
        ends = [contact(a, b), contact(a, b, NOW + dice.randint(-2, 2))]
        rows += dice.choice([[follow(a, b)], mutual(a, b), ends[:1], ends[1:]])
        rows.append(room(f"room{dice.randint(0, 30)}", a))
    await ledger.apply(rows)
    for _ in range(40):
        a, b = dice.sample(PEOPLE, 2)
        seen = dice.choice([None, 1]), dice.choice([None, 2])
        await ledger.block(BlockRow(a, b, NOW, *seen))
    for user in dice.sample(PEOPLE, 20):
        edit = PreferencesEdit(visibility=dice.choice([None, *Visibility]), share_last_seen=dice.choice([None, False]))
        await ledger.set_preferences(user, edit, NOW, dice.choice([None, 5]))


async def compare(ledger, one, others, *, related, rooms):
    users = [one, *others]
    found = await ledger.pair_facts(one, others, users, NOW, related=related, rooms=rooms)
    known = await SqlLedger.pair_facts(ledger, one, others, users, NOW, related=related, rooms=rooms)
    assert list(found.relations) == list(known.relations)
    assert set(found.blocks) == set(known.blocks)
    assert len(found.blocks) == len(known.blocks)
    assert set(found.mates) == set(known.mates)
    assert dict(found.preferences) == dict(known.preferences)
