"""Sources of mode and custom status: which one counts, and what hiding and showing follow from that.

Each source (`model.Source`) has a mode, a custom status, both or none, each with its own end. The highest source with a mode
gives the mode of the record, the highest with a custom status gives that one. `choices` reads all of them from a record, the
user's own included, and `with_choices` writes them: every change of a mode or custom status is a change of this list.

A node of a version without sources changes `mode` and `custom` of a record and keeps `sources` unread. `agreed` then decides
anew: a mode or custom status that no source gives counts as chosen by the user.
"""

from __future__ import annotations

from collections.abc import Iterable

from herenow.core.model import Custom, Mode, Presence, Source, Sourced, Status, public
from herenow.core.sessions import later
from herenow.core.status import shown, update_status
from herenow.core.values import replace

_USER = Source.USER
_AUTO, _INVISIBLE = Mode.AUTO, Mode.INVISIBLE
_NO_CHOICE = Sourced(_USER)


def choices(presence: Presence) -> tuple[Sourced, ...]:
    """Return the mode and custom status of every source that has set one, highest source first, the user's own included."""
    own = choice_of(presence, _USER)
    return presence.sources if own == _NO_CHOICE else (own, *presence.sources)


def choice_of(presence: Presence, source: Source) -> Sourced:
    if source is _USER:
        has_mode, has_custom = presence.mode_source is _USER, presence.custom_source is _USER
        return Sourced(
            _USER,
            presence.mode if has_mode else _AUTO,
            presence.mode_until if has_mode else None,
            presence.custom if has_custom else None,
        )
    return next((each for each in presence.sources if each.source is source), Sourced(source))


def with_choice(presence: Presence, choice: Sourced, at: int, hidden_at: int | None = None) -> Presence:
    """Return the record with this mode and custom status in place of those that the same source had set. They take
    effect at `at`. `hidden_at`: the last seen of a user that they hide; None: `at`."""
    others = [each for each in choices(presence) if each.source is not choice.source]
    return with_choices(presence, [*others, choice], at, hidden_at)


def with_choices(presence: Presence, chosen: Iterable[Sourced], at: int, hidden_at: int | None = None) -> Presence:
    """Return the record with its modes and custom statuses replaced by `chosen`, at most one of each per source (user,
    call, calendar …). From `at` (ms) on the one of the source with the highest priority counts. This may hide the
    user, or end hiding. `hidden_at`: the last seen of a user that is hidden by it; None: `at`."""
    chosen = sorted((each for each in chosen if _is_choice(each)), key=_rank)
    by_mode = next((each for each in chosen if each.mode is not _AUTO), _NO_CHOICE)
    by_custom = next((each for each in chosen if each.custom is not None), _NO_CHOICE)
    mode = by_mode.mode
    hiding = mode is _INVISIBLE and public(presence).status is not Status.OFFLINE
    showing = presence.mode is _INVISIBLE and mode is not _INVISIBLE
    if hiding and presence.live:  # a live session is a sign of life now; a lost one has updated `last_seen`
        presence = replace(presence, last_seen=later(presence.last_seen, at if hidden_at is None else hidden_at))
    presence = replace(
        presence,
        mode=mode,
        mode_until=by_mode.mode_until,
        custom=by_custom.custom,
        sources=tuple(
            replace(each, gives_mode=each is by_mode, gives_custom=each is by_custom)
            for each in chosen
            if each.source is not _USER
        ),
    )
    return shown(presence, at) if showing else presence


def ends(chosen: Iterable[Sourced]) -> list[int]:
    """Return the times at which these modes and custom statuses end."""
    found: list[int] = []
    for each in chosen:
        if each.mode_until is not None:
            found.append(each.mode_until)
        if each.custom is not None and each.custom.until is not None:
            found.append(each.custom.until)
    return found


def without_ended(presence: Presence, at: int) -> Presence:
    """Return the record without the modes and custom statuses that have ended by `at`. Those of the next lower sources
    are then in force."""
    chosen = choices(presence)
    if not any(end <= at for end in ends(chosen)):
        return presence
    return with_choices(presence, [_unended(each, at) for each in chosen], at)


def restored(presence: Presence, lost: Presence, at: int) -> Presence:
    """Return the record with the modes and custom statuses of `lost`, a newer record that the store has lost, except
    for those that have ended by `at`."""
    return with_choices(presence, [_unended(each, at) for each in choices(lost)], at)


def with_newer_choices(presence: Presence, newer: Presence | None, now: int) -> Presence:
    """Return the record with the modes and custom statuses of `newer` if those have a higher version (`chosen`), and
    with the status that follows from them; otherwise the record itself. `newer` comes from the ledger: the store did not
    take it, or this node cannot read it there. They take effect at the time of their version, so that a user who went
    invisible was last seen then, however late the record learns of it; or at `newer.last_seen`, if the user was invisible
    before. `newer.shown_at`: when the user came back from an invisibility that is not in the record. Values from before
    the user's deletion do not count."""
    if newer is None or newer.chosen <= max(presence.chosen, presence.erased_at or 0):
        return presence
    at = min(now, newer.chosen)
    hidden_at = at if newer.last_seen is None else min(at, newer.last_seen)
    presence = with_choices(presence, choices(newer), at, hidden_at)
    presence = update_status(replace(presence, chosen=newer.chosen), at)
    came_back = newer.shown_at
    if came_back is None or presence.mode is _INVISIBLE or came_back <= (presence.since or 0):
        return presence
    return shown(presence, min(now, came_back))


def as_shown(presence: Presence, newer: Presence | None, now: int) -> Presence:
    """Return the presence to show while the record lacks the modes and custom statuses of `newer`, which may be None:
    as `with_newer_choices`, without those that have ended."""
    later = with_newer_choices(presence, newer, now)
    if later is presence:
        return presence
    return update_status(without_ended(later, now), now)


def without_choices(presence: Presence) -> Presence:
    """Return the record as if no mode and no custom status had ever been chosen."""
    return replace(presence, mode=_AUTO, mode_until=None, custom=None, sources=(), chosen=0)


def version_after(presence: Presence, now: int) -> int:
    """Return the version of modes and custom statuses that are chosen at `now` and not committed to the store. It is
    higher than that of a commit over this record of which the outcome is unknown."""
    return max(now, presence.version + 2, presence.chosen + 2)


def agreed(presence: Presence, at: int) -> Presence:
    """Return the record with the mode and custom status of the highest sources in force. This is the record itself,
    unless a node of a version that knows no sources has changed it."""
    if not presence.sources:
        return presence
    decided = with_choices(presence, choices(presence), at)
    same = (decided.mode, decided.mode_until, decided.custom, decided.sources) == (
        presence.mode,
        presence.mode_until,
        presence.custom,
        presence.sources,
    )
    return presence if same else with_choices(presence, [_unended(each, at) for each in choices(presence)], at)


def _unended(choice: Sourced, at: int) -> Sourced:
    if choice.mode_until is not None and choice.mode_until <= at:
        choice = replace(choice, mode=_AUTO, mode_until=None)
    if choice.custom is not None and _has_ended(choice.custom, at):
        choice = replace(choice, custom=None)
    return choice


def _has_ended(custom: Custom, at: int) -> bool:
    return custom.until is not None and custom.until <= at


def _is_choice(choice: Sourced) -> bool:
    return choice.mode is not _AUTO or choice.custom is not None


def _rank(choice: Sourced) -> Source:
    return choice.source
