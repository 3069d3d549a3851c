"""The application itself says who is related: over HTTP, signed, many at a time.

Answers: facts about pairs, the contacts of a user, who is in a room; as of now, never from memory. Whatever goes wrong is
`Unavailable`, and whoever asked takes nobody to be related. The pieces: `questions` (what is said), `gathering` (together),
`messenger` (one request under limits), `rest` (a dead application is left alone), `reports` (what the operator hears).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from herenow.ports import Relation, SourceHealth
from herenow.relations.callback.batcher import Answers, Gathering
from herenow.relations.callback.failures import Failed
from herenow.relations.callback.questions import BETWEEN, CONTACTS, MEMBERS, Question, pair
from herenow.relations.callback.signed_client import DEADLINE, Messenger

SPLITS = 24
"""How often a batch with a wrong answer is halved: one bad one among a thousand is found with twenty."""

Key = TypeVar("Key")
Fact = TypeVar("Fact")


class CallbackRelations:
    def __init__(
        self, url: str, secret: str, *, now: Callable[[], int], health: SourceHealth, silent: bool = False
    ) -> None:
        """`silent`: nothing is logged, for a caller who says it all."""
        self._messenger = Messenger(url, secret, now=now, health=health, silent=silent)
        self._wrong_in_a_row = 0
        self._pairs = Gathering(BETWEEN.most, partial(self._answers, BETWEEN))
        self._contacts = Gathering(CONTACTS.most, partial(self._answers, CONTACTS))
        self._members = Gathering(MEMBERS.most, partial(self._answers, MEMBERS))

    async def close(self) -> None:
        for gathering in (self._pairs, self._contacts, self._members):
            await gathering.close()
        await self._messenger.close()

    async def between(self, viewer: str, targets: Sequence[str], now: int) -> list[Relation | None]:
        facts = await self._pairs.ask(pair(viewer, target) for target in targets if target != viewer)
        return [
            _STRANGERS if target == viewer else _as_of(now, facts.get(pair(viewer, target)))
            for target in targets
        ]

    async def contacts(self, user: str, now: int) -> list[str]:
        return (await self._contacts.ask([user]))[user]

    async def is_member(self, room: str, user: str) -> bool:
        return (await self._members.ask([(room, user)]))[room, user]

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

    async def _answer(
        self, question: Question[Key, Fact], keys: tuple[Key, ...], deadline: float
    ) -> dict[Key, Fact]:
        try:
            payload = await self._messenger.ask(question.ask(keys), deadline)
            try:
                facts = question.read(payload, keys)
            except Failed as failed:
                raise self._messenger.failed(failed) from None
        except Failed as failed:
            self._wrong_in_a_row += failed.may_be_about_one
            raise
        self._wrong_in_a_row = 0
        self._messenger.right()
        return facts


def _as_of(now: int, relation: Relation | None) -> Relation | None:
    if relation is None:
        return None
    until = relation.contact_until
    return relation if until is None or until > now else Relation(relation.mutual_follow)


_STRANGERS = Relation()
