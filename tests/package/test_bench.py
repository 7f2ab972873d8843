"""The benchmark: what it measures, shows and checks. Never how fast anything is."""

import gc
import importlib.util
import json
import os
import pty
import subprocess
import sys
import time
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
import torch
from bench import measure, report
from bench.command import FURTHER_RUNS, main
from bench.groups import GROUPS, load
from bench.groups.pairs import PAIRS
from bench.measure import Address, Figure, Floors, Result
from bench.rows import Group, Inputs, Missing, Row, Settings, used_names
from support import optional

pytestmark = pytest.mark.needs(
    "an installation", "plain memory", "torch 2.10", "jax", "ml_dtypes", "rich", "matplotlib")

CHECKOUT = Path(__file__).parents[2]
BENCHMARKS = CHECKOUT / "benchmarks"
PAIR = Address("numpy_torch", "ndarray -> torch")
# Groups that need libraries of other extras.
OF_OTHERS = {"paddle": ("paddle",), "tables": ("pandas", "polars"), "views": ("nanobind",), "small": (
    "ctranslate2", "onnxruntime", "numkong", "mlx", "skia", "pint", "pyarrow", "nanoarrow", "arro3", "zmq")}
NO_FLOORS = Floors(None, "none")
HIDING = """
import sys
sys.path.insert(0, {folder!r})
sys.modules.update(dict.fromkeys({hidden!r}))
from bench.command import main
sys.exit(main())
"""


def bench(*words):
    """Run the command in this process, with as little work as can be."""
    return main(["--rounds", "2", "--calls", "10", *map(str, words)])


def without(hidden, *words, **keywords):
    """Run the command as on a machine that lacks some modules."""
    code = HIDING.format(hidden=hidden, folder=str(BENCHMARKS))
    command = [sys.executable, "-c", code, "--rounds", "2", "--calls", "10", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **keywords)


def write_goals(folder, goals):
    path = folder / "goals.json"
    path.write_text(json.dumps(goals))
    return path


# ---- the groups ------------------------------------------------------------------------------------------------------

def test_every_file_of_a_group_is_in_the_table():
    files = {path.stem for path in (BENCHMARKS / "bench" / "groups").glob("*.py")}
    assert {*GROUPS} - PAIRS.keys() | {"__init__", "pairs"} == files
    assert PAIRS.keys() <= {*GROUPS}


def test_every_goal_is_about_a_row():
    goals = {**report.read_goals(BENCHMARKS / "goals.json"), **report.read_goals(BENCHMARKS / "goals_all.json")}
    assert {address.group for address in goals} == set(GROUPS)
    for address, labels in goals.items():
        row = {row.name: row for row in load(address.group).GROUP.rows}[address.row]
        assert set(labels) <= {*row.natives, row.unit}


