"""Relations that the application tells over HTTP: signed questions, many keys in one request.

It answers which pairs are related, the contacts of a user and who is in a room; as of now, nothing is cached. Every failure
is `Failed`, which is an `Unavailable`, and the caller then takes nobody to be related.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from herenow.kit.batcher import Answers, Batcher
from herenow.ports import Relation, SourceHealth
from herenow.relations.callback.failures import Failed
from herenow.relations.callback.questions import BETWEEN, CONTACTS, MEMBERS, Question, pair
from herenow.relations.callback.signed_client import DEADLINE, SignedClient

GATHER = 0.005
"""Seconds for which questions are gathered into one request."""

MOST_WAITING = 100_000
"""Keys of one kind that may wait for an answer; beyond them, the next question is refused at once."""

SPLITS = 24
"""How often a batch with a wrong answer is halved: one bad one among a thousand is found with twenty."""

Key = TypeVar("Key")
Fact = TypeVar("Fact")


class CallbackRelations:
    def __init__(
        self, url: str, secret: str, *, now: Callable[[], int], health: SourceHealth, silent: bool = False
    ) -> None:
        """`silent`: nothing is logged, for a caller who says it all."""
        self._client = SignedClient(url, secret, now=now, health=health, silent=silent)
        self._wrong_in_a_row = 0
        self._pairs = self._batcher(BETWEEN)
        self._contacts = self._batcher(CONTACTS)
        self._members = self._batcher(MEMBERS)

    def _batcher(self, question: Question[Key, Fact]) -> Batcher[Key, Fact]:
        work = partial(self._answers, question)
        return Batcher(work, "relations-callback", most=question.most, delay=GATHER)

    async def close(self) -> None:
        for batcher in (self._pairs, self._contacts, self._members):
            await batcher.close()
        await self._client.close()

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation | None]:
        facts = await _ask(self._pairs, (pair(viewer, target) for target in targets if target != viewer))
        return [_STRANGERS if target == viewer else _as_of(now, facts.get(pair(viewer, target))) for target in targets]

    async def contacts(self, user: str, now: int) -> list[str]:
        return (await _ask(self._contacts, [user]))[user]

    async def is_member(self, room: str, user: str) -> bool:
        return (await _ask(self._members, [(room, user)]))[room, user]

    async def _answers(self, question: Question[Key, Fact], keys: tuple[Key, ...]) -> Answers[Key, Fact]:
        """One of the keys may be what the application stumbles over (an id that it does not expect, sent by whoever
        likes): the others must not suffer. So a batch with a wrong answer is asked again in halves, a few times, unless
        the application has given nothing but wrong answers for a while."""
        deadline = asyncio.get_running_loop().time() + DEADLINE
        answers: dict[Key, Fact | Failed] = {}
        parts = [keys]
        splits = 0
        while parts:
            part = parts.pop()
            try:
                facts = await self._answer(question, part, deadline)
                answers.update(facts)
            except Failed as failed:
                if len(part) > 1 and splits < SPLITS and failed.may_be_about_one and self._often_right:
                    splits += 1
                    parts += [part[: len(part) // 2], part[len(part) // 2 :]]
                else:
                    answers.update(dict.fromkeys(part, failed))
        return answers

    @property
    def _often_right(self) -> bool:
        return self._wrong_in_a_row <= SPLITS

    async def _answer(self, question: Question[Key, Fact], keys: tuple[Key, ...], deadline: float) -> dict[Key, Fact]:
        try:
            payload = await self._client.ask(question.ask(keys), deadline)
            try:
                facts = question.read(payload, keys)
            except Failed as failed:
                raise self._client.failed(failed) from None
        except Failed as failed:
            self._wrong_in_a_row += failed.may_be_about_one
            raise
        self._wrong_in_a_row = 0
        self._client.understood()
        return facts


async def _ask(batcher: Batcher[Key, Fact], keys: Iterable[Key]) -> dict[Key, Fact]:
    """Keys that could not be answered are missing. Raises `Failed` when none could."""
    wanted = dict.fromkeys(keys)
    if batcher.waiting + len(wanted) > MOST_WAITING:
        raise Failed("busy", f"{batcher.waiting} questions wait for the application already.")
    facts: dict[Key, Fact] = {}
    failed: Exception | None = None
    for key, answer in (await batcher.ask_all(wanted)).items():
        if isinstance(answer, Exception):
            failed = answer
        else:
            facts[key] = answer
    if failed is None or facts:
        return facts
    if isinstance(failed, Failed):
        raise Failed(failed.kind, str(failed), away=failed.away)
    raise Failed("unreachable", "The node is stopping.")


def _as_of(now: int, relation: Relation | None) -> Relation | None:
    if relation is None:
        return None
    until = relation.contact_until
    return relation if until is None or until > now else Relation(relation.mutual_follow)


_STRANGERS = Relation()
