"""Who may see what of whom: ordered rules over facts, the first that applies decides.

Answers: given the facts about (viewer, target), what kind of view does the viewer get, by which rule, and what of a
presence does that view show?
Does not know where facts come from, nor what a view looks like on the wire.
Adding a rule is one function, its place in `RULES`, and its rows in the tests.

Hidden is offline. Who is hidden from a viewer by a block or by the visibility `nobody` looks like somebody who signed
out at that moment, so the ledger keeps, with the block and with the preference, the last seen that was public then
(`last_seen_if_gone`). That frozen view is a scope of its own, which no later record changes. Hiding takes away from what
the viewer would otherwise get and adds nothing: a stranger stays a stranger, a bucket stays a bucket.
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
    """To whom a user shows their presence. The numbers are stored in the ledger: never renumber."""

    CONTACTS = 0
    EVERYONE = 1
    NOBODY = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a user decided about being seen. All defaults: somebody who never decided anything."""

    visibility: Visibility = Visibility.CONTACTS
    share_last_seen: bool = True
    public: bool = False
    """Anybody at all may read their public profile."""
    hidden_at: int | None = None
    """Since when nobody sees them; None: their visibility is another."""
    hidden_last_seen: int | None = None
    """What their last seen was for others at that moment; None: they had never been seen."""


@dataclass(frozen=True, slots=True)
class PreferencesEdit:
    """What of a user's preferences changes; None: that stays."""

    visibility: Visibility | None = None
    share_last_seen: bool | None = None
    public: bool | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One of two blocked the other, whichever it was. As it concerns one of them who looks at the other."""

    last_seen: int | None = None
    """What the viewer knew of the target's last seen at that moment."""
    lifted_at: int | None = None
    """It is over since then, and matters only to who has been hidden by something else ever since."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a viewer and a target. All defaults: two strangers."""

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
    """The viewer lets others see their last seen: who does not, gets none."""
    invisible: bool = False
    """The target chose not to be seen. The record itself says so, so this changes no scope, only the rule's name."""

    @property
    def related(self) -> bool:
        return self.mutual_follow or self.contact or self.shares_room

    @property
    def may_look(self) -> bool:
        """Whether the viewer would get more than a stranger does, if nothing were hidden."""
        return self.related or self.target.visibility is Visibility.EVERYONE

    @property
    def blurred(self) -> bool:
        return not (self.target.share_last_seen and self.viewer_shares)


class Kind(Enum):
    TRUTH = "truth"
    """Also what is hidden from others: the user's own devices, the operator's services."""
    SHOWN = "shown"
    """What the target shows; an invisible target shows that it signed out when it hid."""
    FROZEN = "frozen"
    """As somebody who signed out when they hid from this viewer."""
    NONE = "none"
    """As somebody who was never here."""


@dataclass(frozen=True, slots=True)
class ViewScope:
    """The kinds of view. Viewers with the same scope of a target see the same bytes."""

    kind: Kind
    blurred: bool = False
    """Times are not told; a bucket stands for the last seen."""
    last_seen: int | None = None
    """Of a frozen scope: what there is to see."""

    _hash: int = field(init=False, repr=False, compare=False, default=0)
    """Made once: bodies are kept by scope, and asked for by the thousand."""

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
        """As the contract calls it; `truth` is for those from whom nothing is hidden."""
        if self.kind is Kind.SHOWN:
            return "blurred" if self.blurred else "full"
        return "truth" if self.kind is Kind.TRUTH else "offline"


_TRUTH, _SHOWN, _FROZEN = Kind.TRUTH, Kind.SHOWN, Kind.FROZEN  # an attribute of an enum is slow to get

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
    if block is not None and _hid_before(target, block):
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


def _hid_before(target: Preferences, block: Block) -> bool:
    """A block that was lifted while nobody saw the target anyway: for this viewer the hiding goes on, and began with it."""
    return block.lifted_at is not None and target.hidden_at is not None and target.hidden_at <= block.lifted_at


