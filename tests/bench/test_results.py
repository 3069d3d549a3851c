"""Results of a run: figures that can be loaded again, tables, pictures, and the comparison with a later run."""

import json
from xml.etree import ElementTree

import pytest
from bench.__main__ import SCENARIOS, main
from bench.guard import compared, guarded
from bench.plot import drawable, svg
from bench.report import RESULTS, Figure, Line, Result, load, save
from bench.server import ROOT
from bench.written import PAGE, page, write
from click.testing import CliRunner

from bench import capacity

MACHINE = dict.fromkeys(("at", "cpu", "cores", "kernel", "python", "load_average"), "?")
SOME = Result(
    "some",
    [Figure("frames <fast>", "per CPU s", [100.0, 300.0, 200.0], [50.0]), Figure("alone", "ms", [3.0], at_most=2.0)],
    ["a note"],
    lines=[Line("late", "people", "ms", [(1.0, 10.0), (2.0, 20.0)])],
)


def test_a_saved_benchmark_result_is_loaded_unchanged(tmp_path):
    path = save(SOME, MACHINE, tmp_path)
    assert load(path) == (SOME, MACHINE)


def test_the_benchmark_results_page_has_a_table_per_scenario_and_keeps_those_of_earlier_runs(tmp_path):
    write(SOME, MACHINE, tmp_path)
    write(Result("other", [Figure("alone", "s", [1.0])]), MACHINE, tmp_path)
    told = (tmp_path / PAGE).read_text()
    assert "| frames <fast> | per CPU s | 200.0 (100.0–300.0) | 50.0 | 4.00 |  |  |" in told
    assert "| alone | ms | 3 |  |  | ≤ 2 | **no** |" in told
    assert "![some](some.svg)" in told
    assert "## other" in told
    assert "other.svg" not in told


def test_bars_in_the_picture_of_a_benchmark_result_are_proportional_to_its_figures():
    drawn = ElementTree.fromstring(svg(SOME, "a machine & its day"))
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.attrib["width"]) for bar in drawn.iter(f"{space}rect")][1:]
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)
    assert "frames <fast>" in [text.text for text in drawn.iter(f"{space}text")]
    [line] = drawn.iter(f"{space}polyline")
    first, second = (tuple(map(float, point.split(","))) for point in line.attrib["points"].split())
    assert first[0] < second[0]
    assert first[1] > second[1], "more is higher"


def test_a_benchmark_result_without_a_comparison_has_no_picture():
    assert not drawable(Result("r", [Figure("alone", "s", [1.0])]))


@pytest.mark.parametrize(
    ("now", "less_is_better", "fine"),
    [(0.86, False, True), (0.84, False, False), (2.0, False, True), (1.14, True, True), (1.16, True, False)],
)
def test_the_benchmark_guard_tolerates_a_slightly_worse_ratio(tmp_path, now, less_is_better, fine):
    save(Result("beats", [Figure("f", "u", [1.0], [1.0])]), MACHINE, tmp_path)
    figure = Figure("f", "u", [now], [1.0], less_is_better=less_is_better)
    [verdict] = compared(Result("beats", [figure, Figure("new", "u", [1.0], [1.0])]), tmp_path)
    assert verdict.fine is fine


def test_the_benchmark_guard_compares_no_result_that_was_never_committed(tmp_path):
    assert list(compared(Result("beats", [Figure("f", "u", [1.0], [1.0])]), tmp_path)) == []
    assert guarded(tmp_path) == []


@pytest.fixture
def _pretended(monkeypatch, tmp_path):
    """Scenarios that return at once, and temporary folders for their results."""
    monkeypatch.setattr("bench.machine.pin", lambda _pid, _core: None)
    monkeypatch.setattr("bench.__main__.LAST", tmp_path / "last")
    monkeypatch.setattr("bench.__main__.RESULTS", tmp_path)
    for name in SCENARIOS:
        figures = [Figure("f", "u", [0.5], [1.0])]
        monkeypatch.setitem(SCENARIOS, name, lambda _effort, name=name, figures=figures: Result(name, figures))


@pytest.mark.usefixtures("_pretended")
@pytest.mark.parametrize(("committed", "code"), [(0.5, 0), (0.7, 1)])
def test_the_benchmark_guard_fails_when_a_ratio_has_become_worse(tmp_path, committed, code):
    save(Result("beats", [Figure("f", "u", [committed], [1.0])]), MACHINE, tmp_path)
    answer = CliRunner().invoke(main, ["--guard"])
    assert answer.exit_code == code, answer.output
    assert f"1 ratios compared, {code} of them worse" in answer.output
    assert not (tmp_path / "last" / "idle.json").exists(), "only what has been committed is measured"


