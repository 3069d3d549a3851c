"""The contract suite for ledgers.

Subclass it in a test module and provide your ledger, empty and open:

    class TestMyLedger(LedgerContract):
        @pytest.fixture
        async def ledger(self):
            ledger = MyLedger(...)
            await ledger.open()
            yield ledger
            await ledger.close()

It needs pytest and pytest-asyncio (in auto mode, or with `pytest_asyncio.fixture`). For readable failures call
`pytest.register_assert_rewrite("herenow_testing.contracts")` in your `conftest.py`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from herenow.core.model import Custom, Mode, Source, Sourced
from herenow.core.visibility import Preferences, PreferencesEdit, Visibility
from herenow.ports import BlockRow, Choice, Ledger, LedgerChange, Relation, RelationRow, Remembered, TooManyBlocks, Void

NOW = 1_750_000_000_000
MANY = 5_000

ODD_IDS = (
    "1",
    "01",
    "ana",
    "Ana",
    "a'; DROP TABLE follows; --",
    'she said "hi"',
    "back\\slash",
    "100%_",
    "[1,2]",
    "null",
    "josé",
    "jose",
    "Ж中🎉",
    "👩‍👩‍👧",
    "é" * 64,  # 128 bytes
    "x" * 128,
    "x" * 127 + "y",
)


@pytest.mark.asyncio
class LedgerContract:
    durable = True
    """Set to False if closing the ledger deletes its content (a ledger in memory)."""

    @pytest.fixture
    def ledger(self) -> Ledger:
        raise NotImplementedError("Override the fixture `ledger` with one that gives yours.")

    # --- Opening and closing

    async def test_an_open_ledger_has_an_id_and_the_newest_schema(self, ledger: Ledger) -> None:
        assert ledger.id
        found, newest = await ledger.schema()
        assert found == newest

    async def test_migrate_does_not_change_an_up_to_date_ledger(self, ledger: Ledger) -> None:
        await ledger.save_last_seen({"ana": NOW})
        before = ledger.id, await ledger.schema()
        await ledger.migrate()
        assert (ledger.id, await ledger.schema()) == before
        assert await seen(ledger, "ana") == NOW

    async def test_a_reopened_ledger_has_the_same_id_and_content(self, ledger: Ledger) -> None:
        if not self.durable:
            pytest.skip("this ledger ends when it is closed")
        await ledger.save_last_seen({"ana": NOW})
        await ledger.save_choices([Choice("ana", 3, Mode.BUSY, NOW, Custom("lunch", "🍜", NOW))])
        await ledger.set_idle_after("ana", 60_000)
        await ledger.apply([*mutual("ana", "bo"), contact("ana", "cy"), room("r", "ana")])
        await ledger.set_preferences("ana", PreferencesEdit(Visibility.NOBODY, False, True), NOW, NOW - 1)  # noqa: FBT003
        await ledger.block(BlockRow("ana", "bo", NOW, NOW - 1, None))
        before = (ledger.id, await everything(ledger))
        await ledger.close()
        await ledger.open()
        assert (ledger.id, await everything(ledger)) == before

    async def test_a_ledger_can_be_closed_twice(self, ledger: Ledger) -> None:
        await ledger.close()
        await ledger.close()

    # --- Last seen and choices

    async def test_reading_users_from_the_ledger_omits_unknown_users(self, ledger: Ledger) -> None:
        await ledger.save_last_seen({"ana": NOW})
        assert await ledger.remembered(["bo", "ana", "cy"]) == {"ana": Remembered(last_seen=NOW)}
        assert await ledger.remembered([]) == {}

    async def test_reading_users_from_the_ledger_returns_a_user_once_although_requested_twice(
        self, ledger: Ledger
    ) -> None:
        await ledger.save_last_seen({"ana": NOW})
        assert await ledger.remembered(["ana", "bo", "ana"]) == {"ana": Remembered(last_seen=NOW)}

    async def test_reading_a_user_from_the_ledger_returns_last_seen_mode_and_idle_after(self, ledger: Ledger) -> None:
        choice = Choice("ana", 3, Mode.AWAY, NOW + 1, Custom("out", "🌴", NOW + 2))
        await ledger.save_last_seen({"ana": NOW})
        await ledger.save_choices([choice])
        await ledger.set_idle_after("ana", 60_000)
        assert await ledger.remembered(["ana"]) == {"ana": Remembered(NOW, choice, 60_000)}

    async def test_reading_users_from_the_ledger_returns_a_user_with_only_one_saved_value(self, ledger: Ledger) -> None:
        await ledger.save_last_seen({"ana": NOW})
        await ledger.save_choices([Choice("bo", 1)])
        await ledger.set_idle_after("cy", 60_000)
        assert await ledger.remembered(["ana", "bo", "cy"]) == {
            "ana": Remembered(last_seen=NOW),
            "bo": Remembered(choice=Choice("bo", 1)),
            "cy": Remembered(idle_after=60_000),
        }

    async def test_of_two_last_seen_times_of_a_user_the_ledger_keeps_the_later(self, ledger: Ledger) -> None:
        await ledger.save_last_seen({"ana": NOW, "bo": NOW})
        await ledger.save_last_seen({"ana": NOW - 1, "bo": NOW + 1, "cy": 0})
        known = await ledger.remembered(["ana", "bo", "cy"])
        assert {user: fact.last_seen for user, fact in known.items()} == {"ana": NOW, "bo": NOW + 1, "cy": 0}

    async def test_mode_and_custom_status_are_read_from_the_ledger_as_they_were_saved(self, ledger: Ledger) -> None:
        odd = Custom('"quoted"\n\\ {} – é', "👩‍👩‍👧", NOW)
        customs = (None, Custom("lunch"), Custom("", "🍜"), odd)
        combined = enumerate(itertools.product(Mode, (None, NOW), customs))
        choices = {f"user-{number}": Choice(f"user-{number}", NOW, *parts) for number, parts in combined}
        call = Sourced(Source.CALL, Mode.BUSY, NOW, odd, gives_mode=True, gives_custom=True)
        schedule = Sourced(Source.SCHEDULE, Mode.INVISIBLE)
        choices["sourced"] = Choice("sourced", NOW, Mode.BUSY, NOW, odd, (call, schedule))
        await ledger.save_choices(list(choices.values()))
        known = await ledger.remembered(list(choices))
        assert {user: fact.choice for user, fact in known.items()} == choices
        assert all(isinstance(fact.choice and fact.choice.mode, Mode) for fact in known.values())

    async def test_a_mode_saved_in_the_ledger_is_replaced_only_by_one_with_a_greater_version(
        self, ledger: Ledger
    ) -> None:
        await ledger.save_choices([Choice("ana", 5, Mode.BUSY, None, Custom("lunch"))])
        await ledger.save_choices([Choice("ana", 4, Mode.AWAY)])
        await ledger.save_choices([Choice("ana", 5, Mode.INVISIBLE)])
        assert await chosen(ledger, "ana") == Choice("ana", 5, Mode.BUSY, None, Custom("lunch"))
        await ledger.save_choices([Choice("ana", 6, sources=(Sourced(Source.CALL, Mode.AWAY),))])
        assert await chosen(ledger, "ana") == Choice("ana", 6, sources=(Sourced(Source.CALL, Mode.AWAY),))
        await ledger.save_choices([Choice("ana", 7)])
        assert await chosen(ledger, "ana") == Choice("ana", 7)

    async def test_the_ledger_lists_users_with_a_mode_or_custom_status_set_by_themselves_or_a_service(
        self, ledger: Ledger
    ) -> None:
        source = Sourced(Source.CALL, Mode.AWAY)
        rows = [
            Choice("a", 1, Mode.BUSY),
            Choice("b", 1, custom=Custom("x")),
            Choice("c", 1, sources=(source,)),
            Choice("d", 1),
        ]
        await ledger.save_choices(rows)
        assert await ledger.chosen("", 10) == rows[:3]
        assert await ledger.chosen("a", 1) == rows[1:2]

    @pytest.mark.parametrize("versions", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
    async def test_of_several_modes_of_a_user_in_one_batch_the_ledger_saves_the_newest(
        self, ledger: Ledger, versions: tuple[int, ...]
    ) -> None:
        await ledger.save_choices([Choice("ana", version, Mode(version)) for version in versions])
        assert await chosen(ledger, "ana") == Choice("ana", 3, Mode(3))

    async def test_the_idle_after_preference_can_be_set_replaced_and_removed(self, ledger: Ledger) -> None:
        await ledger.set_idle_after("ana", 60_000)
        await ledger.set_idle_after("ana", 90_000)
        assert await ledger.remembered(["ana"]) == {"ana": Remembered(idle_after=90_000)}
        await ledger.set_idle_after("ana", None)
        assert await ledger.remembered(["ana"]) == {}

    async def test_the_ledger_accepts_empty_batches(self, ledger: Ledger) -> None:
        await ledger.save_last_seen({})
        await ledger.save_choices([])
        await ledger.open_marks("run", {}, [])
        assert await ledger.apply([]) == 0
        assert await ledger.between("ana", [], NOW) == []

    async def test_the_ledger_saves_large_batches_completely(self, ledger: Ledger) -> None:
        users = [f"user-{number}" for number in range(MANY)]
        await ledger.save_last_seen({user: NOW + number for number, user in enumerate(users)})
        await ledger.save_choices([Choice(user, 1, Mode.BUSY) for user in users])
        known = await ledger.remembered(users)
        assert [known[user].last_seen for user in users] == [NOW + number for number in range(MANY)]
        assert all(known[user].choice == Choice(user, 1, Mode.BUSY) for user in users)

    async def test_the_ledger_stores_ids_byte_for_byte(self, ledger: Ledger) -> None:
        """Ids are stored byte for byte: no case folding, no conversion to numbers, no truncation, no SQL injection."""
        await ledger.save_last_seen({user: NOW + number for number, user in enumerate(ODD_IDS)})
        await ledger.save_choices([Choice(user, 1) for user in ODD_IDS])
        await ledger.apply([row for user in ODD_IDS for row in (follow("me", user), room(user, user))])
        await ledger.apply([contact("me", user) for user in ODD_IDS])
        known = await ledger.remembered(ODD_IDS)
        assert {user: fact.last_seen for user, fact in known.items()} == {
            user: NOW + number for number, user in enumerate(ODD_IDS)
        }
        assert all(fact.choice == Choice(user, 1) for user, fact in known.items())
        assert await ledger.contacts("me", NOW) == sorted(ODD_IDS)
        assert [await ledger.follows("me", user) for user in ODD_IDS] == [True] * len(ODD_IDS)
        assert await ledger.is_member("x" * 128, "x" * 128)
        assert not await ledger.is_member("x" * 128, "x" * 127 + "y")
        assert not await ledger.follows("me", "JOSÉ")

    # --- Choices that the live store may lack

    async def test_a_mode_chosen_late_is_computed_from_the_stored_one_and_saved_with_a_late_row(
        self, ledger: Ledger
    ) -> None:
        await ledger.save_choices([Choice("ana", 3, custom=Custom("lunch"))])
        head = await ledger.changes_head()
        made = await ledger.choose_late("ana", busy_at(NOW))
        assert made == Choice("ana", NOW, Mode.BUSY, custom=Custom("lunch"))
        assert await chosen(ledger, "ana") == made
        assert await ledger.late_users("", 9) == [("ana", NOW)]
        assert (await ledger.changes(head, 9))[0] == [LedgerChange("choice", "ana", "")]

    async def test_a_late_mode_of_a_user_without_a_saved_mode_is_saved(self, ledger: Ledger) -> None:
        assert await ledger.choose_late("ana", busy_at(NOW)) == Choice("ana", NOW, Mode.BUSY)
        assert await chosen(ledger, "ana") == Choice("ana", NOW, Mode.BUSY)

    async def test_an_older_late_mode_does_not_replace_the_saved_one(self, ledger: Ledger) -> None:
        await ledger.save_choices([Choice("ana", NOW + 1, Mode.AWAY)])
        await ledger.choose_late("ana", busy_at(NOW))
        assert await chosen(ledger, "ana") == Choice("ana", NOW + 1, Mode.AWAY)

    async def test_late_modes_chosen_at_the_same_time_keep_each_others_values(self, ledger: Ledger) -> None:
        def add(source: Source) -> Callable[[Choice | None], Choice]:
            def choose(stored: Choice | None) -> Choice:
                known = Choice("ana", NOW) if stored is None else stored
                sources = (*known.sources, Sourced(source, Mode.BUSY))
                return Choice("ana", known.version + 1, sources=sources)

            return choose

        await asyncio.gather(*[ledger.choose_late("ana", add(source)) for source in (Source.CALL, Source.CALENDAR)])
        found = await chosen(ledger, "ana")
        assert found is not None
        assert {each.source for each in found.sources} == {Source.CALL, Source.CALENDAR}

    async def test_late_rows_are_listed_in_pages_and_kept_until_their_version_is_applied(self, ledger: Ledger) -> None:
        for number in range(7):
            await ledger.mark_late(f"user-{number}", NOW + number)
        first = await ledger.late_users("", 4)
        assert [*first, *await ledger.late_users(first[-1][0], 4)] == [
            (f"user-{number}", NOW + number) for number in range(7)
        ]
        await ledger.mark_late("user-6", NOW)
        await ledger.forget_late({f"user-{number}": NOW + 3 for number in range(7)})
        assert await ledger.late_users("", 9) == [(f"user-{number}", NOW + number) for number in (4, 5, 6)]
        await ledger.forget_late({})

    async def test_saving_a_mode_that_hides_or_shows_a_user_or_hides_again_adds_to_the_change_table(
        self, ledger: Ledger
    ) -> None:
        head = await ledger.changes_head()
        for version, mode in enumerate((Mode.BUSY, Mode.INVISIBLE, Mode.INVISIBLE, Mode.AUTO, Mode.AWAY), start=2):
            await ledger.save_choices([Choice("ana", version, mode), Choice("bo", version, Mode.BUSY)])
        await ledger.save_choices([Choice("ana", 1, Mode.INVISIBLE)])  # older: not saved
        assert (await ledger.changes(head, 9))[0] == [LedgerChange("choice", "ana", "")] * 3

    # --- Runs: the users that were online when a process was killed

    async def test_after_a_crash_last_seen_of_users_marked_online_is_the_last_time_stamp_of_their_node(
        self, ledger: Ledger
    ) -> None:
        await ledger.open_marks("run", flagged("ana", "bo"), [])
        await ledger.stamp_run("run", NOW)
        await ledger.stamp_run("run", NOW + 1_000)
        assert await ledger.close_runs() == 2
        assert [await seen(ledger, user) for user in ("ana", "bo")] == [NOW + 1_000] * 2

    async def test_after_a_crash_users_whose_online_mark_was_removed_get_no_new_last_seen(self, ledger: Ledger) -> None:
        await ledger.open_marks("run", flagged("ana", "bo"), [])
        await ledger.open_marks("run", {}, ["ana", "never-marked"])
        await ledger.stamp_run("run", NOW)
        assert await ledger.close_runs() == 1
        assert await ledger.remembered(["ana", "never-marked"]) == {}

    async def test_after_a_crash_a_last_seen_later_than_the_last_time_stamp_of_the_node_is_kept(
        self, ledger: Ledger
    ) -> None:
        await ledger.save_last_seen({"ana": NOW + 5, "bo": NOW - 5})
        await ledger.open_marks("run", flagged("ana", "bo"), [])
        await ledger.stamp_run("run", NOW)
        assert await ledger.close_runs() == 2
        assert [await seen(ledger, user) for user in ("ana", "bo")] == [NOW + 5, NOW]

    async def test_the_cleanup_after_a_crashed_node_happens_once_even_if_it_gets_another_time_stamp(
        self, ledger: Ledger
    ) -> None:
        await ledger.open_marks("run", flagged("ana"), [])
        await ledger.stamp_run("run", NOW)
        assert await ledger.close_runs() == 1
        assert await ledger.close_runs() == 0
        await ledger.stamp_run("run", NOW + 1_000)
        assert await ledger.close_runs() == 0
        assert await seen(ledger, "ana") == NOW

    async def test_a_user_marked_online_twice_by_a_node_is_unmarked_by_one_removal(self, ledger: Ledger) -> None:
        await ledger.open_marks("run", flagged("ana"), [])
        await ledger.open_marks("run", flagged("ana", "bo"), iter(["ana"]))
        await ledger.stamp_run("run", NOW)
        assert await ledger.close_runs() == 1
        assert await ledger.remembered(["ana", "bo"]) == {"bo": Remembered(last_seen=NOW)}

    async def test_after_a_crash_last_seen_of_a_user_marked_online_by_several_nodes_is_the_latest_time_stamp(
        self, ledger: Ledger
    ) -> None:
        for run, stamp in (("one", NOW), ("two", NOW + 9), ("three", NOW + 3)):
            await ledger.open_marks(run, flagged("ana"), [])
            await ledger.stamp_run(run, stamp)
        await ledger.open_marks("two", {}, ["bo"])
        await ledger.open_marks("one", flagged("bo"), [])
        assert await ledger.close_runs() == 2
        assert [await seen(ledger, user) for user in ("ana", "bo")] == [NOW + 9, NOW]

    async def test_after_a_crash_of_a_node_without_a_time_stamp_no_last_seen_is_set(self, ledger: Ledger) -> None:
        await ledger.open_marks("run", flagged("ana"), [])
        await ledger.close_runs()
        await ledger.stamp_run("run", NOW)
        assert await ledger.close_runs() == 0
        assert await ledger.remembered(["ana"]) == {}

    async def test_after_a_crash_last_seen_of_thousands_of_users_marked_online_is_set(self, ledger: Ledger) -> None:
        users = [f"user-{number}" for number in range(MANY)]
        await ledger.open_marks("run", flagged(*users), [])
        await ledger.open_marks("run", {}, users[::2])
        await ledger.stamp_run("run", NOW)
        assert await ledger.close_runs() == MANY // 2
        assert sorted(await ledger.remembered(users)) == sorted(users[1::2])

    # --- Runs that are open: nodes that are alive, or that died with their store

    async def test_last_seen_of_users_marked_online_by_a_running_node_is_the_last_time_stamp_of_the_node(
        self, ledger: Ledger
    ) -> None:
        await ledger.save_last_seen({"bo": NOW - 5, "cy": NOW + 5})
        assert not await ledger.stamp_run("run", NOW - 1_000)
        await ledger.open_marks("run", flagged("ana", "bo", "cy", at=NOW - 500), [])
        assert [await seen(ledger, user) for user in ("ana", "bo", "cy")] == [NOW - 500, NOW - 5, NOW + 5]
        assert await ledger.stamp_run("run", NOW)
        assert [await seen(ledger, user) for user in ("ana", "bo", "cy")] == [NOW, NOW, NOW + 5]
        await ledger.open_marks("run", {}, ["ana"])
        assert await ledger.remembered(["ana"]) == {}

    async def test_last_seen_of_a_user_marked_online_by_several_running_nodes_is_the_latest_time_stamp(
        self, ledger: Ledger
    ) -> None:
        for run, stamp in (("one", NOW), ("two", NOW + 9), ("three", NOW + 3)):
            await ledger.stamp_run(run, stamp)
            await ledger.open_marks(run, flagged("ana"), [])
        assert await ledger.open_runs() == {"one": NOW, "two": NOW + 9, "three": NOW + 3}
        assert await seen(ledger, "ana") == NOW + 9

    async def test_the_cleanup_after_a_dead_node_saves_last_seen_of_its_users_and_affects_no_other_node(
        self, ledger: Ledger
    ) -> None:
        await ledger.save_last_seen({"bo": NOW + 5})
        for run, stamp in (("one", NOW), ("two", NOW + 9)):
            await ledger.stamp_run(run, stamp)
        await ledger.open_marks("one", flagged("ana", "bo"), [])
        await ledger.open_marks("two", flagged("cy"), [])
        assert await ledger.close_run("one") == 2
        assert await ledger.close_run("one") == await ledger.close_run("unknown") == 0
        assert [await seen(ledger, user) for user in ("ana", "bo", "cy")] == [NOW, NOW + 5, NOW + 9]
        assert await ledger.open_runs() == {"two": NOW + 9}
        assert not await ledger.stamp_run("one", NOW + 20)
        assert await seen(ledger, "ana") == NOW

    async def test_the_cleanup_after_a_dead_node_saves_no_last_seen_later_than_the_given_time(
        self, ledger: Ledger
    ) -> None:
        await ledger.save_last_seen({"bo": NOW - 1})
        await ledger.stamp_run("run", NOW)
        await ledger.open_marks("run", flagged("ana", "bo", at=NOW + 1), [])
        assert await ledger.close_run("run", NOW - 3) == 2
        assert [await seen(ledger, user) for user in ("ana", "bo")] == [NOW - 3, NOW - 1]

    async def test_a_node_that_stops_cleanly_saves_no_last_seen_from_its_online_marks(self, ledger: Ledger) -> None:
        await ledger.stamp_run("run", NOW)
        await ledger.open_marks("run", flagged("ana"), [])
        await ledger.end_run("run")
        assert await ledger.open_runs() == {}
        assert await ledger.remembered(["ana"]) == {}

    @pytest.mark.parametrize("closed", [False, True])
    async def test_a_mark_that_a_hidden_user_is_online_never_changes_their_last_seen(
        self, ledger: Ledger, *, closed: bool
    ) -> None:
        """The run markers of four users do not reveal activity while hidden: ana is invisible; bo hid from all users at
        NOW; cy did so before any user had seen cy; dee is visible again."""
        await ledger.save_last_seen({"ana": NOW})
        await ledger.save_choices([Choice("ana", NOW, Mode.INVISIBLE), Choice("dee", NOW, Mode.AUTO)])
        await ledger.set_preferences("bo", PreferencesEdit(Visibility.NOBODY), NOW, NOW)
        await ledger.set_preferences("cy", PreferencesEdit(Visibility.NOBODY), NOW, None)
        await ledger.stamp_run("run", NOW + 9)
        await ledger.open_marks("run", flagged("ana", "bo", "cy", "dee", at=NOW + 8), [])
        if closed:
            await ledger.close_run("run")
        known = await ledger.remembered(["ana", "bo", "cy", "dee"])
        assert {user: fact.last_seen for user, fact in known.items()} == {"ana": NOW, "bo": NOW, "dee": NOW + 9}

    @pytest.mark.parametrize("closed", [False, True])
    async def test_a_mark_that_a_user_is_online_has_no_effect_if_it_is_from_before_their_deletion(
        self, ledger: Ledger, *, closed: bool
    ) -> None:
        await ledger.stamp_run("run", NOW)
        await ledger.erase(Void("ana", NOW, NOW + 60_000, erased=NOW + 1))
        await ledger.open_marks("run", flagged("ana", at=NOW), [])
        if closed:
            await ledger.close_run("run")
        assert await ledger.remembered(["ana"]) == {}

    # --- Relations

    async def test_a_follow_counts_as_a_relation_only_if_it_is_mutual(self, ledger: Ledger) -> None:
        await ledger.apply([follow("ana", "bo")])
        assert await ledger.follows("ana", "bo")
        assert not await ledger.follows("bo", "ana")
        assert await both_ways(ledger, "ana", "bo") == Relation()
        await ledger.apply([follow("bo", "ana")])
        assert await both_ways(ledger, "ana", "bo") == Relation(mutual_follow=True)
        await ledger.apply([gone(follow("ana", "bo"))])
        assert await both_ways(ledger, "ana", "bo") == Relation()
        assert await ledger.follows("bo", "ana")

    @pytest.mark.parametrize(("a", "b"), [("ana", "bo"), ("bo", "ana")])
    async def test_a_contact_between_two_users_has_no_direction(self, ledger: Ledger, a: str, b: str) -> None:
        await ledger.apply([contact(a, b)])
        assert await both_ways(ledger, "ana", "bo") == Relation(contact=True)
        assert await ledger.apply([contact(b, a)]) == 0
        assert await ledger.apply([contact(b, a, NOW + 1)]) == 1
        assert await both_ways(ledger, "ana", "bo") == Relation(contact=True, contact_until=NOW + 1)
        assert await ledger.apply([gone(contact(b, a))]) == 1
        assert await both_ways(ledger, "ana", "bo") == Relation()

    @pytest.mark.parametrize("until", [None, NOW + 1])
    async def test_a_contact_is_in_force_before_its_end_time(self, ledger: Ledger, until: int | None) -> None:
        await ledger.apply([contact("ana", "bo", until)])
        assert await both_ways(ledger, "ana", "bo") == Relation(contact=True, contact_until=until)
        for one, other in (("ana", "bo"), ("bo", "ana")):
            assert await ledger.contact(one, other, NOW) == (True, until)
            assert await ledger.contacts(one, NOW) == [other]

    @pytest.mark.parametrize("until", [NOW, NOW - 1, 0])
    async def test_a_contact_is_not_in_force_at_or_after_its_end_time(self, ledger: Ledger, until: int) -> None:
        await ledger.apply([contact("ana", "bo", until)])
        assert await both_ways(ledger, "ana", "bo") == Relation()
        for one, other in (("ana", "bo"), ("bo", "ana")):
            assert await ledger.contact(one, other, NOW) == (False, None)
            assert await ledger.contacts(one, NOW) == []

    async def test_a_mutual_follow_remains_after_the_end_of_a_contact(self, ledger: Ledger) -> None:
        await ledger.apply([*mutual("ana", "bo"), contact("ana", "bo", NOW)])
        assert await both_ways(ledger, "ana", "bo", NOW - 1) == Relation(
            mutual_follow=True, contact=True, contact_until=NOW
        )
        assert await both_ways(ledger, "ana", "bo", NOW) == Relation(mutual_follow=True)
        assert await ledger.contacts("ana", NOW) == ["bo"]

    async def test_relations_to_several_users_are_read_in_the_order_of_the_request_with_duplicates(
        self, ledger: Ledger
    ) -> None:
        await ledger.apply([*mutual("ana", "bo"), contact("ana", "cy", NOW + 1)])
        asked = ["dee", "cy", "bo", "ana", "cy", "bo", "dee"]
        known = {"bo": Relation(mutual_follow=True), "cy": Relation(contact=True, contact_until=NOW + 1)}
        assert await ledger.between("ana", asked, NOW) == [known.get(user, Relation()) for user in asked]

    async def test_the_contacts_of_a_user_are_read_once_each_in_sorted_order(self, ledger: Ledger) -> None:
        others = ["🎉", "é", "a", "Z", "zebra", "10", "9"]
        await ledger.apply([row for other in others[::2] for row in mutual("me", other)])
        await ledger.apply([contact(other, "me") for other in others[1:]])
        await ledger.apply([follow("me", "idol"), follow("fan", "me"), contact("me", "old", NOW)])
        assert await ledger.contacts("me", NOW) == sorted(others)
        assert await ledger.contacts("nobody", NOW) == []

    async def test_a_user_cannot_be_their_own_contact(self, ledger: Ledger) -> None:
        assert await ledger.apply([follow("ana", "ana"), contact("ana", "ana")]) == 0
        assert await ledger.contacts("ana", NOW) == []
        assert await ledger.between("ana", ["ana"], NOW) == [Relation()]

    async def test_is_member_is_true_for_members_of_a_room_only(self, ledger: Ledger) -> None:
        await ledger.apply([room("r1", "ana"), room("r1", "bo"), room("r2", "bo")])
        assert await ledger.is_member("r1", "ana")
        assert not await ledger.is_member("r2", "ana")
        assert not await ledger.is_member("ana", "r1")
        assert not await ledger.is_member("unknown", "ana")
        await ledger.apply([gone(room("r1", "ana"))])
        assert not await ledger.is_member("r1", "ana")
        assert await ledger.is_member("r1", "bo")

    async def test_writing_relations_returns_the_number_of_changed_rows(self, ledger: Ledger) -> None:
        rows = [follow("ana", "bo"), contact("ana", "cy", NOW), room("r", "ana")]
        assert await ledger.apply(rows) == 3
        assert await ledger.apply(rows) == 0
        assert await ledger.apply([*rows, follow("bo", "ana"), contact("ana", "cy")]) == 2
        assert await ledger.apply([gone(row) for row in rows]) == 3
        assert await ledger.apply([gone(row) for row in rows]) == 0

    async def test_of_several_rows_about_the_same_relation_in_one_batch_the_last_one_counts(
        self, ledger: Ledger
    ) -> None:
        put = [follow("ana", "bo"), contact("ana", "bo"), room("r", "ana")]
        take = [gone(row) for row in put]
        assert await ledger.apply([*put, *take, *put, *put]) == 3
        assert await ledger.follows("ana", "bo")
        await ledger.apply([*take, *put, *take, contact("bo", "ana", NOW + 9)])
        assert not await ledger.follows("ana", "bo")
        assert await ledger.contact("ana", "bo", NOW) == (True, NOW + 9)
        assert not await ledger.is_member("r", "ana")

    async def test_writing_relations_changes_nothing_if_one_row_has_an_unknown_kind(self, ledger: Ledger) -> None:
        await ledger.apply([follow("ana", "bo")])
        head = await ledger.changes_head()
        with pytest.raises(ValueError, match="enemy"):
            await ledger.apply([follow("bo", "ana"), gone(follow("ana", "bo")), RelationRow("enemy", "ana", "bo")])
        assert await ledger.follows("ana", "bo")
        assert not await ledger.follows("bo", "ana")
        assert await ledger.changes(head, 10) == ([], head)

    async def test_thousands_of_relations_can_be_written_in_one_batch(self, ledger: Ledger) -> None:
        others = [f"user-{number:05}" for number in range(MANY)]
        assert await ledger.apply([row for other in others for row in mutual("me", other)]) == 2 * MANY
        assert await ledger.contacts("me", NOW) == others
        assert await ledger.between("me", others, NOW) == [Relation(mutual_follow=True)] * MANY
        assert await ledger.apply([gone(follow(other, "me")) for other in others[::2]]) == MANY // 2
        assert await ledger.contacts("me", NOW) == others[1::2]

    async def test_share_rooms_returns_only_users_who_are_in_a_room_with_the_given_user(self, ledger: Ledger) -> None:
        await ledger.apply([room("r1", user) for user in ("ana", "bo", "cy")])
        await ledger.apply([room("r2", user) for user in ("ana", "bo", "dee")])
        assert await ledger.share_rooms("ana", ["bo", "dee", "eve", "ana", "bo"]) == {"bo", "dee"}
        assert await ledger.share_rooms("cy", ["dee", "bo"]) == {"bo"}
        assert await ledger.share_rooms("eve", ["ana"]) == set()
        assert await ledger.share_rooms("ana", []) == set()

    # --- Preferences and blocks

    async def test_reading_preferences_omits_users_who_have_none(self, ledger: Ledger) -> None:
        await ledger.set_idle_after("ana", 60_000)
        assert await ledger.preferences(["ana", "bo"]) == {}
        assert await ledger.preferences([]) == {}

    async def test_set_preferences_merges_the_edit_into_the_saved_preferences(self, ledger: Ledger) -> None:
        edits = (
            (PreferencesEdit(), Preferences()),
            (PreferencesEdit(visibility=Visibility.EVERYONE), Preferences(Visibility.EVERYONE)),
            (PreferencesEdit(share_last_seen=False), Preferences(Visibility.EVERYONE, share_last_seen=False)),
            (PreferencesEdit(public=True), Preferences(Visibility.EVERYONE, share_last_seen=False, public=True)),
            (PreferencesEdit(share_last_seen=True), Preferences(Visibility.EVERYONE, public=True, shared_at=NOW)),
            (
                PreferencesEdit(share_last_seen=False, public=False),
                Preferences(Visibility.EVERYONE, share_last_seen=False),
            ),
        )
        for edit, result in edits:
            assert await ledger.set_preferences("ana", edit, NOW, None) == result
            assert (await ledger.preferences(["ana"])).get("ana", Preferences()) == result
        await ledger.set_preferences("bo", PreferencesEdit(public=True), NOW, None)
        await ledger.set_preferences("bo", PreferencesEdit(public=False), NOW, None)
        assert await ledger.preferences(["bo"]) == {}

    async def test_setting_idle_after_changes_no_other_preference_and_the_reverse(self, ledger: Ledger) -> None:
        await ledger.set_preferences("ana", PreferencesEdit(public=True), NOW, None)
        await ledger.set_idle_after("ana", 60_000)
        await ledger.set_preferences("ana", PreferencesEdit(share_last_seen=False), NOW, None)
        assert await ledger.preferences(["ana"]) == {"ana": Preferences(public=True, share_last_seen=False)}
        assert await ledger.remembered(["ana"]) == {"ana": Remembered(idle_after=60_000)}
        await ledger.set_idle_after("ana", None)
        assert await ledger.preferences(["ana"]) == {"ana": Preferences(public=True, share_last_seen=False)}

    async def test_saving_visibility_nobody_also_saves_the_last_seen_of_the_moment_of_hiding(
        self, ledger: Ledger
    ) -> None:
        nobody = PreferencesEdit(visibility=Visibility.NOBODY)
        hidden = Preferences(Visibility.NOBODY, hidden_at=NOW, hidden_last_seen=NOW - 5)
        assert await ledger.set_preferences("ana", nobody, NOW, NOW - 5) == hidden
        assert await ledger.set_preferences("ana", nobody, NOW + 9, NOW + 9) == hidden
        assert await ledger.preferences(["ana"]) == {"ana": hidden}

    async def test_the_end_of_visibility_nobody_saves_its_time_and_what_others_were_shown_until_then(
        self, ledger: Ledger
    ) -> None:
        nobody, contacts = (PreferencesEdit(visibility=v) for v in (Visibility.NOBODY, Visibility.CONTACTS))
        await ledger.set_preferences("ana", nobody, NOW, NOW - 5)
        shown = Preferences(shown_at=NOW + 10, shown_last_seen=NOW - 5)
        assert await ledger.set_preferences("ana", contacts, NOW + 10, None) == shown
        assert await ledger.preferences(["ana"]) == {"ana": shown}
        again = await ledger.set_preferences("ana", nobody, NOW + 12, NOW + 9)  # not seen in between
        assert again == Preferences(Visibility.NOBODY, hidden_at=NOW + 12, hidden_last_seen=NOW - 5)
        shown = Preferences(shown_at=NOW + 14, shown_last_seen=NOW + 14)
        assert await ledger.set_preferences("ana", contacts, NOW + 14, NOW + 14) == shown

    async def test_a_block_in_the_ledger_is_found_by_either_of_its_two_users(self, ledger: Ledger) -> None:
        placed = BlockRow("ana", "bo", NOW, NOW - 1, NOW - 2)
        assert await ledger.block(placed)
        assert await ledger.blocks("ana", ["cy", "bo", "bo"]) == [placed]
        assert await ledger.blocks("bo", ["ana"]) == [placed]
        assert await ledger.blocks("cy", ["ana", "bo"]) == []
        assert await ledger.blocks("ana", []) == []
        assert await ledger.blocked("ana") == ["bo"]
        assert await ledger.blocked("bo") == []

    async def test_two_users_may_block_each_other(self, ledger: Ledger) -> None:
        await ledger.block(BlockRow("ana", "bo", NOW, 1, 2))
        await ledger.block(BlockRow("bo", "ana", NOW + 1, 5, 6))
        forth, back = sorted(await ledger.blocks("ana", ["bo"]), key=lambda row: row.at)
        assert (forth.blocker, back.blocker) == ("ana", "bo")
        assert await ledger.unblock("ana", "bo", NOW)
        assert await ledger.blocked("ana") == []
        assert back in await ledger.blocks("ana", ["bo"])

    async def test_a_second_block_between_two_users_keeps_only_the_last_seen_that_the_first_blocker_hid(
        self, ledger: Ledger
    ) -> None:
        await ledger.block(BlockRow("ana", "bo", NOW, 1, 2))
        await ledger.block(BlockRow("bo", "ana", NOW + 1, 5, 6))
        assert BlockRow("bo", "ana", NOW + 1, 5, 1) in await ledger.blocks("ana", ["bo"])

    async def test_a_block_between_a_hidden_user_and_another_keeps_the_last_seen_of_the_moment_of_hiding(
        self, ledger: Ledger
    ) -> None:
        await ledger.set_preferences("bo", PreferencesEdit(visibility=Visibility.NOBODY), NOW, 7)
        await ledger.block(BlockRow("ana", "bo", NOW + 1, 8, 9))
        await ledger.block(BlockRow("bo", "cy", NOW + 1, 8, 9))
        assert await ledger.blocks("ana", ["bo"]) == [BlockRow("ana", "bo", NOW + 1, 8, 7)]
        assert await ledger.blocks("bo", ["cy"]) == [BlockRow("bo", "cy", NOW + 1, 7, 9)]

    async def test_many_blocks_of_a_user_at_once_succeed_while_the_user_changes_preferences(
        self, ledger: Ledger
    ) -> None:
        async def hide_and_show() -> None:
            for number in range(20):
                edit = PreferencesEdit(visibility=(Visibility.NOBODY, Visibility.CONTACTS)[number % 2])
                await ledger.set_preferences("bo", edit, NOW + number, number)

        blocks = [ledger.block(BlockRow(f"user-{number}", "bo", NOW, 1, 100)) for number in range(50)]
        done = await asyncio.gather(*blocks, hide_and_show())
        assert all(done[:-1])
        rows = await ledger.blocks("bo", [f"user-{number}" for number in range(50)])
        assert len(rows) == 50
        assert {row.blocked_seen for row in rows} <= {*range(0, 20, 2), 100}

    async def test_blocking_the_same_user_again_changes_nothing(self, ledger: Ledger) -> None:
        placed = BlockRow("ana", "bo", NOW, NOW - 1, NOW - 2)
        await ledger.block(placed)
        assert not await ledger.block(BlockRow("ana", "bo", NOW + 1, NOW + 1, NOW + 1))
        assert await ledger.blocks("ana", ["bo"]) == [placed]

    async def test_a_user_has_at_most_as_many_blocks_as_the_limit(self, ledger: Ledger) -> None:
        for number in range(3):
            assert await ledger.block(BlockRow("ana", f"user-{number}", NOW), 3)
        head = await ledger.changes_head()
        with pytest.raises(TooManyBlocks):
            await ledger.block(BlockRow("ana", "one-more", NOW), 3)
        assert await ledger.changes(head, 10) == ([], head)
        assert await ledger.blocked("ana") == ["user-0", "user-1", "user-2"]
        assert not await ledger.block(BlockRow("ana", "user-1", NOW), 3)
        assert await ledger.block(BlockRow("bo", "ana", NOW), 3)
        await ledger.unblock("ana", "user-0", NOW)
        assert await ledger.block(BlockRow("ana", "one-more", NOW), 3)

    async def test_the_block_that_was_lifted_first_is_deleted_when_the_limit_is_reached(self, ledger: Ledger) -> None:
        for number, user in enumerate(("bo", "cy", "dee")):
            assert await ledger.block(BlockRow("ana", user, NOW), 3)
            await ledger.unblock("ana", user, NOW + 9 - number)
        await ledger.block(BlockRow("bo", "ana", NOW))
        await ledger.unblock("bo", "ana", NOW + 1)
        assert await ledger.block(BlockRow("ana", "cy", NOW + 10), 3)
        assert await ledger.block(BlockRow("ana", "eva", NOW + 10), 3)
        rows = await ledger.blocks("ana", ["bo", "cy", "dee", "eva"])
        assert sorted(row.blocked for row in rows) == ["ana", "bo", "cy", "eva"]

    async def test_the_block_list_of_a_user_is_sorted_and_keeps_ids_byte_for_byte(self, ledger: Ledger) -> None:
        for user in ODD_IDS:
            await ledger.block(BlockRow("me", user, NOW))
        assert await ledger.blocked("me") == sorted(ODD_IDS)
        assert len(await ledger.blocks("me", ODD_IDS)) == len(ODD_IDS)

    async def test_unblocking_a_user_who_is_not_blocked_returns_false(self, ledger: Ledger) -> None:
        await ledger.block(BlockRow("ana", "bo", NOW))
        assert not await ledger.unblock("bo", "ana", NOW)
        assert not await ledger.unblock("ana", "cy", NOW)
        assert await ledger.blocked("ana") == ["bo"]

    async def test_a_lifted_block_stays_stored_but_is_not_in_force(self, ledger: Ledger) -> None:
        await ledger.block(BlockRow("ana", "bo", NOW, 1, 2))
        assert await ledger.unblock("ana", "bo", NOW + 5)
        assert not await ledger.unblock("ana", "bo", NOW + 6)
        assert await ledger.blocked("ana") == []
        assert await ledger.blocks("bo", ["ana"]) == [BlockRow("ana", "bo", NOW, 1, 2, NOW + 5)]
        assert await ledger.block(BlockRow("ana", "bo", NOW + 9, 3, 4))  # ana was not here since
        assert await ledger.blocks("bo", ["ana"]) == [BlockRow("ana", "bo", NOW + 9, 1, 4)]

    async def test_a_lifted_block_keeps_when_the_blocker_was_shown_again_unless_the_visibility_is_nobody(
        self, ledger: Ledger
    ) -> None:
        await ledger.block(BlockRow("ana", "bo", NOW, 1, 2))
        await ledger.unblock("ana", "bo", NOW + 5, NOW + 5)
        assert await ledger.blocks("bo", ["ana"]) == [BlockRow("ana", "bo", NOW, NOW + 5, 2, NOW + 5)]
        await ledger.block(BlockRow("ana", "cy", NOW, 1, 2))
        await ledger.set_preferences("ana", PreferencesEdit(visibility=Visibility.NOBODY), NOW + 4, 9)
        await ledger.unblock("ana", "cy", NOW + 5, NOW + 5)
        assert await ledger.blocks("cy", ["ana"]) == [BlockRow("ana", "cy", NOW, 1, 2, NOW + 5)]

    async def test_blocks_with_thousands_of_users_can_be_read_in_one_call(self, ledger: Ledger) -> None:
        others = [f"user-{number:05}" for number in range(200)]
        for other in others:
            await ledger.block(BlockRow("me", other, NOW, 1, 2))
        asked = [f"user-{number:05}" for number in range(MANY)]
        found = await ledger.blocks("me", asked)
        assert sorted(row.blocked for row in found) == others
        assert await ledger.preferences(asked) == {}

    async def test_relations_shared_rooms_blocks_and_preferences_can_be_read_in_one_call(self, ledger: Ledger) -> None:
        await ledger.apply([*mutual("ana", "bo"), contact("ana", "cy", NOW + 1), contact("ana", "old", NOW)])
        await ledger.apply([room("r", user) for user in ("ana", "dee")])
        await ledger.block(BlockRow("eve", "ana", NOW))
        private = await ledger.set_preferences("bo", PreferencesEdit(share_last_seen=False), NOW, None)
        others = ["dee", "eve", "cy", "bo", "old", "cy"]
        found = await ledger.pair_facts("ana", others, ["ana", "bo"], NOW, related=True, rooms=True)
        assert list(found.relations) == await ledger.between("ana", others, NOW)
        assert list(found.blocks) == await ledger.blocks("ana", others) == [BlockRow("eve", "ana", NOW)]
        assert set(found.mates) == {"dee"}
        assert found.preferences == {"bo": private}

    async def test_a_combined_read_of_relations_rooms_blocks_and_preferences_returns_only_the_requested_kinds(
        self, ledger: Ledger
    ) -> None:
        await ledger.apply([*mutual("ana", "bo"), room("r", "ana"), room("r", "bo")])
        await ledger.block(BlockRow("ana", "bo", NOW))
        found = await ledger.pair_facts("ana", ["bo"], [], NOW, related=False, rooms=False)
        assert (list(found.relations), set(found.mates), dict(found.preferences)) == ([], set(), {})
        assert list(found.blocks) == [BlockRow("ana", "bo", NOW)]
        nobody = await ledger.pair_facts("ana", [], [], NOW, related=True, rooms=True)
        assert (list(nobody.relations), list(nobody.blocks), set(nobody.mates)) == ([], [], set())

    # --- The table of changes

    async def test_the_change_table_of_a_new_ledger_is_empty(self, ledger: Ledger) -> None:
        head = await ledger.changes_head()
        assert await ledger.changes(head, 10) == ([], head)
        assert await ledger.changes(0, 10) == ([], 0)

    async def test_the_change_table_lists_changes_of_relations_rooms_preferences_and_blocks(
        self, ledger: Ledger
    ) -> None:
        head = await ledger.changes_head()
        await ledger.apply([follow("ana", "bo")])
        await ledger.apply([contact("cy", "ana")])
        await ledger.apply([room("r", "ana")])
        await ledger.set_idle_after("ana", 60_000)
        await ledger.set_preferences("ana", PreferencesEdit(public=True), NOW, None)
        await ledger.block(BlockRow("ana", "bo", NOW))
        await ledger.unblock("ana", "bo", NOW)
        await ledger.block(BlockRow("bo", "ana", NOW))
        await ledger.unblock("bo", "ana", NOW)
        told, last = await ledger.changes(head, 10)
        assert list(map(pair, told)) == [
            ("relation", {"ana", "bo"}),
            ("relation", {"ana", "cy"}),
            ("member", {"r", "ana"}),
            ("preferences", {"ana", ""}),
            ("preferences", {"ana", ""}),
            *[("relation", {"ana", "bo"})] * 4,
        ]
        assert (told[2].a, told[2].b) == ("r", "ana")
        assert (told[3].a, told[3].b) == ("ana", "")
        assert await ledger.changes_head() == last > head

    async def test_relation_changes_reported_by_an_application_are_listed_in_the_change_table(
        self, ledger: Ledger
    ) -> None:
        head = await ledger.changes_head()
        noted = [
            LedgerChange("relation", "bo", "ana"),
            LedgerChange("relations", "ana", ""),
            LedgerChange("member", "r", "ana"),
            LedgerChange("members", "r", ""),
        ]
        await ledger.note_changes(noted)
        await ledger.note_changes([])
        told, last = await ledger.changes(head, 10)
        assert told == noted
        assert await ledger.changes_head() == last > head

    async def test_the_change_table_lists_removed_relations_and_changed_end_times(self, ledger: Ledger) -> None:
        await ledger.apply([follow("ana", "bo"), contact("ana", "cy"), room("r", "ana")])
        await ledger.set_idle_after("ana", 60_000)
        head = await ledger.changes_head()
        await ledger.apply([gone(follow("ana", "bo")), contact("ana", "cy", NOW), gone(room("r", "ana"))])
        await ledger.set_idle_after("ana", None)
        told, _ = await ledger.changes(head, 10)
        assert sorted(change.kind for change in told) == ["member", "preferences", "relation", "relation"]

    async def test_the_change_table_omits_writes_without_effect(self, ledger: Ledger) -> None:
        rows = [follow("ana", "bo"), contact("ana", "cy", NOW), room("r", "ana")]
        await ledger.apply(rows)
        await ledger.set_idle_after("ana", 60_000)
        head = await ledger.changes_head()
        await ledger.apply([*rows, gone(follow("bo", "ana")), gone(contact("x", "y")), gone(room("r", "bo"))])
        await ledger.set_idle_after("ana", 60_000)
        await ledger.set_idle_after("stranger", None)
        await ledger.set_preferences("ana", PreferencesEdit(Visibility.CONTACTS), NOW, NOW)
        await ledger.unblock("ana", "bo", NOW)
        await ledger.save_last_seen({"ana": NOW})
        await ledger.save_choices([Choice("ana", 1)])
        assert await ledger.changes(head, 10) == ([], head)

    async def test_the_change_table_is_read_page_by_page(self, ledger: Ledger) -> None:
        for number in range(7):
            await ledger.set_idle_after(f"user-{number}", 60_000)
        read: list[str] = []
        cursor = 0
        for expected in (3, 3, 1, 0):
            page, cursor = await ledger.changes(cursor, 3)
            assert len(page) == expected
            read += [change.a for change in page]
        assert read == [f"user-{number}" for number in range(7)]
        assert cursor == await ledger.changes_head()

    async def test_old_rows_of_the_change_table_can_be_deleted_and_later_rows_stay(self, ledger: Ledger) -> None:
        await ledger.set_idle_after("ana", 60_000)
        old = await ledger.changes_head()
        await ledger.set_idle_after("bo", 60_000)
        await ledger.forget_changes(old)
        assert await ledger.changes(0, 10) == ([LedgerChange("preferences", "bo", "")], await ledger.changes_head())

    async def test_row_numbers_of_the_change_table_never_decrease_even_if_all_rows_are_deleted(
        self, ledger: Ledger
    ) -> None:
        """A reader's cursor into the change table stays valid when all rows are deleted: later rows get higher ids."""
        await ledger.set_idle_after("ana", 60_000)
        cursor = await ledger.changes_head()
        await ledger.forget_changes(cursor)
        assert await ledger.changes_head() == cursor
        await ledger.set_idle_after("ana", 90_000)
        told, head = await ledger.changes(cursor, 10)
        assert told == [LedgerChange("preferences", "ana", "")]
        assert head > cursor

    async def test_the_change_table_lists_thousands_of_changes(self, ledger: Ledger) -> None:
        await ledger.apply([follow("me", f"user-{number}") for number in range(MANY)])
        told, head = await ledger.changes(0, 2 * MANY)
        assert len({frozenset((change.a, change.b)) for change in told}) == MANY
        assert head == await ledger.changes_head()

    # --- Revoked tokens, deleted users

    async def test_a_token_revocation_is_saved_and_listed_in_the_change_table(self, ledger: Ledger) -> None:
        assert await ledger.void_of("ana") is None
        await ledger.void(Void("ana", NOW, NOW + 10))
        assert await ledger.void_of("ana") == Void("ana", NOW, NOW + 10)
        told, _ = await ledger.changes(0, 10)
        assert told == [LedgerChange("void", "ana", "")]

    async def test_a_later_token_revocation_replaces_an_earlier_one_but_not_the_reverse(self, ledger: Ledger) -> None:
        await ledger.void(Void("ana", NOW, NOW + 10))
        head = await ledger.changes_head()
        await ledger.void(Void("ana", NOW - 1, NOW + 9))
        assert await ledger.changes(head, 10) == ([], head)
        await ledger.void(Void("ana", NOW + 1, NOW + 5))
        assert await ledger.void_of("ana") == Void("ana", NOW + 1, NOW + 10)
        assert (await ledger.changes(head, 10))[0] == [LedgerChange("void", "ana", "")]

    async def test_token_revocations_are_read_in_order_of_user_ids_and_deleted_after_their_end(
        self, ledger: Ledger
    ) -> None:
        for number in range(7):
            await ledger.void(Void(f"user-{number}", NOW, NOW + number))
        first = await ledger.voids("", 4)
        rest = await ledger.voids(first[-1].user, 4)
        assert [void.user for void in [*first, *rest]] == [f"user-{number}" for number in range(7)]
        await ledger.forget_voids(NOW + 4)
        assert [void.user for void in await ledger.voids("", 9)] == ["user-5", "user-6"]

    async def test_deleting_a_user_from_the_ledger_removes_everything_about_the_user(self, ledger: Ledger) -> None:
        await ledger.save_last_seen({"ana": NOW, "bo": NOW})
        await ledger.save_choices([Choice("ana", 3, Mode.BUSY), Choice("bo", 3, Mode.BUSY)])
        await ledger.set_idle_after("ana", 60_000)
        await ledger.mark_late("ana", NOW)
        await ledger.apply([*mutual("ana", "bo"), follow("ana", "cy"), follow("di", "ana"), *mutual("bo", "cy")])
        await ledger.apply([contact("ana", "bo"), contact("zed", "ana"), room("r", "ana"), room("r", "bo")])
        await ledger.stamp_run("run", NOW)
        await ledger.open_marks("run", flagged("ana"), [])
        head = await ledger.changes_head()
        answered = await ledger.erase(Void("ana", NOW, NOW + 10, NOW))
        assert await ledger.remembered(["ana", "bo"]) == {
            "bo": Remembered(last_seen=NOW, choice=Choice("bo", 3, Mode.BUSY))
        }
        assert await ledger.late_users("", 9) == []
        assert await ledger.contacts("ana", NOW) == []
        assert await ledger.contacts("bo", NOW) == ["cy"]
        assert not await ledger.follows("ana", "cy")
        assert not await ledger.follows("di", "ana")
        assert not await ledger.is_member("r", "ana")
        assert await ledger.is_member("r", "bo")
        assert await ledger.void_of("ana") == Void("ana", NOW, NOW + 10, NOW)
        told, _ = await ledger.changes(head, 99)
        assert set(told) == set(answered)
        assert {frozenset((c.a, c.b)) for c in told if c.kind == "relation"} == {
            frozenset(("ana", other)) for other in ("bo", "cy", "di", "zed")
        }
        assert {(c.a, c.b) for c in told if c.kind == "member"} == {("r", "ana")}
        assert LedgerChange("void", "ana", "") in told
        assert await ledger.close_runs() == 0
        assert await ledger.remembered(["ana"]) == {}

    async def test_last_seen_and_modes_from_before_the_deletion_of_a_user_are_not_saved_after_it(
        self, ledger: Ledger
    ) -> None:
        await ledger.erase(Void("ana", NOW, NOW + 10, NOW))
        await ledger.save_last_seen({"ana": NOW, "bo": NOW})
        await ledger.save_choices([Choice("ana", NOW, Mode.BUSY), Choice("bo", 1, Mode.BUSY)])
        await ledger.stamp_run("run", NOW)
        await ledger.open_marks("run", flagged("ana"), [])
        await ledger.close_runs()
        assert set(await ledger.remembered(["ana", "bo"])) == {"bo"}

    async def test_last_seen_and_modes_from_after_the_deletion_of_a_user_are_saved(self, ledger: Ledger) -> None:
        await ledger.erase(Void("ana", NOW, NOW + 10, NOW))
        choice = Choice("ana", NOW + 1, Mode.BUSY)
        await ledger.save_last_seen({"ana": NOW + 1})
        await ledger.save_choices([choice])
        assert await ledger.remembered(["ana"]) == {"ana": Remembered(NOW + 1, choice)}

    async def test_a_token_revocation_keeps_the_time_of_an_earlier_deletion_of_the_user(self, ledger: Ledger) -> None:
        await ledger.erase(Void("ana", NOW, NOW + 10, NOW))
        await ledger.void(Void("ana", NOW + 5, NOW + 15))
        assert await ledger.void_of("ana") == Void("ana", NOW + 5, NOW + 15, NOW)

    async def test_an_unknown_user_can_be_deleted_from_the_ledger_twice(self, ledger: Ledger) -> None:
        await ledger.erase(Void("ana", NOW, NOW + 10, NOW))
        await ledger.erase(Void("ana", NOW + 1, NOW + 11, NOW + 1))
        assert await ledger.void_of("ana") == Void("ana", NOW + 1, NOW + 11, NOW + 1)

    # --- Concurrency

    async def test_concurrent_callers_of_the_ledger_do_not_disturb_each_other(self, ledger: Ledger) -> None:
        async def one(number: int) -> None:
            user = f"user-{number}"
            await ledger.save_last_seen({user: NOW})
            await ledger.apply(mutual("me", user))
            await ledger.set_idle_after(user, 60_000 + number)
            assert await both_ways(ledger, "me", user) == Relation(mutual_follow=True)
            assert await ledger.remembered([user]) == {user: Remembered(NOW, None, 60_000 + number)}

        await asyncio.gather(*(one(number) for number in range(25)))
        assert len(await ledger.contacts("me", NOW)) == 25

    async def test_a_reader_of_the_change_table_misses_no_row_during_concurrent_writes(self, ledger: Ledger) -> None:
        """A reader that has read the change table up to an id has missed no row with a lower id, whatever the order in
        which writers commit."""
        heard: list[LedgerChange] = []
        cursor = 0

        async def write(number: int) -> None:
            for batch in range(4):
                size = 1 + (number * 7 + batch * 3) % 40
                await ledger.apply([follow(f"w{number}", f"t{batch}-{each}") for each in range(size)])

        async def read() -> None:
            nonlocal cursor
            more, cursor = await ledger.changes(cursor, 1_000)
            heard.extend(more)

        writing = asyncio.gather(*(write(number) for number in range(12)))
        while not writing.done():
            await read()
            await asyncio.sleep(0)
        await read()
        told, head = await ledger.changes(0, 100_000)
        assert heard == told
        assert len(told) == sum(1 + (n * 7 + b * 3) % 40 for n in range(12) for b in range(4))
        assert cursor == head == await ledger.changes_head()

    async def test_concurrent_edits_of_the_same_preferences_are_all_kept(self, ledger: Ledger) -> None:
        """Two devices change different preferences at the same time: neither must overwrite the other's change."""
        for number in range(5):
            user = f"user-{number}"
            await asyncio.gather(
                ledger.set_preferences(user, PreferencesEdit(visibility=Visibility.NOBODY), NOW, NOW - 5),
                ledger.set_preferences(user, PreferencesEdit(share_last_seen=False), NOW, NOW - 5),
                ledger.set_idle_after(user, 60_000),
                ledger.set_preferences(user, PreferencesEdit(public=True), NOW, NOW - 5),
            )
            assert await ledger.preferences([user]) == {
                user: Preferences(Visibility.NOBODY, False, True, NOW, NOW - 5)  # noqa: FBT003
            }
            assert await ledger.remembered([user]) == {user: Remembered(idle_after=60_000)}

    async def test_of_modes_saved_at_the_same_time_the_one_with_the_greatest_version_remains(
        self, ledger: Ledger
    ) -> None:
        versions = [5, 9, 2, 7, 1, 8, 3, 6, 4]
        await asyncio.gather(
            *(ledger.save_choices([Choice("ana", v, Mode.BUSY, v), Choice("bo", 10 - v)]) for v in versions)
        )
        assert await chosen(ledger, "ana") == Choice("ana", 9, Mode.BUSY, 9)
        assert await chosen(ledger, "bo") == Choice("bo", 9)

    async def test_concurrent_ledger_writes_for_the_same_users_do_not_deadlock(self, ledger: Ledger) -> None:
        users = [f"user-{number:03}" for number in range(300)]
        orders = (users, users[::-1], users[::2] + users[1::2], users[150:] + users[:150])
        await asyncio.gather(
            *(ledger.save_last_seen(dict.fromkeys(order, NOW + n)) for n, order in enumerate(orders)),
            *(ledger.save_choices([Choice(user, n + 1) for user in order]) for n, order in enumerate(orders)),
            *(ledger.apply([follow("me", user) for user in order]) for order in orders),
            *(ledger.apply([gone(follow(user, "me")) for user in order]) for order in orders),
        )
        known = await ledger.remembered(users)
        assert {(k.last_seen, k.choice and k.choice.version) for k in known.values()} == {(NOW + 3, 4)}
        assert all([await ledger.follows("me", user) for user in users[::50]])

    async def test_last_seen_and_modes_saved_while_a_user_is_being_deleted_do_not_remain(self, ledger: Ledger) -> None:
        users = [f"user-{number:02}" for number in range(20)]

        async def erase(user: str) -> None:
            await ledger.erase(Void(user, NOW, NOW + 10, NOW))

        async def save() -> None:
            for _ in range(5):
                await ledger.save_last_seen(dict.fromkeys(users, NOW - 1))
                await ledger.save_choices([Choice(user, NOW - 1, Mode.BUSY) for user in users])

        await asyncio.gather(save(), save(), *(erase(user) for user in users))
        assert await ledger.remembered(users) == {}

    async def test_a_cancelled_ledger_call_leaves_the_ledger_consistent(self, ledger: Ledger) -> None:
        calls = [asyncio.ensure_future(ledger.apply(mutual("me", f"user-{number}"))) for number in range(10)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await ledger.save_last_seen({"ana": NOW})
        assert await seen(ledger, "ana") == NOW
        friends = await ledger.contacts("me", NOW)
        assert set(friends) >= {f"user-{number}" for number in range(1, 10, 2)}
        told, _ = await ledger.changes(0, 100)
        assert {frozenset((change.a, change.b)) for change in told} == {frozenset(("me", friend)) for friend in friends}


# --- Helpers


def follow(a: str, b: str) -> RelationRow:
    return RelationRow("follow", a, b)


def mutual(a: str, b: str) -> list[RelationRow]:
    return [follow(a, b), follow(b, a)]


def contact(a: str, b: str, until: int | None = None) -> RelationRow:
    return RelationRow("contact", a, b, until)


def room(name: str, user: str) -> RelationRow:
    return RelationRow("room", name, user)


def gone(row: RelationRow) -> RelationRow:
    return RelationRow(row.kind, row.a, row.b, remove=True)


def pair(change: LedgerChange) -> tuple[str, set[str]]:
    """Return kind and users of a change of a relation, for comparing: the order of the two users does not matter."""
    return change.kind, {change.a, change.b}


def busy_at(version: int) -> Callable[[Choice | None], Choice]:
    """A function for `choose_late` that makes ana busy and keeps the other values."""
    return lambda stored: replace(stored or Choice("ana", 0), version=version, mode=Mode.BUSY)


def flagged(*users: str, at: int = 0) -> dict[str, int]:
    return dict.fromkeys(users, at)


async def seen(ledger: Ledger, user: str) -> int | None:
    return (await ledger.remembered([user]))[user].last_seen


async def chosen(ledger: Ledger, user: str) -> Choice | None:
    return (await ledger.remembered([user]))[user].choice


async def both_ways(ledger: Ledger, a: str, b: str, now: int = NOW) -> Relation:
    """Read the relation of two users from both sides, assert that both are the same, and return it."""
    [there], [back] = await ledger.between(a, [b], now), await ledger.between(b, [a], now)
    assert there == back
    return there


async def everything(ledger: Ledger, users: Iterable[str] = ("ana", "bo", "cy")) -> tuple[object, ...]:
    known = tuple(users)
    return (
        await ledger.remembered(known),
        [await ledger.contacts(user, NOW) for user in known],
        await ledger.is_member("r", "ana"),
        await ledger.preferences(known),
        await ledger.blocks("ana", known),
        await ledger.changes(0, 100),
    )
