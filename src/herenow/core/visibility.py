"""Access rules: what a viewer sees of a target. Rules over facts, in order; the first that applies decides.

`judge` maps facts about (viewer, target) to a scope, the kind of view, and the name of the rule. `seen` projects a presence
through a scope. A new rule is one function, its place in `RULES`, and its rows in the tests.

Hidden looks like offline. A target that is hidden from a viewer, by a block or by the visibility `nobody`, looks as if it
had signed out at that moment. Therefore the ledger keeps, with the block or the preference, the last seen that was public
then (`last_seen_if_gone`). This frozen view is a scope of its own, which no later record changes. Hiding only takes away
from what the viewer would see otherwise: a stranger still sees nothing, and a bucket does not become a time.

Hiding that ends looks like an arrival. The ledger keeps when it ended, and what the viewer was shown until then; a scope
with this floor shows no time and no second device from before. A viewer's own block is no hiding by the target: it has no
floor, and no influence on what the target's own hiding shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import ClassVar

from herenow.core.model import NOBODY_HERE, Bucket, OwnView, Presence, Status, View, own, public, truth

DAY = 86_400_000
"""Milliseconds."""

SHARED_FOR = 60_000
"""Milliseconds for which users must have shared their own last seen before they see the last seen of others."""

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
    shown_at: int | None = None
    """When the visibility `nobody` last ended; None: it never did, or it is `nobody` now."""
    shown_last_seen: int | None = None
    """The last seen that others are shown from then on, until the user has been here again."""
    shared_at: int | None = None
    """When the user began to share last seen again; None: the user never stopped, or does not share."""

    def may_see_times(self, now: int) -> bool:
        """True if this user may see the last seen of others: the user shares their own, and has done so for
        `SHARED_FOR`. Sharing for a moment, to read, is not enough."""
        return self.share_last_seen and (self.shared_at is None or now >= self.shared_at + SHARED_FOR)


@dataclass(frozen=True, slots=True)
class PreferencesEdit:
    """Changes of a user's preferences; None: unchanged."""

    visibility: Visibility | None = None
    share_last_seen: bool | None = None
    public: bool | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A block by one of two users, as it concerns one of them as the viewer of the other."""

    last_seen: int | None = None
    """The target's last seen as the viewer knew it when the block began; of a lifted block: as the viewer is shown it from
    then on, until the target has been here again."""
    lifted_at: int | None = None
    """When the block ended."""

    @property
    def in_force(self) -> bool:
        return self.lifted_at is None


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
    """The target blocks the viewer, or did."""
    own_block: Block | None = None
    """The viewer blocks the target. Once it is lifted it has no effect."""
    target: Preferences = Preferences()
    viewer_shares: bool = True
    """The viewer may see times (`Preferences.may_see_times`). A viewer that does not share gets no times of others."""
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

    @property
    def blocked(self) -> bool:
        """True if one of the two blocks the other now."""
        return any(block is not None and block.in_force for block in (self.block, self.own_block))

    @property
    def floor(self) -> tuple[int, int | None] | None:
        """When the target last stopped hiding from this viewer, by the end of a block or of the visibility `nobody`, and
        the last seen to show from then on until the target has been here again. None: the target never hid."""
        target, block = self.target, self.block
        if block is None or block.lifted_at is None:
            return None if target.shown_at is None else (target.shown_at, target.shown_last_seen)
        if target.shown_at is None:
            return block.lifted_at, block.last_seen
        last_seen = _above(target.shown_last_seen, (block.lifted_at, block.last_seen))
        return max(target.shown_at, block.lifted_at), last_seen


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
    """Of a frozen scope: the last seen to show. Of a scope with a floor: the one in place of any that is not after it."""
    floor: int | None = None
    """When the target last stopped hiding from this viewer: nothing from before is shown. None: it never hid."""

    _hash: int = field(init=False, repr=False, compare=False, default=0)
    """Computed once: encoded statuses are cached by scope and read very often."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.kind, self.blurred, self.last_seen, self.floor)))

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
    for block in (facts.own_block, facts.block):
        if block is not None and block.in_force:
            return _frozen(block.last_seen, facts) if facts.may_look else ViewScope.NONE
    return None


def _not_related(facts: Facts) -> ViewScope | None:
    return None if facts.may_look else ViewScope.NONE


def _nobody(facts: Facts) -> ViewScope | None:
    target, block = facts.target, facts.block
    if target.visibility is not Visibility.NOBODY:
        return None
    last_seen = target.hidden_last_seen
    if block is not None and block.lifted_at is not None:  # hidden since the block, if not seen since
        last_seen = _above(last_seen, (block.lifted_at, block.last_seen))
    return _frozen(last_seen, facts)


def _invisible(facts: Facts) -> ViewScope | None:
    return _shown(facts) if facts.invisible else None


def _blurred(facts: Facts) -> ViewScope | None:
    return _shown(facts) if facts.blurred else None


def _contacts(facts: Facts) -> ViewScope | None:
    return _shown(facts) if facts.related else None


def _everyone(facts: Facts) -> ViewScope | None:
    return _shown(facts)


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
    floor = facts.floor
    if floor is not None:
        return ViewScope(Kind.SHOWN, blurred=facts.blurred, last_seen=floor[1], floor=floor[0])
    return ViewScope.BLURRED if facts.blurred else ViewScope.FULL


