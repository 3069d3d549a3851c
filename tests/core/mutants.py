"""Mutants of the core, each with the tests that must catch it.

A mutant is a fragment of the core's source and its replacement. `python -m tests.core.mutants` applies one after the
other to a copy of the core and runs the named tests against it, in forked children so that pytest is loaded once; it
prints the exit code of each. Nothing here imports herenow: a child must find the copy first.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "herenow"
AT_ONCE = 2
TOO_LONG = 120
"""Seconds; a mutant may cause an endless loop."""


@dataclass(frozen=True)
class Mutant:
    name: str
    fragment: str
    instead: str
    caught_by: tuple[str, ...]


def mutant(name: str, fragment: str, instead: str, *caught_by: str) -> Mutant:
    return Mutant(name, fragment, instead, caught_by)


MUTANTS = (
    mutant(
        "a bare beat wakes",
        "acted = held.active_at > session.active_at\n",
        "acted = held.seen_at > session.active_at\n",
        "test_status.py::test_a_heartbeat_without_activity_changes_neither_the_status_nor_the_record_of_a_user",
    ),
    mutant(
        "an old beat revives",
        "(s.live or beat.seen_at <= s.seen_at)",
        "s.live",
        "test_unleased.py::test_an_old_rest_heartbeat_in_the_memory_of_a_node_does_not_revive_an_ended_session",
    ),
    mutant(
        "frequent beats are written",
        "return 3 * (held.seen_at - session.seen_at) >= dead_after",
        "return held.seen_at > session.seen_at",
        "test_unleased.py::test_a_rest_heartbeat_every_second_causes_one_write_every_thirty_seconds",
    ),
    mutant(
        "grace is a millisecond short",
        "replace(session, seen_at=seen_at, lost_at=at)",
        "replace(session, seen_at=seen_at, lost_at=at - 1)",
        "test_grace.py::test_a_lost_session_is_kept_until_its_reconnect_window_ends",
    ),
    mutant(
        "grace is a millisecond long",
        "replace(session, seen_at=seen_at, lost_at=at)",
        "replace(session, seen_at=seen_at, lost_at=at + 1)",
        "test_grace.py::test_a_lost_session_is_kept_until_its_reconnect_window_ends",
    ),
    mutant(
        "a tab on a node that seemed dead stays",
        "tombstones = _tombstones([*gone, *missing], now, epochs)",
        "tombstones = _tombstones(gone, now, epochs)",
        "test_sign_out.py::test_a_sign_out_also_ends_a_tab_on_a_node_wrongly_declared_dead",
    ),
    mutant(
        "a node that is back is still expected",
        "if (r.device, r.holder) != (held.device, held.asserted_by))",
        "if r)",
        "test_sign_out.py::test_a_record_forgets_a_session_of_a_dead_node_when_the_node_returns_or_after_ten_minutes",
    ),
    mutant(
        "a sweep restarts a running grace",
        "    if session is None or not session.live:\n        return presence\n    seen_at = max(",
        "    if session is None:\n        return presence\n    seen_at = max(",
        "test_last_seen.py::test_declaring_a_node_dead_twice_does_not_restart_the_reconnect_window_of_its_users",
    ),
    mutant(
        "an equal change is sent",
        "change = Change(seen, shows) if shows != seen else None",
        "change = Change(seen, shows)",
        "test_status.py::test_a_viewer_sees_each_status_change_once_and_in_order",
    ),
    mutant(
        "a mode's end clears its successor",
        "mode=mode, mode_until=end)",
        "mode=mode, mode_until=end or presence.mode_until)",
        "test_modes.py::test_a_mode_changes_the_status_that_viewers_see_until_the_mode_ends",
    ),
    mutant(
        "a choice that comes too late is taken",
        "if end is not None and end <= now:",
        "if False:",
        "test_modes.py::test_a_mode_or_custom_text_that_arrives_after_its_own_end_time_is_ignored",
    ),
    mutant(
        "a service erases what the user chose",
        "others = [each for each in choices(presence) if each.source is not choice.source]",
        "others = [each for each in presence.sources if each.source is not choice.source]",
        "test_sources.py::test_of_modes_set_by_user_call_service_calendar_and_schedule_the_highest_ranked_is_shown",
    ),
    mutant(
        "the end of one source ends all",
        "[_unended(each, at) for each in chosen], at)",
        "[], at)",
        "test_sources.py::test_when_a_mode_set_by_a_call_ends_the_mode_set_by_the_calendar_is_shown",
    ),
    mutant(
        "only the source that counts ends",
        "        dues += ends(presence.sources)\n",
        "        pass\n",
        "test_sources.py::test_mode_and_text_set_by_a_calendar_end_on_time_even_while_the_users_own_mode_is_shown",
    ),
    mutant(
        "a record with sources is dropped",
        "presence.custom or presence.sources or",
        "presence.custom or",
        "test_sources.py::test_a_record_with_a_mode_or_text_set_by_a_service_is_kept_in_the_store",
    ),
    mutant(
        "what a node without sources did is believed",
        "if presence.sources and (decided := agreed(presence, now)) is not presence:",
        "if False:",
        "test_sources.py::test_after_a_write_by_an_older_release_the_mode_of_the_highest_ranked_source_counts",
    ),
    mutant(
        "a mode keeps who is gone",
        "    if not presence.sessions:\n        return set_status(presence, _OFFLINE, at)",
        "    if not presence.sessions and presence.mode is Mode.AUTO:\n"
        "        return set_status(presence, _OFFLINE, at)",
        "test_modes.py::test_a_mode_changes_the_status_that_viewers_see_until_the_mode_ends",
    ),
    mutant(
        "last seen goes back",
        "return other if one is None else max(one, other)",
        "return other",
        "test_last_seen.py::test_last_seen_never_decreases",
    ),
    mutant(
        "hidden life enters last seen",
        "    if presence.hidden:\n        return presence\n    return replace(presence, last_seen",
        "    return replace(presence, last_seen",
        "test_hidden.py::test_activity_of_a_hidden_user_never_changes_their_last_seen",
    ),
    mutant(
        "who left a node that was taken for dead was seen when it was",
        "            return _seen_later(presence, session, loss, timings)\n",
        "            return presence\n",
        "test_last_seen.py::test_last_seen_of_a_user_who_leaves_a_node_wrongly_declared_dead_is_the_time_of_leaving",
    ),
    mutant(
        "who is back at once was not seen",
        "                presence = seen(presence, h.seen_at)\n",
        "                pass\n",
        "test_grace.py::test_a_disconnect_processed_after_the_user_returned_still_sets_last_seen",
    ),
    mutant(
        "what somebody did who may have hidden enters last seen",
        " or loss.seen_at <= presence.chosen:",
        ":",
        "test_last_seen.py::test_a_disconnect_reported_late_does_not_reveal_when_a_hidden_or_deleted_user_left",
    ),
    mutant(
        "who was signed out is seen after that",
        "if not shown or signed_out or",
        "if not shown or",
        "test_last_seen.py::test_a_disconnect_reported_late_does_not_reveal_when_a_hidden_or_deleted_user_left",
    ),
    mutant(
        "who was deleted is remembered by a late loss",
        " or presence.erased_at is not None or loss",
        " or loss",
        "test_last_seen.py::test_a_disconnect_reported_late_does_not_reveal_when_a_hidden_or_deleted_user_left",
    ),
    mutant(
        "who was never shown is seen by a late loss",
        " and loss.seen_at >= loss.since + timings.online_delay",
        "",
        "test_last_seen.py::test_a_disconnect_reported_late_sets_no_last_seen_of_a_user_who_was_never_shown_online",
    ),
    mutant(
        "a hidden sign-out enters last seen",
        "if any(s.live for s in gone) and not presence.hidden:",
        "if any(s.live for s in gone):",
        "test_hidden.py::test_activity_of_a_hidden_user_never_changes_their_last_seen",
    ),
    mutant(
        "hiding leaves the last seen of before",
        "if hiding and presence.live:",
        "if False:",
        "test_hidden.py::test_a_hidden_user_looks_to_others_like_one_who_signed_out_at_the_moment_of_hiding",
    ),
    mutant(
        "invisible leaks text and platforms",
        "or presence.hidden:\n        return View(since=presence.last_seen, last_seen=presence.last_seen)",
        "or presence.hidden:\n        return View(since=presence.last_seen, last_seen=presence.last_seen, "
        "custom=presence.custom, platforms=tuple(sorted(presence.platforms)))",
        "test_hidden.py::test_a_hidden_user_looks_to_others_like_one_who_signed_out_at_the_moment_of_hiding",
    ),
    mutant(
        "shown again, it says since when it was hidden",
        "replace(presence, platforms=_SINGLE[min(platforms_of(presence))], since=at, shown_at=at)",
        "replace(presence, platforms=platforms_of(presence))",
        "test_hidden.py::test_a_hidden_user_who_becomes_visible_again_is_announced_with_a_single_change",
    ),
    mutant(
        "an arrival is in the snapshots before it is shown",
        "return self.mode is _INVISIBLE or self.arriving_until is not None",
        "return self.mode is _INVISIBLE",
        "test_arrival.py::test_a_user_who_connects_is_shown_after_the_online_delay_and_never_if_they_leave_before",
    ),
    mutant(
        "a frozen status is judged again",
        "return presence  # frozen",
        "return set_status(presence, live_status(presence), at)  # frozen",
        "test_status.py::test_a_status_and_its_since_time_follow_from_sessions_activity_and_mode",
    ),
    mutant(
        "the rest in grace is not judged without the one that signed out",
        "if frozen and _includes_last_live(gone, rest):",
        "if False:",
        "test_sign_out.py::test_a_sign_out_ends_the_sessions_of_a_device_without_a_reconnect_window",
    ),
    mutant(
        "coming back is activity",
        "_continued_session(same, held) if same else _new_session(held)",
        "_new_session(held)",
        "test_grace.py::test_a_lost_session_is_kept_until_its_reconnect_window_ends",
    ),
    mutant(
        "idleness of the time in grace shows as online first",
        "sessions = idled((*rest, session), now - idle_limit(presence, timings))",
        "sessions = (*rest, session)",
        "test_grace.py::test_a_lost_session_is_kept_until_its_reconnect_window_ends",
    ),
    mutant(
        "signing out goes through grace",
        "rest = tuple(s for s in presence.sessions if s.device != device)",
        "rest = tuple(replace(s, lost_at=now) if s.device == device else s for s in presence.sessions)",
        "test_sign_out.py::test_a_sign_out_ends_the_sessions_of_a_device_without_a_reconnect_window",
    ),
    mutant(
        "a lost session does not count as active",
        "if session.idle is _NOT_IDLE:\n            return _ONLINE",
        "if session.idle is _NOT_IDLE and session.live:\n            return _ONLINE",
        "test_status.py::test_a_status_and_its_since_time_follow_from_sessions_activity_and_mode",
    ),
    mutant(
        "away begins when it is noticed",
        "since = max(max(s.active_at for s in presence.sessions), presence.shown_at or 0)",
        "since = at",
        "test_status.py::test_a_status_and_its_since_time_follow_from_sessions_activity_and_mode",
    ),
    mutant(
        "a new idle_after begins anew",
        "replace(s, idle=Idle.NO) if s.idle is Idle.TIMED_OUT",
        "replace(s, idle=Idle.NO, active_at=now) if s.idle is Idle.TIMED_OUT",
        "test_status.py::test_a_longer_idle_after_setting_counts_from_the_last_stored_activity",
    ),
    mutant(
        "a version does not rise",
        "version = max(record.version + 1, now)",
        "version = max(record.version, now)",
        "test_outcome.py::test_record_versions_increase_within_a_millisecond_and_after_a_clock_step_back",
    ),
    mutant(
        "versions begin again",
        "version = max(record.version + 1, now)",
        "version = record.version + 1",
        "test_outcome.py::test_a_record_dropped_from_the_store_and_written_anew_has_a_higher_version_than_before",
    ),
    mutant(
        "no note for a holder that missed the sign-out",
        "signed_out=_newest(presence.signed_out + tombstones, timings)",
        "signed_out=presence.signed_out",
        "test_sign_out.py::test_a_node_that_missed_a_sign_out_never_writes_the_signed_out_session_again",
    ),
    mutant(
        "an answered note stays",
        "if t.holder != epoch or t.device in devices)",
        "if t)",
        "test_sign_out.py::test_a_node_that_closed_a_signed_out_session_removes_its_note_from_the_record",
    ),
    mutant(
        "a note goes before it is answered",
        "if t.holder != epoch or t.device in devices)",
        "if t.holder != epoch)",
        "test_sign_out.py::test_a_note_stays_in_the_record_until_its_node_has_closed_the_session",
    ),
    mutant(
        "notes without end",
        "return entries[-2 * timings.max_sessions :]",
        "return entries",
        "test_sign_out.py::test_a_record_keeps_at_most_twice_max_sessions_sign_out_notes",
    ),
    mutant(
        "a note outlives the next connection",
        "    if tombstones:  # a new connection",
        "    if False:  # a new connection",
        "test_sign_out.py::test_a_node_that_missed_a_sign_out_never_writes_the_signed_out_session_again",
    ),
    mutant(
        "a note is kept for ever",
        "kept_since = [tombstone.at for tombstone in presence.signed_out]",
        "kept_since: list[int] = []",
        "test_sign_out.py::test_a_sign_out_noted_for_another_node_keeps_the_record_in_the_store_for_ten_minutes",
    ),
    mutant(
        "absence is evidence in a shard that forgot",
        "or held.asserted_by != held.holder or not settled:",
        "or held.asserted_by != held.holder:",
        "test_sign_out.py::test_a_session_missing_from_a_record_counts_as_signed_out_unless_the_shard_lost_data",
    ),
    mutant(
        "a late close takes the session elsewhere along",
        "tuple(_with_activity_of(s, session) for s in presence.sessions if s is not session)",
        "tuple(s for s in presence.sessions if s.device != device)",
        "test_grace.py::test_a_socket_closed_late_on_the_old_node_does_not_end_the_session_on_the_new_node",
    ),
    mutant(
        "an old word of idleness beats later activity",
        "return held.idle and (held.idle_at is None or held.idle_at >= active_at)",
        "return held.idle",
        "test_devices.py::test_the_status_of_a_user_combines_all_their_devices",
    ),
    mutant(
        "a second device is news by itself",
        "return presence if presence.platforms <= here else",
        "return presence if presence.platforms == here else",
        "test_devices.py::test_the_status_of_a_user_combines_all_their_devices",
    ),
    mutant(
        "the youngest in grace gives way",
        "removed(presence, min(in_grace,",
        "removed(presence, max(in_grace,",
        "test_session_cap.py::test_a_session_over_the_limit_replaces_one_in_its_reconnect_window_or_is_refused",
    ),
    mutant(
        "a loss is told again after the return",
        "(h.device, h.holder) not in back]",
        "True]",
        "test_grace.py::test_a_disconnect_reported_a_second_time_does_not_change_the_record",
    ),
    mutant(
        "what a newer herenow wrote is dropped",
        "extra += record[start:at]",
        "extra += b''",
        "test_record.py::test_recomputing_a_record_keeps_a_field_of_a_newer_release",
    ),
    mutant(
        "a record that was cut off is believed",
        "    if at != end:\n",
        "    if False:\n",
        "test_record.py::test_a_malformed_record_is_refused",
    ),
)


def places(fragment: str) -> list[Path]:
    """Modules of the core that contain the fragment, once per occurrence."""
    sources = {path: path.read_text() for path in (SOURCE / "core").glob("*.py")}
    return [path for path, source in sources.items() for _ in range(source.count(fragment))]


def main() -> None:
    """Prints name → exit code of pytest (0 passed, 1 failed) as JSON; the empty name is the unchanged core."""
    import hypothesis  # noqa: F401 - loaded once, for all children
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--version"])
    gc.freeze()
    sound = mutant("", "", "", *dict.fromkeys(test for each in MUTANTS for test in each.caught_by))
    waiting = [sound, *MUTANTS]
    running: dict[int, str] = {}
    verdicts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                each = waiting.pop(0)
                running[_fork(pytest, each, Path(folder) / str(len(verdicts) + len(running)))] = each.name
            pid, status = os.wait()
            verdicts[running.pop(pid)] = os.waitstatus_to_exitcode(status)
    print(json.dumps(verdicts))


def _fork(pytest, each: Mutant, folder: Path) -> int:
    shutil.copytree(SOURCE / "core", folder / "herenow" / "core", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SOURCE / "__init__.py", folder / "herenow")
    if each.fragment:
        [sound] = places(each.fragment)
        faulty = sound.read_text().replace(each.fragment, each.instead)
        (folder / "herenow" / "core" / sound.name).write_text(faulty)
    if pid := os.fork():
        return pid
    import signal

    signal.alarm(TOO_LONG)
    sys.path.insert(0, str(folder))
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-c", os.devnull]
    # Fixtures of other tests need more of herenow than the copy contains.
    arguments += ["--rootdir", str(ROOT), "--import-mode=importlib", "--noconftest"]
    arguments += [str(ROOT / "tests" / "core" / test) for test in each.caught_by]
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(arguments)
    os._exit(code)


if __name__ == "__main__":
    main()
