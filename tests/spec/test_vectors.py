"""spec/vectors/*.json: the required behaviour of all SDKs, checked against the server's wire and the Python SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from herenow.client import backoff
from herenow.client.backoff import Verdict
from herenow.client.choices import set_frame
from herenow.client.interest import Interest, Wants
from herenow.client.presence import Presence
from herenow.client.roster import Roster
from herenow.core.model import Bucket, Custom, Device, Mode, OwnView, Platform, Source, Status, View
from herenow.errors import ProtocolError
from herenow.wire import answers, shapes
from herenow.wire.codes import CLOSES, DENIALS
from herenow.wire.decode import decode_frame
from herenow.wire.frames import SubscribeFrame
from herenow.wire.ids import parse_id
from herenow.wire.server_frames import read_frame

FOLDER = Path(__file__).parents[2] / "spec" / "vectors"
NOW = 1_763_251_200_000


def vectors(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return value


def named(stories: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("story", stories, ids=[story["name"] for story in stories])


# --- Ids, back-off, closes


@pytest.mark.parametrize("case", vectors("ids")["cases"], ids=lambda case: ascii(case["value"])[:30])
def test_the_server_parses_ids_as_in_the_shared_test_vectors(case):
    try:
        found = parse_id(case["value"])
    except ProtocolError:
        found = None
    assert found == case["id"]


def test_the_python_client_waits_before_a_reconnect_as_in_the_shared_test_vectors():
    for case in vectors("backoff")["cases"]:
        assert backoff.delay(case["failures"], case["random"], case["retry_after"]) == case["wait"], case


def test_the_python_client_waits_before_a_new_token_request_as_in_the_shared_test_vectors():
    for case in vectors("backoff")["tokens"]:
        assert backoff.token_delay(case["failures"]) == case["wait"], case


def test_the_python_client_handles_close_codes_as_in_the_shared_test_vectors():
    given = vectors("closes")
    for case in given["cases"]:
        assert backoff.after_close(case["code"]) is Verdict(case["verdict"]), case
    for case in given["failures"]:
        assert backoff.counted(case["failures"], Verdict(case["verdict"])) == case["counted"], case
    for case in given["reasons"]:
        assert backoff.retry_after(case["reason"]) == case["retry_after"], case


def test_the_shared_test_vectors_for_close_codes_agree_with_the_table_of_the_server():
    verdicts = {case["code"]: case["verdict"] for case in vectors("closes")["cases"]}
    for code, row in CLOSES.items():
        assert (verdicts[code] in ("retry", "slowly")) is row.retry, code


# --- Client frames


@pytest.mark.parametrize("case", vectors("client-frames")["cases"], ids=lambda case: json.dumps(case["frame"])[:60])
def test_the_server_accepts_exactly_the_valid_client_frames_of_the_shared_test_vectors(case):
    def understood() -> str | None:
        try:
            decode_frame(json.dumps(case["frame"]).encode()).command(NOW)
        except ProtocolError as error:
            return error.code
        return None

    assert understood() == case.get("code")


def test_the_python_client_builds_the_presence_set_frames_of_the_shared_test_vectors():
    for case in vectors("choices")["cases"]:
        frame = msgspec.json.encode(set_frame(**case["choice"]))
        assert json.loads(frame) == case["frame"]
        decode_frame(frame).command(1_893_455_000_000)


@named(vectors("subscriptions")["stories"])
def test_the_python_client_subscribes_and_unsubscribes_as_in_the_shared_test_vectors(story):
    interest, asked = Interest(), []
    size = story.get("size", 65_536)
    for step in story["steps"]:
        if "want" in step:
            interest.want(msgspec.convert(step["want"], Wants))
        if "connect" in step:
            interest.reset()
        if "again" in step:
            interest.again(step["again"])
        if "answer" in step:
            answer = read_frame(json.dumps(step["with"] | {"id": asked[step["answer"]]}))
            assert answer is not None
            assert interest.hear(answer) is (step["with"]["type"] == "presence.error")
        if "frames" not in step:
            continue
        frames = interest.frames(size, story.get("bulk", 1_000))
        asked += [frame.id for frame in frames if isinstance(frame, SubscribeFrame)]
        encoded = [msgspec.json.encode(frame) for frame in frames]
        assert all(len(each) <= size for each in encoded)
        for each in encoded:
            decode_frame(each).command(NOW)
        assert [_without_id(json.loads(each)) for each in encoded] == step["frames"]


def _without_id(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if name != "id"}


# --- Server frames

CUSTOM = Custom("Lunch", "🍜", 1_893_456_000_000)


def body(user: str, status: Status, since: int | None = None, **more: Any) -> bytes:
    stale, delivery = more.pop("stale", False), more.pop("delivery", None)
    platforms = () if status is Status.OFFLINE else (Platform.WEB,)
    view = View(status, since, **({"platforms": platforms} | more))
    unclosed = shapes.status_body(user, view, stale=stale)
    return unclosed if delivery is None else shapes.with_delivery(unclosed, delivery)


T = NOW + 1
MADE: dict[str, Callable[[], bytes]] = {
    "welcome": lambda: shapes.welcome_frame(
        user_id="ana",
        device_id="d1",
        session_id="s1",
        beat_every=30.0,
        idle_after=300.0,
        server_time=NOW,
        limits=shapes.WelcomeLimits(500, 65_536, 1000),
    ),
    "self": lambda: shapes.self_frame(
        shapes.self_body(
            OwnView(
                Status.BUSY,
                Mode.BUSY,
                1_893_456_000_000,
                CUSTOM,
                (Device("d1", Platform.WEB, active=True, since=NOW),),
                Source.CALL,
                Source.USER,
            )
        )
    ),
    "online": lambda: shapes.status_frame(
        body("bo", Status.ONLINE, NOW, custom=CUSTOM, platforms=(Platform.MOBILE, Platform.WEB)), T
    ),
    "offline": lambda: shapes.status_frame(body("bo", Status.OFFLINE, NOW - 100_000, last_seen=NOW - 100_000), T),
    "answer": lambda: shapes.status_frame(body("bo", Status.AWAY, NOW - 100_000), T, "w1"),
    "blurred": lambda: shapes.status_frame(body("bo", Status.OFFLINE, bucket=Bucket.WITHIN_WEEK), T),
    "stale and paced": lambda: shapes.status_frame(body("bo", Status.ONLINE, NOW, stale=True, delivery="paced"), T),
    "several": lambda: shapes.closed_statuses_frame(
        [shapes.with_as_of(body("bo", Status.OFFLINE), 5), shapes.with_as_of(body("chen", Status.ONLINE, 1000), 6)], 7
    ),
    "none": lambda: shapes.statuses_frame([], T),
    "denied": lambda: shapes.denied_frame("eve", "not_mutual_followers", "w1"),
    "denied several": lambda: shapes.denied_list_frame([("eve", "not_mutual_followers"), ("a b", "invalid_user_id")]),
    "unsubscribed": lambda: shapes.unsubscribed_frame(["bo"]),
    "typing": lambda: shapes.typing_frame("bo", to="ana", expires_in=6.0),
    "typing in a room": lambda: shapes.typing_frame("bo", room="r1", expires_in=0.0),
    "error": lambda: shapes.error_frame("invalid_mode", "A mode is auto, busy, away or invisible.", "s1"),
    "ok": lambda: shapes.ok_frame("s1"),
}


@pytest.mark.parametrize("name", vectors("server-frames")["frames"])
def test_the_server_builds_the_server_frames_of_the_shared_test_vectors(name):
    assert json.loads(MADE[name]()) == vectors("server-frames")["frames"][name]


@pytest.mark.parametrize("name", vectors("server-frames")["frames"])
def test_the_python_client_reads_every_server_frame_of_the_shared_test_vectors(name):
    said = vectors("server-frames")["frames"][name]
    frame = read_frame(json.dumps(said))
    assert frame is not None
    read = json.loads(msgspec.json.encode(frame))
    assert {field: read[field] for field in said} == said
    assert read_frame(json.dumps(said | {"from_the_future": 1})) == frame


def test_the_python_client_ignores_server_frames_of_unknown_type_or_invalid_json():
    assert read_frame('{"type":"presence.sing"}') is None
    assert read_frame("{") is None
    assert read_frame("[]") is None


# --- The roster


@named(vectors("known-statuses")["stories"])
def test_the_python_client_keeps_the_statuses_of_users_as_in_the_shared_test_vectors(story):
    roster = Roster()
    for step in story["steps"]:
        changed = [change.now.user_id for change in happen(roster, step)]
        assert changed == step["changed"]
        for user, expected in step["shown"].items():
            shown = msgspec.structs.asdict(roster.get(user))
            assert {field: shown[field] for field in expected} == expected


def happen(roster: Roster, step: dict[str, Any]) -> list[Any]:
    match step:
        case {"take": said}:
            change = roster.take(Presence.said(msgspec.convert(said, answers.StatusAnswer)))
        case {"deny": [user, reason]}:
            assert reason in DENIALS
            change = roster.deny(user, reason)
        case {"lost": True}:
            roster.lost()
            change = None
        case {"age": True}:
            return roster.age()
        case {"forget": user}:
            roster.forget(user)
            change = None
        case _:
            raise AssertionError(f"nothing happens in {step}")
    return [] if change is None else [change]