def test_everything_is_measured_where_every_library_is(tmp_path):
    path = tmp_path / "all.json"
    groups = GROUPS if optional.FULL else ("from_jax", "batches", "paddle")
    command = [sys.executable, "-W", "error", BENCHMARKS / "run.py", "--rounds", "1", "--calls", "10"]
    command += [word for name in groups for word in ("--group", name)]
    done = subprocess.run([*command, "--json", str(path)], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONSAFEPATH": ""})
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(path.read_text())["runs"][0]
    assert {result["group"] for result in results} == set(groups)
    for result in results:
        missing = {label: why for label, why in result["missing"].items() if label != "floor"}
        absent = [name for name in OF_OTHERS.get(result["group"], ()) if not importlib.util.find_spec(name)]
        if absent:
            assert all("is not installed (pip install " in why for why in missing.values())
            continue
        if "1 GiB" not in result["row"]:
            assert missing == {}
        assert all("memory are not available" in why for why in missing.values())


def test_list_names_every_group_and_statement(capsys):
    assert bench("--list") == 0
    text = capsys.readouterr().out
    for name in GROUPS:
        assert f"{name}: {load(name).GROUP.title}\n" in text
    assert "torch.from_numpy(ndarray)" in text


def test_a_row_needs_what_its_statements_name():
    assert used_names("a.b(c, len(d), e=[f for f in g])") == ["a", "c", "d", "g"]


# ---- the method ------------------------------------------------------------------------------------------------------

def test_all_cases_take_a_turn_in_each_round_in_changing_order():
    turns = []
    cases = {name: lambda name=name: turns.append(name) or 1.0 for name in "abcd"}
    samples = measure.take_turns(cases, 50, lambda: turns.append("|"))
    assert samples == {name: [1.0] * 50 for name in "abcd"}
    rounds = "".join(turns).rstrip("|").split("|")
    assert {"".join(sorted(one)) for one in rounds} == {"abcd"}
    assert len(set(rounds)) > 1


def test_what_happens_once_does_not_count():
    calls = []

    def late():
        calls.append(None)
        if len(calls) == 1:
            time.sleep(measure.SLOW * 2)

    sample = measure.loop("late()", {"late": late}, Settings())
    before = len(calls)
    sample()
    assert len(calls) - before > 2


def test_the_process_is_left_as_it_was():
    threads, cpus = torch.get_num_threads(), os.sched_getaffinity(0)
    with measure.quiet(True):
        assert not gc.isenabled()
        assert (torch.get_num_threads(), len(os.sched_getaffinity(0))) == (1, 1)
    with pytest.raises(ZeroDivisionError), measure.quiet(True):
        raise ZeroDivisionError
    assert gc.isenabled()
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == (threads, cpus)


def test_the_slowest_of_ours_stands_beside_the_fastest_of_theirs():
    row = Row("row", ("a", "b"), {"theirs": ("c", "d"), "each": ("a", "b")}, "e")
    samples = {"a": [1, 2, 3], "b": [6, 5, 8], "c": [9, 9, 9], "d": [3, 4, 2], "e": [2, 2, 2]}
    result = measure.summarise(PAIR, row, measure.Outcome(samples, {}))
    assert result.ours == Figure("b", 6, 5)
    assert result.natives["theirs"] == Figure("d", 3, 2, 2.0, 2.0)
    assert result.natives["each"].ratio == 3
    assert result.floor.ratio == 3


def test_what_cannot_be_measured_is_said():
    row = Row("row", "a", {"theirs": "b"}, "c")
    outcome = measure.Outcome({"a": [1.0]}, {"b": "no b", "c": "no c"})
    result = measure.summarise(PAIR, row, outcome)
    assert (result.natives, result.floor) == ({}, None)
    assert result.missing == {"theirs": "no b", "floor": "no c"}
    assert measure.summarise(PAIR, row, measure.Outcome({}, {"a": "no a"})).missing == {"dlbridge": "no a"}


@pytest.mark.parametrize(("sampler", "statement", "least", "most"), [
    ("held", "bytearray(1000)", 1000, 1200),
    ("leaked", "kept.append(bytearray(1000))", 1000, 1200),
    ("leaked", "bytearray(1000)", 0, 1),
])
def test_memory_is_counted(sampler, statement, least, most):
    sample = getattr(load("memory"), sampler)(statement, {"kept": []}, Settings(calls=20_000))
    assert least <= sample() <= most


def test_a_row_that_needs_much_memory_is_left_out_and_says_so():
    row = Row("row", "1", memory=2**60)
    inputs = Inputs(Group("", (row,)), measure, None, "")
    with pytest.raises(Missing, match="GiB of memory are not available"):
        measure.prepare(row, "1", inputs, Settings())
    measure.prepare(row, "1", inputs, Settings(large=True))


# ---- the floors ------------------------------------------------------------------------------------------------------

def test_no_floors_without_a_compiler(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert bench("--group", "numpy_torch") == 0
    text = capsys.readouterr().out
    assert ["/nonexistent/cc" in line for line in text.splitlines() if line.startswith("no floors: ")] == [True]
    assert "x floor" not in text


# ---- the check -------------------------------------------------------------------------------------------------------

def test_easy_goals_are_met(tmp_path, capsys):
    goals = write_goals(tmp_path, {PAIR.group: {PAIR.row: {"torch.from_numpy": 1e6, "ns": 1e12}}})
    assert bench("--group", PAIR.group, "--check", goals) == 0
    text = capsys.readouterr().out
    assert "2 of 2 goals met\n" in text
    assert "fell short" not in text


def test_a_goal_that_cannot_be_met_is_measured_again_and_fails(tmp_path, capsys):
    goals = write_goals(tmp_path, {PAIR.group: {PAIR.row: {"torch.from_numpy": 1e-6, "torch.from_dlpack": 1e6}}})
    path = tmp_path / "out.json"
    assert bench("--group", PAIR.group, "--check", goals, "--json", path) == 1
    text = capsys.readouterr().out
    assert f"falls short: {PAIR.group}: {PAIR.row}: beside torch.from_numpy: " in text
    assert "1 of 2 goals met\n" in text
    assert text.count("the rows that fell short (1)") == FURTHER_RUNS
    written = json.loads(path.read_text())
    assert len(written["runs"]) == 1 + FURTHER_RUNS
    ratios = [run[0]["natives"]["torch.from_numpy"]["ratio"] for run in written["runs"]]
    assert [goal["best"] for goal in written["goals"] if not goal["met"]] == [min(ratios)]


@pytest.mark.parametrize(("goals", "why"), [
    ({"numpy_torch": {"no such row": {"torch.from_numpy": 1e6}}}, "there is no such row"),
    ({"numpy_torch": {"ndarray -> torch": {"no such label": 1e6}}}, "there is no such label"),
])
def test_a_goal_without_a_row_fails(tmp_path, capsys, goals, why):
    assert bench("--group", PAIR.group, "--check", write_goals(tmp_path, goals)) == 1
    assert f"not measured: {why}\n" in capsys.readouterr().out


def test_a_goal_without_its_library_fails(tmp_path):
    goals = write_goals(tmp_path, {"wrap": {"asdlpack": {"pydlpack": 1e6}}})
    done = without(["dlpack"], "--group", "wrap", "--check", goals)
    assert (done.returncode, done.stderr) == (1, "")
    assert "not measured: pydlpack is not installed (pip install pydlpack)\n" in done.stdout


def test_with_numpy_alone_the_rest_is_named():
    groups = GROUPS if optional.FULL else ("numpy_torch", "startup", "wrap", "paddle", "tables", "from_jax")
    words = [word for name in groups for word in ("--group", name)]
    done = without(["torch", "jax", "ml_dtypes", "dlpack", "paddle", "pandas", "polars", "rich", "matplotlib"], *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not installed: torch, jax, ml_dtypes, pydlpack, paddlepaddle, pandas, polars" in done.stdout
    assert "(pip install torch jax ml_dtypes pydlpack paddlepaddle pandas polars" in done.stdout
    for group in ("numpy_torch", "startup", "wrap"):
        assert load(group).GROUP.title in done.stdout
    assert "torch: module torch: is not installed (pip install torch)\n" in done.stdout


def test_the_goals_of_other_groups_are_left_alone(tmp_path, capsys):
    goals = write_goals(tmp_path, {PAIR.group: {PAIR.row: {"torch.from_numpy": 1e6}}, "mix": {"any": {"any": 0}}})
    assert bench("--group", PAIR.group, "--check", goals) == 0
    assert "1 of 1 goals met\n" in capsys.readouterr().out


def test_the_best_run_counts_for_each_goal():
    def result(near, far):
        figures = {"near": Figure("", 1, 1, near), "far": Figure("", 1, 1, far)}
        return {PAIR: Result(PAIR, "ns", Figure("", 1, 1), figures)}

    runs = [result(2.0, 3.0), result(1.0, 5.0)]
    verdicts = report.judge({PAIR: {"near": 1.0, "far": 2.0}}, runs)
    assert [(verdict.best, verdict.met) for verdict in verdicts] == [(1.0, True), (3.0, False)]


# ---- what is shown ---------------------------------------------------------------------------------------------------

def test_json_is_all_there_is_on_standard_output(capfd):
    assert bench("--group", "torch_numpy", "--json", "-") == 0
    out, err = capfd.readouterr()
    written = json.loads(out)
    assert "Tensor.numpy" in err
    assert set(written) == {"dlbridge", "machine", "libraries", "missing", "method", "runs", "goals"}
    assert written["method"] == {"rounds": 2, "calls": 10}
    assert set(written["machine"]) == {"system", "cpu", "cpus", "python"}
    assert written["libraries"]["torch"] == version("torch")
    first, second = written["runs"][0]
    assert (first["group"], first["row"], first["unit"]) == ("torch_numpy", "tensor -> numpy", "ns")
    assert set(first["natives"]) == set(second["natives"]) == {"Tensor.numpy", "numpy.from_dlpack"}
    for figure in (first["dlbridge"], *first["natives"].values()):
        assert set(figure) == {"statement", "median", "minimum", "ratio", "paired"}
        assert 0 < figure["minimum"] <= figure["median"]


def test_infinity_is_null_in_json():
    figure = Figure("", 0.0, 0.0, measure.ratio(1.0, 0.0))
    assert report.figure_as_json(figure)["ratio"] is None


CELLS = ["NumPy to torch", "ndarray -> torch", "torch.from_numpy", "torch.from_dlpack"]


def test_the_table_with_rich(capsys):
    assert bench("--group", PAIR.group) == 0
    text = capsys.readouterr().out
    assert all(cell in text for cell in CELLS)
    assert "─" in text


def test_the_table_without_rich():
    done = without(["rich"], "--group", PAIR.group, "--check", BENCHMARKS / "goals.json")
    assert done.returncode in (0, 1)            # what it measured is not for a test
    assert not done.stderr
    assert all(cell in done.stdout for cell in CELLS)
    assert "─" not in done.stdout
    lines = done.stdout.splitlines()
    headings, row = (next(line for line in lines if line.startswith(start)) for start in ("row ", "ndarray"))
    # Numbers are set to the right, below the end of their heading.
    goal = report.read_goals(BENCHMARKS / "goals.json")[PAIR]["torch.from_numpy"]
    assert row[:headings.index("goal") + len("goal")].endswith(f"<= {goal:.2f}")


@pytest.mark.parametrize(("figure", "text"), [
    (0.0, "0.00"), (3e-5, "<0.0001"), (0.0025, "0.0025"), (0.0949, "0.095"), (0.72, "0.72"), (12.3, "12.30"),
    (1234.5, "1234"),
])
def test_numbers_are_short(figure, text):
    assert report.number(figure) == text


@pytest.mark.parametrize(("name", "begins"), [("chart.svg", b"<?xml"), ("chart.png", b"\x89PNG")])
def test_the_chart_is_drawn(tmp_path, name, begins):
    goals = write_goals(tmp_path, {PAIR.group: {PAIR.row: {"torch.from_numpy": 1e6}}})
    path = tmp_path / name
    assert bench("--group", PAIR.group, "--group", "startup", "--chart", path, "--check", goals) == 0
    assert path.read_bytes().startswith(begins)


@pytest.mark.parametrize("hidden", [[], ["rich"]], ids=["rich", "plain"])
def test_a_progress_bar_on_a_terminal_only_with_rich(hidden):
    terminal, stderr = pty.openpty()
    code = HIDING.format(hidden=hidden, folder=str(BENCHMARKS))
    command = [sys.executable, "-c", code, "--rounds", "2", "--group", "numpy_torch"]
    # The terminal's buffer takes the little that is written here, and keeps it while its end is open.
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=stderr, check=True, env=os.environ | {"TERM": "xterm"})
    os.write(stderr, b"end")
    written = b""
    while not written.endswith(b"end"):
        written += os.read(terminal, 1024)
    os.close(stderr)
    os.close(terminal)
    assert (b"2/2" in written) is (not hidden)


# ---- mistakes --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("words", "says"), [
    (["--group", "sing"], "there is no such group (one of: numpy_torch, "),
    (["--check", "nowhere.json"], "nowhere.json: No such file"),
    (["--check", __file__], "no goals"),
    (["--chart", "chart.gif"], "is neither .png nor .svg"),
    (["--json", "no/such/folder.json"], "no file can be written there"),
    (["--json", "."], "no file can be written there"),
], ids=lambda value: value[-1] if isinstance(value, list) else "")
def test_mistakes_are_told_before_anything_is_measured(capsys, words, says):
    assert bench(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("run.py: ")
    assert says in err


def test_a_chart_without_matplotlib_names_the_hint(tmp_path):
    done = without(["matplotlib"], "--chart", tmp_path / "chart.svg")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "run.py: --chart: matplotlib is not installed (pip install 'dlbridge[bench]')\n"


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_rounds_are_a_number(rounds, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--rounds", rounds])
    assert "--rounds" in capsys.readouterr().err


def test_the_wheel_has_no_benchmark():
    paths = {path.as_posix() for path in distribution("dlbridge").files}
    assert not [path for path in paths if "bench" in path]
    assert not [path for path in paths if path.startswith("dlbridge/") and path.endswith((".c", ".json"))]