def _frozen(last_seen: int | None, facts: Facts) -> ViewScope:
    return ViewScope(Kind.FROZEN, blurred=facts.blurred, last_seen=last_seen)


def _above(last_seen: int | None, floor: tuple[int, int | None]) -> int | None:
    """Return this last seen, or that of the `floor` if it is not after the floor."""
    return last_seen if (last_seen or 0) > floor[0] else floor[1]


# --- What a scope shows ----------------------------------------------------------------------------------------------


def seen(presence: Presence, scope: ViewScope, today: int | None = None) -> View:
    """Return what a viewer with this scope sees of a presence. Every status that leaves the server comes from here.
    `today` (from `day_of`) is required for blurred scopes."""
    kind = scope.kind
    if kind is _SHOWN:
        view = public(presence) if scope.floor is None else _arrived(public(presence), scope.floor, scope.last_seen)
    elif kind is _FROZEN:
        view = View(since=scope.last_seen, last_seen=scope.last_seen)
    elif kind is _TRUTH:
        view = truth(presence)
    else:
        view = NOBODY_HERE
    return _without_times(view, today) if scope.blurred else view


def _arrived(view: View, floor: int, last_seen: int | None) -> View:
    """Return what a viewer sees of a target that stopped hiding at `floor`: as if it had arrived then, on one device, if it
    is here since before, and as if it had not been here meanwhile, if it left before. `last_seen`: what was shown until
    then."""
    if view.status is _OFFLINE:
        shown = _above(view.last_seen, (floor, last_seen))
        return View(since=shown, last_seen=shown)
    if view.since is not None and view.since > floor:
        return view
    return View(view.status, since=floor, custom=view.custom, platforms=view.platforms[:1])


def coarse(scope: ViewScope) -> ViewScope:
    """Return this scope, but without times. It is used for targets with so many viewers that clients must poll. `TRUTH`
    keeps its times."""
    if scope.blurred or scope.kind is Kind.TRUTH:
        return scope
    return ViewScope(scope.kind, blurred=True, last_seen=scope.last_seen, floor=scope.floor)


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


def last_seen_if_shown(presence: Presence, now: int) -> int | None:
    """Return the last seen to show of a user that stops hiding now, once it is gone again: `now` if others see it from now
    on. None: they do not, so what they were shown before stays."""
    return None if public(presence).status is Status.OFFLINE else now


def last_seen_after(edit: PreferencesEdit, presence: Presence, now: int) -> int | None:
    """Return the last seen that belongs to an edit of the visibility: what others see if it hides the user
    (`last_seen_if_gone`), or later if it ends that (`last_seen_if_shown`)."""
    hides = edit.visibility is Visibility.NOBODY
    return last_seen_if_gone(presence, now) if hides else last_seen_if_shown(presence, now)


def last_seen_when_blocked(last_seen: int | None, block: Block | None, target: Preferences) -> int | None:
    """Return the target's last seen that the viewer sees from now on, when one of them blocks the other. `last_seen`:
    `last_seen_if_gone` of the target. If the target is hidden from the viewer already, by its earlier `block` of the viewer
    or by its preferences, the viewer keeps the value from when that began, also if that hiding ends before the block does.
    Relations make no difference: strangers see nothing now, and this value when they become related."""
    scope = judge(Facts(contact=True, block=block, target=target)).scope
    if scope.kind is Kind.FROZEN:
        return scope.last_seen
    return last_seen if scope.floor is None else _above(last_seen, (scope.floor, scope.last_seen))


def last_seen_when_lifted(last_seen: int | None, target: Preferences, if_shown: int | None) -> int | None:
    """Return the last seen to keep with a block of the target that ends: `last_seen` (that of the block), or `if_shown`
    (`last_seen_if_shown`) if the viewer sees the target from now on."""
    return last_seen if if_shown is None or target.visibility is Visibility.NOBODY else if_shown


def edited(before: Preferences, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
    """Return the preferences after an edit. `last_seen`: `last_seen_after` the edit."""
    after = before if edit.visibility is None else _with_visibility(before, edit.visibility, now, last_seen)
    if edit.share_last_seen is not None and edit.share_last_seen is not before.share_last_seen:
        after = replace(after, share_last_seen=edit.share_last_seen, shared_at=now if edit.share_last_seen else None)
    return after if edit.public is None else replace(after, public=edit.public)


def _with_visibility(before: Preferences, visibility: Visibility, now: int, last_seen: int | None) -> Preferences:
    """Return the preferences with this visibility. For `nobody` they also get the start of hiding (`now`) and the
    `last_seen` to show from then on; both stay as they are if the visibility was `nobody` before. When `nobody` ends they
    get the time (`now`), and what others are shown until the user has been here again."""
    if visibility is before.visibility:
        return before
    if visibility is Visibility.NOBODY:
        if before.shown_at is not None:
            last_seen = _above(last_seen, (before.shown_at, before.shown_last_seen))
        return replace(
            before,
            visibility=visibility,
            hidden_at=now,
            hidden_last_seen=last_seen,
            shown_at=None,
            shown_last_seen=None,
        )
    after = replace(before, visibility=visibility, hidden_at=None, hidden_last_seen=None)
    if before.visibility is not Visibility.NOBODY:
        return after
    return replace(after, shown_at=now, shown_last_seen=before.hidden_last_seen if last_seen is None else last_seen)
