"""Plausible mistakes, one per output: each must make the twin test fail.

A leak is a function that modifies the stage. It reveals what careless code would have at hand: the record, the sessions
a node holds, a counter.
"""

import asyncio

from herenow.api.ops import degraded, health, stats
from herenow.core.model import Status, truth
from herenow.core.values import replace
from herenow.core.visibility import ViewScope
from herenow.errors import ProtocolError
from herenow.node.delivery import channels
from herenow.node.viewing import typing, views
from herenow.wire.shapes import status_frame
from herenow_testing.twins.cases import FRIEND, TARGET

LEAKS = {}


def leak(way):
    """`way`: part of the name of the recording in which the leak must be found."""

    def register(plant):
        LEAKS[plant.__name__] = plant, way
        return plant

    return register


def is_here(stage):
    person = stage.node.context.people.find(TARGET)
    return person is not None and any(session.lost_at is None for session in person.held)


def spoil_seen(monkeypatch, module, spoil):
    seen = module.seen
    monkeypatch.setattr(
        module, "seen", lambda presence, sight, *day: spoil(presence, seen(presence, sight, *day), sight)
    )


# --- Values


@leak("socket")
def the_truth_is_pushed(stage, monkeypatch):
    spoil_seen(
        monkeypatch, channels, lambda presence, view, sight: truth(presence) if sight == ViewScope.FULL else view
    )


@leak("stream")
def platforms_are_pushed(stage, monkeypatch):
    spoil_seen(monkeypatch, channels, lambda presence, view, _: replace(view, platforms=tuple(presence.platforms)))


@leak("socket")
def hidden_text_is_pushed(stage, monkeypatch):
    spoil_seen(monkeypatch, channels, lambda presence, view, _: replace(view, custom=presence.custom))


@leak("socket")
def last_seen_follows_hidden_life(stage, monkeypatch):
    def spoil(presence, view, _):
        stamps = [session.seen_at for session in presence.sessions]
        return replace(view, last_seen=max([view.last_seen or 0, *stamps])) if presence.hidden else view

    spoil_seen(monkeypatch, channels, spoil)


@leak("newcomer")
def what_is_hidden_is_stale(stage, monkeypatch):
    monkeypatch.setattr(stage.node.delivery.channels, "_says_stale", lambda person: person.record.presence.hidden)


@leak("GET /api/v1/presence/{user}")
def as_of_is_the_records_version(stage, monkeypatch):
    statuses = stage.node.viewing.statuses

    async def spoiled(viewer, users):
        monkeypatch.setattr(
            stage.node.delivery,
            "as_of",
            lambda *_: getattr(stage.node.context.people.find(TARGET).record.presence, "version", 0),
        )
        try:
            return await statuses(viewer, users)
        finally:
            monkeypatch.setattr(stage.node.delivery, "as_of", lambda *_: stage.node.context.clock.now())

    monkeypatch.setattr(stage.node.viewing, "statuses", spoiled)


# --- Counts and orders


@leak("presence/count")
def the_hidden_are_counted(stage, monkeypatch):
    count = stage.node.viewing.count

    async def spoiled(viewer):
        counts = await count(viewer)
        if viewer == FRIEND and is_here(stage):
            counts |= {"online": counts["online"] + 1, "offline": counts["offline"] - 1}
        return counts

    monkeypatch.setattr(stage.node.viewing, "count", spoiled)


@leak("leaderboard")
def ranks_follow_the_truth(stage, monkeypatch):
    rank = views._rank

    def spoiled(contact):
        status, *seen_at, user = rank(contact)
        return status, *([False, -(2**60), 0] if user == TARGET and is_here(stage) else seen_at), user

    monkeypatch.setattr(views, "_rank", spoiled)


@leak("stats")
def statistics_count_the_hidden(stage, monkeypatch):
    monkeypatch.setattr(
        type(stage.node.context.metrics), "users", Counted(stage, stage.node.context.metrics.users), raising=False
    )


class Counted:
    def __init__(self, stage, users):
        self._stage = stage
        self._users = users

    def __get__(self, metrics, _owner):
        if metrics is not self._stage.node.context.metrics or not is_here(self._stage):
            return self._users
        return {**{status: self._users[status] for status in Status}, Status.AWAY: 99}

    def __set__(self, metrics, users): ...


# --- Frames


@leak("socket")
def the_hidden_type(stage, monkeypatch):
    monkeypatch.setattr(typing, "may_hear_typing", lambda _presence, sight: sight == ViewScope.FULL)


@leak("socket")
def rooms_hear_everybody(stage, monkeypatch):
    monkeypatch.setattr(typing, "may_hear_typing", lambda _presence, _sight: True)


