"""Relations from the application over HTTP: signed requests with many keys each.

Answers which pairs are related, the contacts of a user, and whether a user is in a room. Nothing is cached. Every failure
is `Failed`, an `Unavailable`; the caller then treats the users as unrelated.
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

GATHER = 0.005  # seconds for which keys are collected into one request
MOST_WAITING = 100_000  # keys of one kind that may wait for an answer; beyond that, calls fail at once
SPLITS = 24  # maximum number of splits of a batch with an invalid response: 10 isolate one bad key among a thousand

Key = TypeVar("Key")
Fact = TypeVar("Fact")


class CallbackRelations:
    def __init__(
        self, url: str, secret: str, *, now: Callable[[], int], health: SourceHealth, silent: bool = False
    ) -> None:
        """Ask the application at `url`, with requests signed by `secret`. `now` returns epoch milliseconds. Failures
        are counted in `health`. `silent`: log nothing, for a caller that reports failures itself."""
        self._client = SignedClient(url, secret, now=now, health=health, silent=silent)
        self._invalid_in_a_row = 0
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
        """Ask the application for one batch of keys, and return the answer to each, or its failure. A single key may
        make the application fail, such as an id of unexpected form that any client can send. To get the other keys
        answered, a batch with an invalid response is split and sent again, up to `SPLITS` times, unless the last
        responses were all invalid."""
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
                if len(part) > 1 and splits < SPLITS and failed.may_be_about_one and self._may_split:
                    splits += 1
                    parts += [part[: len(part) // 2], part[len(part) // 2 :]]
                else:
                    answers.update(dict.fromkeys(part, failed))
        return answers

    @property
    def _may_split(self) -> bool:
        return self._invalid_in_a_row <= SPLITS

    async def _answer(self, question: Question[Key, Fact], keys: tuple[Key, ...], deadline: float) -> dict[Key, Fact]:
        try:
            payload = await self._client.ask(question.ask(keys), deadline)
            try:
                facts = question.read(payload, keys)
            except Failed as failed:
                raise self._client.failed(failed) from None
        except Failed as failed:
            self._invalid_in_a_row += failed.may_be_about_one
            raise
        self._invalid_in_a_row = 0
        self._client.understood()
        return facts


async def _ask(batcher: Batcher[Key, Fact], keys: Iterable[Key]) -> dict[Key, Fact]:
    """Ask for these keys, and return the answers; a key that failed is missing. Raises `Failed` if all have failed, or
    if too many keys are waiting."""
    wanted = dict.fromkeys(keys)
    if batcher.waiting + len(wanted) > MOST_WAITING:
        raise Failed("busy", f"{batcher.waiting} requests wait for the application already.")
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
