"""Peers do the same work as herenow, or declare that they cannot. No performance is measured here.

A peer that is not installed is skipped with the reason; continuous integration fetches Starlette, which must run.
"""

import os

import pytest
from bench.__main__ import main
from bench.effort import Effort
from bench.peers import PEERS, chosen, work
from bench.peers.ourselves import ourselves
from bench.peers.peer import WORKS, NotInstalledError, Peer
from click.testing import CliRunner

FETCHED_IN_CI = "starlette"


@pytest.fixture(autouse=True)
def _few_people(monkeypatch):
    monkeypatch.setattr(work, "BEATING", 3)
    monkeypatch.setattr(work, "BEAT_FOR", 0.2)
    monkeypatch.setattr(work, "VIEWERS", (4,))
    monkeypatch.setattr(work, "ROUNDS", 2)
    monkeypatch.setattr(work, "ARRIVING", 10)
    monkeypatch.setattr(work, "WATCHED", 3)
    monkeypatch.setattr(work, "REQUESTS", 10)


def test_every_server_compared_in_the_benchmark_describes_its_abilities_and_limits():
    for name, peer in PEERS.items():
        assert peer.name == name
        assert len(peer.does.split()) > 10
        assert set(peer.cannot) | set(peer.differs) <= set(WORKS)
    assert {"starlette", "channels-daphne", "channels-uvicorn", "nchan", "centrifugo"} <= set(PEERS)


def test_servers_to_compare_in_the_benchmark_are_chosen_by_name():
    assert [peer.name for peer in chosen("nchan,starlette")] == ["nchan", "starlette"]
    assert len(chosen("all")) == len(PEERS)
    assert "centrifugo" not in [peer.name for peer in chosen("quick")]
    answer = CliRunner().invoke(main, ["beats", "--peer", "nobody"])
    assert answer.exit_code == 2
    assert "there is no peer 'nobody'" in answer.output


@pytest.mark.parametrize("scenario", WORKS)
def test_herenow_completes_every_benchmark_scenario_that_compares_servers(scenario):
    measured = list(work.WORKS[scenario](ourselves, Effort(repeats=1, quick=True)))
    assert measured
    assert all(each.per_cpu_second > 0 for each in measured)


@pytest.mark.parametrize("name", PEERS)
def test_a_compared_server_completes_each_benchmark_scenario_or_declares_that_it_cannot(name):
    peer = PEERS[name]
    if name == FETCHED_IN_CI and os.environ.get("CI") == "true":
        peer.install()
    elif missing := peer.missing():
        pytest.skip(missing)
    for scenario, do in work.WORKS.items():
        if scenario not in peer.cannot:
            measured = list(do(peer.serve, Effort(repeats=1, quick=True)))
            assert measured, scenario
            assert all(each.per_cpu_second > 0 for each in measured), scenario


class Absent(Peer):
    name = "absent"
    does = "It would"
    cannot = {"lookup": "cannot read"}  # noqa: RUF012

    def missing(self):
        return "there is no registry"

    def install(self):
        raise NotInstalledError("there is no registry")

    def serve(self, people):
        raise AssertionError("it is not there")


@pytest.fixture
def _pretended_work(monkeypatch):
    """Work that returns a hundred for herenow and for every peer."""

    def pretend(_serve, _effort):
        yield work.Measured("answers", 100.0, 0.1)

    monkeypatch.setattr(work, "WORKS", dict.fromkeys(WORKS, pretend))


@pytest.mark.usefixtures("_pretended_work")
def test_a_compared_server_that_is_not_installed_is_skipped_with_a_note_in_the_benchmark_result():
    result = work.beside("arrive", [Absent()], Effort(repeats=1, quick=True))
    assert [(figure.name, figure.ours) for figure in result.figures] == [("answers", [100.0])]
    assert "absent: left out. there is no registry" in result.notes


@pytest.mark.usefixtures("_pretended_work")
def test_a_benchmark_scenario_that_a_compared_server_cannot_do_is_listed_in_the_table():
    result = work.beside("lookup", [Absent()], Effort(repeats=1, quick=True))
    assert ("absent: cannot read", "cannot") in [(figure.name, figure.unit) for figure in result.figures]


def test_the_notes_of_a_benchmark_result_contain_the_measured_heartbeat_rate(monkeypatch):
    def pretend(_serve, _effort):
        yield work.Measured("heartbeats", 100.0, 0.1, pace=12_345.0)

    monkeypatch.setattr(work, "WORKS", dict.fromkeys(WORKS, pretend))
    [note] = work.beside("beats", [], Effort(repeats=1)).notes
    assert "12345 came per second" in note


class Failing(Absent):
    name = "failing"

    def install(self):
        return "version 1"


def test_a_compared_server_that_fails_is_noted_and_the_others_are_measured(monkeypatch):
    def pretend(serve, _effort):
        if serve is not ourselves:
            raise RuntimeError("it fell over")
        yield work.Measured("answers", 100.0, 0.1)

    monkeypatch.setattr(work, "WORKS", dict.fromkeys(WORKS, pretend))
    result = work.beside("arrive", [Failing()], Effort(repeats=2))
    assert result.figures[0].ours == [100.0, 100.0]
    assert "failing: did not do it. it fell over" in result.notes
    assert "failing: nothing was measured" in result.notes
