"""Only silent peers are pinged, evenly spread. Tests advance the timer."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from herenow.transport.websocket.pinger import Pinger


@dataclass
class Hand:
    """A clock and a timer, moved by the test."""

    now: float = 1000.0
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def call_later(self, delay: float, call: Callable[[], None]) -> "Hand":
        assert not self.due, "one timer for all"
        self.due.append((self.now + delay, call))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def turn(self, seconds: float) -> None:
        until = self.now + seconds
        while self.due and self.due[0][0] <= until + 1e-9:
            at, call = self.due.pop()
            self.now = max(self.now, at)
            call()
        self.now = until


class Peer:
    def __init__(self, hand: Hand) -> None:
        self.life = hand.now
        self.pinged_at: list[float] = []


class Rig:
    def __init__(self, period: float = 30.0, **options: float) -> None:
        self.hand = Hand()
        self.pinger: Pinger[Peer] = Pinger(
            period,
            last_life=lambda peer: peer.life,
            ping=self.ping,
            clock=lambda: self.hand.now,
            call_later=self.hand.call_later,
            **options,
        )
        self.answers = True
        self.pinger.start()

    def ping(self, peer: Peer) -> None:
        peer.pinged_at.append(self.hand.now)
        if self.answers:
            peer.life = self.hand.now

    def join(self) -> tuple[Peer, int]:
        peer = Peer(self.hand)
        return peer, self.pinger.add(peer)


def test_a_silent_client_that_answers_pings_is_pinged_once_per_period():
    rig = Rig()
    peer, _ = rig.join()
    rig.hand.turn(301)
    gaps = [b - a for a, b in zip(peer.pinged_at, peer.pinged_at[1:], strict=False)]
    assert len(peer.pinged_at) in (9, 10)
    assert gaps == pytest.approx([30] * len(gaps))


def test_a_client_that_does_not_answer_a_ping_is_pinged_again_one_period_later():
    rig = Rig()
    rig.answers = False
    peer, _ = rig.join()
    rig.hand.turn(91)
    assert 2 <= len(peer.pinged_at) <= 3


def test_a_client_with_frequent_signs_of_life_is_never_pinged():
    rig = Rig()
    peer, _ = rig.join()
    for _ in range(100):
        rig.hand.turn(10)
        peer.life = rig.hand.now
    assert peer.pinged_at == []


def test_every_live_client_shows_a_sign_of_life_within_two_ping_periods():
    rig = Rig()
    peers = [rig.join()[0] for _ in range(300)]
    longest = 0.0
    for step in range(2000):
        rig.hand.turn(0.1)
        longest = max(longest, *(rig.hand.now - peer.life for peer in peers))
        speaker = peers[step % 300]
        speaker.life = rig.hand.now
    assert longest <= 30 + 22.5 + 0.2


def test_pings_of_many_clients_are_spread_evenly_over_the_ping_period():
    rig = Rig()
    peers = [rig.join()[0] for _ in range(3000)]  # all at the same moment
    rig.hand.turn(60.05)
    second_round = Counter(round(at, 1) for peer in peers for at in peer.pinged_at if at > 1030.05)
    assert set(second_round.values()) == {10}
    assert len(second_round) == 300


def test_a_client_that_left_is_not_pinged():
    rig = Rig()
    (left, slot), (stayed, _) = rig.join(), rig.join()
    rig.pinger.discard(left, slot)
    rig.pinger.discard(left, slot)
    rig.hand.turn(61)
    assert left.pinged_at == []
    assert stayed.pinged_at


def test_a_client_may_leave_while_clients_are_being_pinged():
    rig = Rig(period=1.0, tick=1.0)
    members = [rig.join() for _ in range(3)]

    def leave(_peer: Peer) -> None:
        for member, slot in members:
            rig.pinger.discard(member, slot)

    rig.pinger._ping = leave
    rig.hand.turn(2.5)


def test_a_delayed_pinger_catches_up_without_pinging_a_client_twice():
    rig = Rig()
    rig.answers = False
    peers = [rig.join()[0] for _ in range(300)]
    at, call = rig.hand.due.pop()
    rig.hand.now = at + 95  # three rounds and more were missed
    call()
    assert [len(peer.pinged_at) for peer in peers] == [1] * 300
    rig.hand.turn(0.05)
    assert sum(len(peer.pinged_at) for peer in peers) == 300


@pytest.mark.parametrize("step", [-100_000, -31, -0.05, 0.05, 31, 100_000])
def test_a_change_of_the_clock_does_not_stop_the_pinger(step: float):
    rig = Rig()
    peer, _ = rig.join()
    rig.hand.turn(100)
    [(at, call)] = rig.hand.due
    rig.hand.now += step
    rig.hand.due = [(at + step, call)]  # a timer waits for a duration, not for a time of day
    peer.life = rig.hand.now
    already = len(peer.pinged_at)
    rig.hand.turn(301)
    assert 9 <= len(peer.pinged_at) - already <= 11


def test_a_ping_that_raises_an_error_does_not_stop_the_pinger():
    rig = Rig(period=1.0)
    rig.join()

    def fail(_peer: Peer) -> None:
        raise OSError

    rig.pinger._ping = fail
    with pytest.raises(OSError):
        rig.hand.turn(3)
    assert rig.hand.due


def test_the_pinger_of_websocket_clients_can_be_stopped_and_started_again():
    rig = Rig()
    rig.answers = False
    peer, _ = rig.join()
    rig.pinger.stop()
    rig.pinger.stop()
    assert rig.hand.due == []
    rig.hand.turn(1000)
    assert peer.pinged_at == []
    rig.pinger.start()
    rig.hand.turn(30)
    assert len(peer.pinged_at) == 1


@pytest.mark.parametrize("period", [0.05, 0.1, 0.5, 2.0, 30.0, 600.0])
def test_the_pinger_works_with_any_ping_period(period: float):
    rig = Rig(period)
    peer, _ = rig.join()
    rig.hand.turn(period * 4.5)
    assert 3 <= len(peer.pinged_at) <= 4


def test_the_pinger_has_no_timer_while_there_are_no_clients():
    rig = Rig(period=30.0)
    assert not rig.hand.due
    peer = Peer(rig.hand)
    slot = rig.pinger.add(peer)
    assert rig.hand.due
    rig.pinger.discard(peer, slot)
    rig.pinger.discard(peer, slot)
    rig.hand.turn(1.0)
    assert not rig.hand.due


def test_a_client_that_connects_after_a_time_without_clients_is_pinged_on_schedule():
    rig = Rig(period=30.0)
    peers = []
    for _ in range(3):
        rig.hand.turn(1234.5)
        peer = Peer(rig.hand)
        came, slot = rig.hand.now, rig.pinger.add(peer)
        rig.hand.turn(120.0)
        assert came + 30.0 * 0.75 <= peer.pinged_at[0] <= came + 30.0 * 1.75 + 0.2
        gaps = [b - a for a, b in zip(peer.pinged_at, peer.pinged_at[1:], strict=False)]
        assert all(gap == pytest.approx(30.0, abs=0.2) for gap in gaps)
        rig.pinger.discard(peer, slot)
        peers.append(peer)
    assert all(len(peer.pinged_at) >= 3 for peer in peers)


def test_a_stopped_pinger_does_not_start_when_a_client_connects():
    rig = Rig()
    rig.pinger.stop()
    rig.pinger.add(Peer(rig.hand))
    assert not rig.hand.due
