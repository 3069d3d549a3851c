"""Faults that the tests of the core must notice, each with the tests that do.

A fault is a piece of source, wherever in the core it stands, and what stands there instead. `python -m tests.core.mutants`
plants one after the other into a copy of the core and runs the named tests against it, in forked children so that pytest
is loaded once; it prints what became of each. Nothing here imports herenow: a child must find the copy first.
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
"""Seconds; a fault may make something endless."""


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
        "test_status.py::test_a_bare_beat_is_life_only",
    ),
    mutant(
        "an old beat revives",
        "(s.live or beat.seen_at <= s.seen_at)",
        "s.live",
        "test_unleased.py::test_a_beat_that_a_node_still_remembers_revives_nobody",
    ),
    mutant(
        "frequent beats are written",
        "return 3 * (held.seen_at - session.seen_at) >= dead_after",
        "return held.seen_at > session.seen_at",
        "test_unleased.py::test_frequent_beats_cost_no_writes",
    ),
    mutant(
        "grace is a millisecond short",
        "replace(session, seen_at=seen_at, lost_at=at)",
        "replace(session, seen_at=seen_at, lost_at=at - 1)",
        "test_grace.py::test_grace",
    ),
    mutant(
        "grace is a millisecond long",
        "replace(session, seen_at=seen_at, lost_at=at)",
        "replace(session, seen_at=seen_at, lost_at=at + 1)",
        "test_grace.py::test_grace",
    ),
    mutant(
        "a tab on a node that seemed dead stays",
        "tombstones = _tombstones([*gone, *missing], now, epochs)",
        "tombstones = _tombstones(gone, now, epochs)",
        "test_sign_out.py::test_a_tab_on_a_node_that_seemed_dead_is_signed_out_with_its_device",
    ),
    mutant(
        "a node that is back is still expected",
        "if (r.device, r.holder) != (held.device, held.asserted_by))",
        "if r)",
        "test_sign_out.py::test_that_a_session_was_retired_is_forgotten_when_its_node_is_back_and_in_time",
    ),
    mutant(
        "a sweep restarts a running grace",
        "    if session is None or not session.live:\n        return presence\n    seen_at = max(",
        "    if session is None:\n        return presence\n    seen_at = max(",
        "test_last_seen.py::test_a_sweep_never_restarts_a_running_grace",
    ),
    mutant(
        "an equal change is sent",
        "change = Change(seen, shows) if shows != seen else None",
        "change = Change(seen, shows)",
        "test_status.py::test_what_is_shown",
    ),
    mutant(
        "a mode's end clears its successor",
        "replace(presence, mode=mode, mode_until=end)",
        "replace(presence, mode=mode, mode_until=end or presence.mode_until)",
        "test_modes.py::test_modes",
    ),
    mutant(
        "a choice that comes too late is taken",
        "if end is not None and end <= now:",
        "if False:",
        "test_modes.py::test_a_choice_that_comes_after_its_own_end_is_no_choice",
    ),
    mutant(
        "a mode keeps who is gone",
        "    if not presence.sessions:\n        return set_status(presence, _OFFLINE, at)",
        "    if not presence.sessions and presence.mode is Mode.AUTO:\n"
        "        return set_status(presence, _OFFLINE, at)",
        "test_modes.py::test_modes",
    ),
    mutant(
        "last seen goes back",
        "return other if one is None else max(one, other)",
        "return other",
        "test_last_seen.py::test_last_seen_never_goes_back",
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
        "test_last_seen.py::test_who_left_a_node_that_was_taken_for_dead_was_seen_until_then",
    ),
    mutant(
        "who is back at once was not seen",
        "                presence = seen(presence, h.seen_at)\n",
        "                pass\n",
        "test_grace.py::test_who_was_back_before_the_record_heard_of_the_loss_was_seen_when_they_left",
    ),
    mutant(
        "what somebody did who may have hidden enters last seen",
        " or loss.seen_at <= presence.chosen:",
        ":",
        "test_last_seen.py::test_what_nobody_was_to_know_of_a_late_loss_is_not_told",
    ),
    mutant(
        "who was signed out is seen after that",
        "if not shown or signed_out or",
        "if not shown or",
        "test_last_seen.py::test_what_nobody_was_to_know_of_a_late_loss_is_not_told",
    ),
    mutant(
        "who was deleted is remembered by a late loss",
        " or presence.erased_at is not None or loss",
        " or loss",
        "test_last_seen.py::test_what_nobody_was_to_know_of_a_late_loss_is_not_told",
    ),
    mutant(
        "who was never shown is seen by a late loss",
        " and loss.seen_at >= loss.since + timings.online_delay",
        "",
        "test_last_seen.py::test_who_left_before_being_shown_is_not_seen_by_a_late_loss",
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
        "test_hidden.py::test_hidden_is_signed_out_at_the_moment_of_hiding",
    ),
    mutant(
        "invisible leaks text and platforms",
        "or presence.hidden:\n        return View(since=presence.last_seen, last_seen=presence.last_seen)",
        "or presence.hidden:\n        return View(since=presence.last_seen, last_seen=presence.last_seen, "
        "custom=presence.custom, platforms=tuple(sorted(presence.platforms)))",
        "test_hidden.py::test_hidden_is_signed_out_at_the_moment_of_hiding",
    ),
    mutant(
        "shown again, it says since when it was hidden",
        "replace(presence, platforms=platforms_of(presence), since=at, shown_at=at)",
        "replace(presence, platforms=platforms_of(presence))",
        "test_hidden.py::test_visible_again",
    ),
    mutant(
        "an arrival is in the snapshots before it is shown",
        "return self.mode is _INVISIBLE or self.arriving_until is not None",
        "return self.mode is _INVISIBLE",
        "test_arrival.py::test_an_arrival_is_shown_late_or_never",
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
        "test_sign_out.py::test_sign_out",
    ),
    mutant(
        "coming back is activity",
        "_continued_session(same, held) if same else _new_session(held)",
        "_new_session(held)",
        "test_grace.py::test_grace",
    ),
    mutant(
        "idleness of the time in grace shows as online first",
        "sessions = idled((*rest, session), now - idle_limit(presence, timings))",
        "sessions = (*rest, session)",
        "test_grace.py::test_grace",
    ),
    mutant(
        "signing out goes through grace",
        "rest = tuple(s for s in presence.sessions if s.device != device)",
        "rest = tuple(replace(s, lost_at=now) if s.device == device else s for s in presence.sessions)",
        "test_sign_out.py::test_sign_out",
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
        "test_outcome.py::test_versions_rise_also_within_a_millisecond_and_when_the_clock_went_back",
    ),
    mutant(
        "versions begin again",
        "version = max(record.version + 1, now)",
        "version = record.version + 1",
        "test_outcome.py::test_versions_rise_above_what_anybody_has_seen",
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
        "        dues.append(tombstone.at + REMEMBER_SIGN_OUT)",
        "        pass",
        "test_sign_out.py::test_a_note_is_forgotten_in_time_and_lets_the_record_go",
    ),
    mutant(
        "absence is evidence in a shard that forgot",
        "or held.asserted_by != held.holder or not settled:",
        "or held.asserted_by != held.holder:",
        "test_sign_out.py::test_absence_is_evidence_only_in_a_settled_shard",
    ),
    mutant(
        "a late close takes the session elsewhere along",
        "tuple(_with_activity_of(s, session) for s in presence.sessions if s is not session)",
        "tuple(s for s in presence.sessions if s.device != device)",
        "test_grace.py::test_a_late_close_never_touches_the_session_elsewhere",
    ),
    mutant(
        "an old word of idleness beats later activity",
        "return held.idle and (held.idle_at is None or held.idle_at >= active_at)",
        "return held.idle",
        "test_devices.py::test_devices_are_merged",
    ),
    mutant(
        "a second device is news by itself",
        "return presence if presence.platforms <= here else",
        "return presence if presence.platforms == here else",
        "test_devices.py::test_devices_are_merged",
    ),
    mutant(
        "the youngest in grace gives way",
        "removed(presence, min(in_grace,",
        "removed(presence, max(in_grace,",
        "test_session_cap.py::test_the_cap",
    ),
    mutant(
        "a loss is told again after the return",
        "(h.device, h.holder) not in back]",
        "True]",
        "test_grace.py::test_a_loss_that_is_reported_again_is_history",
    ),
    mutant(
        "what a newer herenow wrote is dropped",
        "extra += record[start:at]",
        "extra += b''",
        "test_record.py::test_a_foreign_field_survives_being_settled",
    ),
    mutant(
        "a record that was cut off is believed",
        "    if at != end:\n",
        "    if False:\n",
        "test_record.py::test_broken_records",
    ),
)


def places(fragment: str) -> list[Path]:
    """Modules of the core, one for each time that they have it."""
    sources = {path: path.read_text() for path in (SOURCE / "core").glob("*.py")}
    return [path for path, source in sources.items() for _ in range(source.count(fragment))]


def main() -> None:
    """Prints name → exit code of pytest (0 passed, 1 failed) as JSON; the empty name is the core without a fault."""
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
    # The fixtures of other tests need more of herenow than the copy has.
    arguments += ["--rootdir", str(ROOT), "--import-mode=importlib", "--noconftest"]
    arguments += [str(ROOT / "tests" / "core" / test) for test in each.caught_by]
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(arguments)
    os._exit(code)


if __name__ == "__main__":
    main()
