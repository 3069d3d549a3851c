"""Does what people are shown agree with what others truly did?

A `Checker` is the witness of a `Scene`, such as a `World`: it writes down what every client did (the truth: sockets, beats,
sign-outs, choices), which faults were in force, and every status that anybody was shown. It knows the promises of the
design and nothing of how a node keeps them. What it finds wrong is collected in `problems`, each a sentence with a time.

    false offline   shown offline while a session lived, or its grace was not over
    ghost           shown as here long after the last session had ended
    hidden          an invisible user was shown
    equal           the same value was pushed twice in a row
    older           an older value came after a newer one
    invented        a value nobody ever chose
    returned        a session that was signed out stays, or is there again though nobody came back
    missing         while nothing fails: somebody who looks was not told of what the record has said for a while
    last seen       shown offline with a last seen that is earlier or later than what truly happened
    differs         after everything has healed: a view, an answer, a record, a count, the ledger is not what is true

In trouble a node is allowed to be late, and a viewer to be told `stale`. How late is written once, in
`truth.Bounds`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from herenow.core.machine import settle
from herenow.core.model import UNLEASED, Mode, Presence, Session, Status, View, public
from herenow.ports import Remembered
from herenow.service.relations import TRUST
from herenow.testing.scene import Device, Scene, Shown, Way, Witness
from herenow.testing.truth import Bounds, Chosen, Stay, Trouble


class Checker(Witness):
    def __init__(self, scene: Scene, viewers: Iterable[str]) -> None:
        self.scene = scene
        self.bounds = Bounds(scene.timings, scene.lease, scene.late)
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        """How much was checked, so that a run can show that it was worth something."""
        self.longest_ghost = 0
        """Milliseconds that somebody was shown as here after their last session had ended, at most."""
        self._viewers = set(viewers)
        self._stays: dict[str, list[Stay]] = defaultdict(list)
        self._open: dict[Device, Stay] = {}
        self._rest: dict[tuple[str, str], Stay] = {}
        self._modes: dict[str, Chosen] = defaultdict(lambda: Chosen([Mode.AUTO]))
        self._texts: dict[str, Chosen] = defaultdict(lambda: Chosen([None]))
        self._hidden_since: dict[str, int] = {}
        self._last: dict[tuple[Way, str], tuple[Shown, int]] = {}
        self._newest_text: dict[tuple[Way, str], int] = {}
        self._troubles: list[Trouble] = []
        self._views: dict[str, tuple[tuple[str, str | None], int]] = {}
        """What the record of each user says to others, and since when we know."""

    # What clients do

    def opened(self, client: Device) -> None:
        assert client.link is not None
        node = client.link.node
        now = self.scene.now
        stay = Stay(client.user, client.device, node.name, now, now)
        stay.beside_half_open = any(
            (before.device, before.node) == (stay.device, stay.node) and self._lingers(before)
            for before in self._stays[client.user]
        )
        self._stays[client.user].append(stay)
        self._open[client] = stay

    def _lingers(self, stay: Stay) -> bool:
        """It ended, and left its node a tab that is half-open: as long as the session shows life by another one, and until
        it falls silent, the node cannot tell."""
        if stay.ended_at is None or not (stay.how == "vanished" or stay.beside_half_open):
            return False
        now = self.scene.now
        return now <= stay.ended_at + self.bounds.timings.dead_after + self._late(stay.ended_at, now)

    def greeted(self, client: Device) -> None:
        stay = self._open.get(client)
        if stay is not None and stay.greeted_at is None:
            stay.greeted_at = self.scene.now

    def lived(self, client: Device) -> None:
        self._open[client].seen_at = self.scene.now

    def ended(self, client: Device, how: str) -> None:
        stay = self._open.pop(client, None)
        if stay is not None:
            stay.ended_at = self.scene.now
            stay.how = stay.how or how

    def signs_out(self, user: str, device: str) -> None:
        """From here on nobody can say whether the device is still signed in."""
        for stay in self._stays[user]:
            if stay.device == device and (stay.ended_at is None or self._in_grace(stay, self.scene.now)):
                stay.how = "signed out"
                stay.signed_at = self.scene.now
                stay.asked_out = stay.greeted_at is not None
        self._rest.pop((user, device), None)

    def is_signed_out(self, user: str, device: str) -> None:
        """Whoever asked for it was told that it is done."""
        for stay in self._stays[user]:
            if stay.device == device and stay.asked_out and stay.out_at is None:
                stay.out_at = self.scene.now

    def beat(self, user: str, device: str, node: str) -> None:
        """A beat by REST was accepted."""
        now = self.scene.now
        stay = self._rest.get((user, device))
        if stay is None:
            stay = self._rest[user, device] = Stay(user, device, node, now, now, by_rest=True, greeted_at=now)
            self._stays[user].append(stay)
        stay.seen_at, stay.node = now, node

    def may_have_beaten(self, user: str, device: str, node: str) -> None:
        """A beat by REST was not answered: it may have been accepted, or be accepted yet."""
        stay = Stay(user, device, node, self.scene.now, self.scene.now, by_rest=True)
        self._stays[user].append(stay)

    def asks_mode(self, user: str, mode: Mode) -> None:
        self._modes[user].asked(self.scene.now, mode)
        if mode is not Mode.INVISIBLE:
            self._hidden_since.pop(user, None)

    def has_mode(self, user: str, mode: Mode) -> None:
        modes = self._modes[user]
        modes.answered(self.scene.now, mode)
        if modes.possible == [Mode.INVISIBLE]:
            self._hidden_since.setdefault(user, self.scene.now)

    def asks_text(self, user: str, number: int) -> None:
        self._texts[user].asked(self.scene.now, str(number))

    def has_text(self, user: str, number: int) -> None:
        self._texts[user].answered(self.scene.now, str(number))

    # What goes wrong

    def trouble(self, kind: str, node: str | None = None, **what: bool) -> Trouble:
        """`what`: see `Trouble`. Nothing is excused by what is not said."""
        trouble = Trouble(kind, node, self.scene.now, **what)
        self._troubles.append(trouble)
        self.counts[kind] += 1
        return trouble

    def over(self, trouble: Trouble) -> None:
        trouble.end = self.scene.now

    @property
    def unhealed(self) -> list[Trouble]:
        """Faults that are over, and of which nobody has seen yet that everything is right again."""
        return [t for t in self._troubles if t.end is not None and t.healed_at is None]

    def all_right(self) -> None:
        """Somebody saw that every view is right again: from now on no fault that is over excuses anything."""
        for trouble in self.unhealed:
            trouble.healed_at = self.scene.now

    # What is shown

    def shown(self, client: Device, shown: Shown) -> None:
        link = client.link
        if link is None or client.user not in self._viewers or shown.user in self._viewers:
            return
        self.counts["shown"] += 1
        self._check_order(client, link, shown)
        self._check_invented(client, shown)
        if shown.status == "offline":
            self._check_offline(client, shown)
            if not (shown.answer or shown.stale or self._is_blind(client, shown)):
                self._check_last_seen(client, shown)
        else:
            self._check_hidden(client, shown)

    def typing(self, client: Device, user: str) -> None:
        self.counts["typing"] += 1
        since, now = self._hidden_since.get(user), self.scene.now
        if since is not None and now > since + self._late(since, now):
            self.problems.append(
                f"{now} hidden: {client.user} was told that {user} types, who is invisible since {since}"
            )

    def _check_order(self, client: Device, link: Way, shown: Shown) -> None:
        version = link.node.version(shown.user)
        before = self._last.get((link, shown.user))
        self._last[link, shown.user] = shown, version
        if before is not None:
            if not shown.answer and shown.value == before[0].value:
                self._problem("equal", client, shown, "was pushed twice in a row")
            if version < before[1]:
                self._problem("older", client, shown, f"is of version {version}, after {before[1]}")
            if shown.as_of < before[0].as_of:
                self._problem("older", client, shown, f"is as of {shown.as_of}, after {before[0].as_of}")
        if shown.custom is not None:
            newest = self._newest_text.get((link, shown.user), 0)
            if int(shown.custom) < newest:
                self._problem("older", client, shown, f"says {shown.custom} after {newest}")
            self._newest_text[link, shown.user] = max(newest, int(shown.custom))

    def _check_invented(self, client: Device, shown: Shown) -> None:
        if shown.status == "busy" and not any(mode is Mode.BUSY for _, mode in self._modes[shown.user].ever):
            self._problem("invented", client, shown, "was never busy")
        texts = self._texts[shown.user].ever
        if shown.custom is not None and not any(text == shown.custom for _, text in texts):
            self._problem("invented", client, shown, f"never said {shown.custom}")

    def _check_offline(self, client: Device, shown: Shown) -> None:
        """A push of offline, or an answer that does not say it is stale, is a claim."""
        now = shown.at
        if shown.stale or self._may_be_hidden(shown.user, now) or self._is_blind(client, shown):
            return
        for stay in self._stays[shown.user]:
            elsewhere = client.link is None or client.link.node.name != stay.node
            if self._is_solid(stay, now) and not (elsewhere and self._excused(stay, now)):
                how = f"{stay.device} on {stay.node} since {stay.opened_at}"
                if stay.ended_at is not None:
                    how += f", {stay.how} {now - stay.ended_at} ms ago"
                self._problem("false offline", client, shown, f"is here: {how}")
                return

    def _check_last_seen(self, client: Device, shown: Shown) -> None:
        self.counts["last seen"] += 1
        first, last = self._seen_between(shown.user, to=client)
        if not first <= (shown.last_seen or 0) <= last:
            self._problem("last seen", client, shown, f"was last seen between {first} and {last}")

    def _seen_between(self, user: str, *, to: Device | None = None) -> tuple[int, int]:
        """What may be said of when somebody who is not here was last seen. Who hid is said to have been seen when they hid,
        and what they do while they hide leaves no trace. `to`: what this viewer must have heard of."""
        modes, ended = (
            self._modes[user],
            [s for s in self._stays[user] if s.by_rest or s.ended_at is not None],
        )
        public = [
            stay
            for stay in ended
            if stay.greeted_at is not None
            and (to is None or self._is_known(stay, to))
            and not self._goes_on(stay)
            and not modes.may_have_been(Mode.INVISIBLE, self._seen_first(stay), self.bounds.gone(stay))
        ]
        first = max(map(self._seen_first, public), default=0)
        last = max(map(self._seen_last, self._stays[user]), default=0)
        if any(mode is Mode.INVISIBLE for _, mode in modes.ever):
            # Hiding and showing oneself are signs of life, when it is done.
            answered = len(modes.ever) - 1 in modes.done
            done = max(modes.done.values(), default=0) if answered else self.scene.now
            last = max(last, done) + self.bounds.late
        return first, last

    def _goes_on(self, stay: Stay) -> bool:
        """Its session has not ended with it. A session is a device at a node, however many tabs: one that is half-open is a
        tab still, so who comes back to that node before it falls silent comes back to the same session. Nothing is
        written when a tab closes; when the session ends, it is with the life of the later tab."""
        return any(
            (later.device, later.node) == (stay.device, stay.node)
            and later.beside_half_open
            and later.greeted_at is not None
            and later.opened_at >= (stay.ended_at or 0)
            for later in self._stays[stay.user]
            if later is not stay and not stay.by_rest and (stay.how == "vanished" or stay.beside_half_open)
        )

    def _is_known(self, stay: Stay, to: Device | None = None) -> bool:
        """Everybody must have heard that it was here; or only one viewer. What is shown may still be of the time before, for
        as long as a change is under way. That its node is in trouble delays no viewer elsewhere: when it greets, it has
        committed. But a store that then loses the commit has it again only when that node has healed.

            n1   accepts a beat ─ 200          n1 is late to offer it ─▶ online
            store               └─ fails over: lost ┘
            n2                                   whole again: offline, never seen
        """
        if stay.greeted_at is None:
            return False
        now, begin = self.scene.now, stay.greeted_at
        place = None if to is None or to.link is None else to.link.node.name
        return now - begin >= self.bounds.late + self.scene.lateness(begin, now) + self._troubled(
            begin, now, place=place
        )

    def _seen_first(self, stay: Stay) -> int:
        """A node that fails about then may not have been able to write down what it saw yet: then what it wrote before. If
        it dies of it, it never will."""
        usual, end, now = self.bounds.seen(stay), stay.ended_at or stay.seen_at, self.scene.now
        if stay.signed_at is not None:  # what it did after that counts no more
            usual = min(usual, stay.signed_at - self.bounds.late)
        usual -= self.scene.lateness(usual, end + self.bounds.late)
        first, died = usual, self._died_with(stay)
        unsaid = stay.signed_out or self._chose_since(stay)
        for t in self._troubles:
            concerned = (t.node in (stay.node, None) or stay.by_rest) and not t.blinds
            lasts = died or t.shifts or (t.cuts and unsaid) or now <= self._until(t, now)
            if concerned and lasts and t.begin <= end + self.bounds.late and self._until(t, now) >= usual:
                first = min(first, t.begin - self.bounds.lease // 3 - self.bounds.late)
        return first

    def _chose_since(self, stay: Stay) -> bool:
        """Its user asked for something after it ended: a node that was taken for dead cannot know, when it is back, whether
        they hid, and keeps to itself what it saw."""
        end = stay.ended_at or stay.seen_at
        asked = [*self._modes[stay.user].ever, *self._texts[stay.user].ever]
        return any(at + self.bounds.late >= end for at, _ in asked)

    def _died_with(self, stay: Stay) -> bool:
        """Its node was killed before it can have written down how it ended."""
        end = stay.ended_at or stay.seen_at
        noticed = end + self.bounds.late
        if stay.how == "vanished" or stay.beside_half_open:
            noticed += self.bounds.timings.dead_after
        return any(
            t.kills
            and t.node == stay.node
            and end - self.bounds.late <= t.begin <= noticed + self._troubled(end, t.begin)
            for t in self._troubles
        )

    def _seen_last(self, stay: Stay) -> int:
        """Later than its end only if its node was in trouble before it knew of it, or stood still: then the time of that."""
        now = self.scene.now
        if stay.ended_at is None and not stay.by_rest:
            return now + self.bounds.late
        end = max(stay.ended_at or stay.seen_at, stay.seen_at)
        last = end + self.bounds.late
        if stay.signed_at is not None:
            last = max(last, stay.signed_at + self.bounds.healed)
        for t in self._troubles:
            if (
                t.node in (stay.node, None)
                and t.begin <= self.bounds.gone(stay)
                and self._until(t, now) >= end
            ):
                last = max(last, (t.end or now) + self.bounds.late)
        return last + self.scene.lateness(end, min(now, last))

    def _is_blind(self, client: Device, shown: Shown) -> bool:
        """Its node cannot read who may see whom, and the viewer came only then, or all that is known is too old to be
        believed: it is shown nobody, not even when they were last seen."""
        if shown.last_seen is not None:
            return False
        came = self._open.get(client)
        return any(
            t.blinds
            and t.begin <= shown.at <= self._until(t, shown.at)
            and (came is None or came.opened_at >= t.begin or shown.at - t.begin > TRUST * 1000)
            for t in self._troubles
        )

    def _is_solid(self, stay: Stay, now: int) -> bool:
        """Everybody must have heard that it is here, and its grace is not over. One that ended while its node was cut off
        may have been taken for dead with it a little before: its grace began then."""
        if stay.greeted_at is None or stay.signed_out:
            return False
        if stay.ended_at is not None and any(
            t.cuts and t.node in (stay.node, None) and t.begin <= stay.ended_at <= (t.end or now)
            for t in self._troubles
        ):
            return False
        if not self._is_known(stay):
            return False
        grace = self.bounds.timings.grace
        if stay.by_rest:
            return now < stay.seen_at + self.bounds.timings.dead_after * 2 // 3 + grace - 500
        return stay.ended_at is None or now < stay.ended_at + grace - 500

    def _in_grace(self, stay: Stay, now: int) -> bool:
        return stay.ended_at is not None and now < self.bounds.gone(stay)

    def _excused(self, stay: Stay, now: int) -> bool:
        """Its node was cut off for so long that others had to take it for dead, and nobody has seen yet that it is healed.
        One that was killed is known to be dead by its sockets too; a ledger, a slow viewer, a store that is away for all
        excuse nothing."""
        spans = sorted(
            (t.begin, t.end or now)
            for t in self._troubles
            if t.cuts and t.node in (stay.node, None) and (t.healed_at is None or now <= t.healed_at)
        )
        merged: list[list[int]] = []
        for begin, end in spans:
            if merged and begin - merged[-1][1] < self.bounds.lease // 2:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        return any(
            end - begin >= self.bounds.cut_off and now < end + self._healing(end, now)
            for begin, end in merged
        )

    def _healing(self, end: int, now: int) -> int:
        return self.bounds.healed + self.scene.lateness(end, now)

    def _check_hidden(self, client: Device, shown: Shown) -> None:
        since = self._hidden_since.get(shown.user)
        if since is not None and shown.at > since + self._late(since, shown.at):
            self._problem("hidden", client, shown, f"is invisible since {since}")

    def _may_be_hidden(self, user: str, now: int) -> bool:
        """Lately, as far as anybody can tell."""
        if Mode.INVISIBLE in self._modes[user].possible:
            return True
        asked = [at for at, mode in self._modes[user].ever if mode is Mode.INVISIBLE]
        unhidden = [at for at, mode in self._modes[user].ever if mode is not Mode.INVISIBLE]
        return bool(asked) and (not unhidden or now < max(unhidden) + self._late(max(unhidden), now))

    # From time to time

    def look_around(self) -> None:
        """State that should not last: called every second or so."""
        for client in self.scene.clients:
            link = client.link
            if link is None or client.user not in self._viewers or link.silent or link.node.frozen:
                continue
            for user in self._stays:
                last = self._last.get((link, user))
                if last is not None and last[0].status != "offline" and not last[0].stale:
                    self._check_ghost(client, last[0])
        stored = self.scene.everybody_stored()
        for user, record in stored.items():
            for session in record.sessions:
                self._check_returned(user, session)
        for user, stays in self._stays.items():
            self._check_still_there(stays)
            if user not in self._viewers:
                self._check_told(user, stored.get(user))

    def _check_still_there(self, stays: list[Stay]) -> None:
        now = self.scene.now
        for stay in stays:
            if stay.out_at is None or stay.ended_at is not None or stay.by_rest:
                continue
            if now > stay.out_at + self._late(stay.out_at, now):
                self.problems.append(f"{now} returned: {stay} was signed out, and is still connected")

    def _check_told(self, user: str, record: Presence | None) -> None:
        """Is everybody told what the record says? Where it says nothing, it says offline."""
        now = self.scene.now
        view = _seen(public(Presence() if record is None else record))
        if self._views.get(user, (None, 0))[0] != view:
            self._views[user] = view, now
        since = self._views[user][1]
        late = 2 * self.bounds.late + self.scene.lateness(since, now)
        if now < since + late or self._troubled(now - late, now, blind=True):
            return
        for client in self.scene.clients:
            last = None if client.link is None else self._last.get((client.link, user))
            self.counts["told"] += last is not None
            if last is not None and (last[0].status, last[0].custom) != view:
                self._problem("missing", client, last[0], f"the record says {view} since {since}")

    def _check_returned(self, user: str, session: Session) -> None:
        stays = [stay for stay in self._stays.get(user, ()) if stay.device == session.device]
        if not stays or stays[-1].out_at is None or stays[-1].ended_at is None:
            return
        now, out = self.scene.now, max(stays[-1].out_at, stays[-1].ended_at)
        if any(t.loses and t.begin <= now <= self._until(t, now) for t in self._troubles):
            return  # the store may just have lost that it was
        if now > out + self._late(out, now):
            self.problems.append(f"{now} returned: {user} was signed out at {out}, the record has {session}")

    def _check_ghost(self, client: Device, shown: Shown) -> None:
        self.counts["looked"] += 1
        now, stays = self.scene.now, self._stays[shown.user]
        if any(stay.ended_at is None and not stay.by_rest for stay in stays):
            return
        last = max(stays, key=self.bounds.gone)
        ended = last.seen_at if last.by_rest else last.ended_at or 0
        self.longest_ghost = max(self.longest_ghost, now - ended)
        assert client.link is not None
        places = {client.link.node.name, *(each.node for each in stays if self.bounds.gone(each) >= ended)}
        until = self._excused_until(self.bounds.gone(last), ended, places)
        if now > until:
            self._problem("ghost", client, shown, f"ended at {ended}, {last.how}; was due by {until}")

    def _excused_until(self, due: int, ended: int, places: set[str]) -> int:
        """When what is due must be done, with what faults between may cost. Those of the nodes in question and of the
        store count as long as they were in force and not healed; of other nodes only that they are away, for as long as it
        takes to be stood in for. A fault that begins when it is too late anyway excuses nothing."""
        now = self.scene.now
        due += self.scene.lateness(ended, now)
        reach, others = ended, 0
        for t in sorted(self._troubles, key=lambda t: t.begin):
            until = min(now, self._until(t, now))
            if t.begin > due or until <= reach or t.blinds:
                continue
            cost = until - max(t.begin, reach)
            if t.node is None or t.node in places:
                due, reach = due + cost, until
            elif t.cuts or t.kills:
                cost = min(cost, self.bounds.dead_node - others)
                due, others = due + cost, others + cost
        return due

    # When a fault has healed

    def differences(self) -> list[str]:
        """Where the views of people who look, and the store, are not what is true, as of a moment ago: whoever waits for
        the end of a fault asks until there is none."""
        stored = self.scene.everybody_stored()
        found: list[str] = []
        for user in sorted(self._stays.keys() - self._viewers):
            record = stored.get(user)
            found += self._untrue(user, Presence() if record is None else record)
            view = _seen(public(Presence() if record is None else record))
            for client in self.scene.clients:
                if client.user in self._viewers:
                    last = None if client.link is None else self._last.get((client.link, user))
                    if last is None or last[0].stale or (last[0].status, last[0].custom) != view:
                        found.append(f"{_whom(client)} sees {last and last[0]}, the record says {view}")
        return found

    def _untrue(self, user: str, record: Presence) -> list[str]:
        """What the record says that cannot be so."""
        now, stays = self.scene.now, self._stays[user]
        leased = {session.device for session in record.sessions if session.holder != UNLEASED}
        live = {session.device for session in record.sessions if session.live}
        here = {stay.device for stay in stays if self._must_be_known(stay, now)}
        gone = leased - {
            stay.device for stay in stays if stay.ended_at is None or self._may_be_left(stay, now)
        }
        found = [f"{user} {device} is connected, the record says {record}" for device in sorted(here - live)]
        found += [f"{user} {device} has gone, the record says {record}" for device in sorted(gone)]
        hidden = Mode.INVISIBLE in self._modes[user].possible or record.mode is Mode.INVISIBLE
        if here and not hidden and public(record).status is Status.OFFLINE:
            found.append(f"{user} is here, the record says {record}")
        return found

    def _must_be_known(self, stay: Stay, now: int) -> bool:
        if stay.by_rest or stay.ended_at is not None or stay.greeted_at is None or stay.how:
            return False
        return now > stay.greeted_at + self.bounds.late

    def _may_be_left(self, stay: Stay, now: int) -> bool:
        return now <= self.bounds.gone(stay) + self.scene.lateness(stay.ended_at or 0, now)

    @property
    def quiet_at(self) -> int:
        """When nobody who has left can be in the record any more."""
        ended = [stay for stays in self._stays.values() for stay in stays if stay.by_rest or stay.ended_at]
        return max(map(self.bounds.gone, ended), default=0)

    # When everything has healed

    def healed(self) -> None:
        """The last fault ended so long ago that everybody who is here must be seen by everybody."""
        for client in self.scene.clients:
            link = client.link
            for user, stays in self._stays.items():
                last = None if link is None else self._last.get((link, user))
                if last is None or user in self._viewers:
                    continue
                here = any(stay.ended_at is None and stay.greeted_at and not stay.by_rest for stay in stays)
                hidden = Mode.INVISIBLE in self._modes[user].possible
                if last[0].stale or (here and not hidden and last[0].status == "offline"):
                    self._wrong(f"{_whom(client)} sees {last[0]} though everything has healed")

    async def conclude(self) -> None:
        """Nothing has failed for so long, and nobody did anything: now all must agree."""
        stored = self.scene.everybody_stored()
        for user in sorted(self._stays):
            if user not in self._viewers:
                self._conclude_record(user, stored.get(user))
        await self._conclude_views(stored)
        await self._conclude_counts(stored)
        await self._conclude_ledger(stored)

    def _conclude_record(self, user: str, record: Presence | None) -> None:
        here = {stay.device: stay for stay in self._stays[user] if stay.ended_at is None and not stay.by_rest}
        sessions = () if record is None else record.sessions
        leased = {session.device: session for session in sessions if session.holder != UNLEASED}
        for device in sorted(here.keys() - leased.keys()):
            self._wrong(
                f"{user} {device} is connected to {here[device].node} but not in the record: {record}"
            )
        for device in sorted(leased.keys() - here.keys()):
            self._wrong(f"{user} {device} is in the record but not connected: {leased[device]}")
        for device in sorted(leased.keys() & here.keys()):
            self._conclude_session(user, leased[device], here[device])
        if any(session.holder == UNLEASED for session in sessions):
            self._wrong(f"{user} has a session by REST though no beat came for long: {record}")
        if record is not None:
            self._conclude_choices(user, record)

    def _conclude_session(self, user: str, session: Session, stay: Stay) -> None:
        node = self.scene.nodes.get(stay.node)
        if not session.live or node is None or session.holder not in node.epochs:
            self._wrong(f"{user} {session.device} is connected to {stay.node}, the record has {session}")

    def _conclude_choices(self, user: str, record: Presence) -> None:
        if record.mode not in self._modes[user].possible:
            self._wrong(f"{user} chose one of {self._modes[user].possible}, the record has {record.mode!r}")
        text = None if record.custom is None else record.custom.text
        if text not in self._texts[user].possible:
            self._wrong(f"{user} said one of {self._texts[user].possible}, the record has {text}")
        if settle(record, self.scene.now, self.bounds.timings).presence is not record:
            self._wrong(f"{user}'s record is not at rest: {record}")

    async def _conclude_views(self, stored: dict[str, Presence]) -> None:
        users = sorted(self._stays.keys() - self._viewers)
        for node in self.scene.nodes.values():
            for viewer in sorted(self._viewers):
                for told in await node.answers(viewer, users):
                    await self._compare(f"{node.name} answers {viewer}", told, stored.get(told.user))
        for client in self.scene.clients:
            if client.user in self._viewers and client.link is not None:
                for user in users:
                    last = self._last.get((client.link, user))
                    if last is None:
                        self._wrong(f"{_whom(client)} was shown nothing of {user}")
                    else:
                        await self._compare(f"{_whom(client)} sees", last[0], stored.get(user))

    async def _compare(self, who: str, told: Shown, record: Presence | None) -> None:
        self.counts["compared"] += 1
        view = public(Presence()) if record is None else public(record)
        text = None if view.custom is None else view.custom.text
        if (
            told.stale
            or told.status != view.status.word
            or told.custom != text
            or (record is not None and (told.since, told.last_seen) != (view.since, view.last_seen))
        ):
            self._wrong(f"{who} {told}, the record says {view}")
        elif record is None:
            known = (await self.scene.remembered([told.user])).get(told.user, Remembered())
            if told.last_seen != known.last_seen:
                self._wrong(f"{who} {told}, the ledger says {known}")

    async def _conclude_counts(self, stored: dict[str, Presence]) -> None:
        truly = Counter(public(presence).status.word for presence in stored.values())
        truly.pop(Status.OFFLINE.word, None)
        for node in self.scene.nodes.values():
            counts = await node.counts()
            if counts.users != truly:
                self._wrong(f"{node.name} counts {counts.users}, the store has {truly}")
            if counts.connections != counts.sockets:
                self._wrong(f"{node.name} counts {counts.connections} connections of {counts.sockets}")

    async def _conclude_ledger(self, stored: dict[str, Presence]) -> None:
        users = sorted((stored.keys() | self._stays.keys() | self._modes.keys()) - self._viewers)
        ledger = await self.scene.remembered(users)
        for user in users:
            known = ledger.get(user, Remembered())
            self._conclude_last_seen(user, stored.get(user), known)
            self._conclude_chosen(user, stored.get(user), known)

    def _conclude_last_seen(self, user: str, record: Presence | None, known: Remembered) -> None:
        saved = known.last_seen or 0
        if record is not None and saved < (record.last_seen or 0):
            self._wrong(f"{user} was last seen at {record.last_seen}, the ledger has {saved}")
        if user in self._stays:
            self.counts["last seen"] += 1
            first, last = self._seen_between(user)
            if not first <= saved <= last:
                self._wrong(f"{user} was last seen between {first} and {last}, the ledger has {saved}")

    def _conclude_chosen(self, user: str, record: Presence | None, known: Remembered) -> None:
        """What was acknowledged is in the ledger, and the same as in the store."""
        mode, text = Mode.AUTO, None
        if known.choice is not None:
            mode = known.choice.mode
            text = None if known.choice.custom is None else known.choice.custom.text
        self.counts["choices"] += len(self._modes[user].ever) + len(self._texts[user].ever)
        if mode not in self._modes[user].possible or text not in self._texts[user].possible:
            chosen = self._modes[user].possible, self._texts[user].possible
            self._wrong(f"{user} chose one of {chosen}, the ledger has {mode!r}, {text}")
        if record is not None:
            stored = record.mode, None if record.custom is None else record.custom.text
            if stored != (mode, text):
                self._wrong(f"{user} has {stored} in the store, {(mode, text)} in the ledger")

    # How late things may be

    def _late(self, begin: int, now: int) -> int:
        return self.bounds.late + self._troubled(begin, now) + self.scene.lateness(begin, now)

    def _until(self, trouble: Trouble, now: int) -> int:
        """How long it may excuse that something is late."""
        if trouble.healed_at is not None:
            return trouble.healed_at
        end = trouble.end or now
        return end + self._healing(end, now)

    def _troubled(self, begin: int, now: int, *, blind: bool = False, place: str | None = None) -> int:
        """How long something that should have happened since `begin` may be late because of faults: as long as they
        were in force, and the time to recover from each. Presence does not wait for a ledger; only what depends on who may
        see whom (`blind`) does. `place`: only because of this node, or of the store."""
        spans = sorted(
            (t.begin, self._until(t, now))
            for t in self._troubles
            if self._until(t, now) > begin
            and t.begin < now
            and (blind or not t.blinds)
            and (place is None or t.node in (place, None))
        )
        if not spans:
            return 0
        covered, reach = 0, begin
        for first, last in spans:
            covered += max(0, min(last, now) - max(first, reach))
            reach = max(reach, min(last, now))
        return covered

    def _problem(self, kind: str, client: Device, shown: Shown, why: str) -> None:
        self.problems.append(f"{self.scene.now} {kind}: {_whom(client)} sees {shown}: {why}")

    def _wrong(self, what: str) -> None:
        self.problems.append(f"{self.scene.now} differs: {what}")


def _whom(client: Device) -> str:
    return f"{client.user} on {'nowhere' if client.link is None else client.link.node.name}"


def _seen(view: View) -> tuple[str, str | None]:
    return view.status.word, None if view.custom is None else view.custom.text
