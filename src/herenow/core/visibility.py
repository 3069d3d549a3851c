"""Access rules: what a viewer sees of a target. Rules over facts, in order; the first that applies decides.

`judge` maps facts about (viewer, target) to a scope, the kind of view, and the name of the rule. `seen` projects a presence
through a scope. A new rule is one function, its place in `RULES`, and its rows in the tests.

Hidden looks like offline. A target that is hidden from a viewer, by a block or by the visibility `nobody`, looks as if it
had signed out at that moment. Therefore the ledger keeps, with the block or the preference, the last seen that was public
then (`last_seen_if_gone`). This frozen view is a scope of its own, which no later record changes. Hiding only takes away
from what the viewer would see otherwise: a stranger still sees nothing, and a bucket does not become a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import ClassVar

from herenow.core.model import NOBODY_HERE, Bucket, OwnView, Presence, Status, View, own, public, truth

DAY = 86_400_000
"""Milliseconds."""

_OFFLINE = Status.OFFLINE


class Visibility(IntEnum):
    """The users that may see a user. The numbers are stored in the ledger: never renumber."""

    CONTACTS = 0
    EVERYONE = 1
    NOBODY = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Preferences:
    """A user's choices about being seen. All defaults: the user never chose."""

    visibility: Visibility = Visibility.CONTACTS
    share_last_seen: bool = True
    public: bool = False
    """Anyone may read the user's public profile, without a token."""
    hidden_at: int | None = None
    """When the visibility became `nobody`; None: it is another."""
    hidden_last_seen: int | None = None
    """The user's public last seen at that moment; None: never seen."""


@dataclass(frozen=True, slots=True)
class PreferencesEdit:
    """Changes of a user's preferences; None: unchanged."""

    visibility: Visibility | None = None
    share_last_seen: bool | None = None
    public: bool | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A block between two users, in either direction, as it concerns one of them as the viewer of the other."""

    last_seen: int | None = None
    """The target's last seen as the viewer knew it when the block began."""
    lifted_at: int | None = None
    """When the block ended. A lifted block matters only while the target has been hidden in another way ever since."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a viewer and a target. All defaults: two strangers."""

    same_user: bool = False
    service: bool = False
    mutual_follow: bool = False
    contact: bool = False
    """They have an open conversation."""
    shares_room: bool = False
    """They are members of one room, and the operator lets that count."""
    block: Block | None = None
    target: Preferences = Preferences()
    viewer_shares: bool = True
    """The viewer shares their own last seen. A viewer that does not gets no times of others."""
    invisible: bool = False
    """The target's mode is invisible. The record hides it already, so this changes the rule's name and not the scope."""

    @property
    def related(self) -> bool:
        return self.mutual_follow or self.contact or self.shares_room

    @property
    def may_look(self) -> bool:
        """True if the viewer may see more of the target than a stranger, unless a block or the visibility `nobody`
        hides it."""
        return self.related or self.target.visibility is Visibility.EVERYONE

    @property
    def blurred(self) -> bool:
        return not (self.target.share_last_seen and self.viewer_shares)


class Kind(Enum):
    TRUTH = "truth"
    """Nothing is hidden: for the user's own devices and the operator's services."""
    SHOWN = "shown"
    """The public view; an invisible target is shown as signed out when it became invisible."""
    FROZEN = "frozen"
    """The target is shown as signed out when it was hidden from this viewer."""
    NONE = "none"
    """The target is shown as never seen."""


