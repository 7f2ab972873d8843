"""The command line, as a user sees it: exit status, standard output, standard error."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.optional import product

import dlbridge
from dlbridge.__main__ import main
from dlbridge.demo import Step, report

pytestmark = pytest.mark.needs("an installation")

SCRIPT = Path(sysconfig.get_path("scripts")) / "dlbridge"
PROGRAMS = {"script": [str(SCRIPT)], "module": [sys.executable, "-m", "dlbridge"]}
# Imports as on a machine that has numpy only.
NUMPY_ALONE = ("import sys; sys.modules.update(torch=None, jax=None, ml_dtypes=None, array_api_strict=None); "
               "from dlbridge.__main__ import main; sys.exit(main(sys.argv[1:]))")
ROW = re.compile(r"^ +(?:-> )?([\w.]+) +([A-Z])(?: +(shared|copied))?(?: \[\d+\])? *(\w*)$", re.MULTILINE)


def run(*words, program="script"):
    """Run the program away from the checkout."""
    return subprocess.run([*PROGRAMS[program], *words], cwd="/", capture_output=True, text=True)


@pytest.fixture(scope="module")
def demonstration():
    return run("demo")


def numpy_alone(*words, **options):
    """Run the program without the libraries whose import takes most of its time."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, "-c", NUMPY_ALONE, *words], text=True, **options)


def journeys(text):
    """The tables of the demonstration: for each input its rows of (name, letter of the memory, memory, values)."""
    tables = [ROW.findall(block) for block in text.split("\n\n")]
    return [rows for rows in tables if rows]


@pytest.mark.needs("torch", "jax")
def test_demo_shows_by_pointer_what_is_shared(demonstration):
    done = demonstration
    assert (done.returncode, done.stderr) == (0, "")
    tables = journeys(done.stdout)
    assert [[row[0] for row in rows] for rows in tables] == [
        [source, "numpy", "torch", "jax", "numpy", "memoryview"] for source in ("bytes", "bytearray", "mmap")]
    for rows in tables:
        for before, row in pairwise(rows):
            assert row[2] == ("shared" if row[1] == before[1] else "copied")
            assert row[3] == "equal"
    memory = [row[2] for rows in tables for row in rows]
    assert f"{memory.count('shared')} hand-overs shared the memory, {memory.count('copied')} copied it" in done.stdout
    assert done.stdout.count("copied [") == len(re.findall(r"^\[\d+\] ", done.stdout, re.MULTILINE))


@pytest.mark.needs("torch")
def test_demo_copies_read_only_bytes_for_torch_and_shares_a_mapping_with_all(demonstration):
    photograph, sound, mapped = journeys(demonstration.stdout)
    assert photograph[2][:1] + photograph[2][2:] == ("torch", "copied", "equal")
    assert sound[2][:1] + sound[2][2:] == ("torch", "shared", "equal")
    assert {row[1] for row in mapped} == {mapped[0][1]}


def test_demo_with_numpy_alone():
    done = numpy_alone("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert [[row[0] for row in rows] for rows in journeys(done.stdout)] == [
        [source, "numpy", "memoryview"] for source in ("bytes", "bytearray", "mmap")]
    assert "pip install torch" in done.stdout
    assert "pip install jax" in done.stdout


def test_demo_would_notice_a_changed_value():
    steps = [Step("numpy", np.array([1, 2])), Step("numpy", np.array([1, 3]))]
    rows, differing = report(steps, [])
    assert (rows[1][2:], differing) == (("copied", "DIFFERENT"), 1)


def test_demo_into_a_closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = numpy_alone("demo", stdout=pipe)
    assert (done.returncode, done.stderr) == (1, "")


COMMANDS = ("info", "demo", "selftest", "explain numpy memoryview", "matrix numpy memoryview")
UNWRITABLE = ((">&-", "standard output is closed"), (">/dev/full", "[Errno 28] No space left on device"))


@pytest.mark.parametrize(("words", "unbuffered", "unwritable"), [
    *product(COMMANDS, ("", "1"), UNWRITABLE), *product(["--help"], [""], UNWRITABLE)])