@pytest.mark.usefixtures("_pretended")
def test_a_quick_benchmark_run_compares_only_servers_that_install_quickly(monkeypatch, tmp_path):
    asked = []

    def pretend(scenario, peers, _effort):
        asked.append((scenario, "starlette" in [p.name for p in peers], "centrifugo" in [p.name for p in peers]))
        return Result(f"{scenario}-peers")

    monkeypatch.setattr("bench.__main__.beside", pretend)
    answer = CliRunner().invoke(main, ["--quick"])
    assert answer.exit_code == 0, answer.output
    assert sorted(asked) == [(name, True, False) for name in ("arrive", "beats", "fan-out", "lookup")]
    assert {path.stem for path in (tmp_path / "last").glob("*.json")} >= {"beats", "beats-peers", "traffic"}


@pytest.mark.usefixtures("_pretended")
def test_the_benchmark_guard_fails_if_there_is_nothing_to_compare():
    assert CliRunner().invoke(main, ["beats", "--guard"]).exit_code == 1


@pytest.mark.usefixtures("_pretended")
def test_a_failing_benchmark_scenario_does_not_affect_the_others(tmp_path, monkeypatch):
    def spoiled(_effort):
        raise RuntimeError("the server did not start")

    monkeypatch.setitem(SCENARIOS, "idle", spoiled)
    answer = CliRunner().invoke(main, ["idle", "beats", "--save"])
    assert answer.exit_code == 1
    assert "the server did not start" in answer.output
    assert json.loads((tmp_path / "beats.json").read_text())["figures"][0]["ratio"] == 0.5
    assert not (tmp_path / "idle.json").exists()


@pytest.mark.usefixtures("_pretended")
def test_a_benchmark_scenario_that_hangs_is_stopped_at_the_time_limit(monkeypatch):
    def hangs(_effort):
        while True:
            pass

    monkeypatch.setitem(SCENARIOS, "idle", hangs)
    monkeypatch.setattr("bench.__main__.MINUTE", 0.01)
    answer = CliRunner().invoke(main, ["idle", "--limit", "1"])
    assert answer.exit_code == 1
    assert "Not measured: idle" in answer.output


@pytest.mark.usefixtures("_pretended")
@pytest.mark.parametrize("option", ["--save", "--guard"])
def test_a_quick_benchmark_run_cannot_be_saved_or_compared_by_the_guard(option):
    assert CliRunner().invoke(main, ["beats", "--quick", option]).exit_code == 2


def test_the_committed_benchmark_results_page_equals_the_one_generated_from_the_results():
    assert (RESULTS / PAGE).read_text() == page(RESULTS)


def test_the_readme_of_the_benchmark_lists_every_scenario():
    told = (ROOT / "bench" / "README.md").read_text()
    assert [name for name in SCENARIOS if f"| `{name}` |" not in told] == []


def test_the_documentation_page_on_capacity_agrees_with_the_benchmark_results():
    told = capacity.PAGE.read_text()
    assert told == capacity.filled(told, capacity.table(capacity.Life(), capacity.measured()))
    assert capacity.BEGIN in told


def test_the_cost_of_a_commit_falls_with_the_size_of_its_batch_between_the_measured_sizes():
    assert [capacity.commit_cost(size, 9.5) for size in (1, 5, 20, 500, 900)] == [107, 36, 16, 9.5, 9.5]
    assert 16 < capacity.commit_cost(10, 9.5) < 36


def test_the_capacity_table_is_computed_from_the_benchmark_results():
    costs = capacity.Measured(
        beat=100_000,
        delivery=80_000,
        arrival=1_000,
        connected=5,
        watched=0.05,
        stored=64,
        commit=10,
        tailed=5,
        traffic=6,
        frame=200,
    )
    life = capacity.Life(users=6_000_000, per_process=10_000, busy=0.5)
    told = {row.split(" | ")[0].strip("| "): row for row in capacity.table(life, costs).splitlines()[2:]}
    assert "200 000 per s" in told["heartbeats"]
    assert "2 cores busy" in told["heartbeats"]
    assert "10 000 per s × 100 contacts = 1 000 000 per s" in told["changes told"]
    assert "**29 cores**" in told["cores for both"]  # (2 + 12.5) / 0.5
    assert "**600 processes**" in told["processes by sockets"]
    assert "**57.2 GB**" in told["memory of the nodes"]
    assert "10 000 commits per s, 1" in told["the store's CPU"]  # 600 processes × 16 shards: one change per second each
    assert "**3 masters**" in told["the store's CPU"]  # 10 000 × 107 µs / 0.5
    assert "0.05 of a core in each" in told["following all changes"]
    assert "**1 clusters** of 12.0 million users" in told["following all changes"]