@dataclass(frozen=True, slots=True)
class ViewScope:
    """The kind of view that a viewer has of a target. Viewers with the same scope of a target get the same bytes."""

    kind: Kind
    blurred: bool = False
    """Without times; a bucket replaces the last seen."""
    last_seen: int | None = None
    """Of a frozen scope: the last seen to show."""

    _hash: int = field(init=False, repr=False, compare=False, default=0)
    """Computed once: encoded statuses are cached by scope and read very often."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kind, self.blurred, self.last_seen)))

    def __hash__(self) -> int:
        return self._hash

    TRUTH: ClassVar[ViewScope]
    FULL: ClassVar[ViewScope]
    BLURRED: ClassVar[ViewScope]
    NONE: ClassVar[ViewScope]

    @property
    def word(self) -> str:
        """The name of this scope in the REST interface: `truth` (nothing is hidden), `full`, `blurred` or `offline`."""
        if self.kind is Kind.SHOWN:
            return "blurred" if self.blurred else "full"
        return "truth" if self.kind is Kind.TRUTH else "offline"


_TRUTH, _SHOWN, _FROZEN = Kind.TRUTH, Kind.SHOWN, Kind.FROZEN  # looking up an enum attribute is slow

ViewScope.TRUTH = ViewScope(Kind.TRUTH)
ViewScope.FULL = ViewScope(Kind.SHOWN)
ViewScope.BLURRED = ViewScope(Kind.SHOWN, blurred=True)
ViewScope.NONE = ViewScope(Kind.NONE)


@dataclass(frozen=True, slots=True)
class Verdict:
    scope: ViewScope
    rule: str


# --- The rules -------------------------------------------------------------------------------------------------------

Rule = Callable[[Facts], ViewScope | None]


def _self(facts: Facts) -> ViewScope | None:
    return ViewScope.TRUTH if facts.same_user else None


def _service(facts: Facts) -> ViewScope | None:
    return ViewScope.TRUTH if facts.service else None


def _blocked(facts: Facts) -> ViewScope | None:
    block = facts.block
    if block is None or block.lifted_at is not None:
        return None
    return _frozen(block.last_seen, facts) if facts.may_look else ViewScope.NONE


def _not_related(facts: Facts) -> ViewScope | None:
    return None if facts.may_look else ViewScope.NONE


def _nobody(facts: Facts) -> ViewScope | None:
    target, block = facts.target, facts.block
    if target.visibility is not Visibility.NOBODY:
        return None
    if block is not None and _was_hidden_when_lifted(target, block):
        return _frozen(block.last_seen, facts)
    return _frozen(target.hidden_last_seen, facts)


def _invisible(facts: Facts) -> ViewScope | None:
    return _shown(facts) if facts.invisible else None


def _blurred(facts: Facts) -> ViewScope | None:
    return ViewScope.BLURRED if facts.blurred else None


def _contacts(facts: Facts) -> ViewScope | None:
    return ViewScope.FULL if facts.related else None


def _everyone(_facts: Facts) -> ViewScope | None:
    return ViewScope.FULL


RULES: tuple[tuple[str, Rule], ...] = (
    ("self", _self),
    ("service", _service),
    ("blocked", _blocked),
    ("not_related", _not_related),
    ("nobody", _nobody),
    ("invisible", _invisible),
    ("blurred", _blurred),
    ("contacts", _contacts),
    ("everyone", _everyone),
)


def judge(facts: Facts) -> Verdict:
    for name, rule in RULES:
        scope = rule(facts)
        if scope is not None:
            return Verdict(scope, name)
    raise AssertionError("the last rule decides always")


def _shown(facts: Facts) -> ViewScope:
    return ViewScope.BLURRED if facts.blurred else ViewScope.FULL


def _frozen(last_seen: int | None, facts: Facts) -> ViewScope:
    return ViewScope(Kind.FROZEN, blurred=facts.blurred, last_seen=last_seen)


def _was_hidden_when_lifted(target: Preferences, block: Block) -> bool:
    """True if the target's visibility was `nobody` already when the block ended (was lifted). To this viewer the target
    has then been hidden since the block began."""
    return block.lifted_at is not None and target.hidden_at is not None and target.hidden_at <= block.lifted_at


# --- What a scope shows ----------------------------------------------------------------------------------------------


def seen(presence: Presence, scope: ViewScope, today: int | None = None) -> View:
    """Return what a viewer with this scope sees of a presence. Every status that leaves the server comes from here.
    `today` (from `day_of`) is required for blurred scopes."""
    kind = scope.kind
    if kind is _SHOWN:
        view = public(presence)
    elif kind is _FROZEN:
        view = View(since=scope.last_seen, last_seen=scope.last_seen)
    elif kind is _TRUTH:
        view = truth(presence)
    else:
        view = NOBODY_HERE
    return _without_times(view, today) if scope.blurred else view


def coarse(scope: ViewScope) -> ViewScope:
    """Return this scope, but without times. It is used for targets with so many viewers that clients must poll. `TRUTH`
    keeps its times."""
    if scope.blurred or scope.kind is Kind.TRUTH:
        return scope
    return ViewScope(scope.kind, blurred=True, last_seen=scope.last_seen)


def seen_by_oneself(presence: Presence) -> OwnView:
    """Return the presence as the user's own devices see it. It must not reach other users."""
    return own(presence)


