"""Outgoing frames are valid JSON in the documented shape, for any id and text."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herenow.core.model import NOBODY_HERE, Bucket, Custom, Device, Mode, OwnView, Platform, Source, Status, View
from herenow.wire import shapes

ODD = 'a"b\\c/é😀\u2028<>&'  # characters that a careless encoder gets wrong
HERE = View(Status.ONLINE, since=1, platforms=(Platform.WEB,))

read = msgspec.json.decode


def closed(body):
    return read(shapes.with_as_of(body, 9))


def test_an_encoded_status_has_its_fields_in_order_and_no_closing_brace():
    assert shapes.status_body("a", HERE) == (
        b'{"user_id":"a","status":"online","since":1,"last_seen":null,"custom_status":null,"platforms":["web"]'
    )


def test_optional_fields_of_an_encoded_status_come_last():
    body = shapes.with_delivery(shapes.status_body("a", View(bucket=Bucket.RECENTLY), stale=True), "paced")
    assert body.endswith(b'"platforms":[],"last_seen_bucket":"recently","stale":true,"delivery":"paced"')


@pytest.mark.parametrize(
    ("view", "options", "expected"),
    [
        (HERE, {}, {"status": "online", "since": 1, "platforms": ["web"]}),
        (NOBODY_HERE, {}, {}),
        (View(Status.OFFLINE, 5, 5), {}, {"since": 5, "last_seen": 5}),
        (View(Status.AWAY, 5), {}, {"status": "away", "since": 5}),
        (View(Status.BUSY, 5), {}, {"status": "busy", "since": 5}),
        (
            View(Status.ONLINE, 5, None, Custom(ODD, "🍜", 7), (Platform.OTHER, Platform.DESKTOP, Platform.MOBILE)),
            {},
            {
                "status": "online",
                "since": 5,
                "custom_status": {"text": ODD, "emoji": "🍜", "expires_at": 7},
                "platforms": ["other", "desktop", "mobile"],
            },
        ),
        (
            View(Status.ONLINE, 5, None, Custom("x")),
            {},
            {"status": "online", "since": 5, "custom_status": {"text": "x", "emoji": "", "expires_at": None}},
        ),
        (NOBODY_HERE, {"stale": True}, {"stale": True}),
        (View(bucket=Bucket.LONG_AGO), {}, {"last_seen_bucket": "long_ago"}),
    ],
)
@pytest.mark.parametrize("user", ["a", ODD])
def test_a_status_has_the_same_fields_in_every_kind_of_frame(user, view, options, expected):
    empty: dict[str, object] = {
        "status": "offline",
        "since": None,
        "last_seen": None,
        "custom_status": None,
        "platforms": [],
    }
    shape = {"user_id": user, **empty, **expected, "as_of": 9}
    body = shapes.status_body(user, view, **options)
    assert closed(body) == shape
    assert read(shapes.status_frame(body, 9)) == {"type": "presence.status", **shape}
    assert read(shapes.status_frame(body, 9, "q")) == {"type": "presence.status", **shape, "id": "q"}
    for several in (shapes.statuses_frame([body], 9), shapes.closed_statuses_frame([shapes.with_as_of(body, 9)])):
        assert read(several) == {"type": "presence.statuses", "statuses": [shape]}


def test_encoded_statuses_are_equal_exactly_if_user_and_contents_are_equal():
    assert shapes.status_body("a", HERE) == shapes.status_body("a", View(Status.ONLINE, 1, platforms=(Platform.WEB,)))
    bodies = {
        shapes.status_body("a", HERE),
        shapes.status_body("b", HERE),
        shapes.status_body("a", HERE, stale=True),
        shapes.with_delivery(shapes.status_body("a", HERE), "paced"),
        shapes.status_body("a", NOBODY_HERE),
        shapes.status_body("a", View(bucket=Bucket.RECENTLY)),
    }
    assert len(bodies) == 6


@pytest.mark.parametrize("count", [0, 1, 2, 10])
@pytest.mark.parametrize("frame_id", [None, 0, 7, "", ODD, 10**63])
def test_several_statuses_in_one_frame_keep_their_order(count, frame_id):
    bodies = [shapes.status_body(f"u{n}", HERE) for n in range(count)]
    frame = read(shapes.statuses_frame(iter(bodies), 9, frame_id))
    assert [status["user_id"] for status in frame["statuses"]] == [f"u{n}" for n in range(count)]
    assert all(status["as_of"] == 9 for status in frame["statuses"])
    assert frame.get("id") == frame_id
    assert ("id" in frame) == (frame_id is not None)


def test_statuses_of_one_frame_may_be_as_of_different_times():
    statuses = [shapes.with_as_of(shapes.status_body(f"u{n}", HERE), n) for n in range(3)]
    frame = read(shapes.closed_statuses_frame(statuses, "q"))
    assert [status["as_of"] for status in frame["statuses"]] == [0, 1, 2]
    assert frame["id"] == "q"


def test_the_self_frame_of_a_user_has_status_mode_text_and_devices():
    devices = (Device("d1", Platform.WEB, True, 3), Device(ODD, Platform.OTHER, False, 4))
    body = shapes.self_body(OwnView(Status.BUSY, Mode.INVISIBLE, 8, Custom("x", "", 7), devices))
    shape = {
        "status": "busy",
        "mode": "invisible",
        "until": 8,
        "custom_status": {"text": "x", "emoji": "", "expires_at": 7},
        "devices": [
            {"device_id": "d1", "platform": "web", "active": True, "since": 3},
            {"device_id": ODD, "platform": "other", "active": False, "since": 4},
        ],
    }
    assert read(body) == shape
    assert read(shapes.self_frame(body)) == {"type": "presence.self", **shape}


def test_the_self_frame_of_a_user_names_who_set_mode_and_text():
    own = OwnView(Status.BUSY, Mode.BUSY, None, Custom("x"), (), Source.CALL, Source.USER)
    found = read(shapes.self_body(own))
    assert (found["mode_source"], found["custom_source"]) == ("call", "user")


def test_the_self_frame_of_a_user_without_mode_and_text_has_nulls():
    body = shapes.self_body(OwnView(Status.OFFLINE, Mode.AUTO, None, None, ()))
    assert read(body) == {"status": "offline", "mode": "auto", "until": None, "custom_status": None, "devices": []}


@pytest.mark.parametrize(
    ("seconds", "text"), [(30, b"30"), (30.0, b"30"), (0.25, b"0.25"), (2.5, b"2.5"), (86400.0, b"86400")]
)
def test_a_welcome_frame_has_durations_in_seconds(seconds, text):
    frame = shapes.welcome_frame(
        user_id=ODD,
        device_id="d",
        session_id="s",
        beat_every=seconds,
        idle_after=seconds,
        server_time=5,
        limits=shapes.WelcomeLimits(subscriptions=500, frame=65536, bulk=1000),
    )
    assert b'"beat_every":%b,"idle_after":%b,' % (text, text) in frame
    assert read(frame) == {
        "type": "presence.welcome",
        "user_id": ODD,
        "device_id": "d",
        "session_id": "s",
        "beat_every": seconds,
        "idle_after": seconds,
        "server_time": 5,
        "limits": {"subscriptions": 500, "frame": 65536, "bulk": 1000},
    }


@pytest.mark.parametrize(
    ("encode", "expected"),
    [
        (
            lambda **id: shapes.denied_frame(ODD, "invalid_user_id", **id),
            {"type": "presence.subscribe.denied", "target_user_id": ODD, "reason": "invalid_user_id"},
        ),
        (
            lambda **id: shapes.denied_list_frame([("a", "not_mutual_followers"), (ODD, "invalid_user_id")], **id),
            {
                "type": "presence.subscribe.denied",
                "denied": [
                    {"target_user_id": "a", "reason": "not_mutual_followers"},
                    {"target_user_id": ODD, "reason": "invalid_user_id"},
                ],
            },
        ),
        (
            lambda **id: shapes.unsubscribed_frame(["a", ODD], **id),
            {"type": "presence.unsubscribed", "target_user_ids": ["a", ODD]},
        ),
        (lambda **id: shapes.unsubscribed_frame([], **id), {"type": "presence.unsubscribed", "target_user_ids": []}),
        (
            lambda **id: shapes.error_frame("bad_json", ODD, **id),
            {"type": "presence.error", "code": "bad_json", "message": ODD},
        ),
        (lambda **id: shapes.ok_frame(**id), {"type": "presence.ok"}),
        (lambda **id: shapes.ok_frame(**id, stale=True), {"type": "presence.ok", "stale": True}),
    ],
)
@pytest.mark.parametrize("frame_id", [0, 7, "", ODD, 10**63])
def test_answer_frames_echo_the_id_of_the_request_or_omit_it(encode, expected, frame_id):
    assert read(encode()) == expected
    assert read(encode(id=None)) == expected
    assert read(encode(id=frame_id)) == {**expected, "id": frame_id}


@pytest.mark.parametrize(
    ("where", "expires_in"), [({"to": ODD}, 6), ({"room": "r"}, 6.0), ({"room": "r"}, 0), ({"to": "b"}, 2.5)]
)
def test_a_typing_frame_names_a_user_or_a_room(where, expires_in):
    frame = shapes.typing_frame("a", expires_in=expires_in, **where)
    assert read(frame) == {"type": "presence.typing", "user_id": "a", "expires_in": expires_in, **where}


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(0, 2**53),
)
def test_any_user_id_and_custom_text_are_unchanged_after_encoding_and_decoding_a_frame(user, text, as_of):
    body = shapes.status_body(user, View(Status.ONLINE, 1, None, Custom(text, text, None)))
    frame = read(shapes.statuses_frame([body, body], as_of, user))
    assert frame["id"] == user
    assert frame["statuses"][0] == frame["statuses"][1] == read(shapes.with_as_of(body, as_of))
    assert frame["statuses"][1]["user_id"] == user
    assert frame["statuses"][1]["custom_status"]["text"] == text
