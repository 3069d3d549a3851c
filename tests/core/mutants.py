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
        "test_status.py::test_a_heartbeat_without_activity_does_not_wake_a_user",
    ),
    mutant(
        "an old beat revives",
        "(s.live or beat.seen_at <= s.seen_at)",
        "s.live",
        "test_unleased.py::test_an_old_remembered_heartbeat_does_not_revive_a_session",
    ),
    mutant(
        "frequent beats are written",
        "return 3 * (held.seen_at - session.seen_at) >= dead_after",
        "return held.seen_at > session.seen_at",
        "test_unleased.py::test_frequent_heartbeats_cause_no_writes",
    ),
    mutant(
        "grace is a millisecond short",
        "replace(session, seen_at=seen_at, lost_at=at)",
        "replace(session, seen_at=seen_at, lost_at=at - 1)",
        "test_grace.py::test_a_lost_session_is_kept_during_grace",
    ),
    mutant(
        "grace is a millisecond long",
        "replace(session, seen_at=seen_at, lost_at=at)",
        "replace(session, seen_at=seen_at, lost_at=at + 1)",
        "test_grace.py::test_a_lost_session_is_kept_during_grace",
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
        "test_sign_out.py::test_a_retired_session_entry_is_removed_when_its_node_returns_or_after_a_while",
    ),
    mutant(
        "a sweep restarts a running grace",
        "    if session is None or not session.live:\n        return presence\n    seen_at = max(",
        "    if session is None:\n        return presence\n    seen_at = max(",
        "test_last_seen.py::test_a_sweep_never_restarts_a_grace_in_progress",
    ),
    mutant(
        "an equal change is sent",
        "change = Change(seen, shows) if shows != seen else None",
        "change = Change(seen, shows)",
        "test_status.py::test_a_viewer_sees_these_statuses_in_order",
    ),
    mutant(
        "a mode's end clears its successor",
        "mode=mode, mode_until=end), now)",
        "mode=mode, mode_until=end or presence.mode_until), now)",
        "test_modes.py::test_a_mode_changes_the_shown_status",
    ),
    mutant(
        "a choice that comes too late is taken",
        "if end is not None and end <= now:",
        "if False:",
        "test_modes.py::test_a_mode_or_text_that_arrives_after_its_end_is_ignored",
    ),
    mutant(
        "a service erases what the user chose",
        "others = [each for each in choices(presence) if each.source is not choice.source]",
        "others = [each for each in presence.sources if each.source is not choice.source]",
        "test_sources.py::test_the_highest_source_counts",
    ),
    mutant(
        "the end of one source ends all",
        "[_unended(each, at) for each in chosen], at)",
        "[], at)",
        "test_sources.py::test_the_end_of_a_source_reveals_the_next",
    ),
    mutant(
        "only the source that counts ends",
        "        dues += ends(presence.sources)\n",
        "        pass\n",
        "test_sources.py::test_a_source_below_ends_at_its_own_time",
    ),
    mutant(
        "a record with sources is dropped",
        "presence.custom or presence.sources or",
        "presence.custom or",
        "test_sources.py::test_a_record_with_sources_is_kept_in_the_store",
    ),
    mutant(
        "what a node without sources did is believed",
        "if presence.sources and (decided := agreed(presence, now)) is not presence:",
        "if False:",
        "test_sources.py::test_after_a_node_without_sources_the_highest_source_counts",
    ),
    mutant(
        "a mode keeps who is gone",
        "    if not presence.sessions:\n        return set_status(presence, _OFFLINE, at)",
        "    if not presence.sessions and presence.mode is Mode.AUTO:\n"
        "        return set_status(presence, _OFFLINE, at)",
        "test_modes.py::test_a_mode_changes_the_shown_status",
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
        "test_hidden.py::test_hidden_activity_never_enters_last_seen",
    ),
    mutant(
        "who left a node that was taken for dead was seen when it was",
        "            return _seen_later(presence, session, loss, timings)\n",
        "            return presence\n",
        "test_last_seen.py::test_a_user_who_leaves_a_node_wrongly_declared_dead_was_seen_until_that_moment",
    ),
    mutant(
        "who is back at once was not seen",
        "                presence = seen(presence, h.seen_at)\n",
        "                pass\n",
        "test_grace.py::test_a_loss_processed_after_the_user_returned_still_sets_last_seen",
    ),
    mutant(
        "what somebody did who may have hidden enters last seen",
        " or loss.seen_at <= presence.chosen:",
        ":",
        "test_last_seen.py::test_a_late_loss_does_not_reveal_what_was_hidden",
    ),
    mutant(
        "who was signed out is seen after that",
        "if not shown or signed_out or",
        "if not shown or",
        "test_last_seen.py::test_a_late_loss_does_not_reveal_what_was_hidden",
    ),
    mutant(
        "who was deleted is remembered by a late loss",
        " or presence.erased_at is not None or loss",
        " or loss",
        "test_last_seen.py::test_a_late_loss_does_not_reveal_what_was_hidden",
    ),
    mutant(
        "who was never shown is seen by a late loss",
        " and loss.seen_at >= loss.since + timings.online_delay",
        "",
        "test_last_seen.py::test_a_late_loss_sets_no_last_seen_for_a_user_who_was_never_shown",
    ),
    mutant(
        "a hidden sign-out enters last seen",
        "if any(s.live for s in gone) and not presence.hidden:",
        "if any(s.live for s in gone):",
        "test_hidden.py::test_hidden_activity_never_enters_last_seen",
    ),
    mutant(
        "hiding leaves the last seen of before",
        "if hiding and presence.live:",
        "if False:",
        "test_hidden.py::test_a_hidden_user_looks_signed_out_at_the_moment_of_hiding",
    ),
    mutant(
        "invisible leaks text and platforms",
        "or presence.hidden:\n        return View(since=presence.last_seen, last_seen=presence.last_seen)",
        "or presence.hidden:\n        return View(since=presence.last_seen, last_seen=presence.last_seen, "
        "custom=presence.custom, platforms=tuple(sorted(presence.platforms)))",
        "test_hidden.py::test_a_hidden_user_looks_signed_out_at_the_moment_of_hiding",
    ),
    mutant(
        "shown again, it says since when it was hidden",
        "replace(presence, platforms=platforms_of(presence), since=at, shown_at=at)",
        "replace(presence, platforms=platforms_of(presence))",
        "test_hidden.py::test_a_user_who_becomes_visible_again_is_shown_as_one_change",
    ),
    mutant(
        "an arrival is in the snapshots before it is shown",
        "return self.mode is _INVISIBLE or self.arriving_until is not None",
        "return self.mode is _INVISIBLE",
        "test_arrival.py::test_a_new_user_is_shown_after_the_online_delay_or_never",
    ),
    mutant(
        "a frozen status is judged again",
        "return presence  # frozen",
        "return set_status(presence, live_status(presence), at)  # frozen",
        "test_status.py::test_the_status_follows_the_rules",
    ),
    mutant(
        "the rest in grace is not judged without the one that signed out",
        "if frozen and _includes_last_live(gone, rest):",
        "if False:",
        "test_sign_out.py::test_a_sign_out_ends_sessions_without_grace",
    ),
    mutant(
        "coming back is activity",
        "_continued_session(same, held) if same else _new_session(held)",
        "_new_session(held)",
        "test_grace.py::test_a_lost_session_is_kept_during_grace",
    ),
    mutant(
        "idleness of the time in grace shows as online first",
        "sessions = idled((*rest, session), now - idle_limit(presence, timings))",
        "sessions = (*rest, session)",
        "test_grace.py::test_a_lost_session_is_kept_during_grace",
    ),
    mutant(
        "signing out goes through grace",
        "rest = tuple(s for s in presence.sessions if s.device != device)",
        "rest = tuple(replace(s, lost_at=now) if s.device == device else s for s in presence.sessions)",
        "test_sign_out.py::test_a_sign_out_ends_sessions_without_grace",
    ),
    mutant(
        "a lost session does not count as active",
        "if session.idle is _NOT_IDLE:\n            return _ONLINE",
        "if session.idle is _NOT_IDLE and session.live:\n            return _ONLINE",
        "test_status.py::test_the_status_follows_the_rules",
    ),
    mutant(
        "away begins when it is noticed",
        "since = max(max(s.active_at for s in presence.sessions), presence.shown_at or 0)",
        "since = at",
        "test_status.py::test_the_status_follows_the_rules",
    ),
    mutant(
        "a new idle_after begins anew",
        "replace(s, idle=Idle.NO) if s.idle is Idle.TIMED_OUT",
        "replace(s, idle=Idle.NO, active_at=now) if s.idle is Idle.TIMED_OUT",
        "test_status.py::test_a_longer_idle_after_counts_from_the_stored_activity",
    ),
    mutant(
        "a version does not rise",
        "version = max(record.version + 1, now)",
        "version = max(record.version, now)",
        "test_outcome.py::test_versions_increase_within_a_millisecond_and_after_a_clock_step_back",
    ),
    mutant(
        "versions begin again",
        "version = max(record.version + 1, now)",
        "version = record.version + 1",
        "test_outcome.py::test_a_version_is_higher_than_every_version_seen_before",
    ),
    mutant(
        "no note for a holder that missed the sign-out",
        "signed_out=presence.signed_out + tombstones",
        "signed_out=presence.signed_out",
        "test_sign_out.py::test_a_signed_out_session_is_never_asserted_again",
    ),
    mutant(
        "a note outlives the next connection",
        "    if tombstones:  # a new connection",
        "    if False:  # a new connection",
        "test_sign_out.py::test_a_signed_out_session_is_never_asserted_again",
    ),
    mutant(
        "a note is kept for ever",
        "kept_since = [tombstone.at for tombstone in presence.signed_out]",
        "kept_since: list[int] = []",
        "test_sign_out.py::test_a_sign_out_entry_expires_and_lets_the_record_be_dropped",
    ),
    mutant(
        "absence is evidence in a shard that forgot",
        "or held.asserted_by != held.holder or not settled:",
        "or held.asserted_by != held.holder:",
        "test_sign_out.py::test_a_session_missing_from_a_record_counts_as_ended_only_in_a_settled_shard",
    ),
    mutant(
        "a late close takes the session elsewhere along",
        "tuple(_with_activity_of(s, session) for s in presence.sessions if s is not session)",
        "tuple(s for s in presence.sessions if s.device != device)",
        "test_grace.py::test_a_late_close_does_not_end_the_session_on_another_node",
    ),
    mutant(
        "an old word of idleness beats later activity",
        "return held.idle and (held.idle_at is None or held.idle_at >= active_at)",
        "return held.idle",
        "test_devices.py::test_a_status_combines_all_devices",
    ),
    mutant(
        "a second device is news by itself",
        "return presence if presence.platforms <= here else",
        "return presence if presence.platforms == here else",
        "test_devices.py::test_a_status_combines_all_devices",
    ),
    mutant(
        "the youngest in grace gives way",
        "removed(presence, min(in_grace,",
        "removed(presence, max(in_grace,",
        "test_session_cap.py::test_sessions_over_the_cap_are_refused_or_replace_one_in_grace",
    ),
    mutant(
        "a loss is told again after the return",
        "(h.device, h.holder) not in back]",
        "True]",
        "test_grace.py::test_a_loss_that_is_reported_again_changes_nothing",
    ),
    mutant(
        "what a newer herenow wrote is dropped",
        "extra += record[start:at]",
        "extra += b''",
        "test_record.py::test_settle_keeps_an_unknown_field",
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