def status_in_public(presence: Presence) -> Status:
    """Return the status that others see: offline for hidden users. Cheaper than building a view with `public`."""
    return _OFFLINE if presence.hidden else presence.status


def may_hear_typing(presence: Presence, scope: ViewScope) -> bool:
    """True if a viewer with this scope may get typing notices of the user. They reveal presence, so those of hidden
    users are not sent."""
    return scope.kind is Kind.SHOWN and not presence.hidden


def day_of(now: int) -> int:
    """Return the number of the UTC day of `now` (epoch ms). The approximate last seen depends on days only."""
    return now // DAY


def bucket_of(last_seen: int, today: int) -> Bucket:
    """Return the approximate last seen, from a last seen (epoch ms) and the day `today`. Viewers notice when it
    changes, so ages are whole days and do not reveal the time of day."""
    age = today - day_of(last_seen)
    for bucket, days in _WITHIN:
        if age <= days:
            return bucket
    return Bucket.LONG_AGO


_WITHIN = ((Bucket.RECENTLY, 3), (Bucket.WITHIN_WEEK, 7), (Bucket.WITHIN_MONTH, 30))


def _without_times(view: View, today: int | None) -> View:
    if today is None:
        raise ValueError("a blurred view depends on the day")
    bucket = None if view.last_seen is None else bucket_of(view.last_seen, today)
    return View(view.status, custom=view.custom, platforms=view.platforms, bucket=bucket)


# --- Hiding ----------------------------------------------------------------------------------------------------------


def last_seen_if_gone(presence: Presence, now: int) -> int | None:
    """Return the last seen that permitted viewers would get if the user signed out now: `now` for a visible user with a
    live session, otherwise the present one."""
    if public(presence).status is Status.OFFLINE or not presence.live:
        return presence.last_seen
    return max(now, presence.last_seen or 0)


def last_seen_when_blocked(last_seen: int | None, block: Block | None, target: Preferences) -> int | None:
    """Return the target's last seen that the viewer sees from now on, when one of them blocks the other. `last_seen`:
    `last_seen_if_gone` of the target. If the target is hidden from the viewer already, by the earlier `block` or by its
    preferences, the viewer keeps the value from when that began, also if that hiding ends before the block does.
    Relations make no difference: strangers see nothing now, and this value when they become related."""
    scope = judge(Facts(contact=True, block=block, target=target)).scope
    return scope.last_seen if scope.kind is Kind.FROZEN else last_seen


def earliest(blocks: Iterable[tuple[int, Block]]) -> Block | None:
    """Return the block that counts between two users, from pairs of (start, block): the earliest that is in force, else
    the one that ended (was lifted) last. None: there is no block."""
    found = list(blocks)
    in_force = [each for each in found if each[1].lifted_at is None]
    if in_force:
        return min(in_force, key=lambda each: each[0])[1]
    return max((block for _, block in found), key=lambda block: block.lifted_at or 0, default=None)


def outlasts_a_block(target: Preferences) -> bool:
    """True if a block must be kept when it ends, because the target has visibility `nobody`: the viewer must go on
    seeing the target as hidden since the block began."""
    return target.visibility is Visibility.NOBODY


def edited(before: Preferences, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
    """Return the preferences after an edit. `last_seen`: `last_seen_if_gone` of the user, which is what viewers see if
    the edit hides the user."""
    after = before if edit.visibility is None else _with_visibility(before, edit.visibility, now, last_seen)
    if edit.share_last_seen is not None:
        after = replace(after, share_last_seen=edit.share_last_seen)
    return after if edit.public is None else replace(after, public=edit.public)


def _with_visibility(before: Preferences, visibility: Visibility, now: int, last_seen: int | None) -> Preferences:
    """Return the preferences with this visibility. For `nobody` they also get the start of hiding (`now`) and the
    `last_seen` to show from then on; both stay as they are if the visibility was `nobody` before."""
    if visibility is before.visibility:
        return before
    if visibility is Visibility.NOBODY:
        return replace(before, visibility=visibility, hidden_at=now, hidden_last_seen=last_seen)
    return replace(before, visibility=visibility, hidden_at=None, hidden_last_seen=None)