# --- What a scope shows ----------------------------------------------------------------------------------------------


def seen(presence: Presence, scope: ViewScope, today: int | None = None) -> View:
    """The one projection: every exit shows a presence through this. `today` (see `day_of`) is what buckets are counted
    from; scopes that are not blurred can do without it."""
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
    """The same without times, for those who ask about somebody too popular to be told of each change. Who may know the
    truth, may know it exactly."""
    if scope.blurred or scope.kind is Kind.TRUTH:
        return scope
    return ViewScope(scope.kind, blurred=True, last_seen=scope.last_seen)


def seen_by_oneself(presence: Presence) -> OwnView:
    """What only the user's own devices get."""
    return own(presence)


def status_in_public(presence: Presence) -> Status:
    """For whoever counts: the hidden count as what they look like. As `public` says, without making a view."""
    return _OFFLINE if presence.hidden else presence.status


def may_hear_typing(presence: Presence, scope: ViewScope) -> bool:
    """Typing says "online" as loudly as a status does: the hidden type for nobody."""
    return scope.kind is Kind.SHOWN and not presence.hidden


def day_of(now: int) -> int:
    """The day, in UTC: what the ages of buckets are counted in."""
    return now // DAY


def bucket_of(last_seen: int, today: int) -> Bucket:
    """Counted in whole days, for every bucket's end is told to whoever watches: it must not tell the time of day."""
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
    """What a permitted viewer would see as last seen if the user signed out now: the moment itself for who is here, what
    it was before for who is offline or hidden already."""
    if public(presence).status is Status.OFFLINE or not presence.live:
        return presence.last_seen
    return max(now, presence.last_seen or 0)


def last_seen_when_blocked(presence: Presence, facts: Facts, now: int) -> int | None:
    """What the viewer of these facts knows of the target's last seen at the moment one of them blocks the other. A hiding
    that is there already began earlier, and its view goes on: also when it ends before the block does."""
    scope = judge(replace(facts, same_user=False, service=False)).scope
    if scope.kind is Kind.NONE:  # strangers know nothing; if they become related, the target is hidden since now
        scope = judge(replace(facts, same_user=False, service=False, contact=True)).scope
    if scope.kind is Kind.FROZEN:
        return scope.last_seen
    return last_seen_if_gone(presence, now)


def earliest(blocks: Iterable[tuple[int, Block]]) -> Block | None:
    """Of what stands between two users, each with the time it began: the earlier counts; one that was lifted only if none
    is in force."""
    found = list(blocks)
    in_force = [each for each in found if each[1].lifted_at is None]
    if in_force:
        return min(in_force, key=lambda each: each[0])[1]
    return max((block for _, block in found), key=lambda block: block.lifted_at or 0, default=None)


def outlasts_a_block(target: Preferences) -> bool:
    """Whether a block that is lifted now must be remembered: the target stays hidden, and so since the block."""
    return target.visibility is Visibility.NOBODY


def edited(before: Preferences, edit: PreferencesEdit, now: int, last_seen: int | None) -> Preferences:
    """`last_seen`: the user's own in public, if they were gone now."""
    after = before if edit.visibility is None else _with_visibility(before, edit.visibility, now, last_seen)
    if edit.share_last_seen is not None:
        after = replace(after, share_last_seen=edit.share_last_seen)
    return after if edit.public is None else replace(after, public=edit.public)


def _with_visibility(before: Preferences, visibility: Visibility, now: int, last_seen: int | None) -> Preferences:
    """Who hides again while hidden has been hidden since the first time."""
    if visibility is before.visibility:
        return before
    if visibility is Visibility.NOBODY:
        return replace(before, visibility=visibility, hidden_at=now, hidden_last_seen=last_seen)
    return replace(before, visibility=visibility, hidden_at=None, hidden_last_seen=None)