@leak("socket")
def equal_values_are_sent_again(stage, monkeypatch):
    publish = stage.node.delivery.publish

    def spoiled(person):
        publish(person)
        for channel in person.watchers.channels:
            for outbox in list(channel.outboxes):
                if person.user == TARGET and person.record.presence.hidden:
                    outbox.send(status_frame(channel.body, stage.node.context.clock.now()))

    monkeypatch.setattr(stage.node.delivery, "publish", spoiled)


@leak("stream")
def streams_breathe_with_the_hidden(stage, monkeypatch):
    publish = stage.node.delivery.publish

    def spoiled(person):
        publish(person)
        for stream in stage.node.viewing.streams:
            if person.user in stream.outbox.watching and person.record.presence.hidden:
                stream.end.__self__.ping()

    monkeypatch.setattr(stage.node.delivery, "publish", spoiled)


@leak("socket")
def a_denial_tells_who_is_there(stage, monkeypatch):
    subscribe = stage.node.viewing.subscribe

    async def spoiled(outbox, targets):
        granted = await subscribe(outbox, targets)
        reason = "too_many_subscriptions" if is_here(stage) else "not_mutual_followers"
        granted.denied = [(user, reason if user == TARGET else why) for user, why in granted.denied]
        return granted

    monkeypatch.setattr(stage.node.viewing, "subscribe", spoiled)


@leak("socket")
def typing_to_the_hidden_is_answered_otherwise(stage, monkeypatch):
    told = stage.node.viewing.type

    async def spoiled(connection, to, room, *, typing):
        await told(connection, None if to == TARGET and is_here(stage) else to, room, typing=typing)
        if to == TARGET and is_here(stage):
            raise ProtocolError("not_a_member", "Not now.")

    monkeypatch.setattr(stage.node.viewing, "type", spoiled)


# --- Answers


def spoil_answers(stage, spoil):
    app = stage.app

    async def spoiled(scope, receive, send):
        async def sent(message):
            await send(spoil(message) if scope["path"].endswith(f"presence/{TARGET}") else message)

        await app(scope, receive, sent)

    stage.app = spoiled


@leak("GET /api/v1/presence/{user}")
def a_header_tells(stage, monkeypatch):
    def spoil(message):
        if message["type"] == "http.response.start" and is_here(stage):
            message["headers"] = [*message["headers"], (b"x-node", b"1")]
        return message

    spoil_answers(stage, spoil)


@leak("GET /api/v1/presence/{user}")
def a_body_is_longer(stage, monkeypatch):
    def spoil(message):
        if message["type"] == "http.response.body" and is_here(stage):
            message["body"] += b" "
        return message

    spoil_answers(stage, spoil)


@leak("GET /api/v1/presence/{user}")
def an_answer_takes_longer(stage, monkeypatch):
    statuses = stage.node.viewing.statuses

    async def spoiled(viewer, users):
        if is_here(stage) and list(users) == [TARGET]:
            await asyncio.sleep(0.005)
        return await statuses(viewer, users)

    monkeypatch.setattr(stage.node.viewing, "statuses", spoiled)


@leak("DELETE /api/v1/presence/devices/{device}")
def anybodys_device_is_found(stage, monkeypatch):
    sign_out = stage.node.sessions.sign_out

    async def spoiled(user, device, **how):
        there = await sign_out(user, device, **how)
        person = stage.node.context.people.find(TARGET)
        return there or (person is not None and any(s.device == device for s in person.held))

    monkeypatch.setattr(stage.node.sessions, "sign_out", spoiled)


@leak("readyz")
def readiness_names_the_busy(stage, monkeypatch):
    def spoiled(node, auth):
        yield from degraded.find_troubles(node, auth)
        if is_here(stage):
            yield stats.Trouble("load", "Somebody is here.")

    monkeypatch.setattr(health, "find_troubles", spoiled)


@leak("GET /api/v1/public/{user}")
def a_profile_shows_the_truth(stage, monkeypatch):
    profile = stage.node.viewing.profile

    async def spoiled(user):
        found = await profile(user)
        if found is None or not is_here(stage):
            return found
        body, as_of = found
        return body.replace(b'"offline"', b'"away"'), as_of

    monkeypatch.setattr(stage.node.viewing, "profile", spoiled)


@leak("GET /api/v1/public/{user}")
def a_profiles_etag_follows_hidden_life(stage, monkeypatch):
    profile = stage.node.viewing.profile

    async def spoiled(user):
        found = await profile(user)
        person = stage.node.context.people.find(TARGET)
        if found is None or person is None or not person.record.presence.hidden:
            return found
        body, as_of = found
        return body + b" " * (person.record.presence.version % 7 + 1), as_of

    monkeypatch.setattr(stage.node.viewing, "profile", spoiled)
