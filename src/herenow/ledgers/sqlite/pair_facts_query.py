"""What everybody who begins to look asks, as one statement in SQLite's own words: relations, blocks and preferences.

As four questions it takes three times as long. What makes the difference, measured for fifty people among 150 000 contacts
(150 µs before, 50 now):

- A range of a key is read in a third of the time that its rows take one by one, so whoever has few contacts for the number
  asked about gets all of them looked at (`:most`). Only where the one stands first: the others are not in this order.
- Which of two ids is the lesser one Python knows, and a contact stands there once, so half of the look-ups are not made.
- Where the one follows nobody, or blocks nobody, no follow and no block of theirs is looked for. Who blocks *them* is
  looked for whether or not there is anybody: how long an answer takes must not tell them.
- Nearly all contacts have no end: they are ids in a list, and those that have one stand beside them.
- A statement gives up the interpreter lock at each of its steps, and has one: it answers with one row.

The joins are CROSS JOINs, which SQLite takes in the order written: it cannot know that a batch is short, and would walk
through a table instead. The same answers as `sql.SqlLedger.pair_facts`; the tests compare them. Another database has no
reason to say it this way, for its statements cost their way to a server.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import Connection

from herenow.core.visibility import Preferences
from herenow.ledgers.sql import preferences_of
from herenow.ports import IN_CONTACT, MUTUAL, STRANGERS, BlockRow, Relation

WALK_FROM = 8
"""Contacts asked for, from which on a walk pays."""

WALK = 4
"""Times as many as are asked for: so far a walk takes no longer than looking for each."""

_CONTACTS = (
    "json_group_array(other) FILTER (WHERE until IS NULL), json_group_object(other, until) FILTER (WHERE until > :now)"
)

STATEMENT = f"""
SELECT walked.*, greater.*, lesser.*, mutual.*, met.*, decided.* FROM
  (SELECT count(*), {_CONTACTS} FROM
     (SELECT b AS other, until FROM contacts WHERE a = :one LIMIT :most)) AS walked,
  (SELECT {_CONTACTS} FROM
     (SELECT b AS other, until FROM json_each(:greater) AS each
      CROSS JOIN contacts ON a = :one AND b = each.value)) AS greater,
  (SELECT {_CONTACTS} FROM
     (SELECT a AS other, until FROM json_each(:lesser) AS each
      CROSS JOIN contacts ON a = each.value AND b = :one)) AS lesser,
  (SELECT json_group_array(forth.b)
   FROM json_each(CASE WHEN EXISTS (SELECT 1 FROM follows WHERE a = :one) THEN :followed END) AS each
   CROSS JOIN follows AS forth ON forth.a = :one AND forth.b = each.value
   CROSS JOIN follows AS back ON back.a = each.value AND back.b = :one) AS mutual,
  (SELECT json_group_array(json_array(blocker, blocked, at, blocker_seen, blocked_seen, lifted_at)) FROM
     (SELECT blocks.* FROM json_each(:others) AS each
      CROSS JOIN blocks ON blocker = each.value AND blocked = :one
      UNION ALL
      SELECT blocks.*
      FROM json_each(CASE WHEN EXISTS (SELECT 1 FROM blocks WHERE blocker = :one) THEN :others END) AS each
      CROSS JOIN blocks ON blocker = :one AND blocked = each.value)) AS met,
  (SELECT json_group_array(json_array(user, visibility, share_last_seen, public, hidden_at, hidden_last_seen))
   FROM json_each(:users) AS each CROSS JOIN preferences ON user = each.value
   WHERE coalesce(visibility, share_last_seen, public, hidden_at, hidden_last_seen) IS NOT NULL) AS decided
"""  # noqa: S608 - nothing in it comes from elsewhere

Found = tuple[Sequence[Relation], Sequence[BlockRow], dict[str, Preferences]]


def pair_facts(
    connection: Connection, one: str, others: Sequence[str], users: Iterable[str], now: int, *, related: bool
) -> Found:
    """Relations in the order asked (where they are), blocks, and the preferences of those users who decided something."""
    asked = sorted(set(others))  # in the order of the keys: neighbours share a page
    at = bisect_left(asked, one)
    lesser, greater = (asked[:at], asked[at:]) if related else ((), ())
    most = WALK * len(greater) if len(greater) >= WALK_FROM else 0
    variables: dict[str, object] = {
        "one": one,
        "now": now,
        "most": most,
        "greater": "[]" if most else _batch(greater),
        "lesser": _batch(lesser),
        "followed": _batch(asked) if related else None,
        "others": _batch(asked),
        "users": _batch(sorted(set(users))),
    }
    answer = _ask(connection, variables)
    if most and answer[0] == most:  # there are more: each is looked for
        answer = _ask(connection, {**variables, "most": 0, "greater": _batch(greater)})
    _, *contacts, mutual, blocks, preferences = answer
    return (
        _relations(others, contacts, mutual) if related else (),
        [BlockRow(*row) for row in _rows(blocks)],
        {row[0]: preferences_of(row) for row in _rows(preferences)},
    )


def _ask(connection: Connection, variables: dict[str, object]) -> tuple[Any, ...]:
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    answer: tuple[Any, ...] = driver.execute(STATEMENT, variables).fetchone()
    return answer


def _relations(others: Sequence[str], contacts: Sequence[str], mutual: str) -> list[Relation]:
    found: dict[str, Relation] = {}
    for endless, ending in zip(contacts[::2], contacts[1::2], strict=True):
        found.update(dict.fromkeys(_ids(endless), IN_CONTACT))
        for other, until in _ends(ending).items():
            found[other] = Relation(contact=True, contact_until=until)
    for other in _ids(mutual):
        contact = found.get(other)
        found[other] = MUTUAL if contact is None else replace(contact, mutual_follow=True)
    return [found.get(other, STRANGERS) for other in others]


def _batch(ids: Sequence[str]) -> str:
    return _encode(ids).decode() if ids else "[]"


_encode = msgspec.json.Encoder().encode
_ids = msgspec.json.Decoder(list[str]).decode
_ends = msgspec.json.Decoder(dict[str, int]).decode
_rows = msgspec.json.Decoder(list[list[Any]]).decode