def test_an_output_that_cannot_be_written_is_one_line(words, unbuffered, unwritable):
    closing, said = unwritable
    command = ["bash", "-c", f'"$0" -c "$@" {closing}', sys.executable, NUMPY_ALONE, *words.split()]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (1, f"dlbridge: {said}\n")


def test_selftest_passes():
    selftest = run("selftest")
    assert (selftest.returncode, selftest.stderr) == (0, "")
    passed, failed = re.search(r"(\d+) passed, (\d+) failed, \d+ skipped", selftest.stdout.splitlines()[-1]).groups()
    assert int(passed) > 0
    assert failed == "0"


def test_selftest_with_numpy_alone_says_what_it_skips():
    done = numpy_alone("selftest")
    assert len(numpy_alone("selftest", "-v").stdout) > len(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(re.search(r"(\d+) skipped", done.stdout.splitlines()[-1])[1]) > 0
    for library in ("torch", "jax", "ml_dtypes", "array_api_strict"):
        assert f"{library} is not installed" in done.stdout


def test_help_names_every_command():
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("info", "demo", "matrix", "explain", "selftest"):
        assert re.search(rf"^ +{command} +\w", done.stdout, re.MULTILINE)
        assert run(command, "--help").stdout.startswith(f"usage: dlbridge {command}")


def test_no_command_is_a_question_for_help():
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, run("--help").stdout, "")


COLOUR = "\x1b["


@pytest.mark.needs("rich")
@pytest.mark.parametrize("words", ["demo", "info", "explain numpy memoryview", "matrix numpy memoryview"])
def test_colour_is_what_the_environment_says(words):
    plain, forced, forbidden = (
        numpy_alone(*words.split(), env={**os.environ, "NO_COLOR": no, "FORCE_COLOR": yes, "TERM": "xterm"}).stdout
        for no, yes in (("", ""), ("", "1"), ("1", "1")))
    assert COLOUR not in plain + forbidden
    assert COLOUR in forced


@pytest.mark.needs("jax")
def test_the_demonstration_says_what_it_promises(demonstration):
    said = " ".join(demonstration.stdout.split())
    assert 'convert(x, "jax", readonly="share"), which promises that nobody writes to it' in said


@pytest.mark.parametrize("program", PROGRAMS)
def test_version(program):
    assert run("--version", program=program).stdout == f"dlbridge {dlbridge.__version__}\n"


@pytest.mark.parametrize("words", [
    ["sing"], ["demo", "now"], ["selftest", "--loud"], ["matrix", "--page"], ["info", "numpy"], ["explain"],
    ["explain", "numpy"], ["explain", "numpy", "torch", "--shape", "3,x"], ["explain", "numpy", "torch", "--shape=-1"],
], ids=" ".join)
def test_mistakes_are_answered_with_usage(words):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: dlbridge")
    assert "Traceback" not in done.stderr


# ---- info ------------------------------------------------------------------------------------------------------------

