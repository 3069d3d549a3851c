"""The benchmark starts, knows its scenarios and counts right. No performance is measured here."""

import os
import random

import pytest
from bench.__main__ import SCENARIOS, main
from bench.beats import BEAT
from bench.effort import Effort
from bench.load import Crowd, masked
from bench.machine import cpu_seconds, reads, resident_bytes
from bench.report import Figure, Result, save, show
from bench.server import Server
from bench.twins import mann_whitney
from click.testing import CliRunner
from rich.console import Console


def test_the_help_of_the_benchmark_names_every_scenario():
    answer = CliRunner().invoke(main, ["--help"])
    assert answer.exit_code == 0
    said = "".join(answer.output.split())  # a long list is wrapped, even inside a word with a hyphen
    assert all(scenario in said for scenario in SCENARIOS)


@pytest.mark.parametrize("wrong", [["nonsense"], ["beats", "--repeats", "0"], ["--slow"]])
def test_the_benchmark_refuses_a_wrong_argument(wrong):
    assert CliRunner().invoke(main, wrong).exit_code == 2


def test_the_benchmark_runs_the_named_scenarios_in_the_given_order(monkeypatch, tmp_path):
    ran = []

    def pretend(name):
        def run(effort):
            ran.append((name, effort))
            return Result(name)

        return run

    monkeypatch.setattr("bench.machine.pin", lambda _pid, _core: None)
    monkeypatch.setattr("bench.__main__.LAST", tmp_path)
    for name in SCENARIOS:
        monkeypatch.setitem(SCENARIOS, name, pretend(name))
    answer = CliRunner().invoke(main, ["idle", "beats", "--quick"])
    assert answer.exit_code == 0, answer.output
    assert ran == [("idle", Effort(repeats=1, quick=True)), ("beats", Effort(repeats=1, quick=True))]


def test_the_target_of_a_benchmark_figure_is_a_ratio_of_medians_or_a_bound_for_the_worst_value():
    assert Figure("f", "u", [6, 7, 60], [10, 10, 1], at_least=0.7).met is True
    assert Figure("f", "u", [6, 7, 60], [11, 11, 1], at_least=0.7).met is False
    assert Figure("f", "u", [1, 2, 12.1], at_most=12).met is False
    assert Figure("f", "u", [1, 2, 12], at_most=12).met is True
    assert Figure("f", "u", [3, 9], no_less=3).met is True
    assert Figure("f", "u", [2.9, 9], no_less=3).met is False
    assert Figure("f", "u", [1]).met is None


def test_a_benchmark_result_is_printed_and_saved_as_json(tmp_path):
    result = Result("some", [Figure("frames", "per s", [123456.0], [234567.0], at_least=0.6)], ["a note"])
    console = Console(record=True, width=120)
    show(result, console)
    assert "123 456" in console.export_text()
    assert '"ratio": 0.526' in save(result, {"cpu": "a"}, tmp_path).read_text()


def test_the_benchmark_measures_cpu_time_memory_and_reads_of_another_process():
    assert cpu_seconds(os.getpid()) > 0
    assert resident_bytes(os.getpid()) > 1_000_000
    assert reads(os.getpid()).calls > 0


def test_the_load_generator_masks_its_websocket_frames():
    assert BEAT[:2] == b"\x81\x9d"
    key, payload = BEAT[2:6], BEAT[6:]
    assert bytes(byte ^ key[at % 4] for at, byte in enumerate(payload)) == b'{"type":"presence.heartbeat"}'
    assert masked(b"x" * 300)[:4] == b"\x81\xfe\x01\x2c"


def test_the_load_generator_counts_frames_correctly_wherever_the_received_bytes_are_split():
    stream = b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + b"\x81\x02hi" + b"\x81\x7e\x01\x2c" + b"y" * 300
    for cut in range(1, len(stream)):
        with Crowd(Server(pid=0, port=0)) as crowd:
            seen: list[bytes] = []
            crowd.listeners[7] = seen.append
            crowd._opening.add(7)
            crowd._take(7, stream[:cut])
            crowd._take(7, stream[cut:])
            assert (crowd.frames, seen) == (2, [b"hi", b"y" * 300]), cut


@pytest.mark.parametrize(
    ("first", "second", "area"),
    [
        ([1, 2, 3], [4, 5, 6], 0.0),
        ([4, 5, 6], [1, 2, 3], 1.0),
        ([1, 2, 3], [1, 2, 3], 0.5),
        ([1, 1, 1], [1, 1, 1], 0.5),
        ([1, 4], [2, 3], 0.5),
        ([2, 4], [1, 3], 0.75),
    ],
)
def test_mann_whitney_area_is_the_share_of_pairs_where_the_first_is_greater(first, second, area):
    assert mann_whitney(first, second)[0] == area


def test_mann_whitney_distinguishes_a_real_difference_from_chance():
    dice = random.Random(2)
    same = [[dice.gauss(0, 1) for _ in range(500)] for _ in range(2)]
    late = [value + 0.5 for value in same[1]]
    assert mann_whitney(*same)[1] > 0.05
    assert mann_whitney(same[0], late)[1] < 1e-6
