"""Computes and commits the next records of all users of one shard for which a decision was requested in the same event loop
iteration, with one task and one commit. A user that needs more than one plain commit continues in a task of its own."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from herenow.errors import HerenowError
from herenow.node.authority import Authority
from herenow.node.delivery import Delivery
from herenow.node.people import Person
from herenow.node.records.decision import Decision, answers_caller
from herenow.node.records.steps import DecisionSteps
from herenow.node.records.writer import Writer
from herenow.ports import Conflict

log = structlog.get_logger(__name__)

LostRace = tuple[Decision, Conflict]  # a decision, and the conflict that its commit met


class SingleDecider(Protocol):
    """Decides and commits the record of one user at a time; implemented by `Decider`."""

    async def decide_one(self, person: Person, lost: LostRace | None = None) -> bool: ...
    def spawn_single(self, person: Person, lost: LostRace | None = None) -> asyncio.Task[bool]: ...
    async def handle_failure(self, people: list[Person], error: Exception) -> None: ...
    def finish(self, person: Person) -> None: ...
    def wait(self, person: Person) -> None: ...


class BatchDecider:
    def __init__(
        self, single: SingleDecider, steps: DecisionSteps, writer: Writer, delivery: Delivery, authority: Authority
    ) -> None:
        self._single = single
        self._steps = steps
        self._writer = writer
        self._delivery = delivery
        self._authority = authority

    async def decide_all(self, shard: int, people: list[Person]) -> bool:
        """Decide and commit the next records of these users of one shard, and wait also for users that need a task of
        their own. Returns True if all succeeded."""
        done, alone = await self.decide(shard, people)
        for task in alone:
            done = await task and done
        return done

    async def decide(self, shard: int, people: list[Person]) -> tuple[bool, list[asyncio.Task[bool]]]:
        """Compute the next records of these users of one shard, and write them with one commit. Returns False if that
        failed or must wait, and the running tasks of users that have to be decided one by one."""
        unfinished = dict.fromkeys(people)
        alone: list[asyncio.Task[bool]] = []
        try:
            if not self._authority.may_decide(shard):
                for person in people:
                    self._single.wait(person)
                return False, alone
            plain: list[Decision] = []
            for person in people:
                decision = self._try_batch(person)
                if decision is None and len(people) == 1:
                    # The usual case when a user connects: no other task is needed.
                    del unfinished[person]
                    person.record.dirty = True
                    return await self._single.decide_one(person), alone
                if decision is not None and decision.changes_record:
                    plain.append(decision)
                    continue
                del unfinished[person]
                alone += [self._single.spawn_single(person)] if decision is None else self._finish_batch(decision)
            done = not plain or await self._commit(shard, plain, unfinished, alone)
            return done, alone
        finally:
            for person in unfinished:
                person.record.committing = None
                self._single.finish(person)

    def _try_batch(self, person: Person) -> Decision | None:
        """Compute the user's next record without I/O, and prepare the write if the record changes. Returns None if this
        user must be decided alone, for example because the record is not known yet."""
        if not person.record.known or person.record.guessed:
            return None
        try:
            decision = self._steps.decide(person)
            outcome = decision.outcome
            if outcome.signed_out or outcome.refused:
                return None
            if decision.changes_record:
                self._steps.prepare(decision)
            elif answers_caller(outcome, decision.edits):
                return None
        except Exception:  # noqa: BLE001 - reported by the task that tries it alone
            return None
        return decision

    async def _commit(
        self, shard: int, plain: list[Decision], unfinished: dict[Person, None], alone: list[asyncio.Task[bool]]
    ) -> bool:
        try:
            results = await self._writer.commit(shard, tuple([decision.write for decision in plain]), plain[0].epoch)
        except HerenowError as error:
            people = [decision.person for decision in plain]
            for person in people:
                person.record.committing = None
            await self._single.handle_failure(people, error)
            return False
        for decision, result in zip(plain, results, strict=True):
            person = decision.person
            person.record.committing = None
            del unfinished[person]
            if isinstance(result, Conflict):
                alone.append(self._single.spawn_single(person, (decision, result)))
            else:
                alone += self._finish_batch(decision)
        return True

    def _finish_batch(self, decision: Decision) -> list[asyncio.Task[bool]]:
        """Publish a decision that is committed or changes nothing, and report it to sessions and callers. Returns a
        task if the user must be decided again, otherwise an empty list."""
        person = decision.person
        try:
            if decision.changes_record:
                self._steps.take_effect(decision)
            self._steps.conclude(decision)
            if person.unpublished:
                self._delivery.publish(person)
        except Exception as error:
            log.error("decide.failed", error=repr(error), exc_info=True)
            self._steps.give_up(person, error)
            self._single.finish(person)
            return []
        if decision.outcome.more or person.record.dirty:
            return [self._single.spawn_single(person)]
        self._single.finish(person)
        return []