def test_info_says_what_is_found_and_imports_nothing():
    code = ("import sys; from dlbridge.__main__ import main; main(['info']); "
            "print(sorted({'torch', 'jax', 'pyarrow', 'pandas'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"dlbridge {dlbridge.__version__}, DLPack 1.3, in ")
    assert re.search(rf"^numpy +{re.escape(np.__version__)} +source, target +-$", done.stdout, re.MULTILINE)
    assert re.search(r"^bytearray +- +source +-$", done.stdout, re.MULTILINE)
    assert re.search(r"^devices: cpu; cuda: .+; rocm: .+$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("\n[]\n")


def test_info_as_json_has_what_a_report_needs(capsys):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["dlbridge"], found["bits"]) == (dlbridge.__version__, 64)
    assert found["libraries"]["numpy"]["version"] == np.__version__
    assert {*found} >= {
        "commit", "libc", "free_threaded", "gil", "jax_enable_x64", "report_to", "python", "system", "devices"}
    assert found["commit"] == "" or re.fullmatch("[0-9a-f]{40,}", found["commit"])


def test_info_looks_at_what_arrays_speak(monkeypatch, capsys):
    monkeypatch.setattr("dlbridge.matrix.info.TABLE", "support.speaking_rows")
    assert main(["info", "--speaks"]) == 0
    found = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert re.search(r"  (\d\.\d|legacy) +cpu  array_interface, array_struct, buffer$", found["numpy"])
    assert found["memoryview"].endswith("cpu  buffer")
    assert found["crashing"].endswith("SIGSEGV: a library's last words")
    assert "no_such_function" in found["broken"]


# ---- explain ---------------------------------------------------------------------------------------------------------

def explained(capsys, *words):
    """Exit status and plan."""
    status = main(["explain", *words])
    seen = capsys.readouterr()
    assert seen.err == ""
    return status, seen.out


def test_explain_describes_the_array(capsys):
    status, text = explained(capsys, "numpy", "memoryview", "--dtype", "int16", "--shape", "2,3,4", "--order", "F",
                             "--readonly", "--step", "-2")
    assert status == 0
    assert "numpy.ndarray -> memoryview: share" in text
    assert "memory   int16 (2, 3, 4), 48 bytes, read-only, on cpu" in text
    assert "strides  (-2, 4, 12) in elements" in text


def test_explain_says_why_it_copies_and_why_it_refuses(capsys):
    status, text = explained(capsys, "numpy", "dlpack", "--dtype", ">f4")
    assert (status, "byte order" in text) == (0, True)
    status, text = explained(capsys, "numpy", "memoryview", "--device", "cuda")
    assert (status, ": refuse" in text) == (1, True)


def test_explain_shares_what_is_aligned(capsys):
    for target in ("dlbridge", "memoryview", "dlpack"):
        assert "because" not in explained(capsys, "numpy", target)[1]


@pytest.mark.needs("torch")
def test_explain_makes_the_array_in_its_library(capsys):
    status, text = explained(capsys, "torch", "numpy", "--dtype", "bfloat16", "--shape", "5")
    assert (status, text.splitlines()[0]) == (0, "torch.Tensor -> numpy: share")
    assert "bfloat16 (5,), 10 bytes" in text


def test_explain_opens_a_file(capsys, tmp_path):
    np.save(tmp_path / "weights.npy", np.zeros((2, 5)))
    status, text = explained(capsys, str(tmp_path / "weights.npy"), "dlbridge")
    assert (status, text.splitlines()[0]) == (0, "numpy.memmap -> dlbridge: share")
    assert "float64 (2, 5), 80 bytes, read-only" in text


@pytest.mark.parametrize(("words", "message"), [
    (["nump", "numpy"], "'nump' is neither a file nor a library (did you mean 'numpy'? one of numpy, torch, "),
    (["numpy", "toch"], "'toch' is no target that dlbridge knows (did you mean 'torch'? one of "),
    (["numpy", "numpy", "--dtype", "bfloat17"], "--dtype: 'bfloat17' is no type that dlbridge knows (did you mean 'b"),
    (["numpy", "numpy", "--dtype", "O"], "--dtype: 'O' is no type that dlbridge knows (one of "),
    (["numpy", "numpy", "--step", "0"], "--step: 0: cannot be taken along any axis"),
    (["numpy", "numpy", "--step", "2", "--shape", ""], "--step: 2: cannot be taken along no axis"),
    (["numpy", "numpy", "--shape", "99999999999,99999999"], "--shape: (99999999999, 99999999): "),
    (["FILE", "numpy"], "{file}: has no array that can be mapped"),
    (["FILE", "numpy", "--shape", "3"], "--shape: a file says itself what it has"),
])
def test_explain_answers_mistakes(words, message, tmp_path, capsys):
    file = tmp_path / "text.npy"
    file.write_text("no array")
    assert main(["explain", *(str(file) if word == "FILE" else word for word in words)]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith(f"dlbridge explain: {message.format(file=file)}")
    assert seen.err.count("\n") == 1
